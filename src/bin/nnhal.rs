//! The tool.

fn main() {}
