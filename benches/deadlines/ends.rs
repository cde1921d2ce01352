//! Every operation, ended amid its work: by a deadline that passes, by a cancellation, and by the death of its client.
//!
//! A call is grown until it takes over a second, or until its arguments would be larger than NNHAL_MIB (2048), or one of them
//! than the driver allows. The driver may take twice as much besides. Of the calls of an operation that which is slowest for
//! its bytes is taken; with NNHAL_CALLS=2 the slowest of all as well, which most often has more memory.
//!
//! It is ended at NNHAL_MOMENTS (5) moments, one after the other in its compilation and its execution, by a deadline, and soon
//! after each by the flag that another thread sets as a client cancels or dies. Late is what passes from then on until the
//! call returns, by the clock on the wall: with all that is freed. Work lends its turn when it sees at a yield point that it is
//! to end, before it frees anything: that is when it was seen.
//!
//! An end that is late is measured again, up to three times, and the best counts, for others on the machine take time, too:
//! see `operations`. The first are counted as well.

use crate::common::{ms, setting, Figures};
use crate::large::{Call, Large, Size};
use crate::operations::{LONGEST, LOOP_TIMEOUT, P99};
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{boottime_ns, Backend, BackendError, Binding, CompileOptions, Control};
use nnhal::ops::{OpError, OperationType};
use nnhal::scheduler::Yield;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a call is to take.
const WHOLE: Duration = Duration::from_secs(1);
/// Elements of calls that are compared with each other.
const ELEMENTS: u32 = 1 << 22;
/// No tensor may have more elements than these times as many.
const MOST_TIMES: u32 = 512;
/// How often an end is measured that is late, or that the call came before.
const RUNS: usize = 3;
/// A phase that takes so long has a quarter of the moments at least.
const PHASE: Duration = Duration::from_millis(4);

/// What ends the work.
#[derive(Clone, Copy)]
enum Way {
    Deadline,
    Cancelled,
    Orphaned,
}

/// A turn that nobody else wants, which notes when it is lent.
#[derive(Debug, Default)]
struct Lends(Mutex<Vec<u64>>);

impl Yield for Lends {
    fn pass(&self, _: &Control) -> Result<(), OpError> {
        Ok(())
    }

    fn threads(&self) -> usize {
        1
    }

    fn lend(&self) {
        self.0.lock().expect("no panic while held").push(boottime_ns());
    }
}

/// How long it took from what ends the work.
#[derive(Clone, Copy)]
struct Ended {
    /// Until that was seen.
    seen: Duration,
    /// Until the call returned.
    returned: Duration,
}

/// What is ended.
#[derive(Clone, Copy)]
enum Phase {
    Compilation,
    Execution,
}

/// A call that was compiled and run once.
struct Ready {
    large: Large,
    binding: Arc<dyn Binding>,
    /// How long it takes to compile, and to run.
    compilation: Duration,
    execution: Duration,
}

/// How late ends were.
#[derive(Default)]
struct Late {
    each: Vec<Ended>,
    /// When they were measured first.
    first: Vec<Ended>,
}

/// Of all calls.
#[derive(Default)]
struct All {
    calls: usize,
    /// Those that do not take as long as they are to.
    short: Vec<String>,
    late: Vec<String>,
    deadlines: Late,
    stops: Late,
}

impl Ready {
    fn new(backend: &CpuBackend, large: Large) -> Result<Self, BackendError> {
        let control = Control { loop_timeout: LOOP_TIMEOUT, ..Control::default() };
        let start = Instant::now();
        let executable = backend.compile(&large.model, &CompileOptions::default(), &control)?;
        let compilation = start.elapsed();
        let binding = executable.bind(large.arguments())?;
        let start = Instant::now();
        binding.clone().run(&control)?;
        Ok(Ready { large, binding, compilation, execution: start.elapsed() })
    }

    fn whole(&self) -> Duration {
        self.compilation + self.execution
    }

    /// Ends it after a part of a phase: how late that was. `None` if the phase is always over before.
    fn end(&mut self, backend: &CpuBackend, way: Way, phase: Phase, part: f64) -> Option<Ended> {
        let Ready { large, binding, compilation, execution } = self;
        for _ in 0..RUNS {
            let ended = match phase {
                Phase::Compilation => ended(way, compilation.mul_f64(part), |control| {
                    backend.compile(&large.model, &CompileOptions::default(), control).map(drop)
                }),
                Phase::Execution => {
                    ended(way, execution.mul_f64(part), |control| binding.clone().run(control).map(drop))
                }
            };
            match (ended, phase) {
                (Ok(ended), _) => return Some(ended),
                // Pages that were touched before take less time now.
                (Err(took), Phase::Compilation) => *compilation = took.min(*compilation),
                (Err(took), Phase::Execution) => *execution = took.min(*execution),
            }
        }
        None
    }
}

