//! The model's table of extension names: which prefix stands for which extension.

use super::ModelError;
use crate::aidl;
use std::collections::{HashMap, HashSet};

/// A vendor extension that a backend knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Its name, reversed domain first: `vendor.example.npu`.
    pub name: String,
    pub operand_types: Vec<ExtensionOperandType>,
}

/// An operand type of a vendor extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionOperandType {
    /// Its number within the extension.
    pub code: u16,
    pub is_tensor: bool,
    /// Bytes of one element, or of the whole value if it is no tensor.
    pub byte_size: u32,
}

/// What a model says of an operand of an extension's type, beside its dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionOperand {
    /// The extension's name.
    pub extension: String,
    pub ty: ExtensionOperandType,
    /// The operand's parameters, which only the extension can read.
    pub parameters: Vec<u8>,
}

/// Checks a table of extension names alone, because hints come with one.
pub fn check_extension_names(table: &[aidl::ExtensionNameAndPrefix]) -> Result<(), ModelError> {
    Extensions::new(table, &[]).map(drop)
}

/// Characters of a name that messages give: a name may be as long as its client likes, and a message come once for each of
/// very many operations.
const SHOWN: usize = 64;

/// The beginning of an extension's name, for a message.
pub(super) fn shown(name: &str) -> &str {
    name.char_indices().nth(SHOWN).map_or(name, |(end, _)| &name[..end])
}

/// The model's extensions.
pub(super) struct Extensions<'a> {
    /// Prefix to name.
    prefixes: HashMap<i32, &'a str>,
    /// Those that the backend knows.
    known: &'a [Extension],
}

impl<'a> Extensions<'a> {
    /// Checks names and prefixes: each once, names of lowercase letters, digits, `.` and `_` with a period among them.
    pub fn new(
        table: &'a [aidl::ExtensionNameAndPrefix],
        known: &'a [Extension],
    ) -> Result<Self, ModelError> {
        let mut prefixes = HashMap::new();
        let mut names = HashSet::new();
        for entry in table {
            let name = entry.name.as_str();
            let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '_';
            if !name.chars().all(legal) || !name.contains('.') {
                return Err(ModelError::invalid(format!(
                    "extension name {:?}: expected lowercase letters, digits, '.' and '_', and a '.' among them",
                    shown(name)
                )));
            }
            if entry.prefix == 0 || entry.prefix > 0x7fff {
                return Err(ModelError::invalid(format!(
                    "extension {}: prefix {} is not in 1..=32767",
                    shown(name),
                    entry.prefix
                )));
            }
            if !names.insert(name) || prefixes.insert(i32::from(entry.prefix), name).is_some() {
                return Err(ModelError::invalid(format!(
                    "extension {} or its prefix {} is listed twice",
                    shown(name),
                    entry.prefix
                )));
            }
        }
        Ok(Extensions { prefixes, known })
    }

    /// The extension that an operand or operation type above 0xFFFF belongs to; `None` if its prefix is not listed.
    pub fn of_type(&self, code: i32) -> Option<&'a str> {
        (code > 0xffff).then(|| self.prefixes.get(&(code >> 16)).copied()).flatten()
    }
    /// Whether the backend knows the extension of this name.
    pub fn is_known(&self, name: &str) -> bool {
        self.known.iter().any(|extension| extension.name == name)
    }

    /// The operand type of this code, if the backend knows it.
    pub fn operand_type(&self, code: i32) -> Option<(&'a str, ExtensionOperandType)> {
        let name = self.of_type(code)?;
        let extension = self.known.iter().find(|extension| extension.name == name)?;
        let ty = extension.operand_types.iter().find(|ty| i32::from(ty.code) == code & 0xffff)?;
        Some((name, *ty))
    }
}
