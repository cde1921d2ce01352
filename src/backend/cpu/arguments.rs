//! The client memories of one run of the main routine: which arguments kernels read and write where they lie, and how
//! all others are copied in and out.
//!
//! What is in place has no second copy: whether a step may read or write it there is decided here, before the run.

use super::frame::Frame;
use super::graph::check_dims;
use super::routine::{Routine, STEPS};
use crate::backend::{BackendError, OutputShape};
use crate::memory::{losses_of_memory, Access, Accessed, ClientSlice, Mapping, MemoryError, Target, View};
use crate::ops::pace::Pace;
use crate::ops::{by_parts, Interrupt, OpError};
use crate::tensor::{Dims, TensorInfo};
use std::collections::BTreeMap;

/// An argument in memory of this process.
#[derive(Clone, Debug)]
pub struct Bound {
    pub data: ClientSlice,
    /// What is known of the dimensions: all of an input's.
    pub dims: Dims,
}

/// Which of a routine's inputs and outputs may be in place, memory permitting: all that touch them are kernels.
pub struct Candidates {
    pub inputs: Vec<bool>,
    pub outputs: Vec<bool>,
}

#[derive(Clone, Default)]
struct Uses {
    read: bool,
    /// By more than kernels.
    copied: bool,
    written_by_kernel: bool,
    outputs: usize,
}

impl Candidates {
    pub fn new(routine: &Routine, pace: &mut Pace) -> Result<Self, OpError> {
        let mut uses = vec![Uses::default(); routine.values.len()];
        for step in &routine.steps {
            pace.spend(STEPS.saturating_add(step.inputs.len()))?;
            for &v in step.inputs.iter().flatten() {
                uses[v].read = true;
                uses[v].copied |= step.kernel.is_none();
            }
            step.outputs.iter().for_each(|&v| uses[v].written_by_kernel = step.kernel.is_some());
        }
        routine.outputs.iter().for_each(|&v| uses[v].outputs += 1);
        let input = |&v: &usize| uses[v].read && !uses[v].copied && uses[v].outputs == 0;
        let output = |&v: &usize| uses[v].written_by_kernel && !uses[v].read && uses[v].outputs == 1;
        Ok(Candidates {
            inputs: routine.inputs.iter().map(input).collect(),
            outputs: routine.outputs.iter().map(output).collect(),
        })
    }
}

/// The memories of a run, all accesses to them announced: those that cannot be held are copied.
pub struct Held<'a> {
    inputs: &'a [Option<Bound>],
    outputs: &'a [Option<Bound>],
    memories: &'a Memories,
    held: BTreeMap<*const Mapping, Memory<'a>>,
    /// How many memories of this process had vanished before.
    losses: usize,
}

/// The arguments of a run that is under way.
pub struct Arguments<'a> {
    held: Held<'a>,
    /// By value: where arguments are that are in place.
    in_place: BTreeMap<usize, &'a ClientSlice>,
}

/// Bytes of client memory, as stretches that have some bytes between them: a client decides how many there are. By their
/// memory and their start, with their ends. Of two mappings of one file neither knows of the other.
#[derive(Default)]
struct Taken(BTreeMap<(*const Mapping, usize), usize>);

impl Taken {
    fn add(&mut self, slice: &ClientSlice) {
        let (mapping, mut start) = (std::ptr::from_ref(slice.mapping()), slice.offset());
        let mut end = start + slice.len();
        // What it touches becomes a part of it, and so each stretch is looked at once.
        while let Some((&key, &reach)) = self.0.range((mapping, 0)..=(mapping, end)).next_back() {
            if reach < start {
                break;
            }
            self.0.remove(&key);
            (start, end) = (start.min(key.1), end.max(reach));
        }
        self.0.insert((mapping, start), end);
    }

    fn has_part_of(&self, slice: &ClientSlice) -> bool {
        let (mapping, start) = (std::ptr::from_ref(slice.mapping()), slice.offset());
        let before_its_end = (mapping, 0)..(mapping, start + slice.len());
        self.0.range(before_its_end).next_back().is_some_and(|(_, &end)| end > start)
    }
}

/// The memories that arguments lie in, each once: there may be very many arguments, which no run has to look through for that.
pub struct Memories(Vec<Used>);

/// A memory, what all arguments that lie in it are for, and the first of these.
struct Used {
    any: ClientSlice,
    access: Access,
    first: Name,
}

/// A memory of the run, held for all arguments that lie in it.
struct Memory<'a> {
    first: Name,
    held: Option<Accessed<'a>>,
}

