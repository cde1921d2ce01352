//! What is kept of a failure: its model, inputs, expected and actual outputs, and the command that repeats it.

use super::super::corpus::Operand;
use super::super::outcome::Outcome;
use super::super::runner::{Report, Work};
use crate::tool::error::ToolError;
use crate::tool::run::npy;
use std::path::{Path, PathBuf};

/// Failures beyond so many are told, but not laid out: a driver that fails everything fails for few reasons.
const MOST: usize = 500;

/// Where failures go.
pub struct Failures {
    directory: PathBuf,
    /// What the command that repeats one has besides the model.
    flags: String,
    kept: usize,
}

impl Failures {
    /// Makes `directory`, in which nothing may be of another run.
    pub fn new(directory: &Path, flags: String) -> Result<Self, ToolError> {
        let failures = directory.join("failures");
        if failures.exists() || directory.join("report.json").exists() {
            let why = format!("{} has a report already: remove it, or name another", directory.display());
            return Err(ToolError::Usage(why));
        }
        let fault = |why| ToolError::File { path: directory.into(), why };
        std::fs::create_dir_all(directory).map_err(fault)?;
        Ok(Failures { directory: directory.into(), flags, kept: 0 })
    }

    /// Lays a failure out; gives its place in the report.
    pub fn keep(&mut self, work: &Work, report: &Report) -> Result<Option<String>, ToolError> {
        let Outcome::Failed(why) = &report.outcome else { return Ok(None) };
        if self.kept >= MOST {
            return Ok(None);
        }
        self.kept += 1;
        let case = work.case(&report.task);
        let suite = report.task.suite.name();
        let place = format!("failures/{suite}/{}", file_name(&case.model.name));
        let directory = self.directory.join(&place);
        std::fs::create_dir_all(&directory)
            .map_err(|why| ToolError::File { path: directory.clone(), why })?;
        let write = |name: &str, bytes: &[u8]| {
            let path = directory.join(name);
            std::fs::write(&path, bytes).map_err(|why| ToolError::File { path, why })
        };
        let what = match report.task.suite.is_built_in() {
            true => format!("--filter '^{}$'", case.model.name),
            false => {
                let model = case.file.only(case.model);
                write("model.nnt", &model.to_bytes().map_err(ToolError::Failed)?)?;
                quoted(&directory.join("model.nnt"))
            }
        };
        for (i, operand) in case.inputs().enumerate() {
            array(&directory, &format!("input{i}"), operand, case.data(operand))?;
        }
        for (i, operand) in case.outputs().enumerate() {
            array(&directory, &format!("expected{i}"), operand, case.data(operand))?;
            let actual = report.evidence.iter().find(|(output, _)| *output == i);
            array(&directory, &format!("actual{i}"), operand, actual.map(|(_, bytes)| &bytes[..]))?;
        }
        let command = format!("nnhal {} conformance {what} --suite {suite}", self.flags);
        write("repeat.sh", format!("#!/bin/sh\n{command} \"$@\"\n").as_bytes())?;
        write("why.txt", format!("{suite}/{}\n{why}\nrepeat: {command}\n", case.model.name).as_bytes())?;
        Ok(Some(place))
    }
}

/// Writes an array as NumPy reads it, or its bytes where NumPy has no such type.
fn array(directory: &Path, name: &str, operand: &Operand, bytes: Option<&[u8]>) -> Result<(), ToolError> {
    let Some(bytes) = bytes else { return Ok(()) };
    let count: u64 = operand.dims.iter().map(|&dim| u64::from(dim)).product();
    let ty = operand.ty().filter(|ty| {
        npy::descr(*ty)
            .is_some_and(|descr| descr[2..].parse::<u64>().ok() == (bytes.len() as u64).checked_div(count))
    });
    let (path, written) = match ty {
        Some(ty) => {
            let path = directory.join(format!("{name}.npy"));
            let written = npy::write(&path, ty, &operand.dims, bytes);
            (path, written)
        }
        None => {
            let path = directory.join(format!("{name}.bin"));
            let written = std::fs::write(&path, bytes);
            (path, written)
        }
    };
    written.map_err(|why| ToolError::File { path, why })
}

/// A path as one word of the shell.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    match path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        true => path,
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// A name that no file system minds.
fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    name.chars().map(plain).take(200).collect()
}
