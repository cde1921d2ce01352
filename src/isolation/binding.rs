//! An execution in the backend's process: its memory is lent, or copied to and from some that is.

use super::codec::to_bytes;
use super::constants::not_copied;
use super::instance::{count, lock, Instance, Made};
use super::life::{new_number, Life, Said, FULL, NOT_AT_ALL};
use super::memory::Lent;
use super::message::{self, Answer, Order, Terms, With};
use crate::backend::{
    pend, Argument, Arguments, BackendError, Binding, Control, Memory, Outcome, OutputShape, Pending,
    Request, Submission,
};
use crate::memory::{client_of_thread, ClientSlice, Counted, MemoryError};
use crate::ops::Interrupt;
use crate::quota::{Permit, Quota};
use crate::scheduler::{limits, CallTurns, Copier, CopyError, Errands, Noted, ThreadCache, Waiting};
use crate::tensor::{byte_size, combine_dims, TensorInfo};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Where each argument that is copied begins in the memory that it is copied to.
const ALIGNMENT: usize = 64;
/// So many arguments and memories are written down without a turn.
const FEW: usize = 1000;
/// What is to be executed is not counted while it goes over where it has no more bytes.
const FEW_BYTES: usize = 4 << 10;

/// A compiled model with the memory of its arguments.
pub struct Bound {
    made: Arc<Made>,
    request: Arc<Request>,
    pools: Arc<[Option<Memory>]>,
    reused: bool,
    /// The arguments as the process is told of them. It is `None` if something has to be copied: each run then makes its own.
    lending: Option<Arc<Lending>>,
    shares: Shares,
    /// For the thread of a submitted run that waits or copies: taken before there is that thread.
    room: Mutex<Option<Permit>>,
    /// Which process keeps it, under which number.
    kept: Mutex<Option<(Weak<Life>, u64)>>,
    /// Whether an execution of it has claimed what is lent.
    under_way: AtomicBool,
}

/// An execution of a binding, for as long as anybody may use the memory of its arguments.
struct UnderWay(Arc<Bound>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.store(false, Ordering::Release);
    }
}

/// How much clients may hold of what is lent for long, and of what is copied for a run; and the threads of executions that
/// were submitted.
#[derive(Clone)]
pub struct Shares {
    pub lent: Arc<Quota>,
    pub copied: Arc<Quota>,
    /// Who waits until there is more room for copies.
    pub waiting: Arc<Waiting>,
    /// For what is copied.
    pub turns: CallTurns,
    pub submitted: Arc<ThreadCache>,
    /// Where long answers are read to executions, of each client one after the other.
    pub replies: Arc<Errands>,
}

/// Arguments in the form that the process gets: those of the binding where nothing is copied, as there may be very many.
struct Lending {
    request: Arc<Request>,
    /// What is lent: of these, only that which is `Some`.
    memories: Arc<[Option<Memory>]>,
    copies: Option<Copies>,
}

/// What cannot be lent: copied before a run, and after it.
struct Copies {
    /// From, to.
    into: Vec<(ClientSlice, ClientSlice)>,
    /// The same, of the output of this index.
    out_of: Vec<(usize, ClientSlice, ClientSlice)>,
    _counted: Counted,
}

impl Bound {
    pub fn new(made: &Arc<Made>, arguments: Arguments, shares: &Shares) -> Result<Self, BackendError> {
        let Arguments { request, pools, reused } = arguments;
        let (mut request, mut pools) = (Arc::new(request), Arc::<[_]>::from(pools));
        let is_mapped =
            |argument: &Argument| matches!(pools.get(argument.pool), Some(Some(Memory::Mapped(_))));
        let lending = if !request.inputs.iter().chain(&request.outputs).flatten().any(is_mapped) {
            Some(Lending { request: request.clone(), memories: pools.clone(), copies: None })
        } else if reused {
            let permit = shares.lent.take(client_of_thread(), 1).ok();
            permit.map(|permit| Lending::copying(&request, &pools, permit)).transpose()?
        } else {
            None
        };
        if let Some(lending) = &lending {
            // As they are told: what came is not kept beside that.
            (request, pools) = (lending.request.clone(), lending.memories.clone());
        }
        let (made, lending, shares) = (made.clone(), lending.map(Arc::new), shares.clone());
        let (room, kept, under_way) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Ok(Bound { made, request, pools, reused, lending, shares, room, kept, under_way })
    }

