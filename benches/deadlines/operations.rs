//! Every operation in every type, by the CPU backend on one thread: large, and as models of one operation.
//!
//! What is measured is the time between two yield points, where work gives its turn up and looks at its terms: deadline,
//! cancellation and its client's death alike. It goes from the call to the return, compilation, the packing of weights and
//! copies in and out included, and is processor time, so that others on the machine count little. Places where work looks at
//! its terms only are not seen, so that it may end sooner than this says; others wait for the turn as long as it says. What
//! is freed once work has seen that it is to end is not in it: `ends` has that.
//!
//! Tensors that may have any dimensions have NNHAL_ELEMENTS (2^25), a power of two; with NNHAL_TIMES (1) all calls are so many
//! times as large.
//!
//! A call that is late is measured again, up to three times, and the best counts: a virtual machine's host may take ten
//! milliseconds to find memory for one huge page. With NNHAL_PLACES=1 it is told where the longest wait of a late call ended.

use crate::common::{ms, setting};
use crate::large::{Call, Large, Size};
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{Backend, BackendError, CompileOptions, Control};
use nnhal::ops::{OpError, OperationType};
use nnhal::scheduler::Yield;
use std::backtrace::Backtrace;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is wanted.
pub const P99: Duration = Duration::from_millis(5);
pub const LONGEST: Duration = Duration::from_millis(10);

/// A loop may go on for as long as it takes.
pub const LOOP_TIMEOUT: Duration = Duration::from_secs(3600);

/// How often a call is measured that is late.
const RUNS: usize = 3;

/// A turn that nobody else wants, which notes when it is looked at.
#[derive(Debug)]
struct Meter(Mutex<Gaps>);

#[derive(Debug)]
struct Gaps {
    last: Duration,
    longest: Duration,
    all: Vec<Duration>,
    /// Whether the place is noted.
    places: bool,
    /// How many gaps came before the longest of those that are too long, and where it ended.
    place: Option<(usize, Backtrace)>,
}

impl Gaps {
    fn new() -> Self {
        Gaps {
            last: processor_time(),
            longest: Duration::ZERO,
            all: Vec::with_capacity(1 << 16),
            places: std::env::var_os("NNHAL_PLACES").is_some(),
            place: None,
        }
    }
}

impl Yield for Meter {
    fn pass(&self, _: &Control) -> Result<(), OpError> {
        let now = processor_time();
        let mut gaps = self.0.lock().expect("no panic while held");
        let gap = now.saturating_sub(gaps.last);
        if gaps.places && gap > P99 && gap > gaps.longest {
            gaps.place = Some((gaps.all.len(), Backtrace::force_capture()));
        }
        gaps.longest = gaps.longest.max(gap);
        gaps.all.push(gap);
        // What noting it takes is not the work's.
        gaps.last = processor_time();
        Ok(())
    }

    fn threads(&self) -> usize {
        1
    }
}

/// What one call comes to.
struct Lateness {
    whole: Duration,
    p99: Duration,
    longest: Duration,
}

impl Lateness {
    fn of(mut gaps: Vec<Duration>) -> Self {
        let whole = gaps.iter().sum();
        let longest = gaps.iter().max().copied().unwrap_or_default();
        Lateness { whole, p99: lateness_in(&mut gaps, 0.01), longest }
    }

    fn is_late(&self) -> bool {
        self.p99 > P99 || self.longest > LONGEST
    }
}

pub fn measure(operations: &[OperationType]) {
    let [elements, times] =
        [("NNHAL_ELEMENTS", 1 << 25), ("NNHAL_TIMES", 1)].map(|(name, usual)| setting(name, usual) as u32);
    let size = Size { elements, times };
    let backend = CpuBackend::new(1).expect("threads");
    println!("| operation, its slowest call | calls | ms | p99, ms | longest, ms | late calls |");
    println!("|---|---|---|---|---|---|");
    let (mut late, mut failed) = (Vec::new(), Vec::new());
    for &ty in operations {
        let mut calls = Vec::new();
        for call in Call::all(ty, size) {
            let ran = call.large(size).and_then(|large| {
                let lateness = best(&backend, &large).map_err(|why| format!("{}: {why}", large.name))?;
                Ok((large.name, lateness))
            });
            match ran {
                Ok((name, lateness)) => {
                    if lateness.is_late() {
                        late.push((name.clone(), lateness.p99, lateness.longest));
                    }
                    calls.push((name, lateness));
                }
                Err(why) => failed.push(why),
            }
        }
        let Some((name, worst)) = calls.iter().max_by_key(|(_, lateness)| lateness.longest) else { continue };
        let [whole, p99, longest] = [worst.whole, worst.p99, worst.longest].map(ms);
        let late = calls.iter().filter(|(_, lateness)| lateness.is_late()).count();
        println!("| {name} | {} | {whole:.0} | {p99:.3} | {longest:.3} | {late} |", calls.len());
    }
    println!();
    for (name, p99, longest) in &late {
        println!("late: {name}: p99 {:.3} ms, longest {:.3} ms", ms(*p99), ms(*longest));
    }
    println!("{} calls are late", late.len());
    assert!(failed.is_empty(), "not measured: {failed:#?}");
}

/// The best of up to so many runs, of one that is not late if there is one.
fn best(backend: &CpuBackend, large: &Large) -> Result<Lateness, BackendError> {
    let mut best = run(backend, large)?;
    for _ in 1..RUNS {
        if best.is_late() {
            let next = run(backend, large)?;
            best = if next.longest < best.longest { next } else { best };
        }
    }
    Ok(best)
}

/// Compiles and runs once.
fn run(backend: &CpuBackend, large: &Large) -> Result<Lateness, BackendError> {
    let arguments = large.arguments();
    let meter = Arc::new(Meter(Mutex::new(Gaps::new())));
    let control = Control { turn: Some(meter.clone()), loop_timeout: LOOP_TIMEOUT, ..Control::default() };
    let executable = backend.compile(&large.model, &CompileOptions::default(), &control)?;
    let _ = meter.pass(&control);
    let binding = executable.bind(arguments)?;
    meter.0.lock().expect("no panic while held").last = processor_time();
    binding.run(&control)?;
    let _ = meter.pass(&control);
    let mut gaps = meter.0.lock().expect("no panic while held");
    if let Some((before, place)) = &gaps.place {
        println!(
            "{}: {} ms, after {before} others of {}:\n{place}",
            large.name,
            ms(gaps.longest),
            gaps.all.len()
        );
    }
    Ok(Lateness::of(std::mem::take(&mut gaps.all)))
}

/// The lateness that one in so many moments of work with these gaps has, or more: a moment in a gap has what is left of it.
fn lateness_in(gaps: &mut [Duration], share: f64) -> Duration {
    gaps.sort_unstable();
    let whole: f64 = gaps.iter().map(Duration::as_secs_f64).sum();
    // So many of the longest gaps have more left than `least` for this long altogether.
    let beyond = |least: f64| gaps.iter().rev().map(|gap| (gap.as_secs_f64() - least).max(0.0)).sum::<f64>();
    let (mut low, mut high) = (0.0, gaps.last().map_or(0.0, Duration::as_secs_f64));
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        match beyond(middle) > whole * share {
            true => low = middle,
            false => high = middle,
        }
    }
    Duration::from_secs_f64(high)
}

/// Of this thread.
fn processor_time() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock");
    now.into()
}
