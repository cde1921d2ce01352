//! `nnhal run`: imports a model, has a driver compile it, runs it on files and prints what comes out.

mod input;
mod json;
pub mod npy;
mod picture;
mod report;
pub mod session;
pub mod values;

use crate::client::{Mode, PrepareOptions};
use crate::tflite::{Imported, Port};
use crate::tool::driver::{ServiceName, ServiceOptions};
use crate::tool::error::ToolError;
use crate::tool::model_file::{self, ModelFile};
use crate::tool::print::{self, unprinted};
use crate::tool::profile::{self, write_trace, Watch};
use crate::tool::progress;
use json::Told;
use session::Session;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Import a .tflite model, have the driver compile it, run it and print the outputs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nnhal run models/digits_int8.tflite --input tests/data/digits --json\n  \
    nnhal run models/digits_int8.tflite --runs 5 --trace /tmp/digits.json   (open it at ui.perfetto.dev)"
)]
pub struct RunArgs {
    /// The model.
    model: PathBuf,
    /// One file for each of the model's inputs (.npy, .bin, PNG, JPEG), or that several times over, or a directory of
    /// images; arbitrary values if left out. Pixels become 0 to 1; an 8-bit input without quantisation, or of scale 1, takes
    /// them as they are, from 0 to 255, or from -128 if it is signed.
    #[arg(long, num_args = 1.., value_name = "FILE|DIR")]
    input: Vec<PathBuf>,
    /// How many times to run on each input.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// How to run.
    #[arg(long, value_enum, default_value_t = Mode::Sync)]
    mode: Mode,
    /// Write the outputs there, as output0.npy and so on.
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Keep what was compiled in this directory, and prepare the model from there the next time.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Ask the driver to leave all of the compilation that can wait to the first run.
    #[arg(long, conflicts_with = "cache")]
    just_in_time: bool,
    /// Multiply weights of bytes by inputs as they are, where LiteRT rounds each row of inputs to bytes, which is faster.
    #[arg(long)]
    exact_inputs: bool,
    /// Write a trace of the runs for Perfetto: a slice for each operation and thread.
    #[arg(long, value_name = "FILE", conflicts_with = "cache")]
    trace: Option<PathBuf>,
    /// Fit images of another size to the model's input.
    #[arg(long)]
    resize: bool,
    /// End with a line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand on the driver at `service`.
pub fn run(service: &ServiceName, args: &RunArgs) -> Result<(), ToolError> {
    let ModelFile { bytes, imported, .. } = model_file::read(&args.model)?;
    let items = items(args, &imported)?;
    if items.len() > 1 && args.output_dir.is_some() {
        return Err(ToolError::Usage("--output-dir takes the outputs of one input; give one".into()));
    }
    // The first is read before a driver is started, so that what is wrong with it is said at once.
    let first = items.first().map(|item| read(item, &imported, args.resize)).transpose()?;
    let prepare = PrepareOptions {
        just_in_time: args.just_in_time,
        dynamic_range: imported.dynamic_range && !args.exact_inputs,
        ..Default::default()
    };
    let (mut session, found) = match &args.cache {
        None => (Session::with_options(&imported, service, &ServiceOptions::default(), &prepare)?, None),
        Some(directory) => {
            let (session, found) = Session::cached(&imported, service, (directory, &bytes), &prepare)?;
            (session, Some(found))
        }
    };
    session.set_mode(args.mode)?;
    let (mut times, mut told) = (Vec::new(), Told::default());
    // What cannot be written takes nothing with it of what is printed.
    let mut written = Ok(());
    let watch = args.trace.as_ref().map(|_| Watch::new(&session, "--trace")).transpose()?;
    if items.len() > 1 {
        told = batch(args, &imported, &mut session, &items, &mut times)?;
    } else {
        // Made once the driver has taken the model: they may be as large as a file says.
        let arbitrary = || imported.inputs.iter().map(|port| values::arbitrary(&port.info)).collect();
        let first = first.unwrap_or_else(arbitrary);
        let bar = progress::bar(args.runs.into());
        let outputs = repeat(&mut session, &first, args.runs, &mut times, || bar.inc(1))?;
        bar.finish_and_clear();
        if args.input.is_empty() {
            print::line("no --input: arbitrary values")?;
        }
        for (i, (port, bytes)) in imported.outputs.iter().zip(&outputs).enumerate() {
            report::output(&mut io::stdout(), i, port, bytes).map_err(unprinted)?;
            told.outputs.push(json::output(port, bytes));
        }
        if let Some(dir) = &args.output_dir {
            written = write(dir, &imported.outputs, &outputs);
        }
    }
    let traced = match (&args.trace, &watch) {
        (Some(path), Some(watch)) => trace(path, watch, &session, &imported),
        _ => Ok(()),
    };
    report::times(&mut io::stdout(), session.compile_time, found, &mut times).map_err(unprinted)?;
    if args.json {
        told.print(session.compile_time, found, &times)?;
    }
    written.and(traced)
}

fn trace(path: &Path, watch: &Watch, session: &Session, imported: &Imported) -> Result<(), ToolError> {
    let noted = watch.take(session)?;
    let description = profile::described(session.driver(), session.prepared(), "--trace")?;
    write_trace(path, [&noted], &description, imported)?;
    match noted.missed {
        0 => Ok(()),
        missed => print::line(format_args!("the trace ends early: {missed} spans more were too many")),
    }
}

/// The files for each run: as many as the model has inputs.
type Item = Vec<PathBuf>;

fn items(args: &RunArgs, imported: &Imported) -> Result<Vec<Item>, ToolError> {
    let files = match &args.input[..] {
        [dir] if dir.is_dir() => input::images_in(dir)?,
        files => files.to_vec(),
    };
    let inputs = imported.inputs.len();
    if inputs == 0 || files.len() % inputs != 0 {
        return match files.len() {
            0 => Ok(Vec::new()),
            given => Err(ToolError::Usage(format!("{given} input files, but the model has {inputs} inputs"))),
        };
    }
    Ok(files.chunks(inputs).map(<[PathBuf]>::to_vec).collect())
}

fn read(item: &Item, imported: &Imported, resize: bool) -> Result<Vec<Vec<u8>>, ToolError> {
    item.iter().zip(&imported.inputs).map(|(file, port)| input::read(file, port, resize)).collect()
}

fn repeat(
    session: &mut Session,
    inputs: &[Vec<u8>],
    runs: u32,
    times: &mut Vec<Duration>,
    after_each: impl Fn(),
) -> Result<Vec<Vec<u8>>, ToolError> {
    let mut outputs = Vec::new();
    for _ in 0..runs {
        let (results, time) = session.run(inputs)?;
        times.push(time);
        outputs = results;
        after_each();
    }
    Ok(outputs)
}

/// Runs on many inputs and prints a line for each, then how many were as their names say.
fn batch(
    args: &RunArgs,
    imported: &Imported,
    session: &mut Session,
    items: &[Item],
    times: &mut Vec<Duration>,
) -> Result<Told, ToolError> {
    let bar = progress::bar(items.len() as u64);
    let (mut labelled, mut right, mut told) = (0, 0, Told::default());
    for item in items {
        let inputs = read(item, imported, args.resize)?;
        let outputs = repeat(session, &inputs, args.runs, times, || ())?;
        let name = item[0].file_name().unwrap_or_default().to_string_lossy();
        let scores =
            imported.outputs.first().zip(outputs.first()).and_then(|(p, o)| report::predictions(p, o));
        let label = label(&item[0]);
        let best = scores.as_ref().and_then(|scores| Some((scores, *scores.first()?)));
        told.inputs.push(json::Input {
            file: name.to_string(),
            best: best.map(|(_, best)| best.into()),
            label,
        });
        let line = match best {
            Some((scores, (class, value))) => {
                let verdict = match label {
                    Some(label) => {
                        labelled += 1;
                        right += usize::from(label == class);
                        if label == class {
                            String::new()
                        } else {
                            format!(", but it is {label}")
                        }
                    }
                    None => String::new(),
                };
                format!(
                    "{name}: {class} ({}){verdict}",
                    report::score(value, report::are_probabilities(scores))
                )
            }
            None => format!("{name}: ran"),
        };
        bar.suspend(|| print::line(line))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    if labelled > 0 {
        let percent = 100.0 * right as f64 / labelled as f64;
        print::line(format_args!("accuracy: {right} of {labelled} ({percent:.2} %)"))?;
        told.accuracy = Some(json::Accuracy { right, labelled });
    }
    Ok(told)
}

/// The class that a file's name gives: N in `..._labelN.png`.
fn label(path: &Path) -> Option<usize> {
    path.file_stem()?.to_str()?.rsplit_once("_label")?.1.parse().ok()
}

fn write(dir: &Path, ports: &[Port], outputs: &[Vec<u8>]) -> Result<(), ToolError> {
    std::fs::create_dir_all(dir).map_err(|why| ToolError::File { path: dir.into(), why })?;
    for (i, (port, bytes)) in ports.iter().zip(outputs).enumerate() {
        let path = dir.join(format!("output{i}.npy"));
        npy::write(&path, port.info.ty, &port.dims, bytes).map_err(|why| ToolError::File { path, why })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_from_names() {
        assert_eq!(label(Path::new("a/0002_label7.png")), Some(7));
        assert_eq!(label(Path::new("x_label1_label12.jpg")), Some(12));
        assert_eq!(label(Path::new("cat.png")), None);
        assert_eq!(label(Path::new("a_label-1.png")), None);
    }
}