impl Late {
    /// Measures ends until one is not late: the best counts.
    fn measure(&mut self, mut end: impl FnMut() -> Option<Ended>) {
        let Some(first) = end() else { return };
        self.first.push(first);
        let mut best = first;
        for _ in 1..RUNS {
            if best.returned > P99 {
                let next = end().filter(|next| next.returned < best.returned);
                best = next.unwrap_or(best);
            }
        }
        self.each.push(best);
    }

    fn add(&mut self, other: &Late) {
        self.each.extend(&other.each);
        self.first.extend(&other.first);
    }

    fn figures(&self) -> Option<Figures> {
        Figures::of(&mut self.each.iter().map(|ended| ended.returned).collect::<Vec<_>>())
    }

    fn is_late(&self) -> bool {
        self.figures().is_some_and(|late| late.p99 > P99 || late.most > LONGEST)
    }

    fn print(&self, what: &str) {
        for (when, each) in [("the best of up to three", &self.each), ("at first", &self.first)] {
            print_times(
                &format!("{what}, {when}, returned"),
                each.iter().map(|ended| ended.returned).collect(),
            );
            print_times(&format!("{what}, {when}, seen"), each.iter().map(|ended| ended.seen).collect());
        }
    }
}

fn print_times(what: &str, mut times: Vec<Duration>) {
    let over = |goal: Duration| times.iter().filter(|&&time| time > goal).count();
    let over = [P99, LONGEST].map(|goal| format!("{} over {} ms", over(goal), goal.as_millis())).join(", ");
    let Some(Figures { median, p99, most }) = Figures::of(&mut times) else { return };
    let ([median, p99, most], ends) = ([median, p99, most].map(ms), times.len());
    println!("{what}: {ends} ends, median {median:.3} ms, p99 {p99:.3} ms, longest {most:.3} ms, {over}");
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let longest = self.each.iter().max_by_key(|ended| ended.returned);
        match self.figures().zip(longest) {
            Some((Figures { median, p99, most }, longest)) => {
                let [median, p99, most, seen] = [median, p99, most, longest.seen].map(ms);
                write!(f, "{median:.3} | {p99:.3} | {most:.3} | {seen:.3}")
            }
            None => f.write_str("- | - | - | -"),
        }
    }
}

