//! The backend's process: does what the service orders, until that is gone.
//!
//! One thread at a time reads. It does long work itself, while another thread reads on: an execution stays on its thread. Of each
//! client there are so many of those at the most: the backend is handed what comes beyond that, to have it wait.
//! Messages are handled in order as far as it matters, because a reader looks things up before the next one reads. What goes with
//! an order it leaves to the work, as a model or very many arguments are long. What these name is let go of only after the answer, or
//! once that is not wanted any more.

use super::answers::{cut, describe, save, too_long, Answered};
use super::body::{parts, Body};
use super::codec::{from_bytes, to_bytes};
use super::constants::not_copied;
use super::instance::count;
use super::message::{Answer, Bound, Order, Reply, Source, Terms, LONGEST_REPLY};
use super::model::unpack;
use super::things::{Cancel, Kept, Lent, Things};
use crate::backend::{
    Arguments, Backend, BackendError, ClientMemory, CompileOptions, Control, Memory, Outcome, Saved,
    Submission,
};
use crate::memory::{receive_unread, send, Access, Budget, Mapping, MemoryError};
use crate::model::CountedModel;
use crate::ops::Interrupt;
use crate::quota::{Permit, Quota};
use crate::scheduler::{limits, CallTurns, Errands, Recorder, Watcher};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{raise, Signal};
use std::convert::Infallible;
use std::fs::File;
use std::io::{stdin, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads that stay while they have nothing to do.
const IDLE: usize = 4;
/// So many memories are looked up before others may.
const AT_ONCE: usize = 1000;
/// What is noted of one run.
const MOST_SPANS: usize = 1 << 16;

struct Server {
    backend: Arc<dyn Backend>,
    /// Private memory of clients in this process.
    budget: Budget,
    /// For constants that are copied before the backend has them, and for what there is much to read of.
    turns: CallTurns,
    socket: OwnedFd,
    /// One thread of each client lets go of what may be large, so that the reader need not.
    releases: Arc<Errands>,
    /// Who has how many threads for executions.
    runs: Arc<Quota>,
    /// One thread of each client hands others to the backend.
    submissions: Arc<Errands>,
    watcher: Watcher,
    /// Held by who reads.
    reading: Mutex<()>,
    /// Threads that read, or wait to.
    readers: AtomicUsize,
    things: Mutex<Things>,
}

type Job = Box<dyn FnOnce(&Server)>;

/// An execution that was ordered.
struct Run {
    call: u64,
    body: Body,
    /// When the recorder began for which it is to be noted, if there is one.
    since: Option<u64>,
    control: Control,
}

/// Serves `backend` on standard input, to the service that started this process so, within `budget`. It returns only if it
/// cannot begin: otherwise the process ends with the service.
pub fn serve(backend: Arc<dyn Backend>, budget: Budget) -> Result<Infallible> {
    let socket = stdin().as_fd().try_clone_to_owned()?;
    // Whatever the backend starts inherits that, and must not keep the socket open.
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    let hello = Reply { call: 0, answer: Answer::Hello(backend.info()) };
    send(socket.as_fd(), &to_bytes(&hello), &[])?;
    let turns = CallTurns::new(std::thread::available_parallelism().map_or(1, |n| n.get()));
    let server = Server::new(backend, budget, turns, socket)?;
    let reader = std::thread::Builder::new().name("nnhal-serve".into());
    reader.spawn(move || server.work())?;
    // Threads that read come and go, and this one would end the process.
    loop {
        std::thread::park();
    }
}

impl Server {
    /// One with a thread that is about to read.
    fn new(
        backend: Arc<dyn Backend>,
        budget: Budget,
        turns: CallTurns,
        socket: OwnedFd,
    ) -> Result<Arc<Self>> {
        let watcher = Watcher::new()?;
        Ok(Arc::new(Server {
            backend,
            budget,
            turns,
            socket,
            releases: Errands::new("nnhal-release", watcher.starter()),
            runs: limits::RUNS.quota(),
            submissions: Errands::new("nnhal-submit", watcher.starter()),
            watcher,
            reading: Mutex::new(()),
            readers: AtomicUsize::new(1),
            things: Mutex::default(),
        }))
    }

    /// Reads and does what it reads, as long as threads are needed that do.
    fn work(self: Arc<Self>) {
        loop {
            let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            let job = self.read();
            if self.readers.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.read_on();
            }
            drop(reading);
            job(&self);
            if self.readers.fetch_add(1, Ordering::Relaxed) > IDLE {
                self.readers.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Has another thread read: at once, or once one can be had, if none reads by then. What this one does may wait for what is to be read.
    fn read_on(self: &Arc<Self>) {
        let Err(why) = self.start_reader() else { return };
        log::warn!("orders wait for a thread to read them, as none can be started: {why}");
        let server = self.clone();
        let reads = move || server.readers.load(Ordering::Relaxed) > 0 || server.start_reader().is_ok();
        self.watcher.starter().until(reads);
    }

    fn start_reader(self: &Arc<Self>) -> std::io::Result<()> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        let server = self.clone();
        let started = std::thread::Builder::new().name("nnhal-serve".into()).spawn(move || server.work());
        if started.is_err() {
            self.readers.fetch_sub(1, Ordering::Relaxed);
        }
        started.map(drop)
    }

    /// Reads until there is something that may take long.
    fn read(self: &Arc<Self>) -> Job {
        loop {
            match receive_unread(self.socket.as_fd(), false) {
                Ok(Some((message, files))) => match Body::of(message) {
                    Some((order, body)) => {
                        if let Some(job) = self.begin(order, body, files) {
                            return job;
                        }
                    }
                    None => end(NONSENSE),
                },
                Ok(None) => end("the service is gone"),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => end(&format!("the service cannot be understood: {error}")),
            }
        }
    }

    /// Does what is quick, and gives what is not.
    fn begin(self: &Arc<Self>, order: Order, body: Body, files: Vec<OwnedFd>) -> Option<Job> {
        match order {
            Order::Support { call, terms } => {
                let control = self.control(call, &terms);
                Some(Box::new(move |server| {
                    server.answer(call, || {
                        let _account = control.on_account();
                        let model = server.unpacked(body, &files, &control)?;
                        let verdicts = server.backend.support(&model, &control);
                        Ok((Answer::Support(cut(verdicts)), Vec::new()))
                    });
                }))
            }
            Order::Prepare { call, number, source, options, terms } => {
                let control = self.control(call, &terms);
                Some(Box::new(move |server| {
                    server
                        .answer(call, || server.prepare(number, source, (body, &files), &options, &control));
                }))
            }
            Order::Describe { call, number, terms } => {
                let control = self.control(call, &terms);
                let executable = self.things().executable(number);
                Some(Box::new(move |server| {
                    // Until it is said.
                    let mut counted = None;
                    server.answer(call, || describe(executable, &server.turns, &control, &mut counted));
                }))
            }
            Order::Save { call, number, terms } => {
                let control = self.control(call, &terms);
                let executable = self.things().executable(number);
                Some(Box::new(move |server| {
                    // Until it is said.
                    let mut counted = None;
                    server.answer(call, || save(executable, &server.turns, &control, &mut counted));
                }))
            }
            Order::Run { call, terms } => {
                let (control, since) = (self.control(call, &terms), terms.recorded_since);
                let (client, run) = (control.client, Run { call, body, since, control });
                let Ok(place) = self.runs.take(client, 1) else {
                    let server = self.clone();
                    self.submissions.run(client, move || server.submit(run));
                    return None;
                };
                Some(Box::new(move |server| server.execute(run, place)))
            }
            Order::Lend { number, client, offset, len, access, kind } => {
                let lent = match files.first() {
                    Some(fd) => {
                        let (fd, access) = (fd.as_fd(), Some(access));
                        self.borrow(&ClientMemory { fd, offset, len, kind, access })
                    }
                    None => Err(Arc::new(BackendError::Failed("a memory without a descriptor".into()))),
                };
                self.things().memories.insert(number, (client, lent));
                None
            }
            Order::Cancel { call } => {
                let cancel = self.things().cancels.get(&call).cloned();
                if let Some(Cancel { client, stop, .. }) = cancel {
                    stop.set();
                    // Looked for after that: who hands an execution to the backend says how to ask it, and then sees that it is to stop.
                    let device = self.things().cancels.get(&call).and_then(|cancel| cancel.device.clone());
                    if let Some(device) = device {
                        // What stood in the backend's line is let go of by who asks.
                        self.releases.run(client, move || device());
                    }
                }
                None
            }
            Order::Release { number } => {
                let released = self.things().release(number);
                if let Some(released) = released {
                    // All that the service says waits for who reads, and it may be the last of a client's file of any length.
                    self.releases.run(released.client, move || drop(released));
                }
                None
            }
            Order::Ping { call } => {
                self.say(call, Answer::Pong, &[]);
                None
            }
        }
    }

    fn control(&self, call: u64, terms: &Terms) -> Control {
        let Terms { client, deadline_ns, loop_timeout, priority, .. } = *terms;
        let budget = Some(self.budget.clone());
        let control = Control { client, budget, deadline_ns, loop_timeout, priority, ..Control::default() };
        let cancel = Cancel { client, stop: control.cancelled.clone(), device: None };
        self.things().cancels.insert(call, cancel);
        control
    }

    /// Takes memory into the device, or maps it.
    fn borrow(&self, memory: &ClientMemory) -> Lent {
        if let Some(memory) = self.backend.import(memory)? {
            return Ok(Memory::Device(memory));
        }
        let ClientMemory { fd, offset, len, access, .. } = *memory;
        let mapping = Mapping::new(fd, offset, len, access.unwrap_or(Access::ReadWrite));
        Ok(Memory::Mapped(Arc::new(mapping.map_err(of_memory)?)))
    }

    fn prepare(
        &self,
        number: u64,
        source: Source,
        (body, files): (Body, &[OwnedFd]),
        options: &CompileOptions,
        control: &Control,
    ) -> Answered {
        let _account = control.on_account();
        let executable = match source {
            Source::Model => {
                let model = self.unpacked(body, files, control)?;
                self.backend.compile(&model, options, control)?
            }
            Source::Saved { models, data } => {
                // Until it is loaded, as which it is counted where that takes memory.
                let (bytes, _counted) = body.read(&self.turns.check(control))?;
                let models = parts(bytes, &models).unwrap_or_else(|| end(NONSENSE));
                let mapped = files.iter().zip(data).map(|(file, len)| mapped(file.as_fd(), len));
                let data = mapped.collect::<std::result::Result<_, _>>().map_err(of_memory)?;
                self.backend.load(Saved { models, data }, options, control)?
            }
        };
        let interface = executable.interface().clone();
        self.things().executables.insert(number, (control.client, executable));
        Ok((Answer::Prepared(interface), Vec::new()))
    }

    /// The model, on the account of the client whose work the thread does. Its constants are copied by turns, which end here: the
    /// backend has its own, or a device to wait for.
    fn unpacked(
        &self,
        body: Body,
        files: &[OwnedFd],
        control: &Control,
    ) -> std::result::Result<CountedModel, BackendError> {
        let len = |file: &OwnedFd| File::from(file.try_clone()?).metadata().map(|facts| facts.len());
        let constants = files.first().map(|file| {
            let len = len(file).map_err(MemoryError::Map)?;
            mapped(file.as_fd(), usize::try_from(len).unwrap_or(usize::MAX))
        });
        let constants = constants.transpose().map_err(of_memory)?;
        let turn = self.turns.check(control);
        let (bytes, counted) = body.read(&turn)?;
        let model = unpack(&bytes, constants, &turn).map_err(not_copied("a model"))?;
        turn.before_waiting(); // there may be much to let go of
        drop((bytes, counted));
        Ok(CountedModel::new(model, &turn)?)
    }

    /// What this says that is to be executed, bound. It is read by a turn where it is long.
    fn bound(&self, body: Body, control: &Control) -> std::result::Result<Arc<Kept>, BackendError> {
        let turn = self.turns.check(control);
        let (bytes, counted_bytes) = body.read(&turn)?;
        let what: Bound = from_bytes(&bytes).unwrap_or_else(|| end(NONSENSE));
        let (keep, executable, request, memories, reused) = match what {
            Bound::Again(number) => return self.things().binding(number),
            Bound::New { keep, executable, request, memories, reused } => {
                (keep, executable, request, memories, reused)
            }
        };
        let pools = memories.len().saturating_mul(size_of::<Option<Memory>>());
        let counted = count(request.footprint().saturating_add(pools))?;
        let (executable, mut pools) = (self.things().to_bind(executable)?, Vec::new());
        pools.try_reserve_exact(memories.len()).map_err(|_| BackendError::OutOfMemory(memories.len()))?;
        for some in memories.chunks(AT_ONCE) {
            pools.extend(self.things().lent(some)?);
        }
        drop(turn); // the backend may have to wait, and there may be much to let go of
        drop((bytes, counted_bytes));
        let request = Arc::unwrap_or_clone(request);
        let (client, binding) = (control.client, executable.bind(Arguments { request, pools, reused })?);
        let kept = Arc::new(Kept { client, binding, _counted: counted });
        if let Some(number) = keep {
            self.things().bindings.insert(number, kept.clone());
        }
        Ok(kept)
    }

    /// What is to be run, bound, and how that is to be noted.
    fn to_run(
        &self,
        body: Body,
        since: Option<u64>,
        control: &mut Control,
    ) -> std::result::Result<Arc<Kept>, BackendError> {
        // What panics has bound nothing: the service is to send all of it again.
        let bound = catch_unwind(AssertUnwindSafe(|| self.bound(body, control)));
        let kept = bound.unwrap_or_else(|_| Err(panicked()))?;
        // A client that has no memory for it is not told what happens in this process.
        let recorder = since.and_then(|began| Recorder::since(began, MOST_SPANS).counted());
        control.recorder = recorder.map(Arc::new);
        Ok(kept)
    }

    /// Executes on this thread, which has a place for that.
    fn execute(&self, Run { call, body, since, mut control }: Run, place: Permit) {
        self.answer(call, || {
            let _account = control.on_account();
            let ran = match self.to_run(body, since, &mut control) {
                Ok(kept) => ran(kept.binding.clone().run(&control), &control),
                Err(why) => unbound(why),
            };
            drop(place); // before anybody hears of the end
            ran
        });
    }

    /// Hands an execution to the backend, to have it wait and run without a thread of this process.
    fn submit(self: &Arc<Self>, Run { call, body, since, mut control }: Run) {
        let _account = control.on_account();
        // Others of the client wait for the thread, and to bind may take the backend a while.
        let checked = control.check().map_err(BackendError::from);
        let kept = match checked.and_then(|()| self.to_run(body, since, &mut control)) {
            Ok(kept) => kept,
            Err(why) => return self.answer(call, || unbound(why)),
        };
        let submit = || kept.binding.clone().submit(Vec::new(), &control);
        let submitted = catch_unwind(AssertUnwindSafe(submit)).unwrap_or_else(|_| Err(panicked()));
        let pending = match submitted {
            Ok(Submission::Pending(pending)) => pending,
            Ok(Submission::Done(outcome)) => return self.answer(call, || ran(Ok(outcome), &control)),
            Err(why) => return self.answer(call, || Err(why)),
        };
        let device = pending.canceller();
        if let Some(cancel) = self.things().cancels.get_mut(&call) {
            cancel.device = device.clone();
        }
        if let Some(device) = device.filter(|_| control.check().is_err()) {
            device(); // it was cancelled when the device could not be asked yet
        }
        let server = self.clone();
        let ended = move |outcome| {
            let ran = ran(outcome, &control);
            drop((kept, control));
            server.answer(call, || ran);
        };
        pending.then(&self.watcher, Box::new(ended));
    }

    /// Answers a call with what `work` gives.
    fn answer(&self, call: u64, work: impl FnOnce() -> Answered) {
        let answered = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()));
        self.things().cancels.remove(&call);
        match answered {
            Ok((answer, files)) => self.say(call, answer, &files),
            Err(why) => self.say(call, Answer::Failed(why), &[]),
        }
    }

    fn say(&self, call: u64, answer: Answer, files: &[File]) {
        let mut message = to_bytes(&Reply { call, answer });
        if message.len() > LONGEST_REPLY {
            // The service would end the process, and with it the work of all clients.
            let answer = Answer::Failed(too_long(message.len()));
            message = to_bytes(&Reply { call, answer });
        }
        let files: Vec<BorrowedFd> = files.iter().map(AsFd::as_fd).collect();
        loop {
            match send(self.socket.as_fd(), &message, &files) {
                Ok(()) => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
                    let _ = poll(&mut fds, PollTimeout::NONE); // an error shows when it is sent
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Somebody waits for it in vain: all are better off with a process that is started again.
                Err(error) => end(&format!("the service cannot be told: {error}")),
            }
        }
    }

    fn things(&self) -> MutexGuard<'_, Things> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of an execution, and what was noted of it.
fn ran(outcome: std::result::Result<Outcome, BackendError>, control: &Control) -> Answered {
    let noted = control.recorder.as_ref().map(|recorder| recorder.take(MOST_SPANS));
    Ok((Answer::Ran(outcome?, noted), Vec::new()))
}

fn unbound(why: BackendError) -> Answered {
    Ok((Answer::Unbound(why), Vec::new()))
}

const NONSENSE: &str = "the service says what makes no sense";

/// Ends the process at once: nothing that it holds outlives it, and what a vendor does as a process ends may hang.
fn end(why: &str) -> ! {
    log::debug!("the backend's process ends: {why}");
    let _ = raise(Signal::SIGKILL);
    std::process::abort()
}

fn mapped(file: BorrowedFd, len: usize) -> std::result::Result<Arc<Mapping>, MemoryError> {
    let mapping = if len == 0 { Mapping::anonymous(0) } else { Mapping::new(file, 0, len, Access::Read) };
    mapping.map(Arc::new)
}

fn panicked() -> BackendError {
    BackendError::Failed("the backend panicked; this is a fault of its own".into())
}

fn of_memory(source: MemoryError) -> BackendError {
    BackendError::Memory { what: "memory of the service".into(), source }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
