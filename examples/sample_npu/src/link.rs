//! One life of the device, seen from the driver: its process, its command ring, and its death.
//!
//! Whatever a model holds of the device belongs to the life it was compiled in. After a death nothing of that life works
//! any more; a new life begins with the next compilation.

use crate::protocol::{self, *};
use crate::Result;
use nnhal::backend::{BackendError, ClientMemory};
use nnhal::memory::{unnamed_file, Access, Mapping};
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{shutdown, socketpair, AddressFamily, Shutdown, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How long a device may take to start, or to read what it was sent.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// What is called when a job ends: with the device's word, or with why the device is lost.
pub type End = Box<dyn FnOnce(Result<(JobStatus, Duration)>) + Send>;

pub struct Link {
    /// The device's process.
    pub process: u32,
    /// Bytes of the device's own memory that regions take.
    pub taken: AtomicUsize,
    socket: OwnedFd,
    doorbell: OwnedFd,
    ring: Arc<Mapping>,
    queue: Mutex<Queue>,
    /// Memories that the device could not be told to let go of yet.
    owed: Mutex<Vec<u64>>,
    next_id: AtomicU64,
}

struct Queue {
    tail: u64,
    /// The jobs that the device has, and what the end of each calls; `None` once the device is lost.
    jobs: Option<Vec<(Arc<Mapping>, End)>>,
}

impl Link {
    /// Starts the device's process from the file `program`, and waits until it is there.
    pub fn start(program: &Path) -> io::Result<Arc<Link>> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (ring, doorbell, interrupt) = (unnamed_file(RING_BYTES)?, eventfd(0, flags)?, eventfd(0, flags)?);
        protocol::send(&socket, [0; 4], &[ring.as_fd(), doorbell.as_fd(), interrupt.as_fd()])?;
        let ring = Mapping::new(ring.as_fd(), 0, RING_BYTES, Access::ReadWrite).map_err(io::Error::other)?;
        // The socket is the process's standard input: the one descriptor that it inherits.
        let process = Command::new(program).stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
        let ours = socket.try_clone()?;
        let link = Arc::new(Link {
            process: process.id(),
            taken: AtomicUsize::new(0),
            socket,
            doorbell,
            ring: Arc::new(ring),
            queue: Mutex::new(Queue { tail: 0, jobs: Some(Vec::new()) }),
            owed: Mutex::default(),
            next_id: AtomicU64::new(1),
        });
        // Its first interrupt says that it is there.
        let mut signs = [PollFd::new(&interrupt, PollFlags::IN), PollFd::new(&ours, PollFlags::IN)];
        let there = poll(&mut signs, Some(&PATIENCE)).is_ok() && !signs[0].revents().is_empty();
        let weak = Arc::downgrade(&link);
        let serve = move || Link::serve(&weak, &ours, &interrupt, process);
        std::thread::Builder::new().name("sample-npu-irq".into()).spawn(serve)?;
        there.then_some(link).ok_or_else(|| io::Error::other("it does not come up"))
    }

    /// The life of a device: until its process ends, or nobody holds its link any more.
    fn serve(link: &Weak<Link>, socket: &OwnedFd, interrupt: &OwnedFd, mut process: Child) {
        let mut ended = false;
        while !ended {
            let mut fds = [PollFd::new(interrupt, PollFlags::IN), PollFd::new(socket, PollFlags::IN)];
            // The device sends nothing: whatever is seen of the socket is its end.
            let polled = poll(&mut fds, None);
            ended = !fds[1].revents().is_empty() || polled.is_err_and(|why| why != Errno::INTR);
            let _ = rustix::io::read(interrupt, &mut [0; 8]);
            let Some(link) = link.upgrade() else { break };
            link.collect();
        }
        // Whoever hears of the end may be sure that nobody works with a client's memory any more.
        let _ = process.kill(); // it may have ended
        let _ = process.wait();
        if let Some(link) = link.upgrade() {
            link.die();
        }
    }

    /// An error once the device is lost.
    pub fn check(&self) -> Result<()> {
        lock(&self.queue).jobs.as_ref().map(drop).ok_or_else(lost)
    }

    /// Waits until the device has read most of what it was sent: for threads that may wait.
    pub fn wait_to_tell(&self) {
        let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&PATIENCE));
    }

    /// Has the device map a file, as it is mapped here already; gives the memory's number.
    pub fn tell_of(&self, file: &ClientMemory, access: Access) -> Result<u64> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = [id, file.offset, file.len as u64, u64::from(access != Access::Read)];
        let told = protocol::send(&self.socket, message, &[file.fd]);
        told.map(|()| id).map_err(|why| match why.kind() {
            io::ErrorKind::WouldBlock => BackendError::DeviceBusy("it has too much to read".into()),
            _ => BackendError::DeviceLost(format!("it cannot be told of memory: {why}")),
        })
    }

    /// Has the device let go of a memory: later, if it has too much to read now.
    pub fn release(&self, id: u64) {
        let mut owed = lock(&self.owed);
        owed.push(id);
        let told = |&id: &u64| protocol::send(&self.socket, [id, 0, 0, 0], &[]).is_ok();
        let count = owed.iter().take_while(|id| told(id)).count();
        owed.drain(..count);
    }

    /// Puts a job, which is memory `id`, into the ring. `end` is called once, on any thread, unless this fails.
    pub fn submit(&self, id: u64, job: &Arc<Mapping>, end: End) -> Result<()> {
        let queue = &mut *lock(&self.queue);
        let jobs = queue.jobs.as_mut().ok_or_else(lost)?;
        // The driver keeps to `Info::depth`, and submits a job again once it has ended. One that was given up may still be on
        // the device, though.
        if jobs.len() >= DEPTH || jobs.iter().any(|(other, _)| Arc::ptr_eq(other, job)) {
            return Err(BackendError::DeviceBusy("an execution that was given up is not done yet".into()));
        }
        let (entry, tail) = (ENTRIES + (queue.tail % RING_LEN) as usize * 8, queue.tail.wrapping_add(1));
        // The device reads an entry only once the tail is beyond it.
        let words =
            [(job, JOB_STATUS, 0), (job, JOB_CANCEL, 0), (&self.ring, entry, id), (&self.ring, TAIL, tail)];
        let told = words.into_iter().try_for_each(|(memory, at, value)| set_word(memory, at, value));
        told.map_err(BackendError::memory("the command ring"))?;
        queue.tail = tail;
        jobs.push((job.clone(), end));
        // It fails only when the counter is about to overflow, and then the bell is ringing already.
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Ends the jobs that the device has finished, in whatever order it did.
    fn collect(&self) {
        let status = |job: &Arc<Mapping>| word(job, JOB_STATUS).unwrap_or(FAULT);
        let done = |(job, _): &mut (Arc<Mapping>, End)| status(job) != NOT_DONE;
        // Out of the queue first: what is called below may submit the next job.
        let mut queue = lock(&self.queue);
        let ended: Vec<_> = queue.jobs.iter_mut().flat_map(|jobs| jobs.extract_if(.., done)).collect();
        drop(queue);
        for (job, end) in ended {
            end(Ok((status(&job), Duration::from_nanos(word(&job, JOB_TIME).unwrap_or(0)))));
        }
    }

    /// The device is gone: nobody must wait for it any longer.
    fn die(&self) {
        let jobs = lock(&self.queue).jobs.take().unwrap_or_default();
        log::warn!("the device's process has ended, and {} executions with it", jobs.len());
        jobs.into_iter().for_each(|(_, end)| end(Err(lost())));
    }
}

fn lost() -> BackendError {
    BackendError::DeviceLost("its process has ended".into())
}

impl Drop for Link {
    /// The device ends when the socket does; then its process is waited for.
    fn drop(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the device of process {}", self.process)
    }
}

/// What the lock guards stays whole whatever its holder did.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
