//! `nnhal cache`: what a driver keeps in its data directory, while no driver uses it.
//!
//! It opens what is there and makes nothing: a directory that is not a driver's stays as it is.

use super::error::ToolError;
use super::print;
use crate::cache::{CacheError, Entry, Offline, Shelf};
use crate::daemon;
use std::path::{Path, PathBuf};

/// Look at, check or empty what a driver has kept in its data directory.
#[derive(Debug, clap::Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the compilations, the last used first.
    List(Place),
    /// Check the registries, and the files of the driver's own store by their hashes.
    Verify(Place),
    /// Forget all compilations, and delete those in the driver's own store.
    Clear(Place),
}

#[derive(Debug, clap::Args)]
struct Place {
    /// The directory that the daemon was given as --data [default: the one that a daemon takes].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Place {
    fn directory(&self) -> Result<PathBuf, ToolError> {
        let directory = self.data.clone().or_else(daemon::state_directory);
        directory
            .ok_or_else(|| CacheError::Offline("no directory for state: --data DIR names one".into()).into())
    }
}

pub fn run(args: &CacheArgs) -> Result<(), ToolError> {
    match &args.command {
        Command::List(place) => list(&place.directory()?),
        Command::Verify(place) => verify(&place.directory()?),
        Command::Clear(place) => clear(&place.directory()?),
    }
}

fn open(directory: &Path) -> Result<[(&'static str, Option<Shelf>); 2], ToolError> {
    let Offline { clients, store } = Offline::open(directory)?;
    Ok([("cache files of clients", clients), ("the driver's own store", store)])
}

fn list(directory: &Path) -> Result<(), ToolError> {
    for (name, shelf) in open(directory)? {
        let Some(shelf) = shelf else {
            print::line(format_args!("{name}: never used"))?;
            continue;
        };
        let entries = shelf.entries()?;
        let bytes = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.bytes()));
        print::line(format_args!("{name}: {}, {bytes} bytes", count(entries.len())))?;
        if let Some(fingerprint) = shelf.fingerprint()? {
            print::line(format_args!("  made by {fingerprint}"))?;
        }
        if !entries.is_empty() {
            print::line(format_args!(
                "  {:>6} {:>10} {:16} {:>12} {:>12}",
                "age", "uid", "token", "model bytes", "data bytes"
            ))?;
        }
        entries.iter().enumerate().try_for_each(|(age, entry)| print::line(line(age, entry)))?;
    }
    Ok(())
}

/// An entry, with how many others were used since.
fn line(age: usize, entry: &Entry) -> String {
    let token: String = entry.key.token[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let (uid, record) = (entry.key.uid, &entry.record);
    format!("  {age:>6} {uid:>10} {token} {:>12} {:>12}", record.model_len, record.data_len)
}

fn verify(directory: &Path) -> Result<(), ToolError> {
    let (mut checked, mut faults) = (0, 0);
    for (_, shelf) in open(directory)? {
        let Some(mut shelf) = shelf else { continue };
        for fault in shelf.faults() {
            print::line(fault)?;
            faults += 1;
        }
        checked += shelf.entries().map_or(0, |entries| entries.len());
    }
    match faults {
        0 => print::line(format_args!("{}, nothing wrong", count(checked))),
        1 => Err(ToolError::Failed("1 fault".into())),
        _ => Err(ToolError::Failed(format!("{faults} faults"))),
    }
}

fn clear(directory: &Path) -> Result<(), ToolError> {
    for (name, shelf) in open(directory)? {
        if let Some(shelf) = shelf {
            print::line(format_args!("{name}: {} gone", count(shelf.clear()?)))?;
        }
    }
    Ok(())
}

fn count(entries: usize) -> String {
    match entries {
        1 => "1 compilation".into(),
        _ => format!("{entries} compilations"),
    }
}
