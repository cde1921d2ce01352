//! One life of the backend's process, seen from the service: what was asked of it, and its end.
//!
//! The process may say anything, or nothing: what makes no sense ends it, and so does an answer that is long overdue.

use super::codec::{from_bytes_within, to_bytes};
use super::message::{Answer, Order, Reply, With, LONGEST_REPLY, NOTHING};
use crate::backend::{BackendError, Info};
use crate::memory::{process_descriptor, receive_unread, send, send_with_body, Message};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{shutdown, socketpair, AddressFamily, Shutdown, SockFlag, SockType};
use std::collections::{HashMap, VecDeque};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the process may take until it is ready.
const START: Duration = Duration::from_secs(20);
/// How long it may take to say that it reads, and to end what nobody wants any more.
pub const HANG: Duration = Duration::from_secs(10);
/// How often it is looked after while it says nothing.
const LOOK: Duration = Duration::from_secs(1);
/// How long a process that was killed may take to end before those who asked it hear that it is lost.
const DEATH: u16 = 5000; // milliseconds
/// The same where no descriptor tells when it ends.
const SOON: Duration = Duration::from_millis(100);
/// How long to wait for it to read, where it has too much unread, for threads that may wait, and for those that others need.
pub const FULL: Duration = Duration::from_millis(100);
pub const NOT_AT_ALL: Duration = Duration::ZERO;

/// Bytes of memory that what it says at once takes when it is understood.
const LARGEST_REPLY: usize = 256 << 20;

/// Hears of the end of a call, on the thread that reads, and has its answer [read](Life::read).
pub type End = Box<dyn FnOnce(std::result::Result<Said, BackendError>) + Send>;

/// An answer with its descriptors, which is still to be read where it is long: that is for who wants it, as all other answers
/// wait for the thread that reads what the process says.
pub enum Said {
    Short(Answer, Vec<OwnedFd>),
    Long(Message, Vec<OwnedFd>),
}

/// A number that nothing had before.
pub fn new_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

pub struct Life {
    pub began: Instant,
    useful: AtomicBool,
    process: Mutex<Child>,
    socket: OwnedFd,
    calls: Mutex<Calls>,
    /// Messages without descriptors that it must get and could not yet, as it has too much to read: they go before all others.
    /// What they let go of or cancel bounds how many there are: while one waits here, nothing new is lent or asked.
    late: Mutex<VecDeque<Vec<u8>>>,
}

#[derive(Default)]
struct Calls {
    under_way: HashMap<u64, Call>,
    /// Why the process is lost, once it is.
    lost: Option<String>,
}

struct Call {
    end: End,
    overdue: Option<Instant>,
}

