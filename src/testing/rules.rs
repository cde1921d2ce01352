//! Each rule, tried for itself.

use super::running::{self, bind, bind_to, bytes, compare, mapped, run, submit, within};
use super::{Fault, Report, Rule, Sample};
use crate::backend::{Backend, BackendError, CompileOptions, Control, Executable, Memory, Saved};
use crate::memory::{ClientSlice, Mapping};
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Tried = Result<(), String>;
type Try = fn(&Arc<dyn Backend>, &Compiled) -> Tried;

/// A sample that the backend compiled.
struct Compiled<'a> {
    sample: &'a Sample,
    executable: Arc<dyn Executable>,
}

/// Tries every rule on the samples. `rounds` is how often everything is done to see whether something stays behind,
/// `lose` how the device is lost.
pub fn check(
    backend: &Arc<dyn Backend>,
    samples: &[Sample],
    rounds: usize,
    lose: Option<&dyn Fn()>,
) -> Report {
    let mut report = Report::default();
    let mut note = |rule, name: &str, tried: Tried| {
        if let Err(what) = tried {
            let what = if name.is_empty() { what } else { format!("{name}: {what}") };
            report.faults.push(Fault { rule, what });
        }
    };
    note(Rule::Info, "", info(backend.as_ref()));
    let (mut compiled, mut refused) = (Vec::new(), Vec::new());
    for sample in samples {
        let name = &sample.name;
        match supported(backend.as_ref(), sample) {
            Err(what) => note(Rule::Support, name, Err(what)),
            Ok(Err(why)) => refused.push((name.clone(), why)),
            Ok(Ok(())) => match compile(backend, sample, &Control::default()) {
                Ok(Ok(executable)) => compiled.push(Compiled { sample, executable }),
                Ok(Err(why)) => note(Rule::Promise, name, Err(why.to_string())),
                Err(what) => note(Rule::Promise, name, Err(what)),
            },
        }
    }
    for this in &compiled {
        let rules: [(Rule, Try); 7] = [
            (Rule::Bytes, |_, this| (0..3).try_for_each(|_| is_right(&this.executable, this.sample))),
            (Rule::SmallOutput, |_, this| small_output(this)),
            (Rule::Saved, saved),
            (Rule::ChangedData, changed_data),
            (Rule::Deadline, deadline),
            (Rule::Cancellation, |_, this| cancellation(this)),
            (Rule::DeviceBuffers, device_buffers),
        ];
        for (rule, tried) in rules {
            note(rule, &this.sample.name, tried(backend, this));
        }
    }
    note(Rule::Concurrency, "", concurrency(backend, &compiled));
    note(Rule::Leak, "", leak(backend, &compiled, rounds));
    let mut untried = Vec::new();
    match (lose, compiled.first()) {
        (Some(lose), Some(this)) => note(Rule::LostDevice, &this.sample.name, lost(backend, this, lose)),
        (None, _) => untried.push((Rule::LostDevice, "the kit was not told how the device is lost".into())),
        _ => {}
    }
    let is_saved = |this: &Compiled| !matches!(this.executable.artifact(&Control::default()), Ok(None));
    if !compiled.iter().any(is_saved) {
        untried.push((Rule::Saved, "no sample can be saved".into()));
    }
    let taken = compiled.iter().map(|this| this.sample.name.clone()).collect();
    Report { taken, refused, untried, ..report }
}

fn info(backend: &dyn Backend) -> Tried {
    let (first, second) = (backend.info(), backend.info());
    if format!("{first:?}") != format!("{second:?}") {
        return Err("it changes".into());
    }
    if first.version.is_empty() || first.depth == Some(0) {
        return Err("its version is empty, or its queue has room for nothing".into());
    }
    let types: Vec<_> = first.capabilities.operands.iter().map(|(ty, _)| ty.code()).collect();
    if !types.is_sorted() {
        return Err("capabilities are not sorted by operand type".into());
    }
    Ok(())
}

/// Whether all operations are taken, or why not. The outer error is a fault.
fn supported(backend: &dyn Backend, sample: &Sample) -> Result<Result<(), String>, String> {
    let support = || backend.support(&sample.model, &Control::default());
    let (first, second) = (support(), support());
    if first != second {
        return Err("it answers differently the second time".into());
    }
    if first.len() != sample.model.main.operations.len() {
        return Err(format!("{} answers for {} operations", first.len(), sample.model.main.operations.len()));
    }
    if first.iter().any(|answer| answer.as_ref().is_err_and(|why| why.trim().is_empty())) {
        return Err("it refuses an operation without a reason".into());
    }
    Ok(first.into_iter().collect())
}