    /// What a run lends that copies for itself only: it waits until there is `room`, if it has none yet.
    fn copied_for_this_run(
        &self,
        room: Option<Permit>,
        control: &Control,
    ) -> Result<Arc<Lending>, BackendError> {
        let _account = control.on_account();
        let permit = match room {
            Some(permit) => permit,
            None => {
                let take = || self.shares.copied.take(control.client, 1).ok();
                self.shares.waiting.until(control, take)?
            }
        };
        Lending::copying(&self.request, &self.pools, permit).map(Arc::new)
    }

    /// Lets one execution use what is lent: from before its inputs are copied until the process is done with it.
    fn claim(self: &Arc<Self>) -> Result<Arc<UnderWay>, BackendError> {
        // One execution at a time is submitted to a binding. One that was given up may be under way still.
        match self.under_way.swap(true, Ordering::Acquire) {
            true => Err(BackendError::DeviceBusy("the execution before is not done yet".into())),
            false => Ok(Arc::new(UnderWay(self.clone()))),
        }
    }

    /// Hands an execution over, which has claimed what is lent. Waits for so long at the most, should the process have too much
    /// to read.
    fn start(
        self: &Arc<Self>,
        claimed: Arc<UnderWay>,
        lending: &Arc<Lending>,
        instance: &Arc<Instance>,
        control: &Control,
        patience: Duration,
    ) -> Result<Pending, BackendError> {
        let life = &instance.life;
        let (mut keep, mut written, mut in_file) = (None, None, None);
        let what = match self.kept_by(life) {
            Some(number) => to_bytes(&message::Bound::Again(number)),
            None => {
                let reused = self.reused && self.lending.is_some();
                keep = reused.then(new_number);
                let lend = |memory: &Option<Memory>| match memory {
                    Some(Memory::Device(device)) => {
                        let lent = device.downcast::<Lent>();
                        let lent =
                            lent.ok_or_else(|| BackendError::Failed("another device's memory".into()))?;
                        lent.lend(life, patience).map(Some)
                    }
                    _ => Ok(None),
                };
                let memories = lending.memories.iter().map(lend).collect::<Result<_, _>>()?;
                let turn = self.shares.turns.check(control);
                if lending.is_long() {
                    turn.yield_point()?;
                }
                let (executable, request) = (instance.number, lending.request.clone());
                let what = to_bytes(&message::Bound::New { keep, executable, request, memories, reused });
                if what.len() > FEW_BYTES {
                    let _account = control.on_account();
                    // The file that it goes over in is there until the process has read it: it has once it answers.
                    (written, in_file) = (Some(count(what.len())?), Some(count(what.len())?));
                }
                what
            }
        };
        let (completer, pending) = Pending::promised();
        let (bound, held, recorder) = (self.clone(), instance.clone(), control.recorder.clone());
        // The process may use what was copied for this run until it answers, whoever has given the run up.
        let lent = lending.clone();
        let (client, replies) = (control.client, self.shares.replies.clone());
        let end = move |heard: Result<Said, BackendError>| {
            // Its end lets go of what was submitted, perhaps of the last of a client's file.
            let may_take_long = patience == NOT_AT_ALL || matches!(heard, Ok(Said::Long(..)));
            let end = move || {
                let answer = heard.and_then(|said| held.life.read(said));
                let (outcome, noted) = bound.outcome(answer.map(|(answer, _)| answer), &held, keep);
                if let Some((recorder, noted)) = recorder.zip(noted) {
                    recorder.add(noted);
                }
                drop((claimed, lent, bound, held, in_file)); // before anybody hears of the end
                completer.complete(outcome);
            };
            match may_take_long {
                true => replies.run(client, end),
                false => end(),
            }
        };
        let terms = Terms::of(control);
        let with = With { body: &what, files: &[] };
        let call = life.ask(|call| Order::Run { call, terms }, with, patience, Box::new(end))?;
        drop((what, written));
        let life = Arc::downgrade(life);
        let cancel = move || {
            if let Some(life) = life.upgrade() {
                // What stands in a line there does not see by itself that its deadline has passed.
                life.cancel(call, true);
            }
        };
        Ok(pending.on_cancel(cancel))
    }

