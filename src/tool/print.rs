//! The tool's standard output. If nobody reads it any more (`nnhal info | head -1`), the tool ends, without a word
//! and without the panic of `println!`.

use super::error::ToolError;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints a line.
pub fn line(line: impl Display) -> Result<(), ToolError> {
    writeln!(io::stdout(), "{line}").map_err(unprinted)
}

/// Prints a line of JSON.
pub fn json(value: &impl Serialize) -> Result<(), ToolError> {
    line(serde_json::to_string(value).map_err(|why| ToolError::Failed(why.to_string()))?)
}

/// What a failed write to standard output means.
pub fn unprinted(why: io::Error) -> ToolError {
    match why.kind() {
        ErrorKind::BrokenPipe => ToolError::Unread,
        _ => ToolError::File { path: "standard output".into(), why },
    }
}
