//! The device: two engines behind a command ring. A vendor's hardware and firmware stand here.
//!
//! The main thread is the front end: it listens to the driver, and deals jobs out to whichever engine is free, so that
//! they end in any order. It ends when the driver does.

mod engine;

use crate::protocol::{self, *};
use crate::stream::{Instruction, INSTRUCTION_BYTES};
use engine::{Engine, Place, Work};
use nnhal::memory::{Access, ClientSlice, Mapping, MemoryError, SharedU64};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Runs the device until the driver at the other end of `socket` is gone.
pub fn run(socket: impl AsFd) -> io::Result<()> {
    let Some(hello) = protocol::receive(&socket)? else { return Ok(()) };
    let Ok([memory, doorbell, interrupt]) = <[OwnedFd; 3]>::try_from(hello.fds) else {
        return Err(io::Error::other("the driver's first message is not what it should be"));
    };
    let memory = Mapping::new(memory.as_fd(), 0, DEVICE_BYTES, Access::ReadWrite);
    let memory = Arc::new(memory.map_err(io::Error::other)?);
    let (jobs, queue) = channel();
    let (queue, interrupt) = (Arc::new(Mutex::new(queue)), Arc::new(interrupt));
    for i in 0..DEPTH {
        let (queue, interrupt, memory) = (queue.clone(), interrupt.clone(), memory.clone());
        let work = move || work(&queue, &memory, &interrupt);
        std::thread::Builder::new().name(format!("engine-{i}")).spawn(work)?;
    }
    let mut front = FrontEnd { memory, imported: HashMap::new(), taken: 0, jobs };
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
    jobs: Sender<(usize, Result<Work, JobStatus>)>,
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
                let access = ACCESSES.get(access as usize).copied().unwrap_or(Access::ReadWrite);
                let map = |fd: &OwnedFd| Mapping::new(fd.as_fd(), offset, len as usize, access).ok();
                self.imported.insert(id, fds.first().and_then(map).map(Arc::new));
            } else if kind == Kind::Release as u64 {
                self.imported.remove(&id);
            }
        }
    }

    /// Takes out the jobs before `tail`, and gives them to the engines.
    fn take_jobs(&mut self, tail: u64) -> io::Result<()> {
        while self.taken != tail {
            let start = self.word(ENTRIES + (self.taken % RING_LEN) as usize * 8)? as usize;
            self.taken = self.taken.wrapping_add(1);
            let head = SharedU64::new(self.memory.clone(), HEAD);
            head.and_then(|head| head.store(self.taken)).map_err(io::Error::other)?;
            if start >= RING_BYTES && self.jobs.send((start, self.work(start))).is_err() {
                return Err(io::Error::other("the engines have stopped"));
            }
        }
        Ok(())
    }

    /// Reads the job at `start`.
    fn work(&self, start: usize) -> Result<Work, JobStatus> {
        let read = |at: usize, len: usize| {
            let part = ClientSlice::new(self.memory.clone(), at, len).and_then(|part| part.to_private());
            part.map_err(|_| JobStatus::Fault)
        };
        let words = words_of(&read(start, 8 * JOB_WORDS)?);
        let [_, _, _, stream, stream_len, weights, weights_len, tables, tables_len, count] =
            words.map(|word: u64| word as usize);
        let stream = read(stream, stream_len)?;
        let stream = stream.chunks_exact(INSTRUCTION_BYTES).map(Instruction::from_bytes).collect();
        let (weights, tables) = (read(weights, weights_len)?, read(tables, tables_len)?);
        let entries = read(start + 8 * JOB_WORDS, count.saturating_mul(8 * ARGUMENT_WORDS))?;
        let entries = entries.chunks_exact(8 * ARGUMENT_WORDS);
        let places = entries.map(|entry| self.place(words_of(entry))).collect();
        let cancel = SharedU64::new(self.memory.clone(), start + JOB_CANCEL);
        Ok(Work { stream, weights, tables, places, cancel: cancel.map_err(|_| JobStatus::Fault)? })
    }

    fn place(&self, [id, offset, len, layout]: [u64; ARGUMENT_WORDS]) -> Result<Place, MemoryError> {
        let memory = match id {
            0 => Some(self.memory.clone()),
            id => self.imported.get(&id).cloned().flatten(),
        };
        let memory = memory.ok_or(MemoryError::Vanished)?;
        let slice = ClientSlice::new(memory, offset as usize, len as usize)?;
        Ok(Place { slice, tiled: layout == TILED })
    }
}

/// An engine's life: takes jobs, and says what became of each.
fn work(
    queue: &Mutex<Receiver<(usize, Result<Work, JobStatus>)>>,
    memory: &Arc<Mapping>,
    interrupt: &OwnedFd,
) {
    let mut engine = Engine::new();
    loop {
        // Held while it waits: the other engine waits for the lock, which comes to the same.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((start, work)) = job else { return };
        let began = Instant::now();
        let status = work.and_then(|work| engine.run(&work)).err().unwrap_or(JobStatus::Done);
        let write = |at: usize, value: u64| {
            SharedU64::new(memory.clone(), start + at).and_then(|word| word.store(value))
        };
        // The status is last: with it, the job's block and its memories are the driver's again.
        let took = began.elapsed().as_nanos() as u64;
        if write(JOB_TIME, took).and_then(|()| write(JOB_STATUS, status as u64)).is_ok() {
            let _ = rustix::io::write(interrupt, &1u64.to_ne_bytes());
        }
    }
}
