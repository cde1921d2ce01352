//! One life of the device, seen from the driver: its process, its memory, its command ring, and its death.
//!
//! Whatever a model holds of the device belongs to the life it was compiled in. After a death nothing of that life works
//! any more; a new life begins with the next compilation.

use crate::protocol::{self, *};
use crate::region::Blocks;
use nnhal::backend::BackendError;
use nnhal::memory::{unnamed_file, Access, Mapping, MemoryError, SharedU64};
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a device may take to start.
const START: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// What is called when a job ends: with the device's word, or with why the device is lost.
pub type End = Box<dyn FnOnce(Result<(JobStatus, Duration), String>) + Send>;

pub struct Link {
    process: Mutex<Child>,
    socket: OwnedFd,
    doorbell: OwnedFd,
    /// The device's memory, mapped into this process.
    pub memory: Arc<Mapping>,
    blocks: Mutex<Blocks>,
    queue: Mutex<Queue>,
    /// Imported memories that the device could not be told to let go of yet.
    owed: Mutex<Vec<u64>>,
    next_import: AtomicU64,
}

#[derive(Default)]
struct Queue {
    tail: u64,
    /// The jobs that the device has: where each starts, and what its end calls.
    jobs: Vec<(usize, End)>,
    /// Why the device is lost, once it is.
    lost: Option<String>,
}