fn compile(
    backend: &Arc<dyn Backend>,
    sample: &Sample,
    control: &Control,
) -> Result<Result<Arc<dyn Executable>, BackendError>, String> {
    let (backend, model, control) = (backend.clone(), sample.model.clone(), control.clone());
    within(move || backend.compile(&model, &CompileOptions::default(), &control))
}

/// Executes once, over memory of its own.
fn is_right(executable: &Arc<dyn Executable>, sample: &Sample) -> Tried {
    let bound = bind(executable, sample, 0)?;
    let outcome = run(&bound, &Control::default())?.map_err(|why| format!("the execution fails: {why}"))?;
    let dims: Vec<_> = outcome.outputs.iter().map(|output| (output.sufficient, &output.dims)).collect();
    let operands = &sample.model.main.operands;
    let declared: Vec<_> =
        sample.model.main.outputs.iter().map(|&i| (true, &operands[i].info.dims)).collect();
    if dims != declared {
        return Err(format!("its outputs are {dims:?}, must be {declared:?}"));
    }
    compare(&bound, sample)
}

fn small_output(this: &Compiled) -> Tried {
    let bound = bind(&this.executable, this.sample, 1)?;
    let outcome = run(&bound, &Control::default())?.map_err(|why| format!("it fails: {why}"))?;
    if outcome.outputs.iter().any(|output| output.sufficient) {
        return Err("an output one byte short is called sufficient".into());
    }
    for memory in &bound.outputs {
        if bytes(memory)?.iter().any(|&byte| byte != 0xa5) {
            return Err("something was written".into());
        }
    }
    is_right(&this.executable, this.sample)
}

/// The bytes of each model and of each data file.
type Blobs = (Vec<Vec<u8>>, Vec<Vec<u8>>);

/// What was saved, as a client's cache files hold it; `None` if it cannot be.
fn artifact(executable: &Arc<dyn Executable>) -> Result<Option<Blobs>, String> {
    let artifact = executable.artifact(&Control::default());
    let Some(artifact) = artifact.map_err(|why| format!("it is not saved: {why}"))? else { return Ok(None) };
    let data = artifact.data.into_iter().map(|parts| {
        let mut data = Vec::new();
        for (start, part) in parts {
            let private = part.to_private().map_err(|why| why.to_string())?;
            let start = usize::try_from(start).map_err(|_| "a part starts beyond all memory")?;
            if start < data.len() {
                return Err(format!(
                    "a part of the data starts at {start}, before the end of the one before it"
                ));
            }
            data.resize(start, 0);
            data.extend_from_slice(&private);
        }
        Ok(data)
    });
    let data = data.collect::<Result<_, _>>()?;
    Ok(Some((artifact.models, data)))
}

fn load(
    backend: &Arc<dyn Backend>,
    models: Vec<Vec<u8>>,
    data: &[Vec<u8>],
    control: &Control,
) -> Result<Result<Arc<dyn Executable>, BackendError>, String> {
    let mapping = |bytes: &Vec<u8>| {
        let mapping = Arc::new(Mapping::anonymous(bytes.len()).map_err(|why| why.to_string())?);
        ClientSlice::whole(mapping.clone()).write(bytes).map_err(|why| why.to_string())?;
        Ok(mapping)
    };
    let data = data.iter().map(mapping).collect::<Result<_, String>>()?;
    let (backend, control) = (backend.clone(), control.clone());
    within(move || backend.load(Saved { models, data }, &CompileOptions::default(), &control))
}

fn saved(backend: &Arc<dyn Backend>, this: &Compiled) -> Tried {
    let Some((models, data)) = artifact(&this.executable)? else { return Ok(()) };
    let wanted = backend.info().cache_files;
    if [models.len(), data.len()] != [wanted.models, wanted.data].map(|count| count as usize) {
        return Err(format!("it is {} model and {} data files, not {wanted:?}", models.len(), data.len()));
    }
    let loaded = load(backend, models, &data, &Control::default())?;
    let loaded = loaded.map_err(|why| format!("it does not load: {why}"))?;
    if loaded.interface() != this.executable.interface() {
        return Err("the loaded model has another interface".into());
    }
    is_right(&loaded, this.sample)
}

