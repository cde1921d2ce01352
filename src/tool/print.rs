//! What the tool prints. Not by `println!`, which panics where nobody reads any more.

use super::error::ToolError;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints a line.
pub fn line(text: impl Display) -> Result<(), ToolError> {
    writeln!(io::stdout(), "{text}").map_err(unprinted)
}

/// Why nothing was printed.
pub fn unprinted(why: io::Error) -> ToolError {
    match why.kind() {
        ErrorKind::BrokenPipe => ToolError::Unread,
        _ => ToolError::File { path: "standard output".into(), why },
    }
}