/// What to call an argument in messages.
pub type Name = (&'static str, usize);

pub fn failed((what, i): Name) -> impl FnOnce(MemoryError) -> BackendError {
    move |source| BackendError::Memory { what: format!("{what} {i}"), source }
}

impl Memories {
    pub fn of(inputs: &[Option<Bound>], outputs: &[Option<Bound>]) -> Self {
        let given = inputs.iter().enumerate().map(|(i, input)| (input, Access::Read, ("input", i)));
        let taken = outputs.iter().enumerate().map(|(i, output)| (output, Access::Write, ("output", i)));
        // One access to each memory, whatever for: nothing is locked twice.
        let mut memories = BTreeMap::new();
        for (argument, access, first) in given.chain(taken) {
            let Some(Bound { data, .. }) = argument else { continue };
            let new = || Used { any: data.clone(), access, first };
            let used = memories.entry(std::ptr::from_ref(data.mapping())).or_insert_with(new);
            used.access = used.access.and(access);
        }
        Memories(memories.into_values().collect())
    }

    /// The first argument that lies in one that has vanished.
    pub fn vanished(&self) -> Option<Name> {
        self.0.iter().find(|used| used.any.mapping().vanished()).map(|used| used.first)
    }

    /// Waits until devices are done with them. Who takes hold of them waits for that as well, but then nothing ends the wait.
    pub fn wait_until_idle(&self, interrupt: &dyn Interrupt) -> Result<(), OpError> {
        let wait = |used: &Used| used.any.mapping().wait_until_idle(used.access, || interrupt.check());
        self.0.iter().try_for_each(wait)
    }

    /// Whether to take hold of them may take long.
    pub fn may_be_busy(&self) -> bool {
        self.0.iter().any(|used| used.any.may_be_busy())
    }
}

impl<'a> Held<'a> {
    /// Takes hold of the memories of these arguments. That may take as long as a device is busy with them: whoever calls
    /// this must not have a turn.
    pub fn new(
        inputs: &'a [Option<Bound>],
        outputs: &'a [Option<Bound>],
        memories: &'a Memories,
    ) -> Result<Self, BackendError> {
        let hold = |used: &'a Used| {
            let (mapping, first) = (used.any.mapping(), used.first);
            let held = Accessed::new(mapping, used.access).map_err(failed(first))?;
            Ok((std::ptr::from_ref(mapping), Memory { first, held }))
        };
        let losses = losses_of_memory();
        let held = memories.0.iter().map(hold).collect::<Result<_, BackendError>>()?;
        Ok(Held { inputs, outputs, memories, held, losses })
    }

    /// All of its memories.
    pub fn memories(&self) -> &'a Memories {
        self.memories
    }

    /// How many memories of this process had vanished before it took hold of any.
    pub fn losses(&self) -> usize {
        self.losses
    }

    /// Whether there are so many inputs and outputs.
    pub fn has(&self, inputs: usize, outputs: usize) -> bool {
        (self.inputs.len(), self.outputs.len()) == (inputs, outputs)
    }

    /// The dimensions of each input that is given.
    pub fn dims(&self) -> impl Iterator<Item = Option<&'a [u32]>> {
        self.inputs.iter().map(|input| input.as_ref().map(|input| &input.dims[..]))
    }

    /// Lets go of the memories. To end an access may wait for a device, and to free what the run had takes as long as that is
    /// large: others can compute meanwhile.
    pub fn let_go(self, interrupt: &dyn Interrupt) -> Result<(), BackendError> {
        interrupt.before_waiting();
        let mut held = self.held.into_values();
        held.try_for_each(|memory| memory.held.map_or(Ok(()), Accessed::end).map_err(failed(memory.first)))
    }

    fn of(&self, slice: &ClientSlice) -> Option<&Accessed<'a>> {
        self.held.get(&std::ptr::from_ref(slice.mapping()))?.held.as_ref()
    }
}

impl<'a> Arguments<'a> {
    /// For a run that `frame` was started for.
    pub fn new(
        interrupt: &dyn Interrupt,
        held: Held<'a>,
        candidates: &Candidates,
        routine: &Routine,
        frame: &Frame,
    ) -> Result<Self, OpError> {
        let (mut pace, mut arguments) = (Pace::of(interrupt), Arguments { held, in_place: BTreeMap::new() });
        arguments.place_inputs(candidates, routine, frame, &mut pace)?;
        arguments.place_outputs(candidates, routine, frame, &mut pace)?;
        Ok(arguments)
    }

