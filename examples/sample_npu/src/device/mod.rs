//! The device: two engines behind a command ring. A vendor's hardware and firmware stand here.
//!
//! The main thread is the front end: it listens to the driver, and starts an engine for each job, so that they end in any
//! order. It ends when the driver does.

mod engine;

use crate::protocol::{self, *};
use crate::stream::{Instruction, INSTRUCTION_BYTES};
use engine::{Place, Work};
use nnhal::memory::{AlignedBuf, ClientSlice, Mapping, MemoryError, SharedU64};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Runs the device until the driver at the other end of `socket` is gone.
pub fn run(socket: impl AsFd) -> io::Result<()> {
    let Some(hello) = protocol::receive(&socket)? else { return Ok(()) };
    let Ok([memory, doorbell, interrupt]) = <[OwnedFd; 3]>::try_from(hello.fds) else {
        return Err(io::Error::other("the driver's first message is not what it should be"));
    };
    let memory = map_device(memory.as_fd())?;
    let interrupt = Arc::new(interrupt);
    let mut front = FrontEnd { memory, interrupt, imported: HashMap::new(), taken: 0 };
    protocol::send(&socket, Kind::Ready, 0, [0; 3], &[])?;
    loop {
        let mut fds = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&doorbell, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let _ = rustix::io::read(&doorbell, &mut [0; 8]);
        // In this order: a message that was sent before a job was put into the ring is read before the job.
        let tail = front.word(TAIL)?;
        if !front.read_messages(&socket)? {
            return Ok(());
        }
        front.take_jobs(tail)?;
    }
}

struct FrontEnd {
    memory: Arc<Mapping>,
    /// Client memories, by number; `None` for those that could not be mapped.
    imported: HashMap<u64, Option<Arc<Mapping>>>,
    /// Jobs taken out of the ring.
    taken: u64,
    interrupt: Arc<OwnedFd>,
}

impl FrontEnd {
    fn word(&self, at: usize) -> io::Result<u64> {
        SharedU64::new(self.memory.clone(), at).and_then(|word| word.load()).map_err(io::Error::other)
    }

    /// Reads what the driver has sent; tells whether it is there still.
    fn read_messages(&mut self, socket: &impl AsFd) -> io::Result<bool> {
        loop {
            let Message { kind, id, words: [offset, len, access], fds } = match protocol::receive(socket) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(false),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(why),
            };
            if kind == Kind::Import as u64 {
                let access = ACCESSES.get(access as usize);
                let map = |fd: &OwnedFd| Mapping::new(fd.as_fd(), offset, len as usize, *access?).ok();
                self.imported.insert(id, fds.first().and_then(map).map(Arc::new));
            } else if kind == Kind::Release as u64 {
                self.imported.remove(&id);
            }
        }
    }

    /// Takes out the jobs before `tail`, and starts an engine for each: there are as many as the driver keeps to.
    fn take_jobs(&mut self, tail: u64) -> io::Result<()> {
        while self.taken != tail {
            let start = self.word(ENTRIES + (self.taken % RING_LEN) as usize * 8)? as usize;
            self.taken = self.taken.wrapping_add(1);
            let (work, memory, interrupt) = (self.work(start), self.memory.clone(), self.interrupt.clone());
            let engine = move || do_job(start, work, &memory, &interrupt);
            std::thread::Builder::new().name("engine".into()).spawn(engine)?;
        }
        Ok(())
    }

    /// A copy of `len` bytes of the device's memory.
    fn read(&self, at: usize, len: usize) -> Result<AlignedBuf, JobStatus> {
        let part = ClientSlice::new(self.memory.clone(), at, len).and_then(|part| part.to_private());
        part.map_err(|_| JobStatus::Fault)
    }

    /// Reads the job at `start`.
    fn work(&self, start: usize) -> Result<Work, JobStatus> {
        let words = words_of(&self.read(start, 8 * JOB_WORDS)?);
        let [_, _, _, stream, stream_len, weights, weights_len, tables, tables_len, count] =
            words.map(|word: u64| word as usize);
        let stream = self.read(stream, stream_len)?;
        let arguments = self.read(start + 8 * JOB_WORDS, count.saturating_mul(8 * ARGUMENT_WORDS))?;
        let arguments = arguments.chunks_exact(8 * ARGUMENT_WORDS);
        let cancel = SharedU64::new(self.memory.clone(), start + JOB_CANCEL);
        Ok(Work {
            stream: stream.chunks_exact(INSTRUCTION_BYTES).map(Instruction::from_bytes).collect(),
            weights: self.read(weights, weights_len)?,
            tables: self.read(tables, tables_len)?,
            places: arguments.map(|argument| self.place(words_of(argument))).collect(),
            cancel: cancel.map_err(|_| JobStatus::Fault)?,
        })
    }

    fn place(&self, [id, offset, len, layout]: [u64; ARGUMENT_WORDS]) -> Result<Place, MemoryError> {
        let memory = match id {
            0 => Some(self.memory.clone()),
            id => self.imported.get(&id).cloned().flatten(),
        };
        let slice = ClientSlice::new(memory.ok_or(MemoryError::Vanished)?, offset as usize, len as usize)?;
        Ok(Place { slice, tiled: layout == TILED })
    }
}

/// An engine's life: does the job at `start`, and says what became of it.
fn do_job(start: usize, work: Result<Work, JobStatus>, memory: &Arc<Mapping>, interrupt: &OwnedFd) {
    let began = Instant::now();
    let status = work.and_then(|work| engine::run(&work)).err().unwrap_or(JobStatus::Done);
    let write = |at, value| SharedU64::new(memory.clone(), start + at).and_then(|word| word.store(value));
    // The status is last: with it, the job's block and its memories are the driver's again.
    let took = began.elapsed().as_nanos() as u64;
    if write(JOB_TIME, took).and_then(|()| write(JOB_STATUS, status as u64)).is_ok() {
        let _ = rustix::io::write(interrupt, &1u64.to_ne_bytes());
    }
}
