//! `nnhal cache`: what a driver keeps in its data directory, while no driver uses it.
//!
//! It opens what is there and makes nothing: a directory that is not a driver's stays as it is.

use super::error::ToolError;
use super::print;
use crate::cache::{CacheError, Entry, Offline, Recorded};
use crate::daemon;
use serde_json::{json, Map, Value};
use std::path::{Path, PathBuf};

/// Look at, check or empty what a driver has kept in its data directory.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nnhal cache list --data /var/lib/nnhal\n  nnhal cache verify\n  nnhal cache clear"
)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the compilations, the last used first.
    #[command(after_help = "Example:\n  nnhal cache list --data /var/lib/nnhal --json")]
    List(DataArgs),
    /// Check the registries, and the files of the driver's own store by their hashes.
    #[command(after_help = "Example:\n  nnhal cache verify --data /var/lib/nnhal && echo nothing wrong")]
    Verify(DataArgs),
    /// Forget all compilations, and delete those in the driver's own store.
    #[command(after_help = "Example:\n  nnhal cache clear --data /var/lib/nnhal")]
    Clear(DataArgs),
}

#[derive(Debug, clap::Args)]
struct DataArgs {
    /// The directory that the daemon was given as --data [default: the one that a daemon takes].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

impl DataArgs {
    fn directory(&self) -> Result<PathBuf, ToolError> {
        let directory = self.data.clone().or_else(daemon::state_directory);
        directory
            .ok_or_else(|| CacheError::Offline("no directory for state: --data DIR names one".into()).into())
    }
}

pub fn run(args: &CacheArgs) -> Result<(), ToolError> {
    match &args.command {
        Command::List(place) => list(&place.directory()?, place.json),
        Command::Verify(place) => verify(&place.directory()?, place.json),
        Command::Clear(place) => clear(&place.directory()?, place.json),
    }
}

/// Both caches that a driver has, by what people and scripts call them.
const CACHES: [(&str, &str); 2] =
    [("cache files of clients", "client_files"), ("the driver's own store", "store")];

fn open(directory: &Path) -> Result<[Option<Recorded>; 2], ToolError> {
    let Offline { clients, store } = Offline::open(directory)?;
    Ok([clients, store])
}

fn list(directory: &Path, json: bool) -> Result<(), ToolError> {
    let mut told = Map::new();
    for ((name, key), recorded) in CACHES.into_iter().zip(open(directory)?) {
        let Some(recorded) = recorded else {
            told.insert(key.into(), Value::Null);
            if !json {
                print::line(format_args!("{name}: never used"))?;
            }
            continue;
        };
        let (entries, made_by) = (recorded.entries()?, recorded.fingerprint()?);
        match json {
            true => {
                let compilations: Vec<_> = entries.iter().map(object).collect();
                told.insert(key.into(), json!({ "made_by": made_by, "compilations": compilations }));
            }
            false => tell(name, made_by, &entries)?,
        }
    }
    if json {
        print::json(&told)?;
    }
    Ok(())
}

fn tell(name: &str, made_by: Option<String>, entries: &[Entry]) -> Result<(), ToolError> {
    let bytes = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.bytes()));
    print::line(format_args!("{name}: {}, {bytes} bytes", count(entries.len())))?;
    if let Some(fingerprint) = made_by {
        print::line(format_args!("  made by {fingerprint}"))?;
    }
    if !entries.is_empty() {
        print::line(format_args!(
            "  {:>6} {:>10} {:16} {:>12} {:>12}",
            "age", "uid", "token", "model bytes", "data bytes"
        ))?;
    }
    entries.iter().enumerate().try_for_each(|(age, entry)| print::line(line(age, entry)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An entry, with how many others were used since.
fn line(age: usize, entry: &Entry) -> String {
    let token = hex(&entry.key.token[..8]);
    let (uid, record) = (entry.key.uid, &entry.record);
    format!("  {age:>6} {uid:>10} {token} {:>12} {:>12}", record.model_len, record.data_len)
}

/// The same for scripts.
fn object(entry: &Entry) -> Value {
    let Entry { key, record, .. } = entry;
    json!({
        "uid": key.uid, "token": hex(&key.token),
        "model_bytes": record.model_len, "data_bytes": record.data_len
    })
}

fn verify(directory: &Path, json: bool) -> Result<(), ToolError> {
    let (mut checked, mut faults) = (0, Vec::new());
    for mut recorded in open(directory)?.into_iter().flatten() {
        faults.extend(recorded.faults());
        checked += recorded.entries().map_or(0, |entries| entries.len());
    }
    match json {
        true => print::json(&json!({ "compilations": checked, "faults": faults }))?,
        false => faults.iter().try_for_each(print::line)?,
    }
    match faults.len() {
        0 if json => Ok(()),
        0 => print::line(format_args!("{}, nothing wrong", count(checked))),
        1 => Err(ToolError::Failed("1 fault".into())),
        faults => Err(ToolError::Failed(format!("{faults} faults"))),
    }
}

fn clear(directory: &Path, json: bool) -> Result<(), ToolError> {
    let mut told = Map::new();
    for ((name, key), recorded) in CACHES.into_iter().zip(open(directory)?) {
        let gone = recorded.map(|recorded| recorded.clear()).transpose()?;
        told.insert(key.into(), gone.into());
        if let Some(gone) = gone.filter(|_| !json) {
            print::line(format_args!("{name}: {} gone", count(gone)))?;
        }
    }
    if json {
        print::json(&told)?;
    }
    Ok(())
}

fn count(entries: usize) -> String {
    match entries {
        1 => "1 compilation".into(),
        _ => format!("{entries} compilations"),
    }
}