impl Life {
    /// Starts the process that `command` makes, which is to serve on its standard input, and waits until it is ready.
    pub fn start(mut command: Command) -> Result<(Life, Info)> {
        let (socket, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let process = command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
        drop(command); // and its end of the socket with it
        let life = Life {
            began: Instant::now(),
            useful: AtomicBool::new(false),
            process: Mutex::new(process),
            socket,
            calls: Mutex::default(),
            late: Mutex::default(),
        };
        let info = life.hello().inspect_err(|_| life.reap())?;
        Ok((life, info))
    }

    fn hello(&self) -> Result<Info> {
        if !wait(self.socket.as_fd(), PollFlags::POLLIN, START) {
            return Err(Error::new(ErrorKind::TimedOut, "it does not say that it is ready"));
        }
        let said = self.hear()?.map(|said| said.filter(|(call, _)| *call == 0));
        match said.map(|said| said.map(|(_, said)| self.read(said))) {
            Some(Some(Ok((Answer::Hello(info), _)))) => Ok(info),
            Some(_) => Err(Error::new(ErrorKind::InvalidData, "it does not say what it is")),
            None => Err(Error::other("it ended as it began")),
        }
    }

    /// What it has said, and of which call: `None` for what makes no sense. `None` in all once it has ended.
    fn hear(&self) -> Result<Option<Option<(u64, Said)>>> {
        Ok(receive_unread(self.socket.as_fd(), true)?.map(|(message, files)| match message {
            Message::Here(bytes) => {
                let reply = from_bytes_within::<Reply>(&bytes, LARGEST_REPLY);
                reply.map(|Reply { call, answer }| (call, Said::Short(answer, files)))
            }
            // A reply begins with the number of its call.
            long => long.first().map(|call| (u64::from_le_bytes(call), Said::Long(long, files))),
        }))
    }

    /// Reads an answer. One that makes no sense ends the process.
    pub fn read(&self, said: Said) -> std::result::Result<(Answer, Vec<OwnedFd>), BackendError> {
        let (answer, files) = match said {
            Said::Short(answer, files) => (answer, files),
            Said::Long(message, files) => {
                let bytes = message.bytes(LONGEST_REPLY as u64).ok();
                match bytes.and_then(|bytes| from_bytes_within::<Reply>(&bytes, LARGEST_REPLY)) {
                    Some(Reply { answer, .. }) => (answer, files),
                    None => return Err(self.condemn("its process says what makes no sense")),
                }
            }
        };
        if let Answer::Failed(why) = answer {
            return Err(why);
        }
        let useful = !matches!(answer, Answer::Hello(_) | Answer::Pong | Answer::Unbound(_));
        self.useful.fetch_or(useful, Ordering::Relaxed);
        Ok((answer, files))
    }

    /// The process, for whoever looks after it.
    pub fn process(&self) -> u32 {
        self.lock_process().id()
    }

    /// Whether it ever did what it was asked.
    pub fn was_useful(&self) -> bool {
        self.useful.load(Ordering::Relaxed)
    }

    /// Whether it is not known to be lost.
    pub fn is_there(&self) -> bool {
        self.calls().lost.is_none()
    }

    /// Tells it what it need not answer. Waits for so long at the most, should it have too much to read.
    pub fn tell(
        &self,
        order: &Order,
        With { body, files }: With,
        patience: Duration,
    ) -> std::result::Result<(), BackendError> {
        if let Some(why) = &self.calls().lost {
            return Err(BackendError::DeviceLost(why.clone()));
        }
        let message = to_bytes(order);
        let send = || send_with_body(self.socket.as_fd(), &message, body, files);
        let say = || self.catch_up().and_then(|()| send());
        let sent = match say() {
            Err(error)
                if error.kind() == ErrorKind::WouldBlock
                    && wait(self.socket.as_fd(), PollFlags::POLLOUT, patience) =>
            {
                say()
            }
            sent => sent,
        };
        sent.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => BackendError::DeviceBusy("it has too much to read".into()),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                // Calls fail from here on; the reading thread will find the same in a moment.
                let mut calls = self.calls();
                let why = calls.lost.get_or_insert_with(|| "its process has ended".into());
                BackendError::DeviceLost(why.clone())
            }
            // What the machine has too little of, or a descriptor that the system does not let pass.
            _ => BackendError::DeviceBusy(format!("it cannot be told: {error}")),
        })
    }

    /// Tells it what it must hear, if not now then as soon as it reads.
    fn tell_for_sure(&self, order: &Order) {
        if !self.is_there() {
            return;
        }
        self.lock_late().push_back(to_bytes(order));
        if let Err(why) = self.catch_up() {
            log::debug!("the backend's process is told later: {why}");
        }
    }

    /// Tells it what it could not be told before; an error if there is more.
    fn catch_up(&self) -> Result<()> {
        let mut late = self.lock_late();
        while let Some(message) = late.front() {
            send(self.socket.as_fd(), message, &[])?;
            late.pop_front();
        }
        Ok(())
    }

    /// Asks what `order` makes of the call's number, which this gives. `end` is called once, unless this fails: then the
    /// process has not been asked.
    pub fn ask(
        &self,
        order: impl FnOnce(u64) -> Order,
        with: With,
        patience: Duration,
        end: End,
    ) -> std::result::Result<u64, BackendError> {
        let call = new_number();
        {
            let mut calls = self.calls();
            if let Some(why) = &calls.lost {
                return Err(BackendError::DeviceLost(why.clone()));
            }
            calls.under_way.insert(call, Call { end, overdue: None });
        }
        let told = self.tell(&order(call), with, patience);
        // If it is gone from the list, the process is lost, and `end` was told.
        match told {
            Err(why) if self.calls().under_way.remove(&call).is_some() => Err(why),
            _ => Ok(call),
        }
    }

    /// Has a call end soon. Tells the process, unless it sees that without being told, and ends the process if that takes too
    /// long.
    pub fn cancel(&self, call: u64, tell: bool) {
        match self.calls().under_way.get_mut(&call) {
            Some(call) => call.overdue.get_or_insert_with(|| Instant::now() + HANG),
            None => return,
        };
        if tell {
            self.tell_for_sure(&Order::Cancel { call });
        }
    }

    /// Has the process drop the object with this number.
    pub fn release(&self, number: u64) {
        self.tell_for_sure(&Order::Release { number });
    }

    /// Reads what the process says until it is lost; gives why.
    pub fn attend(&self) -> String {
        let mut looked = Instant::now();
        loop {
            let readable = wait(self.socket.as_fd(), PollFlags::POLLIN, LOOK);
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if let Err(why) = self.look_after() {
                    return why;
                }
            }
            if !readable {
                continue;
            }
            match self.hear() {
                Ok(None) => return "its process has ended".into(),
                Ok(Some(said)) => {
                    let known = said.is_some_and(|(call, said)| self.answered(call, said));
                    if !known {
                        return "its process says what makes no sense".into();
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return format!("its process cannot be understood: {error}"),
            }
        }
    }

    /// Ends the call that is answered; tells whether there is such a call.
    fn answered(&self, call: u64, said: Said) -> bool {
        let Some(call) = self.calls().under_way.remove(&call) else { return false };
        (call.end)(Ok(said));
        true
    }

    /// Finds out whether the process is there and reads, if there is something that it should do.
    fn look_after(&self) -> std::result::Result<(), String> {
        if let Ok(Some(status)) = self.lock_process().try_wait() {
            return Err(format!("its process has ended: {status}"));
        }
        // Whether it is lost shows as it is read from.
        let _ = self.catch_up();
        let now = Instant::now();
        {
            let calls = self.calls();
            if calls.under_way.values().any(|call| call.overdue.is_some_and(|end| end < now)) {
                return Err("its process hangs".into());
            }
            if calls.under_way.is_empty() {
                return Ok(());
            }
        }
        match self.ask(|call| Order::Ping { call }, NOTHING, FULL, Box::new(drop)) {
            Ok(call) => self.cancel(call, false),
            // Whether it hangs shows by what it was asked before.
            Err(why) => log::debug!("the backend's process is not asked whether it reads: {why}"),
        }
        Ok(())
    }

    /// Ends whatever is left of the process. All that was asked of it is lost.
    pub fn end(&self, why: &str) {
        // All who ask it from here on are refused, however long its end takes.
        let calls = {
            let mut calls = self.calls();
            calls.lost.get_or_insert_with(|| why.into());
            std::mem::take(&mut calls.under_way)
        };
        self.lock_late().clear();
        self.reap();
        for call in calls.into_values() {
            (call.end)(Err(BackendError::DeviceLost(why.into())));
        }
    }

    /// Ends the process because it has said what cannot be. The error is for the call that it answered so.
    pub fn condemn(&self, why: &str) -> BackendError {
        if self.is_there() {
            log::warn!("the backend's process is ended: {why}");
            let _ = self.lock_process().kill(); // it may have ended
        }
        BackendError::DeviceLost(why.into())
    }

    /// Has the process end: it sees that its service is gone.
    pub fn hang_up(&self) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both); // which it may have done itself
    }

    /// Kills the process and waits for its end. That may never come while the kernel is at something for it, which callers
    /// must not wait for.
    fn reap(&self) {
        let process = {
            let mut process = self.lock_process();
            let _ = process.kill(); // it may have ended
            process.id()
        };
        match process_descriptor(process as libc::pid_t) {
            Ok(ended) => _ = poll(&mut [PollFd::new(ended.as_fd(), PollFlags::POLLIN)], DEATH),
            // Without a descriptor it cannot be known when it ends, which is soon mostly.
            Err(_) => std::thread::sleep(SOON),
        }
        match self.lock_process().try_wait() {
            Ok(Some(_)) => {}
            Ok(None) => log::warn!("the backend's process has not ended yet, though it was killed"),
            Err(error) => log::warn!("the backend's process cannot be waited for: {error}"),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_late(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_process(&self) -> MutexGuard<'_, Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until a socket is ready, or its other end gone: for so long at most, or until a signal comes.
fn wait(socket: BorrowedFd, what: PollFlags, patience: Duration) -> bool {
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    poll(&mut [PollFd::new(socket, what)], patience).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
#[path = "life_tests.rs"]
pub(super) mod tests;
