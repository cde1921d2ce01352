//! The model's table of extension names: which prefix stands for which extension.

use super::ModelError;
use crate::aidl;
use std::collections::{HashMap, HashSet};

/// Checks a table of extension names by itself, as hints come with one.
pub fn check_extension_names(table: &[aidl::ExtensionNameAndPrefix]) -> Result<(), ModelError> {
    Extensions::new(table).map(drop)
}

/// Prefix to extension name.
pub(super) struct Extensions<'a>(HashMap<i32, &'a str>);

impl<'a> Extensions<'a> {
    /// Checks names and prefixes: each once, names of lowercase letters, digits, `.` and `_` with a period among them.
    pub fn new(table: &'a [aidl::ExtensionNameAndPrefix]) -> Result<Self, ModelError> {
        let mut prefixes = HashMap::new();
        let mut names = HashSet::new();
        for entry in table {
            let name = entry.name.as_str();
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '_';
            if !name.chars().all(legal) || !name.contains('.') {
                return Err(ModelError::invalid(format!(
                    "extension name {name:?}: expected lowercase letters, digits, '.' and '_', and a '.' among them"
                )));
            }
            if entry.prefix == 0 || entry.prefix > 0x7fff {
                return Err(ModelError::invalid(format!(
                    "extension {name}: prefix {} is not in 1..=32767",
                    entry.prefix
                )));
            }
            if !names.insert(name) || prefixes.insert(i32::from(entry.prefix), name).is_some() {
                return Err(ModelError::invalid(format!(
                    "extension {name} or its prefix {} is listed twice",
                    entry.prefix
                )));
            }
        }
        Ok(Extensions(prefixes))
    }

    /// The extension that an operand or operation type above 0xFFFF belongs to; `None` if its prefix is not listed.
    pub fn of_type(&self, code: i32) -> Option<&'a str> {
        (code > 0xffff).then(|| self.0.get(&(code >> 16)).copied()).flatten()
    }
}