    /// Decides which inputs are in place.
    fn place_inputs(
        &mut self,
        candidates: &Candidates,
        routine: &Routine,
        frame: &Frame,
        pace: &mut Pace,
    ) -> Result<(), OpError> {
        for (i, &v) in routine.inputs.iter().enumerate().filter(|&(i, _)| candidates.inputs[i]) {
            pace.spend(STEPS)?;
            let (Some(input), Some((_, part))) = (&self.held.inputs[i], frame.part(routine, v)) else {
                continue;
            };
            // A length that does not fit is an error, which the copy will meet.
            let is_held = self.held.of(&input.data).and_then(|held| held.view(&input.data)).is_some();
            if is_held && input.data.len() == part.len() {
                self.in_place.insert(v, &input.data);
            }
        }
        Ok(())
    }

    /// Decides which outputs are in place: none, unless it is sure that there is room for all.
    fn place_outputs(
        &mut self,
        candidates: &Candidates,
        routine: &Routine,
        frame: &Frame,
        pace: &mut Pace,
    ) -> Result<(), OpError> {
        for (i, output) in self.held.outputs.iter().enumerate() {
            pace.spend(STEPS)?;
            let info = frame.known_info(routine, routine.outputs[i]);
            let shape = info.and_then(|info| output_shape(i, info, output.as_ref()).ok());
            if !shape.is_some_and(|shape| shape.sufficient) {
                return Ok(());
            }
        }
        let mut taken = Taken::default();
        pace.each(self.in_place.values(), STEPS, |slice| taken.add(slice))?;
        for (i, &v) in routine.outputs.iter().enumerate().filter(|&(i, _)| candidates.outputs[i]) {
            pace.spend(STEPS)?;
            let (Some(output), Some((_, part))) = (&self.held.outputs[i], frame.part(routine, v)) else {
                continue;
            };
            let is_held =
                self.held.of(&output.data).and_then(|held| held.target(&output.data, part.len())).is_some();
            // Who has an output written over another argument breaks a rule, but shall get the same each time.
            if is_held && !taken.has_part_of(&output.data) {
                taken.add(&output.data);
                self.in_place.insert(v, &output.data);
            }
        }
        Ok(())
    }

    /// Value `v`, if it is an input in place.
    pub fn view(&self, v: usize) -> Option<View<'_, u8>> {
        let slice = self.in_place.get(&v)?;
        self.held.of(slice)?.view(slice)
    }

    /// Where the `len` bytes of value `v` are to be written, if it is an output in place.
    pub fn target(&self, v: usize, len: usize) -> Option<Target<'_, u8>> {
        let slice = self.in_place.get(&v)?;
        self.held.of(slice)?.target(slice, len)
    }

    /// Copies the other inputs into `frame`.
    pub fn copy_in(
        &self,
        interrupt: &dyn Interrupt,
        routine: &Routine,
        frame: &mut Frame,
    ) -> Result<(), BackendError> {
        let mut pace = Pace::of(interrupt);
        for (i, (v, input)) in routine.inputs.iter().zip(self.held.inputs).enumerate() {
            pace.spend(STEPS)?;
            let Some(input) = input.as_ref().filter(|_| !self.in_place.contains_key(v)) else { continue };
            let read = |place: &mut [u8]| {
                let (data, dims) = (&input.data, &input.dims);
                if place.len() != data.len() {
                    return Err(BackendError::Failed(format!("{} bytes for {dims:?}", data.len())));
                }
                by_parts(interrupt, place.len(), |part| {
                    let copied =
                        data.part(part.start, part.len()).and_then(|data| match self.held.of(&data) {
                            Some(held) => held.read(&data, &mut place[part]),
                            None => data.read(&mut place[part]),
                        });
                    copied.map_err(failed(("input", i)))
                })
            };
            frame.put(routine, *v, &input.dims, read).map_err(|e| e.at(format_args!("input {i}")))?;
        }
        Ok(())
    }

    /// Copies the other outputs to their clients, if there is room for all. The memories are still held.
    pub fn finish(
        self,
        interrupt: &dyn Interrupt,
        routine: &Routine,
        frame: &Frame,
    ) -> Result<(Vec<OutputShape>, Held<'a>), BackendError> {
        let (mut pace, mut shapes) = (Pace::of(interrupt), Vec::with_capacity(self.held.outputs.len()));
        for (i, (&v, output)) in routine.outputs.iter().zip(self.held.outputs).enumerate() {
            pace.spend(STEPS)?;
            let (info, _) = frame.value(routine, v)?.ok_or_else(|| no_value(i))?;
            shapes.push(output_shape(i, info, output.as_ref())?);
        }
        if shapes.iter().all(|shape| shape.sufficient) {
            self.copy_out(interrupt, routine, frame)?;
        }
        Ok((shapes, self.held))
    }

    fn copy_out(
        &self,
        interrupt: &dyn Interrupt,
        routine: &Routine,
        frame: &Frame,
    ) -> Result<(), BackendError> {
        let mut pace = Pace::of(interrupt);
        for (i, (v, output)) in routine.outputs.iter().zip(self.held.outputs).enumerate() {
            pace.spend(STEPS)?;
            let Some(output) = output.as_ref().filter(|_| !self.in_place.contains_key(v)) else { continue };
            let (data, (_, bytes)) = (&output.data, frame.value(routine, *v)?.ok_or_else(|| no_value(i))?);
            by_parts(interrupt, bytes.len(), |part| {
                let copied = data.part(part.start, part.len()).and_then(|data| match self.held.of(&data) {
                    Some(held) => held.write(&data, &bytes[part]),
                    None => data.write(&bytes[part]),
                });
                copied.map_err(failed(("output", i)))
            })?;
        }
        Ok(())
    }
}