/// Whatever comes of it, it comes: an error, or other values.
fn changed_data(backend: &Arc<dyn Backend>, this: &Compiled) -> Tried {
    let Some((models, data)) = artifact(&this.executable)? else { return Ok(()) };
    let changed = |change: fn(&u8) -> u8| -> Vec<Vec<u8>> {
        data.iter().map(|bytes| bytes.iter().map(change).collect()).collect()
    };
    for changed in [changed(|byte| !byte), changed(|_| 0)] {
        if let Ok(loaded) = load(backend, models.clone(), &changed, &Control::default())? {
            let _ = run(&bind(&loaded, this.sample, 0)?, &Control::default())?;
        }
    }
    is_right(&this.executable, this.sample)
}

/// What may become of an execution that was to stop: done and right, or what `fits`.
fn ends(
    outcome: Result<crate::backend::Outcome, BackendError>,
    bound: &running::Bound,
    sample: &Sample,
    fits: fn(&BackendError) -> bool,
) -> Tried {
    match outcome {
        Ok(_) => compare(bound, sample),
        Err(why) if fits(&why) => Ok(()),
        Err(why) => Err(format!("it ends with another error: {why}")),
    }
}

fn deadline(backend: &Arc<dyn Backend>, this: &Compiled) -> Tried {
    let late = Control { deadline_ns: Some(1), ..Control::default() };
    let fits = |why: &BackendError| matches!(why, BackendError::DeadlinePassed);
    let bound = bind(&this.executable, this.sample, 0)?;
    ends(run(&bound, &late)?, &bound, this.sample, fits)?;
    ends(submit(&bound, &late, |_| ())?, &bound, this.sample, fits)?;
    match compile(backend, this.sample, &late)? {
        Err(why) if !fits(&why) => return Err(format!("a compilation ends with another error: {why}")),
        _ => {}
    }
    is_right(&this.executable, this.sample)
}

fn cancellation(this: &Compiled) -> Tried {
    let fits = |why: &BackendError| matches!(why, BackendError::Cancelled);
    let bound = bind(&this.executable, this.sample, 0)?;
    let cancelled = Control::default();
    cancelled.cancelled.set();
    ends(run(&bound, &cancelled)?, &bound, this.sample, fits)?;
    for i in 0..8 {
        let control = Control::default();
        let flag = control.cancelled.clone();
        let stop = move |cancel: &dyn Fn()| {
            std::thread::sleep(Duration::from_micros(i * 40)); // early, amid it, and late
            flag.set();
            cancel();
        };
        let outcome = submit(&bound, &control, stop)?;
        ends(outcome, &bound, this.sample, fits)?;
        let outcome =
            run(&bound, &Control::default())?.map_err(|why| format!("the next run fails: {why}"))?;
        drop(outcome);
        compare(&bound, this.sample)?;
    }
    Ok(())
}

/// Runs with all arguments in device buffers, for which the backend has memory.
fn device_buffers(backend: &Arc<dyn Backend>, this: &Compiled) -> Tried {
    let main = &this.sample.model.main;
    let buffer = |operand: usize, value: &[u8]| -> Result<Memory, String> {
        let info = &main.operands[operand].info;
        let memory = backend.allocate(info).map_err(|why| format!("allocate() fails: {why}"))?;
        let Some(device) = memory else { return mapped(value) };
        if device.len() != value.len() {
            return Err(format!("it has {} bytes for a value of {}", device.len(), value.len()));
        }
        let Memory::Mapped(plain) = mapped(value)? else { return Err("no memory".into()) };
        device.write(&ClientSlice::whole(plain)).map_err(|why| format!("writing fails: {why}"))?;
        let memory = Memory::Device(device);
        if bytes(&memory)? != value {
            return Err("what was written is not what is read".into());
        }
        Ok(memory)
    };
    let inputs = main.inputs.iter().zip(&this.sample.inputs).map(|(&i, value)| buffer(i, value));
    let outputs = main.outputs.iter().zip(&this.sample.outputs);
    let outputs = outputs.map(|(&i, value)| buffer(i, &vec![0xa5; value.len()]));
    let (inputs, outputs) = (inputs.collect::<Result<_, _>>()?, outputs.collect::<Result<_, _>>()?);
    let bound = bind_to(&this.executable, this.sample, inputs, outputs)?;
    run(&bound, &Control::default())?.map_err(|why| format!("the execution fails: {why}"))?;
    compare(&bound, this.sample)
}

/// Places in the device's queue, as the driver shares them out.
struct Places {
    left: Mutex<usize>,
    given: Condvar,
}

impl Places {
    fn hold<T>(&self, work: impl FnOnce() -> T) -> T {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.given.wait_while(left, |left| *left == 0);
        *left.unwrap_or_else(PoisonError::into_inner) -= 1;
        let result = work();
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.given.notify_one();
        result
    }
}