pub fn measure(operations: &[OperationType]) {
    let moments = setting("NNHAL_MOMENTS", 5);
    let most_bytes = setting("NNHAL_MIB", 2048) << 20;
    let backend = CpuBackend::new(1).expect("threads");
    let late = "median, ms | p99, ms | longest, ms | of which until seen, ms";
    println!("| operation, a slow call | ms | MiB | ended | deadline: {late} | cancelled or dead: {late} |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut all = All::default();
    for &ty in operations {
        for call in slowest(&backend, ty) {
            let (mut ready, why) = grown(&backend, call, most_bytes);
            let (name, whole) = (ready.large.name.clone(), ready.whole());
            let (deadlines, stops) = ends(&backend, &mut ready, moments);
            let (mib, ended) = (ready.large.bytes() >> 20, deadlines.each.len() + stops.each.len());
            println!("| {name} | {:.0} | {mib} | {ended} | {deadlines} | {stops} |", ms(whole));
            all.calls += 1;
            if whole < WHOLE {
                all.short.push(format!("{name}: {:.0} ms, {mib} MiB; {why}", ms(whole)));
            }
            if deadlines.is_late() || stops.is_late() {
                all.late.push(name);
            }
            all.deadlines.add(&deadlines);
            all.stops.add(&stops);
        }
    }
    all.print();
}

impl All {
    fn print(&self) {
        println!();
        self.deadlines.print("deadline");
        self.stops.print("cancelled or dead");
        self.short.iter().for_each(|short| println!("short: {short}"));
        self.late.iter().for_each(|name| println!("late: {name}"));
        let long = self.calls - self.short.len();
        println!("{long} of {} calls take over a second, {} are late", self.calls, self.late.len());
    }
}

/// Of an operation the call that is slowest for its bytes, and the slowest at this size, if it is wanted. Those of IF and WHILE
/// differ in what takes long: all of them.
fn slowest(backend: &CpuBackend, ty: OperationType) -> Vec<Call> {
    let size = Size { elements: ELEMENTS, times: 1 };
    let mut calls = Call::all(ty, size);
    if let OperationType::IF | OperationType::WHILE = ty {
        return calls;
    }
    let speed = |call: &Call| {
        let large = call.large(size).unwrap_or_else(|why| panic!("{why}"));
        let (name, bytes) = (large.name.clone(), large.bytes());
        let whole = Ready::new(backend, large).unwrap_or_else(|why| panic!("{name}: {why}")).whole();
        (whole.as_secs_f64() / bytes as f64, whole.as_secs_f64())
    };
    let speeds: Vec<_> = calls.iter().map(speed).collect();
    let most = |of: fn(&(f64, f64)) -> f64| {
        (0..speeds.len()).max_by(|&a, &b| of(&speeds[a]).total_cmp(&of(&speeds[b]))).expect("a call")
    };
    let (for_its_bytes, at_this_size) = (most(|speed| speed.0), most(|speed| speed.1));
    let both = setting("NNHAL_CALLS", 1) > 1 && for_its_bytes != at_this_size;
    let mut i = 0..;
    calls.retain(|_| i.next().is_some_and(|i| i == for_its_bytes || both && i == at_this_size));
    calls
}

/// A call so large that it takes over a second, or as large as it can be, and why it cannot be larger.
fn grown(backend: &CpuBackend, call: Call, most_bytes: usize) -> (Ready, String) {
    let (mut times, large) = (1, |times| call.large(Size { elements: ELEMENTS, times }));
    let made = |times| {
        let large = large(times).unwrap_or_else(|why| panic!("{why}"));
        Ready::new(backend, large).unwrap_or_else(|why| panic!("{why}"))
    };
    let mut ready = made(times);
    while ready.whole() < WHOLE && times < MOST_TIMES {
        // Some work grows with the square of its size.
        let factor = (1.1 * WHOLE.as_secs_f64() / ready.whole().as_secs_f64()).min(3.0);
        let fits = (most_bytes / ready.large.bytes().max(1)) as f64;
        let next = (f64::from(times) * factor.min(fits)) as u32;
        let next = next.clamp(times + 1, MOST_TIMES);
        let large = match large(next) {
            Ok(large) if large.bytes() <= most_bytes => large,
            Ok(large) => return (ready, format!("the next size takes {} MiB", large.bytes() >> 20)),
            Err(why) => return (ready, why),
        };
        // There may not be memory for both.
        drop(ready);
        match Ready::new(backend, large) {
            Ok(larger) => (ready, times) = (larger, next),
            Err(why) => return (made(times), why.to_string()),
        }
    }
    (ready, format!("{times} times"))
}

/// Ends a call at so many moments: by deadlines, and otherwise.
fn ends(backend: &CpuBackend, ready: &mut Ready, moments: usize) -> (Late, Late) {
    let share = ready.compilation.as_secs_f64() / ready.whole().as_secs_f64();
    let least = |phase: Duration| if phase < PHASE { 0 } else { moments / 4 };
    let most = moments - least(ready.execution);
    let compilations = ((moments as f64 * share).round() as usize).max(least(ready.compilation)).min(most);
    let (mut deadlines, mut stops) = (Late::default(), Late::default());
    for moment in 0..moments {
        let (phase, at, of) = match moment.checked_sub(compilations) {
            None => (Phase::Compilation, moment, compilations),
            Some(at) => (Phase::Execution, at, moments - compilations),
        };
        // Within its stretch either way has a moment of its own.
        let part = |way: f64| (at as f64 + way) / of as f64;
        let stop = if moment % 2 == 0 { Way::Cancelled } else { Way::Orphaned };
        deadlines.measure(|| ready.end(backend, Way::Deadline, phase, part(0.3)));
        stops.measure(|| ready.end(backend, stop, phase, part(0.7)));
    }
    (deadlines, stops)
}

/// Has `work` end after so long; gives how long it took where it was over before.
fn ended(
    way: Way,
    after: Duration,
    work: impl FnOnce(&Control) -> Result<(), BackendError>,
) -> Result<Ended, Duration> {
    let lends = Arc::<Lends>::default();
    let mut control = Control { loop_timeout: LOOP_TIMEOUT, turn: Some(lends.clone()), ..Control::default() };
    let start = boottime_ns();
    let due = start + after.as_nanos() as u64;
    let (result, end, returned) = match way {
        Way::Deadline => {
            control.deadline_ns = Some(due);
            let result = work(&control);
            (result, due, boottime_ns())
        }
        Way::Cancelled | Way::Orphaned => std::thread::scope(|scope| {
            let stop = if let Way::Cancelled = way { &control.cancelled } else { &control.orphaned };
            let stops = scope.spawn(move || {
                std::thread::sleep(Duration::from_nanos(due.saturating_sub(boottime_ns())));
                let end = boottime_ns();
                stop.set();
                end
            });
            let (result, returned) = (work(&control), boottime_ns());
            (result, stops.join().expect("no panic"), returned)
        }),
    };
    match (way, result) {
        (_, Ok(())) => Err(Duration::from_nanos(returned - start)),
        (Way::Deadline, Err(BackendError::DeadlinePassed))
        | (Way::Cancelled | Way::Orphaned, Err(BackendError::Cancelled)) => {
            let lends = lends.0.lock().expect("no panic while held");
            let seen = lends.iter().copied().find(|&lent| lent >= end).unwrap_or(returned);
            let [seen, returned] = [seen, returned].map(|at| Duration::from_nanos(at.saturating_sub(end)));
            Ok(Ended { seen, returned })
        }
        (_, Err(why)) => panic!("it failed otherwise: {why}"),
    }
}
