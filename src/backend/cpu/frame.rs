//! The memory of one run of one routine: the arena, and values whose size only the run knows.

use super::graph::check_dims;
use super::routine::{Place, Routine, STEPS};
use crate::backend::BackendError;
use crate::memory::{client_of_thread, AlignedBuf, Arena, Counted};
use crate::ops::evaluate::with_dims;
use crate::ops::pace::Pace;
use crate::ops::{copy, Interrupt, OpError};
use crate::tensor::Dims;
use crate::tensor::TensorInfo;
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes that the values of one run may take at once. Models that mean well stay far below; without a bound a few
/// operations could ask for all the memory there is.
pub const MAX_RUN_BYTES: u64 = 4 << 30;

/// What it costs to make room for a value, in a pace's steps: its page may be touched for the first time.
const VALUE: usize = 64;

/// Bytes that are given back without anybody else waiting for it noticeably.
const FREED_AT_ONCE: u64 = 4 << 20;
/// A value takes as long to free as so many bytes.
const VALUE_BYTES: u64 = 4096;

/// Memory of one run of one routine.
pub struct Frame {
    pub arena: Arena,
    /// On whose account it is.
    pub client: u32,
    /// Bytes that its values may take, the arena included.
    limit: u64,
    /// By value: those that live outside of the arena.
    pub dynamic: Vec<Option<Tensor>>,
    /// Which of those there are: a model may have very many values, and a loop very many runs.
    kept: Vec<usize>,
    /// Bytes that those take.
    dynamic_bytes: u64,
    /// Whether dimensions known ahead are not to be trusted: an input is left out, or has dimensions of its own. All
    /// values are dynamic then, and every shape is computed anew.
    pub unplanned: bool,
    /// For what there is of each value, whatever that is.
    _counted: Counted,
}

/// A value with the dimensions that it has in this run.
#[derive(Debug)]
pub struct Tensor {
    pub info: TensorInfo,
    pub data: AlignedBuf,
}

impl Frame {
    /// A frame whose values take at most `limit` bytes.
    pub fn new(routine: &Routine, limit: u64, interrupt: &dyn Interrupt) -> Result<Frame, BackendError> {
        check_size(routine.arena as u64, limit)?;
        let each = size_of::<Option<Tensor>>() + size_of::<usize>();
        let bytes = routine.values.len().saturating_mul(each);
        let counted = Counted::take(bytes).ok_or(BackendError::OutOfMemory(bytes))?;
        let mut dynamic = Vec::new();
        dynamic.try_reserve_exact(routine.values.len()).map_err(|_| BackendError::OutOfMemory(bytes))?;
        Pace::of(interrupt).each(&routine.values, VALUE, |_| dynamic.push(None))?;
        Ok(Frame {
            arena: Arena::new(routine.arena).ok_or(BackendError::OutOfMemory(routine.arena))?,
            client: client_of_thread(),
            limit,
            dynamic,
            kept: Vec::new(),
            _counted: counted,
            dynamic_bytes: 0,
            unplanned: false,
        })
    }

    /// Bytes that its values take.
    pub fn size(&self) -> u64 {
        (self.arena.len() as u64).saturating_add(self.dynamic_bytes)
    }

