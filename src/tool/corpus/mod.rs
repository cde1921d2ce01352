//! `nnhal corpus`: makes a corpus of the example models in a checkout of AOSP's NeuralNetworks module.
//!
//! - `source`: reads the C++ that the examples are written in
//! - `example`: what their names mean; `derive`: what the format adds to them
//!
//! It knows the sources' shape only as far as the examples use it, and names what it cannot read.

mod derive;
mod example;
mod source;

use super::conformance::corpus::{to_bytes, Blob, Model};
use super::error::ToolError;
use super::{print, progress};
use std::path::{Path, PathBuf};

/// Make a corpus for `nnhal conformance` of an AOSP checkout's generated examples.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  git clone --depth 1 https://android.googlesource.com/platform/packages/modules/NeuralNetworks
  nnhal corpus --from NeuralNetworks --out corpus
  nnhal conformance corpus")]
pub struct CorpusArgs {
    /// The checkout: packages/modules/NeuralNetworks, or any directory with spec_* directories in it.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Where the .nnt files go; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// End with a line of JSON.
    #[arg(long)]
    json: bool,
}

/// Where the examples are in a checkout.
const GENERATED: &str = "runtime/test/generated";
const PREFIX: &str = "spec_";
const SUFFIX: &str = ".example.cpp";
/// Its operation is in no version of the interface.
const LEFT_OUT: &str = "experimental";

/// An example file.
struct Example {
    folder: String,
    spec: String,
    path: PathBuf,
}

pub fn run(args: &CorpusArgs) -> Result<(), ToolError> {
    let examples = find(&args.from)?;
    if examples.is_empty() {
        let why = format!(
            "{}: no {PREFIX}*/*{SUFFIX} in it or in {GENERATED}: name a checkout of packages/modules/NeuralNetworks",
            args.from.display()
        );
        return Err(ToolError::Usage(why));
    }
    let bar = progress::bar(examples.len() as u64);
    let (mut files, mut models, mut bytes) = (0usize, 0usize, 0usize);
    let mut faults = Vec::new();
    for example in &examples {
        match convert(example) {
            Ok((count, file)) => {
                write(&args.out.join(&example.folder), &example.spec, &file)?;
                (files, models, bytes) = (files + 1, models + count, bytes + file.len());
            }
            Err(why) => {
                let fault = format!("{}:{why}", example.path.display());
                bar.suspend(|| print::line(format_args!("UNREAD {fault}")))?;
                faults.push(fault);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    print::line(format_args!("{files} files, {models} models, {bytes} bytes in {}", args.out.display()))?;
    if args.json {
        let unread = &faults;
        print::line(serde_json::json!({"files": files, "models": models, "bytes": bytes, "unread": unread}))?;
    }
    match faults.len() {
        0 => Ok(()),
        count => Err(ToolError::Failed(format!("{count} of {} files could not be read", examples.len()))),
    }
}

/// All examples under `from`, sorted.
fn find(from: &Path) -> Result<Vec<Example>, ToolError> {
    let generated = from.join(GENERATED);
    let root = if generated.is_dir() { generated } else { from.to_path_buf() };
    let mut examples = Vec::new();
    for directory in entries(&root)? {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(folder) = name.strip_prefix(PREFIX).filter(|folder| *folder != LEFT_OUT) else { continue };
        if !directory.is_dir() {
            continue;
        }
        for path in entries(&directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(spec) = name.strip_suffix(SUFFIX) {
                examples.push(Example { folder: folder.into(), spec: spec.into(), path });
            }
        }
    }
    Ok(examples)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, ToolError> {
    let fault = |why| ToolError::File { path: directory.into(), why };
    let entries = std::fs::read_dir(directory).map_err(fault)?;
    let mut paths =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(fault)?;
    paths.sort();
    Ok(paths)
}

/// The models of an example file, and the corpus file made of them. The error starts with the line.
fn convert(example: &Example) -> Result<(usize, Vec<u8>), String> {
    let text = std::fs::read_to_string(&example.path).map_err(|why| format!(" {why}"))?;
    let mut blob = Blob::default();
    let mut models: Vec<Model> = Vec::new();
    for found in source::models(&text)? {
        let mut model = example::model(&found, &example.folder, &example.spec, &mut blob)
            .map_err(|why| format!("{}: {why}", found.line))?;
        derive::complete(&mut model, &models);
        models.push(model);
    }
    if models.is_empty() {
        return Err("1: no model in it".into());
    }
    Ok((models.len(), to_bytes(&models, blob)?))
}

fn write(directory: &Path, spec: &str, bytes: &[u8]) -> Result<(), ToolError> {
    let path = directory.join(format!("{spec}.nnt"));
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&path, bytes))
        .map_err(|why| ToolError::File { path, why })
}
