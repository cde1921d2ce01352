//! One life of the device, seen from the driver: its process, its memory, its command ring, and its death.
//!
//! Whatever a model holds of the device belongs to the life it was compiled in. After a death nothing of that life works
//! any more; a new life begins with the next compilation.

use crate::protocol::{self, *};
use crate::region::Free;
use nnhal::backend::BackendError;
use nnhal::memory::{unnamed_file, Access, Mapping, SharedU64};
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
    head: SharedU64,
    free: Mutex<Free>,
    queue: Mutex<Queue>,
    /// Imported memories that the device could not be told to let go of yet.
    owed: Mutex<Vec<u64>>,
    next_import: AtomicU64,
}

struct Queue {
    tail: u64,
    jobs: Vec<Job>,
    /// Why the device is lost, once it is.
    lost: Option<String>,
}

/// A job that the device has.
struct Job {
    status: SharedU64,
    time: SharedU64,
    end: End,
}

impl Link {
    /// Starts the device's process from the file `program`.
    pub fn start(program: &Path) -> io::Result<Arc<Link>> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let memory = unnamed_file(DEVICE_BYTES)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (doorbell, interrupt) = (eventfd(0, flags)?, eventfd(0, flags)?);
        let fds = [memory.as_fd(), doorbell.as_fd(), interrupt.as_fd()];
        protocol::send(&socket, Kind::Hello, 0, [0; 3], &fds)?;
        let mapping = Mapping::new(memory.as_fd(), 0, DEVICE_BYTES, Access::ReadWrite);
        let mapping = Arc::new(mapping.map_err(io::Error::other)?);
        let head = SharedU64::new(mapping.clone(), HEAD).map_err(io::Error::other)?;
        // The socket is the process's standard input: the one descriptor that it inherits.
        let process = Command::new(program).stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
        let link = Arc::new(Link {
            process: Mutex::new(process),
            doorbell,
            memory: mapping,
            head,
            free: Mutex::new(Free::new(RING_BYTES, DEVICE_BYTES)),
            queue: Mutex::new(Queue { tail: 0, jobs: Vec::new(), lost: None }),
            owed: Mutex::default(),
            next_import: AtomicU64::new(1),
            socket,
        });
        link.await_ready()?; // dropped, the link ends the process
        let (weak, socket) = (Arc::downgrade(&link), link.socket.try_clone()?);
        let serve = move || loop {
            let alive = wait_for_either(&interrupt, &socket);
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

    fn await_ready(&self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        if poll(&mut fds, Some(&START))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the device does not start"));
        }
        match protocol::receive(&self.socket)? {
            Some(message) if message.kind == Kind::Ready as u64 => Ok(()),
            _ => Err(io::Error::other("the device ended as it started")),
        }
    }

    pub fn free(&self) -> MutexGuard<'_, Free> {
        lock(&self.free)
    }

    /// The process of this life.
    pub fn process(&self) -> u32 {
        lock(&self.process).id()
    }

    /// An error once the device is lost.
    pub fn check(&self) -> Result<(), BackendError> {
        match &lock(&self.queue).lost {
            Some(why) => Err(BackendError::DeviceLost(why.clone())),
            None => Ok(()),
        }
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
    pub fn submit(
        &self,
        start: usize,
        status: SharedU64,
        time: SharedU64,
        end: End,
    ) -> Result<(), BackendError> {
        let fault = |source| BackendError::Memory { what: "the command ring".into(), source };
        let mut queue = lock(&self.queue);
        if let Some(why) = &queue.lost {
            return Err(BackendError::DeviceLost(why.clone()));
        }
        // The driver keeps to `Info::depth`. An execution that was given up may still be on the device, though.
        let waiting = queue.tail.wrapping_sub(self.head.load().map_err(fault)?);
        if queue.jobs.len() >= DEPTH || waiting >= RING_LEN {
            return Err(BackendError::DeviceBusy(format!("it has {DEPTH} executions already")));
        }
        let word = |at| SharedU64::new(self.memory.clone(), at);
        let entry = ENTRIES + (queue.tail % RING_LEN) as usize * 8;
        word(entry).and_then(|entry| entry.store(start as u64)).map_err(fault)?;
        // The device reads an entry only once the tail is beyond it.
        word(TAIL).and_then(|tail| tail.store(queue.tail.wrapping_add(1))).map_err(fault)?;
        queue.tail = queue.tail.wrapping_add(1);
        queue.jobs.push(Job { status, time, end });
        drop(queue);
        // It fails only when the counter is about to overflow, and then the bell is ringing already.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Ends the jobs that the device has finished, in whatever order it did.
    fn collect(&self) {
        let status = |job: &Job| job.status.load().ok().and_then(JobStatus::from_word);
        // Out of the queue first: what is called below may submit the next job.
        let done = lock(&self.queue).jobs.extract_if(.., |job| status(job).is_some()).collect::<Vec<_>>();
        for job in done {
            let status = status(&job).unwrap_or(JobStatus::Fault);
            (job.end)(Ok((status, Duration::from_nanos(job.time.load().unwrap_or(0)))));
        }
    }

    /// The device is gone: nobody must wait for it any longer.
    fn die(&self, why: &str) {
        let mut queue = lock(&self.queue);
        queue.lost.get_or_insert_with(|| why.into());
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        log::warn!("the device is lost: {why}; {} executions with it", jobs.len());
        self.reap();
        jobs.into_iter().for_each(|job| (job.end)(Err(why.into())));
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

impl Drop for Link {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Waits until the device raises its interrupt or is gone; tells whether it is there.
fn wait_for_either(interrupt: &OwnedFd, socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(interrupt, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
    match poll(&mut fds, None) {
        // After it is ready the device sends nothing: its end of the socket is closed.
        Ok(_) => fds[1].revents().is_empty(),
        Err(Errno::INTR) => true,
        Err(_) => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