impl Link {
    /// Starts the device's process from the file `program`, and waits until it is there.
    pub fn start(program: &Path) -> io::Result<Arc<Link>> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let memory = unnamed_file(DEVICE_BYTES)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (doorbell, interrupt) = (eventfd(0, flags)?, eventfd(0, flags)?);
        let fds = [memory.as_fd(), doorbell.as_fd(), interrupt.as_fd()];
        protocol::send(&socket, Kind::Hello, 0, [0; 3], &fds)?;
        // The socket is the process's standard input: the one descriptor that it inherits.
        let process = Command::new(program).stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
        let link = Arc::new(Link {
            process: Mutex::new(process),
            doorbell,
            memory: map_device(memory.as_fd())?,
            blocks: Mutex::default(),
            queue: Mutex::default(),
            owed: Mutex::default(),
            next_import: AtomicU64::new(1),
            socket: socket.try_clone()?,
        });
        // Should it not come up, the link is dropped here, and its drop ends the process.
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&START))?;
        protocol::receive(&socket)?.ok_or_else(|| io::Error::other("the device ended as it started"))?;
        let weak = Arc::downgrade(&link);
        let serve = move || loop {
            let mut fds = [PollFd::new(&interrupt, PollFlags::IN), PollFd::new(&socket, PollFlags::IN)];
            // Ready, the device sends nothing more: whatever is seen of the socket is its end.
            let alive =
                poll(&mut fds, None).map_or_else(|why| why == Errno::INTR, |_| fds[1].revents().is_empty());
            // Should nobody hold the link, nobody waits for anything, and its drop has ended the process.
            let Some(link) = weak.upgrade() else { return };
            let _ = rustix::io::read(&interrupt, &mut [0; 8]);
            link.collect();
            if !alive {
                return link.die("its process has ended");
            }
        };
        std::thread::Builder::new().name("sample-npu-irq".into()).spawn(serve)?;
        Ok(link)
    }

    pub fn blocks(&self) -> MutexGuard<'_, Blocks> {
        lock(&self.blocks)
    }

    /// The process of this life.
    pub fn process(&self) -> u32 {
        lock(&self.process).id()
    }

    /// An error once the device is lost.
    pub fn check(&self) -> Result<(), BackendError> {
        lock(&self.queue).check()
    }

    /// Has the device take a file in; gives the memory's number. An error if it cannot right now.
    pub fn import(&self, fd: BorrowedFd, offset: u64, len: usize, access: Access) -> io::Result<u64> {
        let id = self.next_import.fetch_add(1, Ordering::Relaxed);
        let access = ACCESSES.iter().position(|&known| known == access).unwrap_or(0);
        protocol::send(&self.socket, Kind::Import, id, [offset, len as u64, access as u64], &[fd])?;
        Ok(id)
    }

    /// Has the device let go of an imported memory: later, if it has too much to read now.
    pub fn release(&self, id: u64) {
        let mut owed = lock(&self.owed);
        owed.push(id);
        let told = |&id: &u64| protocol::send(&self.socket, Kind::Release, id, [0; 3], &[]).is_ok();
        let count = owed.iter().take_while(|id| told(id)).count();
        owed.drain(..count);
    }

    /// Puts the job at `start` of device memory into the ring. `end` is called once, on any thread, unless this fails.
    pub fn submit(&self, start: usize, end: End) -> Result<(), BackendError> {
        let mut queue = lock(&self.queue);
        queue.check()?;
        // The driver keeps to `Info::depth`. An execution that was given up may still be on the device, though.
        if queue.jobs.len() >= DEPTH {
            return Err(BackendError::DeviceBusy(format!("it has {DEPTH} executions already")));
        }
        let (entry, tail) = (ENTRIES + (queue.tail % RING_LEN) as usize * 8, queue.tail.wrapping_add(1));
        let cleared = self.set(start + JOB_STATUS, 0).and_then(|()| self.set(start + JOB_CANCEL, 0));
        // The device reads an entry only once the tail is beyond it.
        let told = cleared.and_then(|()| self.set(entry, start as u64)).and_then(|()| self.set(TAIL, tail));
        told.map_err(BackendError::memory("the command ring"))?;
        queue.tail = tail;
        queue.jobs.push((start, end));
        drop(queue);
        // It fails only when the counter is about to overflow, and then the bell is ringing already.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Has the device stop the job at `start` soon.
    pub fn cancel(&self, start: usize) {
        if let Err(why) = self.set(start + JOB_CANCEL, 1) {
            log::warn!("an execution cannot be stopped: {why}");
        }
    }

    fn set(&self, at: usize, value: u64) -> Result<(), MemoryError> {
        SharedU64::new(self.memory.clone(), at)?.store(value)
    }

    fn word(&self, at: usize) -> Option<u64> {
        SharedU64::new(self.memory.clone(), at).and_then(|word| word.load()).ok()
    }

    /// Ends the jobs that the device has finished, in whatever order it did.
    fn collect(&self) {
        let status = |start: usize| self.word(start + JOB_STATUS).and_then(JobStatus::from_word);
        // Out of the queue first: what is called below may submit the next job.
        let done = lock(&self.queue).jobs.extract_if(.., |job| status(job.0).is_some()).collect::<Vec<_>>();
        for (start, end) in done {
            let time = Duration::from_nanos(self.word(start + JOB_TIME).unwrap_or(0));
            end(Ok((status(start).unwrap_or(JobStatus::Fault), time)));
        }
    }

    /// The device is gone: nobody must wait for it any longer.
    fn die(&self, why: &str) {
        let mut queue = lock(&self.queue);
        queue.lost = Some(why.into());
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        log::warn!("the device is lost: {why}; {} executions with it", jobs.len());
        self.reap();
        jobs.into_iter().for_each(|(_, end)| end(Err(why.into())));
    }

    /// Ends the process, if it has not ended, and waits for that.
    fn reap(&self) {
        let mut process = lock(&self.process);
        let _ = process.kill(); // it may have ended
        if let Err(error) = process.wait() {
            log::warn!("the device's process cannot be waited for: {error}");
        }
    }
}

impl Queue {
    fn check(&self) -> Result<(), BackendError> {
        self.lost.as_ref().map_or(Ok(()), |why| Err(BackendError::DeviceLost(why.clone())))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reap();
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the device of process {}", self.process())
    }
}

/// What the lock guards stays whole whatever its holder did.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