    /// What the process says of an execution, what was noted of it, and which binding it keeps from here on.
    fn outcome(
        &self,
        answer: Result<Answer, BackendError>,
        instance: &Instance,
        keep: Option<u64>,
    ) -> (Result<Outcome, BackendError>, Option<Noted>) {
        let mut kept = lock(&self.kept);
        match answer {
            Ok(Answer::Ran(outcome, noted)) if self.fits(&outcome) => {
                if let Some(number) = keep {
                    *kept = Some((self.life(instance), number));
                }
                (Ok(outcome), noted)
            }
            // It may have ended before it bound anything, or be about to.
            Ok(Answer::Unbound(why)) | Err(why @ BackendError::DeviceLost(_)) => {
                // A number that was kept before a new one was to be is of a process that is gone.
                let number = keep.or_else(|| kept.as_ref().map(|(_, number)| *number));
                *kept = None;
                drop(kept);
                number.into_iter().for_each(|number| instance.life.release(number));
                (Err(why), None)
            }
            Ok(_) => (Err(instance.life.condemn("it says of an execution what cannot be")), None),
            // It was bound, and failed as it ran: the next need not send all of it once more.
            Err(why) => {
                if let Some(number) = keep {
                    *kept = Some((self.life(instance), number));
                }
                (Err(why), None)
            }
        }
    }

    /// The number under which this process keeps it.
    fn kept_by(&self, life: &Arc<Life>) -> Option<u64> {
        let kept = lock(&self.kept);
        let (of, number) = kept.as_ref()?;
        std::ptr::eq(of.as_ptr(), Arc::as_ptr(life)).then_some(*number)
    }

    fn life(&self, instance: &Instance) -> Weak<Life> {
        Arc::downgrade(&instance.life)
    }

    /// Whether outputs can be what the process says.
    fn fits(&self, outcome: &Outcome) -> bool {
        let infos = &self.made.interface.outputs;
        let outputs = infos.iter().zip(&self.request.outputs).zip(&outcome.outputs);
        outcome.outputs.len() == infos.len()
            && outputs.clone().all(|((info, argument), output)| {
                let room = argument.as_ref().map_or(usize::MAX, |argument| argument.length);
                let size = byte_size(info.ty, &output.dims);
                let fits = size.is_some_and(|size| size <= room) || !output.sufficient;
                fits && combine_dims(&info.dims, &output.dims).is_some()
            })
    }
}

impl Lending {
    /// Whether to write it down takes long.
    fn is_long(&self) -> bool {
        let Request { inputs, outputs } = &*self.request;
        inputs.len().saturating_add(outputs.len()).saturating_add(self.memories.len()) > FEW
    }

    /// These arguments, with a place for each that is mapped in one memory that is lent.
    fn copying(request: &Request, pools: &[Option<Memory>], permit: Permit) -> Result<Self, BackendError> {
        let is_mapped =
            |argument: &Argument| matches!(pools.get(argument.pool), Some(Some(Memory::Mapped(_))));
        // The request is written down once more, with where arguments are copied.
        let arguments = request.inputs.iter().chain(&request.outputs).flatten();
        let copies = arguments.filter(|argument| is_mapped(argument)).count();
        let described = copies.saturating_mul(size_of::<(usize, ClientSlice, ClientSlice)>());
        let mut counted = count(described.saturating_add(request.footprint()))?;
        let mut request = request.clone();
        let Request { inputs, outputs } = &mut request;
        let inputs = inputs.iter_mut().map(|input| (None, input));
        let outputs = outputs.iter_mut().enumerate().map(|(i, output)| (Some(i), output));
        let given = inputs.chain(outputs).filter_map(|(i, argument)| Some((i, argument.as_mut()?)));
        let copied: Vec<_> = given.filter(|(_, argument)| is_mapped(argument)).collect();
        let room = |len: usize| len.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        let len = copied.iter().fold(0usize, |sum, (_, argument)| sum.saturating_add(room(argument.length)));
        counted.raise(len).ok_or(BackendError::OutOfMemory(len))?;
        let place = Arc::new(Lent::buffer(len.max(1), permit).map_err(of_arguments)?);
        let whole = place.slice();
        let (mut into, mut out_of, mut start) = (Vec::new(), Vec::new(), 0);
        let pool = pools.len();
        for (output, argument) in copied {
            let Some(Some(Memory::Mapped(mapping))) = pools.get(argument.pool) else { continue };
            let theirs =
                ClientSlice::new(mapping.clone(), argument.offset, argument.length).map_err(of_arguments)?;
            let ours = whole.part(start, argument.length).map_err(of_arguments)?;
            match output {
                None => into.push((theirs, ours)),
                Some(i) => out_of.push((i, ours, theirs)),
            }
            (argument.pool, argument.offset) = (pool, start);
            start += room(argument.length);
        }
        let memories = pools.iter().cloned().chain([Some(Memory::Device(place))]).collect();
        let request = Arc::new(request);
        Ok(Lending { request, memories, copies: Some(Copies { into, out_of, _counted: counted }) })
    }
}

