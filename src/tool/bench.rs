//! `nnhal bench`: how long a model takes, end to end through the interface.

use super::driver::{ServiceName, ServiceOptions};
use super::error::ToolError;
use super::model_file::{self, ModelFile};
use super::preparation;
use super::print;
use super::profile::{self, Profile, Recording};
use super::progress;
use super::run::{session::Session, values};
use crate::client::{Mode, PrepareOptions};
use crate::tflite::Imported;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measure a .tflite model end to end through the driver.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nnhal bench models/digits_int8.tflite --threads 1\n  \
    nnhal bench models/digits_int8.tflite --profile\n  \
    nnhal bench models/digits_int8.tflite --runs 20 --trace /tmp/digits.json   (open it at ui.perfetto.dev)")]
pub struct BenchArgs {
    /// The model.
    model: PathBuf,
    /// Threads of the embedded driver; one for each core if left out.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How long to measure.
    #[arg(long, default_value_t = 3.0, value_parser = seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// How often to run, however long that takes.
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// How to run.
    #[arg(long, value_enum, default_value_t = Mode::Sync)]
    mode: Mode,
    /// Ask the driver to leave all of the compilation that can wait to the first run.
    #[arg(long)]
    just_in_time: bool,
    /// Multiply weights of bytes by inputs as they are, where LiteRT rounds each row of inputs to bytes, which is faster.
    #[arg(long)]
    exact_inputs: bool,
    /// Run some more, and tell where the time goes, operation by operation.
    #[arg(long)]
    profile: bool,
    /// Run some more, and write a trace of that for Perfetto: a slice for each operation and thread.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// End with a line of JSON.
    #[arg(long)]
    json: bool,
}

/// The line of JSON; its fields are stable.
#[derive(Debug, Serialize)]
struct Figures {
    median_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    /// From opening the file to a model for the driver.
    import_ms: f64,
    /// Until the driver has prepared it.
    compile_ms: f64,
    /// The first run, which does what the compilation has left to it.
    first_run_ms: f64,
    /// Null for a driver that does not cache.
    cache_load_ms: Option<f64>,
    /// From the driver's own store; null where it is not known to have one, or the model is too small for it.
    store_load_ms: Option<f64>,
    /// Of the driver's process; null where that cannot be known.
    peak_rss_mb: Option<f64>,
    /// Where the time goes, if --profile asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
}

/// Part of the time that goes to runs which do not count.
const WARM_UP: f64 = 0.1;
/// Fewer runs than this say nothing, however long they take.
const FEWEST: usize = 5;
/// Runs that a trace shows.
const TRACED: usize = 20;

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("expected a number of seconds above 0, up to a day".into()),
    }
}

pub fn run(service: &ServiceName, args: &BenchArgs) -> Result<(), ToolError> {
    if args.threads.is_some() && *service != ServiceName::Embedded {
        let why = "--threads is for an embedded driver; give it to `nnhald` itself";
        return Err(ToolError::Usage(why.into()));
    }
    let ModelFile { imported, time: import_time, .. } = model_file::read(&args.model)?;
    let threads = args.threads.map(usize::from);
    let options = ServiceOptions { threads, ..Default::default() };
    let prepare = PrepareOptions {
        just_in_time: args.just_in_time,
        dynamic_range: imported.dynamic_range && !args.exact_inputs,
        ..Default::default()
    };
    let mut session = Session::with_options(&imported, service, &options, &prepare)?;
    session.set_mode(args.mode)?;
    // Made once the driver has taken the model: they may be as large as a file says.
    let inputs: Vec<_> = imported.inputs.iter().map(|port| values::arbitrary(&port.info)).collect();
    if let Some(flag) = wants_watch(args) {
        profile::check(session.driver(), flag)?;
    }

    let (_, first_run) = session.run(&inputs)?;
    let times = times(args, &mut session, &inputs)?;
    let mut figures = Figures {
        median_ms: percentile(&times, 50),
        p90_ms: percentile(&times, 90),
        p99_ms: percentile(&times, 99),
        import_ms: ms(import_time),
        compile_ms: ms(session.compile_time),
        first_run_ms: ms(first_run),
        cache_load_ms: None,
        store_load_ms: None,
        peak_rss_mb: session.driver().process().and_then(peak_rss_mb),
        profile: None,
    };
    // The times are measured: what else cannot be had is told after them.
    let mut fault = None;
    let recording = wants_watch(args).map(|flag| record(args, flag, &mut session, &inputs)).transpose();
    let recording = had(recording, &mut fault).flatten();
    let is_of_processor = had(profile::is_of_processor(session.driver()), &mut fault).unwrap_or(false);
    // Once its model is gone, loads are not given that.
    let driver = session.into_driver();
    // Left to the first execution, nothing would be kept before it.
    let kept = PrepareOptions { just_in_time: false, ..prepare };
    let load = had(preparation::from_cache(&driver, &imported.model, &kept), &mut fault);
    figures.cache_load_ms = load.flatten().map(ms);
    // What is measured from here on has the machine to itself.
    drop(driver);
    if let Some(recording) = &recording {
        let peaks = || is_of_processor.then(|| profile::peaks(threads)).flatten();
        figures.profile = args.profile.then(|| Profile::new(recording, &imported, peaks()));
        had(trace(args, recording, &imported), &mut fault);
    }
    if *service == ServiceName::Embedded {
        let load = had(preparation::from_store(&options, &imported, &kept), &mut fault);
        figures.store_load_ms = load.flatten().map(ms);
    }
    tell(&figures, times.len())?;
    if let Some(profile) = &figures.profile {
        profile::tell(profile)?;
    }
    if args.json {
        print::json(&figures)?;
    }
    fault.map_or(Ok(()), Err)
}