    /// Bytes that are left for a subgraph's values.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.size())
    }

    /// Checks that there is room for another `size` bytes.
    fn check_room(&self, size: usize) -> Result<(), BackendError> {
        check_size(self.size().saturating_add(size as u64), self.limit)
    }

    /// Forgets the last run, and gets ready for one whose inputs have these dimensions; `None` for one left out.
    pub fn start<'d>(
        &mut self,
        interrupt: &dyn Interrupt,
        routine: &Routine,
        inputs: impl Iterator<Item = Option<&'d [u32]>>,
    ) -> Result<(), OpError> {
        if self.clear(interrupt) {
            interrupt.yield_point()?;
        }
        let (mut unplanned, mut omitted) = (false, BTreeSet::new());
        let mut pace = Pace::of(interrupt);
        pace.each(routine.inputs.iter().zip(inputs), STEPS, |(&v, dims)| {
            let Place::Arena(info, _) = &routine.values[v].place else { return };
            match dims {
                Some(dims) => unplanned |= dims != &info.dims[..],
                None => _ = omitted.insert(v),
            }
        })?;
        // No step reads some inputs: they may be left out.
        if !omitted.is_empty() && !unplanned {
            unplanned = routine.outputs.iter().any(|v| omitted.contains(v));
            for step in &routine.steps {
                pace.spend(STEPS.saturating_mul(1 + step.inputs.len()))?;
                unplanned |= step.inputs.iter().flatten().any(|v| omitted.contains(v));
            }
        }
        self.unplanned = unplanned;
        Ok(())
    }

    /// Frees what the run allocated, without the turn where that is much: whether it was lent for that.
    pub fn clear(&mut self, interrupt: &dyn Interrupt) -> bool {
        let values = (self.kept.len() as u64).saturating_mul(VALUE_BYTES);
        let lends = self.dynamic_bytes.saturating_add(values) > FREED_AT_ONCE;
        if lends {
            interrupt.before_waiting();
        }
        self.kept.drain(..).for_each(|v| self.dynamic[v] = None);
        self.dynamic_bytes = 0;
        lends
    }

    /// Frees all of it, without the turn where that is much.
    pub fn free(self, interrupt: &dyn Interrupt) -> Result<(), OpError> {
        if self.is_freed_at_once() {
            return Ok(());
        }
        interrupt.before_waiting();
        drop(self);
        interrupt.yield_point()
    }

    /// Whether to free it keeps others from nothing noticeably.
    pub fn is_freed_at_once(&self) -> bool {
        let values = (self.dynamic.len() as u64).saturating_mul(size_of::<Option<Tensor>>() as u64);
        self.size().saturating_add(values) <= FREED_AT_ONCE
    }

    /// The part of the arena where value `v` lives in this run.
    pub fn part<'r>(&self, routine: &'r Routine, v: usize) -> Option<(&'r TensorInfo, &'r Range<usize>)> {
        match &routine.values[v].place {
            Place::Arena(info, part) if !self.unplanned => Some((info, part)),
            _ => None,
        }
    }

    /// What value `v` will be in this run, where that is known ahead.
    pub fn known_info<'r>(&self, routine: &'r Routine, v: usize) -> Option<&'r TensorInfo> {
        match &routine.values[v].place {
            Place::Constant(info, _) => Some(info),
            _ => self.part(routine, v).map(|(info, _)| info),
        }
    }

    /// Gives value `v` these dimensions, which must be those the model declares, and lets `fill` write its bytes.
    pub fn put(
        &mut self,
        routine: &Routine,
        v: usize,
        dims: &[u32],
        fill: impl FnOnce(&mut [u8]) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let declared = &routine.values[v].declared;
        check_dims(declared, dims).map_err(BackendError::Failed)?;
        if let Some((info, part)) = self.part(routine, v) {
            if info.dims[..] != *dims {
                return Err(broken_plan());
            }
            return fill(self.arena.write(part).ok_or_else(broken_plan)?);
        }
        let info = with_dims(declared, dims);
        let size = info.byte_size().ok_or(BackendError::OutOfMemory(usize::MAX))?;
        self.check_room(size)?;
        let mut data = AlignedBuf::zeroed(size).ok_or(BackendError::OutOfMemory(size))?;
        fill(&mut data)?;
        self.keep(v, Tensor { info, data });
        Ok(())
    }

    /// Makes `data`, of these dimensions, value `v`.
    pub fn put_tensor(
        &mut self,
        interrupt: &dyn Interrupt,
        routine: &Routine,
        v: usize,
        dims: Dims,
        data: AlignedBuf,
    ) -> Result<(), BackendError> {
        if self.part(routine, v).is_some() {
            return self.put(routine, v, &dims, |place| Ok(copy(interrupt, place, &data)?));
        }
        let declared = &routine.values[v].declared;
        check_dims(declared, &dims).map_err(BackendError::Failed)?;
        self.check_room(data.len())?;
        self.keep(v, Tensor { info: TensorInfo { dims, ..declared.clone() }, data });
        Ok(())
    }

    fn keep(&mut self, v: usize, tensor: Tensor) {
        self.dynamic_bytes = self.dynamic_bytes.saturating_add(tensor.data.len() as u64);
        match self.dynamic[v].replace(tensor) {
            Some(earlier) => {
                self.dynamic_bytes = self.dynamic_bytes.saturating_sub(earlier.data.len() as u64);
            }
            None => self.kept.push(v),
        }
    }

    /// A value's dimensions and bytes; `None` for an input that was left out.
    pub fn value<'f>(
        &'f self,
        routine: &'f Routine,
        v: usize,
    ) -> Result<Option<(&'f TensorInfo, &'f [u8])>, BackendError> {
        if let Some(tensor) = &self.dynamic[v] {
            return Ok(Some((&tensor.info, &tensor.data)));
        }
        match (&routine.values[v].place, self.part(routine, v)) {
            (Place::Constant(info, bytes), _) => Ok(Some((info, bytes))),
            (_, Some((info, part))) => Ok(Some((info, self.arena.read(part).ok_or_else(broken_plan)?))),
            _ => Ok(None),
        }
    }

    /// A copy of a value, to hand to a subgraph.
    pub fn tensor(
        &self,
        interrupt: &dyn Interrupt,
        routine: &Routine,
        v: usize,
    ) -> Result<Option<Tensor>, BackendError> {
        let Some((info, bytes)) = self.value(routine, v)? else { return Ok(None) };
        let mut data = AlignedBuf::zeroed(bytes.len()).ok_or(BackendError::OutOfMemory(bytes.len()))?;
        copy(interrupt, &mut data, bytes)?;
        Ok(Some(Tensor { info: info.clone(), data }))
    }
}