impl Copies {
    fn copy_in(&self, copier: &mut Copier) -> Result<(), CopyError> {
        self.into.iter().try_for_each(|(from, to)| copier.copy(from, to))
    }

    /// Copies what outputs of these shapes have; of those that are too small, nothing was written to any.
    fn copy_out(
        &self,
        infos: &[TensorInfo],
        outputs: &[OutputShape],
        copier: &mut Copier,
    ) -> Result<(), CopyError> {
        if outputs.iter().any(|output| !output.sufficient) {
            return Ok(());
        }
        self.out_of.iter().try_for_each(|(i, from, to)| {
            let size = byte_size(infos[*i].ty, &outputs[*i].dims).unwrap_or(usize::MAX);
            copier.copy(&from.part(0, size.min(from.len()))?, to)
        })
    }
}

fn of_arguments(source: MemoryError) -> BackendError {
    BackendError::Memory { what: "an argument".into(), source }
}

impl Binding for Bound {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        control.check()?;
        let lending = self.lending.as_ref().filter(|lending| lending.copies.is_none());
        if let Some((instance, lending)) = self.made.ready().zip(lending) {
            let claimed = self.claim()?;
            if !lending.is_long() || self.kept_by(&instance.life).is_some() {
                match self.start(claimed, lending, &instance, control, NOT_AT_ALL) {
                    // Before it was asked: it is gone, or has too much to read.
                    Err(BackendError::DeviceLost(_) | BackendError::DeviceBusy(_)) => {}
                    started => return started.map(Submission::Pending),
                }
            }
        }
        // A thread of its own waits, copies, or writes down very many arguments.
        let permit = self.shares.copied.take(control.client, 1);
        let busy = |why| BackendError::DeviceBusy(format!("too many {}: {why}", limits::COPIED.what));
        *lock(&self.room) = Some(permit.map_err(busy)?);
        pend(self.clone(), control, &self.shares.submitted, ()).inspect_err(|_| drop(lock(&self.room).take()))
    }

    fn run(self: Arc<Self>, control: &Control) -> Result<Outcome, BackendError> {
        // Taken first, so that it comes back however this ends.
        let room = lock(&self.room).take();
        control.check()?;
        let instance = match self.made.ready() {
            Some(instance) => instance,
            None => self.made.prepared(control)?,
        };
        let (lending, _room) = match &self.lending {
            Some(lending) => (lending.clone(), room),
            None => (self.copied_for_this_run(room, control)?, None),
        };
        let claimed = self.claim()?;
        if let Some(copies) = &lending.copies {
            copies
                .copy_in(&mut Copier::new(&self.shares.turns.check(control)))
                .map_err(not_copied("an argument"))?;
        }
        let pending = match self.start(claimed.clone(), &lending, &instance, control, FULL) {
            // It was gone before it was asked.
            Err(BackendError::DeviceLost(_)) => {
                self.start(claimed.clone(), &lending, &self.made.prepared(control)?, control, FULL)
            }
            started => started,
        };
        let outcome = pending?.wait(control)?;
        if let Some(copies) = &lending.copies {
            let infos = &self.made.interface.outputs;
            let turn = self.shares.turns.check(control);
            copies
                .copy_out(infos, &outcome.outputs, &mut Copier::new(&turn))
                .map_err(not_copied("an argument"))?;
        }
        Ok(outcome)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let kept = lock(&self.kept).take();
        if let Some((life, number)) = kept {
            if let Some(life) = life.upgrade() {
                life.release(number);
            }
        }
    }
}

#[cfg(test)]
#[path = "binding_tests.rs"]
mod tests;