/// What there is to have of `result`; the first error goes to `fault`.
fn had<T>(result: Result<T, ToolError>, fault: &mut Option<ToolError>) -> Option<T> {
    result.map_err(|why| fault.get_or_insert(why)).ok()
}

/// What asks for watched runs, if anything does.
fn wants_watch(args: &BenchArgs) -> Option<&'static str> {
    match (&args.trace, args.profile) {
        (_, true) => Some("--profile"),
        (Some(_), false) => Some("--trace"),
        (None, false) => None,
    }
}

/// Watched runs: as many as count for a profile, and no more than a trace shows where there is to be one only.
fn record(
    args: &BenchArgs,
    flag: &str,
    session: &mut Session,
    inputs: &[Vec<u8>],
) -> Result<Recording, ToolError> {
    let often = match (args.runs, args.profile) {
        (Some(runs), _) => (0.0, runs as usize),
        (None, true) => (args.seconds, FEWEST),
        (None, false) => (0.0, TRACED),
    };
    profile::watched(session, inputs, often, flag)
}

fn trace(args: &BenchArgs, recording: &Recording, imported: &Imported) -> Result<(), ToolError> {
    let Some(path) = &args.trace else { return Ok(()) };
    let noted = recording.runs.iter().take(TRACED).map(|run| &run.noted);
    profile::write_trace(path, noted, &recording.description, imported)
}

fn tell(figures: &Figures, runs: usize) -> Result<(), ToolError> {
    let Figures { import_ms, compile_ms, first_run_ms, .. } = figures;
    let compiled = format!(
        "imported in {import_ms:.1} ms, compiled in {compile_ms:.1} ms, ran first in {first_run_ms:.1} ms"
    );
    match figures.cache_load_ms {
        Some(load) => print::line(format_args!("{compiled}, loaded from cache in {load:.1} ms"))?,
        None => print::line(format_args!("{compiled}; the driver does not cache"))?,
    }
    if let Some(load) = figures.store_load_ms {
        print::line(format_args!("loaded from the driver's own store in {load:.1} ms"))?;
    }
    print::line(format_args!(
        "ran {runs} times: median {:.3} ms, p90 {:.3} ms, p99 {:.3} ms",
        figures.median_ms, figures.p90_ms, figures.p99_ms
    ))?;
    let peak = figures.peak_rss_mb.map_or("not known from here".into(), |peak| format!("{peak:.1} MB"));
    print::line(format_args!("peak memory of the driver's process: {peak}"))
}

/// The times of runs, sorted; those to warm up are left out.
fn times(args: &BenchArgs, session: &mut Session, inputs: &[Vec<u8>]) -> Result<Vec<Duration>, ToolError> {
    measure(session, inputs, args.seconds * WARM_UP, 1)?;
    let mut times = match args.runs {
        Some(runs) => measure(session, inputs, 0.0, runs as usize)?,
        None => measure(session, inputs, args.seconds, FEWEST)?,
    };
    times.sort();
    Ok(times)
}

/// Runs for this long, and this often at least.
fn measure(
    session: &mut Session,
    inputs: &[Vec<u8>],
    seconds: f64,
    fewest: usize,
) -> Result<Vec<Duration>, ToolError> {
    let mut times = Vec::new();
    let start = Instant::now();
    let bar = match seconds > 0.0 {
        true => progress::timed(seconds, "measuring"),
        false => progress::bar(fewest as u64),
    };
    while times.len() < fewest || start.elapsed().as_secs_f64() < seconds {
        times.push(session.run(inputs)?.1);
        let done = if seconds > 0.0 { start.elapsed().as_millis() as u64 } else { times.len() as u64 };
        bar.set_position(done);
    }
    bar.finish_and_clear();
    Ok(times)
}

fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// The time that so many percent of the sorted runs do not exceed, in milliseconds.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |&time| ms(time))
}

/// The most memory that a process has held at once, in MB of 10^6 bytes.
fn peak_rss_mb(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?;
    Some(kib.parse::<f64>().ok()? * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let times: Vec<_> = (1..=10).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), 5.0);
        assert_eq!(percentile(&times, 90), 9.0);
        assert_eq!(percentile(&times, 99), 10.0);
        assert_eq!(percentile(&times[..1], 50), 1.0);
    }

    #[test]
    fn this_process_has_held_memory() {
        assert!(peak_rss_mb(std::process::id()).expect("procfs") > 0.5);
    }
}
