//! Marks in the kernel's trace, where the NNAPI runtime's own stand: its parser adds up what the driver took in each
//! phase. Without [`write_to_kernel`] nothing is marked, and a mark costs a look at one word.
//!
//! A mark is `[NN_LD_` phase `]` and a name: LD is the driver's layer. Marks of a thread are nested.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where kernels have it, newer ones first.
const MARKERS: [&str; 2] = ["/sys/kernel/tracing/trace_marker", "/sys/kernel/debug/tracing/trace_marker"];

/// What the driver is about, by the runtime's letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// That of no model.
    Initialisation,
    Compilation,
    Execution,
}

impl Phase {
    fn letters(self) -> &'static str {
        match self {
            Phase::Initialisation => "PI",
            Phase::Compilation => "PC",
            Phase::Execution => "PE",
        }
    }

    /// That of a call of the interface.
    pub fn of_call(name: &str) -> Self {
        let is_about = |word: &str| name.contains(word);
        if is_about("prepareModel") || is_about("getSupportedOperations") {
            Phase::Compilation
        } else if is_about("execute") || is_about("Execution") {
            Phase::Execution
        } else {
            Phase::Initialisation
        }
    }
}

static MARKER: OnceLock<Marker> = OnceLock::new();

/// Marks from here on, for as long as the process lives. An error names the files that cannot be written.
pub fn write_to_kernel() -> Result<(), MarkError> {
    let marker = Marker::open(MARKERS.iter().map(Path::new))?;
    // Whoever was first has the same file.
    let _ = MARKER.set(marker);
    Ok(())
}

/// Why nothing can be marked.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", .path.display())]
pub struct MarkError {
    path: PathBuf,
    why: io::Error,
}

/// Marks what the calling thread does, until dropped; `phase` tells of which phase `name` is.
pub fn begin(phase: impl FnOnce(&str) -> Phase, name: &str) -> Option<Mark<'static>> {
    MARKER.get().map(|marker| marker.begin(phase(name), name))
}

/// A file that takes marks.
struct Marker(File);

/// A mark that is to end on the thread where it began.
pub struct Mark<'m> {
    marker: &'m Marker,
    _thread: PhantomData<*const ()>,
}

impl Marker {
    /// The first of `paths` that can be written.
    fn open<'p>(paths: impl Iterator<Item = &'p Path>) -> Result<Self, MarkError> {
        let mut error = MarkError { path: PathBuf::new(), why: io::ErrorKind::NotFound.into() };
        for path in paths {
            match OpenOptions::new().append(true).open(path) {
                Ok(file) => return Ok(Marker(file)),
                Err(why) => error = MarkError { path: path.into(), why },
            }
        }
        Err(error)
    }

    fn begin(&self, phase: Phase, name: &str) -> Mark<'_> {
        self.write(&format!("B|{}|[NN_LD_{}]{name}", std::process::id(), phase.letters()));
        Mark { marker: self, _thread: PhantomData }
    }

    /// One mark is one write. One that is lost is a fault of the trace alone.
    fn write(&self, mark: &str) {
        let _ = (&self.0).write(mark.as_bytes());
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.marker.write(&format!("E|{}", std::process::id()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_nested_in_the_runtimes_words() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let missing = Path::new("/nowhere/trace_marker");
        let marker = Marker::open([missing, file.path()].into_iter()).unwrap();
        let outer = marker.begin(Phase::Execution, "executeSynchronously");
        drop(marker.begin(Phase::Compilation, "compile"));
        drop(outer);
        let process = std::process::id();
        let written = std::fs::read_to_string(file.path()).unwrap();
        let outer = format!("B|{process}|[NN_LD_PE]executeSynchronously");
        let inner = format!("B|{process}|[NN_LD_PC]compile");
        let end = format!("E|{process}");
        assert_eq!(written, [&outer, &inner, &end, &end].map(String::as_str).concat());
        let error = Marker::open([missing].into_iter()).err().unwrap().to_string();
        assert!(error.starts_with("/nowhere/trace_marker: "), "{error}");
    }

    #[test]
    fn calls_are_of_the_phases_that_the_runtime_gives_them() {
        for (call, phase) in [
            ("prepareModelFromCache", Phase::Compilation),
            ("getSupportedOperations", Phase::Compilation),
            ("IBurst.executeSynchronously", Phase::Execution),
            ("configureExecutionBurst", Phase::Execution),
            ("createReusableExecution", Phase::Execution),
            ("getCapabilities", Phase::Initialisation),
        ] {
            assert_eq!(Phase::of_call(call), phase, "{call}");
        }
        assert!(begin(Phase::of_call, "nothing").is_none(), "nobody has asked");
    }

    /// What an execution pays twice where nobody has asked for marks (docs/benchmarks/SERVICE.md).
    #[test]
    #[ignore = "a measurement"]
    fn measure_a_mark_that_nobody_asked_for() {
        const MARKS: u32 = 100_000_000;
        let began = std::time::Instant::now();
        for _ in 0..MARKS {
            std::hint::black_box(begin(Phase::of_call, std::hint::black_box("executeSynchronously")));
        }
        println!("{:.2} ns a mark", began.elapsed().as_secs_f64() * 1e9 / f64::from(MARKS));
    }
}