fn no_value(i: usize) -> BackendError {
    BackendError::Failed(format!("output {i} has no value"))
}

/// What becomes of output `i`, whose value is as `info` says.
fn output_shape(i: usize, info: &TensorInfo, output: Option<&Bound>) -> Result<OutputShape, BackendError> {
    let mut sufficient = true;
    if let Some(output) = output {
        let expected = TensorInfo { dims: output.dims.clone(), ..info.clone() };
        check_dims(&expected, &info.dims)
            .map_err(|why| BackendError::Failed(format!("output {i}: {why}")))?;
        sufficient = info.byte_size().is_some_and(|size| size <= output.data.len());
    }
    Ok(OutputShape { dims: info.dims.clone(), sufficient })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn what_is_taken_is_what_was_added(
            slices in proptest::collection::vec((0usize..2, 0usize..60, 1usize..8), 1..20)
        ) {
            let mappings = [(); 2].map(|()| Arc::new(Mapping::anonymous(64).unwrap()));
            let slice = |(mapping, start, len): (usize, usize, usize)| {
                ClientSlice::new(mappings[mapping].clone(), start, len.min(64 - start)).unwrap()
            };
            let (mut taken, mut added): (Taken, Vec<ClientSlice>) = (Taken::default(), Vec::new());
            for given in slices {
                for mapping in 0..2 {
                    let asked = slice((mapping, given.1, given.2));
                    let overlaps = added.iter().any(|other| other.overlaps(&asked));
                    prop_assert_eq!(taken.has_part_of(&asked), overlaps, "{:?} of {:?}", &asked, &added);
                }
                taken.add(&slice(given));
                added.push(slice(given));
            }
        }
    }

    #[test]
    fn a_memory_is_found_once_whatever_lies_in_it() {
        let mappings = [(); 2].map(|()| Arc::new(Mapping::anonymous(8).unwrap()));
        let bound = |mapping: usize, offset| {
            let data = ClientSlice::new(mappings[mapping].clone(), offset, 4).unwrap();
            Some(Bound { data, dims: Dims::new() })
        };
        let inputs: Vec<_> = (0..1000).map(|i| bound(0, i % 5)).chain([None, bound(1, 0)]).collect();
        let outputs = vec![bound(1, 4); 1000];
        let memories = Memories::of(&inputs, &outputs);
        let mut found: Vec<_> = memories.0.iter().map(|used| (used.first, used.access)).collect();
        found.sort_by_key(|(first, _)| *first);
        assert_eq!(found, [(("input", 0), Access::Read), (("input", 1001), Access::ReadWrite)]);
        let held = Held::new(&inputs, &outputs, &memories).unwrap();
        assert!(inputs.iter().chain(&outputs).flatten().all(|bound| held.of(&bound.data).is_some()));
    }

    #[test]
    fn very_many_arguments_are_told_apart() {
        // If each were compared with each other, this would take hours.
        const MANY: usize = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
        let mapping = Arc::new(Mapping::anonymous(2 * MANY).unwrap());
        let slice = |i: usize| ClientSlice::new(mapping.clone(), 2 * i, 1).unwrap();
        let mut taken = Taken::default();
        for i in 0..MANY {
            assert!(!taken.has_part_of(&slice(i)));
            taken.add(&slice(i));
        }
        assert!(taken.has_part_of(&ClientSlice::whole(mapping.clone())) && taken.has_part_of(&slice(0)));
    }
}