/// Checks that a run whose values take `size` bytes may be.
pub fn check_size(size: u64, limit: u64) -> Result<(), BackendError> {
    match size > limit {
        true => Err(BackendError::TooLarge { size, limit }),
        false => Ok(()),
    }
}

pub fn broken_plan() -> BackendError {
    BackendError::Failed("the memory plan is broken; this is a fault of the driver".into())
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{Bound, Held, Memories};
    use super::super::routine::Value;
    use super::super::samples::{compile, f32_info, floats, Build};
    use super::*;
    use crate::backend::Control;
    use crate::memory::{ClientSlice, Mapping};
    use crate::ops::{NeverInterrupted, OperationType};
    use crate::tensor::OperandType;
    use smallvec::smallvec;
    use std::sync::{Arc, Mutex};

    fn dynamic(count: usize, arena: usize) -> Routine {
        let declared = TensorInfo::new(OperandType::TENSOR_QUANT8_SYMM, &[]);
        let value = || Value { declared: declared.clone(), place: Place::Dynamic };
        let values = (0..count).map(|_| value()).collect();
        Routine {
            values,
            steps: vec![],
            inputs: vec![],
            outputs: vec![],
            arena,
            chains: vec![],
            merged: vec![],
            followed: vec![],
            inferred: None,
        }
    }

    #[test]
    fn a_runs_values_stay_within_its_limit() {
        let routine = dynamic(3, 100);
        assert!(matches!(
            Frame::new(&routine, 99, &NeverInterrupted),
            Err(BackendError::TooLarge { size: 100, limit: 99 })
        ));
        let mut frame = Frame::new(&routine, 1100, &NeverInterrupted).unwrap();
        let put = |frame: &mut Frame, v, len| frame.put(&routine, v, &[len], |_| Ok(()));
        put(&mut frame, 0, 600).unwrap();
        assert!(matches!(put(&mut frame, 1, 401), Err(BackendError::TooLarge { size: 1101, limit: 1100 })));
        put(&mut frame, 1, 300).unwrap();
        assert_eq!(frame.left(), 100);
        let data = || AlignedBuf::zeroed(101).unwrap();
        assert!(frame.put_tensor(&NeverInterrupted, &routine, 2, smallvec![101], data()).is_err());
        frame.clear(&NeverInterrupted);
        assert_eq!(frame.left(), 1000);
        assert!(
            (0..3).all(|v| frame.value(&routine, v).unwrap().is_none()),
            "something is left of the last run"
        );
        frame.put_tensor(&NeverInterrupted, &routine, 2, smallvec![101], data()).unwrap();
    }

    /// Its weights are packed: a plain evaluation would have none.
    #[test]
    fn an_input_that_nobody_reads_may_be_left_out() {
        let mut b = Build::new();
        let [input, _unread] = [(); 2].map(|()| b.input(f32_info(&[2, 400])));
        let weights = b.constant(f32_info(&[3, 400]), &floats(1200, 1.0));
        let bias = b.constant(f32_info(&[3]), &floats(3, 2.0));
        let none = b.ints(&[0])[0];
        let operands = [input, weights, bias, none];
        let out = b.call(OperationType::FULLY_CONNECTED, 0, &operands, f32_info(&[2, 3]));
        let program = compile(&b.finish(out), 1, None);
        let bound = |dims: &[u32]| {
            let len = 4 * dims.iter().product::<u32>() as usize;
            let data = ClientSlice::new(Arc::new(Mapping::anonymous(len).unwrap()), 0, len).unwrap();
            Some(Bound { data, dims: dims.into() })
        };
        let [both, first] = [true, false].map(|both| {
            let inputs = [bound(&[2, 400]), bound(&[2, 400]).filter(|_| both)];
            inputs[0].as_ref().unwrap().data.write(bytemuck::cast_slice(&floats(800, 3.0))).unwrap();
            let outputs = [bound(&[2, 3])];
            let memories = Memories::of(&inputs, &outputs);
            program.run(Held::new(&inputs, &outputs, &memories).unwrap(), &Control::default()).unwrap();
            outputs[0].as_ref().unwrap().data.to_private().unwrap().to_vec()
        });
        assert_eq!(both, first);
        assert!(first.iter().any(|&byte| byte != 0));
    }

    /// Counts how often the turn was lent, and had again.
    #[derive(Default)]
    struct Lent(Mutex<[usize; 2]>);

    impl Lent {
        fn take(&self) -> [usize; 2] {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    impl Interrupt for Lent {
        fn check(&self) -> Result<(), OpError> {
            Ok(())
        }

        fn yield_point(&self) -> Result<(), OpError> {
            self.0.lock().unwrap()[1] += 1;
            Ok(())
        }

        fn before_waiting(&self) {
            self.0.lock().unwrap()[0] += 1;
        }
    }

    #[test]
    fn much_memory_is_freed_without_the_turn() {
        for (bytes, lent) in [(1000, 0), (8 << 20, 1)] {
            let (routine, frames) = (dynamic(1, 0), [dynamic(1, 0), dynamic(0, bytes)]);
            let (mut frame, interrupt) =
                (Frame::new(&routine, u64::MAX, &NeverInterrupted).unwrap(), Lent::default());
            frame.put(&routine, 0, &[bytes as u32], |_| Ok(())).unwrap();
            frame.start(&interrupt, &routine, std::iter::empty()).unwrap();
            assert_eq!(interrupt.take(), [lent; 2], "{bytes} bytes of an earlier run");
            assert!(frame.value(&routine, 0).unwrap().is_none());
            for routine in frames {
                let mut frame = Frame::new(&routine, u64::MAX, &NeverInterrupted).unwrap();
                if !routine.values.is_empty() {
                    frame.put(&routine, 0, &[bytes as u32], |_| Ok(())).unwrap();
                }
                frame.free(&interrupt).unwrap();
                assert_eq!(interrupt.take(), [lent; 2], "{bytes} bytes of a frame");
            }
        }
    }
}
