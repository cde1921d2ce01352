//! The backend's process: does what the service orders, until that is gone.
//!
//! One thread at a time reads. It does long work itself, while another thread reads on: an execution stays on its thread.
//! Messages are handled in order as far as it matters, because a reader looks things up before the next one reads. What is to
//! be executed it leaves to the work: that may be long, and is let go of only after the answer, or once that is not wanted any more.

use super::answers::{cut, describe, save, too_long, Answered};
use super::codec::{from_bytes, to_bytes, Blob};
use super::constants::not_copied;
use super::message::{Answer, Bound, Order, Reply, Source, Terms, LONGEST_REPLY};
use super::model::unpack;
use crate::backend::{
    Arguments, Backend, BackendError, Binding, ClientMemory, CompileOptions, Control, Executable, Memory,
    Saved,
};
use crate::memory::{receive, send, Access, Budget, Mapping, MemoryError};
use crate::model::CountedModel;
use crate::ops::Interrupt;
use crate::scheduler::{CallTurns, Errands, Recorder, Stop};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{raise, Signal};
use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{stdin, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads that stay while they have nothing to do.
const IDLE: usize = 4;
/// What is noted of one run.
const MOST_SPANS: usize = 1 << 16;
/// Memory of no more bytes is let go of by who reads.
const SMALL: usize = 1 << 20;
/// What is to be executed is read without a turn where it has no more bytes.
const MANY_BYTES: usize = 64 << 10;

struct Server {
    backend: Arc<dyn Backend>,
    /// Private memory of clients in this process.
    budget: Budget,
    /// For constants that are copied before the backend has them, and for what there is much to read of.
    turns: CallTurns,
    socket: OwnedFd,
    /// One thread lets go of what may be large, so that the reader need not, and that there are no more at it.
    releases: Arc<Errands>,
    /// Held by who reads.
    reading: Mutex<()>,
    /// Threads that read, or wait to.
    readers: AtomicUsize,
    things: Mutex<Things>,
}

/// What the service knows by numbers.
#[derive(Default)]
struct Things {
    executables: HashMap<u64, Arc<dyn Executable>>,
    bindings: HashMap<u64, Arc<dyn Binding>>,
    memories: HashMap<u64, Lent>,
    /// What stops a call.
    cancels: HashMap<u64, Arc<Stop>>,
}

type Lent = std::result::Result<Memory, Arc<BackendError>>;
type Job = Box<dyn FnOnce(&Server)>;

/// Serves `backend` on standard input, to the service that started this process so, within `budget`. It returns only if it
/// cannot begin: otherwise the process ends with the service.
pub fn serve(backend: Arc<dyn Backend>, budget: Budget) -> Result<Infallible> {
    let socket = stdin().as_fd().try_clone_to_owned()?;
    // Whatever the backend starts inherits that, and must not keep the socket open.
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    let hello = Reply { call: 0, answer: Answer::Hello(backend.info()) };
    send(socket.as_fd(), &to_bytes(&hello), &[])?;
    let things = Mutex::default();
    let (reading, readers) = (Mutex::new(()), AtomicUsize::new(1));
    let turns = CallTurns::new(std::thread::available_parallelism().map_or(1, |n| n.get()));
    let releases = Errands::new("nnhal-release");
    let server = Arc::new(Server { backend, budget, turns, socket, releases, reading, readers, things });
    let reader = std::thread::Builder::new().name("nnhal-serve".into());
    reader.spawn(move || server.work())?;
    // Threads that read come and go, and this one would end the process.
    loop {
        std::thread::park();
    }
}

impl Server {
    /// Reads and does what it reads, as long as threads are needed that do.
    fn work(self: Arc<Self>) {
        loop {
            let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            let job = self.read();
            if self.readers.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.clone().start_reader();
            }
            drop(reading);
            job(&self);
            if self.readers.fetch_add(1, Ordering::Relaxed) > IDLE {
                self.readers.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }

    fn start_reader(self: Arc<Self>) {
        self.readers.fetch_add(1, Ordering::Relaxed);
        let server = self.clone();
        let thread = std::thread::Builder::new().name("nnhal-serve".into());
        if let Err(why) = thread.spawn(move || server.work()) {
            // This thread reads again once it is done.
            self.readers.fetch_sub(1, Ordering::Relaxed);
            log::warn!("no thread to read on: {why}");
        }
    }

    /// Reads until there is something that may take long.
    fn read(&self) -> Job {
        loop {
            match receive(self.socket.as_fd(), false) {
                Ok(Some((bytes, files))) => match from_bytes(&bytes) {
                    Some(order) => {
                        if let Some(job) = self.begin(order, files) {
                            return job;
                        }
                    }
                    None => end("the service says what makes no sense"),
                },
                Ok(None) => end("the service is gone"),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => end(&format!("the service cannot be understood: {error}")),
            }
        }
    }

    /// Does what is quick, and gives what is not.
    fn begin(&self, order: Order, files: Vec<OwnedFd>) -> Option<Job> {
        match order {
            Order::Support { call, model, terms } => {
                let control = self.control(call, &terms);
                Some(Box::new(move |server| {
                    server.answer(call, || {
                        let _account = control.on_account();
                        let model = server.unpacked(model, &files, &control)?;
                        let verdicts = server.backend.support(&model, &control);
                        Ok((Answer::Support(cut(verdicts)), Vec::new()))
                    });
                }))
            }
            Order::Prepare { call, number, source, options, terms } => {
                let control = self.control(call, &terms);
                Some(Box::new(move |server| {
                    server.answer(call, || server.prepare(number, source, &files, &options, &control));
                }))
            }
            Order::Describe { call, number, terms } => {
                let control = self.control(call, &terms);
                let executable = self.things().executables.get(&number).cloned();
                Some(Box::new(move |server| {
                    // Until it is said.
                    let mut counted = None;
                    server.answer(call, || describe(executable, &server.turns, &control, &mut counted));
                }))
            }
            Order::Save { call, number, terms } => {
                let control = self.control(call, &terms);
                let executable = self.things().executables.get(&number).cloned();
                Some(Box::new(move |server| {
                    // Until it is said.
                    let mut counted = None;
                    server.answer(call, || save(executable, &server.turns, &control, &mut counted));
                }))
            }
            Order::Run { call, what, terms } => {
                let control = self.control(call, &terms);
                Some(Box::new(move |server| server.answer(call, || server.execute(what, &control))))
            }
            Order::Lend { number, offset, len, access, kind } => {
                let lent = match files.first() {
                    Some(fd) => {
                        let (fd, access) = (fd.as_fd(), Some(access));
                        self.borrow(&ClientMemory { fd, offset, len, kind, access })
                    }
                    None => Err(Arc::new(BackendError::Failed("a memory without a descriptor".into()))),
                };
                self.things().memories.insert(number, lent);
                None
            }
            Order::Cancel { call } => {
                if let Some(cancel) = self.things().cancels.get(&call) {
                    cancel.set();
                }
                None
            }
            Order::Release { number } => {
                let mut things = self.things();
                let (memory, binding) = (things.memories.remove(&number), things.bindings.remove(&number));
                let executable = things.executables.remove(&number);
                drop(things);
                let is_small = |memory: &Lent| memory.as_ref().map_or(true, |memory| memory.len() <= SMALL);
                if binding.is_some() || executable.is_some() || !memory.as_ref().is_none_or(is_small) {
                    // All that the service says waits for who reads.
                    self.releases.run(0, move || drop((memory, binding, executable)));
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
        let Terms { client, deadline_ns, loop_timeout, priority, recorded_since } = *terms;
        let account = self.budget.on_account_of(client);
        // A client that has no memory for it is not told what happens in this process.
        let recorder = recorded_since.and_then(|began| Recorder::since(began, MOST_SPANS).counted());
        drop(account);
        let (recorder, budget) = (recorder.map(Arc::new), Some(self.budget.clone()));
        let control =
            Control { client, budget, deadline_ns, loop_timeout, priority, recorder, ..Control::default() };
        self.things().cancels.insert(call, control.cancelled.clone());
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
        files: &[OwnedFd],
        options: &CompileOptions,
        control: &Control,
    ) -> Answered {
        let _account = control.on_account();
        let executable = match source {
            Source::Model(model) => {
                let model = self.unpacked(model, files, control)?;
                self.backend.compile(&model, options, control)?
            }
            Source::Saved { models, data } => {
                let models = models.into_iter().map(|model| model.0).collect();
                let mapped = files.iter().zip(data).map(|(file, len)| mapped(file.as_fd(), len));
                let data = mapped.collect::<std::result::Result<_, _>>().map_err(of_memory)?;
                self.backend.load(Saved { models, data }, options, control)?
            }
        };
        let interface = executable.interface().clone();
        self.things().executables.insert(number, executable);
        Ok((Answer::Prepared(interface), Vec::new()))
    }

    /// The model, on the account of the client whose work the thread does. Its constants are copied by turns, which end here: the
    /// backend has its own, or a device to wait for.
    fn unpacked(
        &self,
        model: Blob,
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
        let model = unpack(&model.0, constants, &turn).map_err(not_copied("a model"))?;
        Ok(CountedModel::new(model, &turn)?)
    }

    /// What these bytes say that is to be executed, bound. They are read by a turn where they are many.
    fn bound(&self, what: Blob, control: &Control) -> std::result::Result<Arc<dyn Binding>, BackendError> {
        let turn = self.turns.check(control);
        if what.0.len() > MANY_BYTES {
            turn.yield_point()?;
        }
        let Some(bound) = from_bytes(&what.0) else { end("the service says what makes no sense") };
        drop(what);
        let found = self.find(bound)?;
        drop(turn); // the backend may have to wait
        Ok(match found {
            Found::Bound(binding) => binding,
            Found::New { keep, executable, arguments } => {
                let binding = executable.bind(arguments)?;
                if let Some(number) = keep {
                    self.things().bindings.insert(number, binding.clone());
                }
                binding
            }
        })
    }

    fn find(&self, what: Bound) -> std::result::Result<Found, BackendError> {
        let things = self.things();
        let missing = |what: &str, number| BackendError::Failed(format!("there is no {what} {number}"));
        match what {
            Bound::Again(number) => {
                let binding = things.bindings.get(&number).cloned();
                binding.map(Found::Bound).ok_or_else(|| missing("binding", number))
            }
            Bound::New { keep, executable, request, memories, reused } => {
                let lent = |number: Option<u64>| match number {
                    None => Ok(None),
                    Some(number) => match things.memories.get(&number) {
                        Some(Ok(memory)) => Ok(Some(memory.clone())),
                        Some(Err(why)) => Err(again(why)),
                        None => Err(missing("memory", number)),
                    },
                };
                let pools = memories.into_iter().map(lent).collect::<std::result::Result<_, _>>()?;
                let found = things.executables.get(&executable).cloned();
                let executable = found.ok_or_else(|| missing("executable", executable))?;
                Ok(Found::New { keep, executable, arguments: Arguments { request, pools, reused } })
            }
        }
    }

    fn execute(&self, what: Blob, control: &Control) -> Answered {
        let _account = control.on_account();
        // What panics has bound nothing: the service is to send all of it again.
        let bound = catch_unwind(AssertUnwindSafe(|| self.bound(what, control)));
        let binding = match bound.unwrap_or_else(|_| Err(panicked())) {
            Ok(binding) => binding,
            Err(why) => return Ok((Answer::Unbound(why), Vec::new())),
        };
        let outcome = binding.run(control)?;
        let noted = control.recorder.as_ref().map(|recorder| recorder.take(MOST_SPANS));
        Ok((Answer::Ran(outcome, noted), Vec::new()))
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

/// What is to be executed.
enum Found {
    Bound(Arc<dyn Binding>),
    New { keep: Option<u64>, executable: Arc<dyn Executable>, arguments: Arguments },
}

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

/// The same error once more.
fn again(why: &Arc<BackendError>) -> BackendError {
    from_bytes(&to_bytes(&**why)).unwrap_or_else(|| BackendError::Failed(why.to_string()))
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
