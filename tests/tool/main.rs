//! The command-line tool, started as its users start it, and what is shipped beside the binaries.

#![cfg(feature = "tool")]

#[path = "../common/mod.rs"]
mod common;

mod android_build;
mod android_files;
mod android_scripts;
mod cache;
mod commands;
mod conformance;
mod conformance_faulty;
mod conformance_report;
mod corpus;
mod diagnostics;
mod inspect;
mod run;