/// Many threads, each with bindings of its own, of all samples.
fn concurrency(backend: &Arc<dyn Backend>, compiled: &[Compiled]) -> Tried {
    const THREADS: usize = 6;
    const RUNS: usize = 6;
    let depth = backend.info().depth.unwrap_or(THREADS);
    let shared = Arc::new((Places { left: Mutex::new(depth), given: Condvar::new() }, Barrier::new(THREADS)));
    let samples: Vec<(Arc<dyn Executable>, Sample)> =
        compiled.iter().map(|this| (this.executable.clone(), this.sample.clone())).collect();
    let samples = Arc::new(samples);
    let work = move |shared: &(Places, Barrier), samples: &[(Arc<dyn Executable>, Sample)], first: usize| {
        shared.1.wait();
        for i in 0..samples.len() {
            let (executable, sample) = &samples[(i + first) % samples.len()];
            let bound = bind(executable, sample, 0).map_err(|why| format!("{}: {why}", sample.name))?;
            for _ in 0..RUNS {
                let outcome = shared.0.hold(|| bound.binding.clone().run(&Control::default()));
                outcome.map_err(|why| format!("{}: the execution fails: {why}", sample.name))?;
                compare(&bound, sample).map_err(|why| format!("{}: {why}", sample.name))?;
            }
        }
        Ok(())
    };
    within(move || {
        std::thread::scope(|scope| {
            let (shared, samples) = (&shared, &samples);
            let start = |first| scope.spawn(move || work(shared, samples, first));
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Tried>| {
                thread.join().unwrap_or_else(|_| Err("a thread panics".into()))
            };
            let ended: Vec<Tried> = threads.into_iter().map(join).collect();
            ended.into_iter().collect()
        })
    })?
}

/// What this process holds.
fn holdings() -> [(&'static str, usize); 3] {
    let entries = |path: &str| std::fs::read_dir(path).map_or(0, |entries| entries.count());
    let maps = std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
    [("descriptors", entries("/proc/self/fd")), ("threads", entries("/proc/self/task")), ("mappings", maps)]
}

fn leak(backend: &Arc<dyn Backend>, compiled: &[Compiled], rounds: usize) -> Tried {
    /// What was used lately may be kept for a while, as threads are.
    const SETTLE: Duration = Duration::from_secs(30);
    let round = || -> Tried {
        for this in compiled {
            let executable = compile(backend, this.sample, &Control::default())?;
            let executable = executable.map_err(|why| format!("it does not compile any more: {why}"))?;
            is_right(&executable, this.sample)?;
            saved(backend, &Compiled { sample: this.sample, executable })?;
        }
        Ok(())
    };
    (0..4).try_for_each(|_| round())?;
    let before = holdings();
    (0..rounds).try_for_each(|_| round())?;
    let start = Instant::now();
    loop {
        // What grows by one each round has grown by more.
        let grown: Vec<_> =
            holdings().into_iter().zip(before).filter(|(now, b)| now.1 > b.1 + rounds / 2).collect();
        match grown.first() {
            None => return Ok(()),
            Some(((what, now), (_, before))) if start.elapsed() > SETTLE => {
                return Err(format!(
                    "after {rounds} rounds there are {now} {what}, before there were {before}"
                ));
            }
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Loses the device amid an execution.
fn lost(backend: &Arc<dyn Backend>, this: &Compiled, lose: &dyn Fn()) -> Tried {
    let fits = |why: &BackendError| matches!(why, BackendError::DeviceLost(_));
    let bound = bind(&this.executable, this.sample, 0)?;
    let (binding, control) = (bound.binding.clone(), Control::default());
    // Executions one after another, until one fails: the device is lost amid one of them.
    let running = std::thread::spawn(move || {
        within(move || loop {
            if let Err(why) = binding.clone().run(&control) {
                return why;
            }
        })
    });
    lose();
    let end = running.join().map_err(|_| "a thread panics")?.map_err(|why| format!("an execution: {why}"))?;
    if !fits(&end) {
        return Err(format!("an execution ends with another error: {end}"));
    }
    match bind(&this.executable, this.sample, 0) {
        Ok(bound) => match run(&bound, &Control::default())? {
            Err(why) if fits(&why) => {}
            Err(why) => return Err(format!("an execution after it ends with another error: {why}")),
            Ok(_) => compare(&bound, this.sample)?, // it recovered by itself
        },
        Err(why) if why.contains("the device is lost") => {}
        Err(why) => return Err(format!("after it, {why}")),
    }
    let again = compile(backend, this.sample, &Control::default())?;
    let again = again.map_err(|why| format!("the next compilation fails: {why}"))?;
    is_right(&again, this.sample)
}
