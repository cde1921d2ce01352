//! The device: two engines behind a command ring. A vendor's hardware and firmware stand here.
//!
//! The main thread is the front end: it listens to the driver, and starts an engine for each job, so that they end in any
//! order. It ends when the driver does.

mod engine;

use crate::protocol::{self, *};
use crate::stream::{Instruction, INSTRUCTION_BYTES};
use engine::{Argument, Work};
use nnhal::memory::{Access, AlignedBuf, ClientSlice, Mapping, MemoryError, SharedU64};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Runs the device until the driver at the other end of `socket` is gone.
pub fn run(socket: impl AsFd) -> io::Result<()> {
    let Some((_, fds)) = protocol::receive(&socket)? else { return Ok(()) };
    let Ok([ring, doorbell, interrupt]) = <[OwnedFd; 3]>::try_from(fds) else {
        return Err(io::Error::other("the driver's first message is not what it should be"));
    };
    let ring = Mapping::new(ring.as_fd(), 0, RING_BYTES, Access::ReadWrite).map_err(io::Error::other)?;
    rustix::io::write(&interrupt, &1u64.to_ne_bytes())?; // the device is there
    let (ring, interrupt) = (Arc::new(ring), Arc::new(interrupt));
    let mut front = FrontEnd { ring, interrupt, memories: HashMap::new(), taken: 0 };
    loop {
        let mut fds = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&doorbell, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let _ = rustix::io::read(&doorbell, &mut [0; 8]);
        // In this order: a message that was sent before a job was put into the ring is read before the job.
        let tail = word(&front.ring, TAIL).map_err(io::Error::other)?;
        if !front.read_messages(&socket)? {
            return Ok(());
        }
        front.take_jobs(tail)?;
    }
}

struct FrontEnd {
    ring: Arc<Mapping>,
    /// What the driver told of, by number; `None` for what could not be mapped.
    memories: HashMap<u64, Option<Arc<Mapping>>>,
    /// Jobs taken out of the ring.
    taken: u64,
    interrupt: Arc<OwnedFd>,
}

impl FrontEnd {
    /// Reads what the driver has sent; tells whether it is there still.
    fn read_messages(&mut self, socket: &impl AsFd) -> io::Result<bool> {
        loop {
            let ([id, offset, len, writable], fds) = match protocol::receive(socket) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(false),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(why) => return Err(why),
            };
            let access = if writable == 1 { Access::ReadWrite } else { Access::Read };
            let map = |fd: &OwnedFd| Mapping::new(fd.as_fd(), offset, len as usize, access).ok();
            match fds.first() {
                Some(fd) => self.memories.insert(id, map(fd).map(Arc::new)),
                None => self.memories.remove(&id),
            };
        }
    }

    /// Takes out the jobs before `tail`, and starts an engine for each: there are as many as the driver keeps to.
    fn take_jobs(&mut self, tail: u64) -> io::Result<()> {
        while self.taken != tail {
            let entry = ENTRIES + (self.taken % RING_LEN) as usize * 8;
            self.taken = self.taken.wrapping_add(1);
            let job = word(&self.ring, entry).and_then(|id| self.memory(id)).map_err(io::Error::other)?;
            let (work, interrupt) = (self.work(&job), self.interrupt.clone());
            let engine = move || do_job(&job, work, &interrupt);
            std::thread::Builder::new().name("engine".into()).spawn(engine)?;
        }
        Ok(())
    }

    fn memory(&self, id: u64) -> Result<Arc<Mapping>, MemoryError> {
        self.memories.get(&id).cloned().flatten().ok_or(MemoryError::Vanished)
    }

    fn slice(&self, [id, offset, len, _]: Span) -> Result<ClientSlice, MemoryError> {
        ClientSlice::new(self.memory(id)?, offset as usize, len as usize)
    }

    /// Reads a job.
    fn work(&self, job: &Arc<Mapping>) -> Result<Work, JobStatus> {
        let copy = |slice: Result<ClientSlice, MemoryError>| -> Result<AlignedBuf, JobStatus> {
            slice.and_then(|slice| slice.to_private()).map_err(|_| FAULT)
        };
        let words = copy(Ok(whole(job)))?;
        let spans = words.get(JOB_SPANS..).unwrap_or_default().chunks_exact(SPAN_BYTES);
        let spans: Vec<Span> = spans.map(words_of).collect();
        let [stream, weights, tables, arguments @ ..] = &spans[..] else { return Err(FAULT) };
        let stream = copy(self.slice(*stream))?;
        let argument = |span: &Span| Ok(Argument { slice: self.slice(*span)?, tiled: span[3] == TILED });
        let arguments: Result<_, MemoryError> = arguments.iter().map(argument).collect();
        Ok(Work {
            stream: stream.chunks_exact(INSTRUCTION_BYTES).map(Instruction::from_bytes).collect(),
            weights: copy(self.slice(*weights))?,
            tables: copy(self.slice(*tables))?,
            arguments: arguments.map_err(|_| BAD_MEMORY)?,
            cancel: SharedU64::new(job.clone(), JOB_CANCEL).map_err(|_| FAULT)?,
        })
    }
}

/// An engine's life: does the job, and says what became of it.
fn do_job(job: &Arc<Mapping>, work: Result<Work, JobStatus>, interrupt: &OwnedFd) {
    let began = Instant::now();
    let status = work.and_then(|work| engine::run(&work)).err().unwrap_or(DONE);
    let took = began.elapsed().as_nanos() as u64;
    // The status is last: with it, the job and its memories are the driver's again.
    if set_word(job, JOB_TIME, took).and_then(|()| set_word(job, JOB_STATUS, status)).is_ok() {
        let _ = rustix::io::write(interrupt, &1u64.to_ne_bytes());
    }
}
