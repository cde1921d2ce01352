//! Calls whose kernels want operands in another form: half floats as floats, channels or lanes last that come elsewhere.
//! Other kernels bring them into that form before, and what comes out back into the call's own after. Nothing here
//! computes: results are those that the kernel gives.

#[cfg(test)]
pub(super) mod tests;

use super::elementwise::half::widen;
use super::isa::Isa;
use super::{Kernel, Pack, Source, Work};
use crate::memory::{AlignedBuf, Slab, Target, View, Weights};
use crate::ops::{axis_index, Arg, Args, Interrupt, NeverInterrupted, OpError, Operation, OperationType};
use crate::tensor::Dims;
use crate::tensor::{OperandType::*, TensorInfo};

/// Operations whose kernels compute with floats. Others take half floats as they are.
const OF_FLOATS: [OperationType; 13] = [
    OperationType::BATCH_MATMUL,
    OperationType::BIDIRECTIONAL_SEQUENCE_LSTM,
    OperationType::BIDIRECTIONAL_SEQUENCE_RNN,
    OperationType::CONV_2D,
    OperationType::DEPTHWISE_CONV_2D,
    OperationType::FULLY_CONNECTED,
    OperationType::GROUPED_CONV_2D,
    OperationType::LSTM,
    OperationType::RNN,
    OperationType::SVDF,
    OperationType::TRANSPOSE_CONV_2D,
    OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM,
    OperationType::UNIDIRECTIONAL_SEQUENCE_RNN,
];

/// Elements that are widened between two looks whether to stop.
const STRETCH: usize = 1 << 16;

/// A kernel for a call, if there is one.
type Select = fn(Isa, &Operation, &Args, &mut Source) -> Option<Box<dyn Kernel>>;

/// Where kernels come from: those of an instruction set, by the function that tells which a call has.
#[derive(Clone, Copy)]
pub(super) struct Kernels {
    pub isa: Isa,
    pub select: Select,
}

impl Kernels {
    fn select(self, operation: &Operation, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
        (self.select)(self.isa, operation, args, source)
    }
}

/// A kernel that wants some operands in another form.
struct InForm {
    kernel: Box<dyn Kernel>,
    /// By operand.
    inputs: Vec<(usize, Change)>,
    outputs: Vec<(usize, Change)>,
    packed_in_place: Vec<usize>,
    /// What it does besides, for a profile.
    name: &'static str,
}

/// What an operand is changed by.
struct Change {
    /// What the operand takes in the form that the kernel wants.
    bytes: usize,
    kernel: Box<dyn Kernel>,
}

/// Whether a call of half floats is to be made one of floats.
pub(super) fn is_of_halves(ty: OperationType, args: &Args) -> bool {
    OF_FLOATS.contains(&ty) && args.opt(0).is_some_and(|input| input.ty() == TENSOR_FLOAT16)
}

/// A kernel for such a call: that of the call with floats in their place. Constants are widened once.
pub(super) fn of_halves(
    kernels: Kernels,
    operation: &Operation,
    args: &Args,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let is_half = |info: &TensorInfo| info.ty == TENSOR_FLOAT16;
    let as_float = |info: &TensorInfo| match is_half(info) {
        true => TensorInfo { ty: TENSOR_FLOAT32, ..info.clone() },
        false => info.clone(),
    };
    let infos: Vec<_> = args.inputs.iter().map(|arg| arg.map(|arg| as_float(arg.info))).collect();
    let mut widened = Vec::with_capacity(infos.len());
    for (i, arg) in args.inputs.iter().enumerate() {
        let halves = arg.filter(|arg| is_half(arg.info)).and_then(|_| source.view(args, i));
        widened.push(match halves {
            Some(halves) => Some(all_widened(halves, args.interrupt)?),
            None => None,
        });
    }
    let inputs = args.inputs.iter().zip(&infos).zip(&widened);
    let inputs: Vec<_> = inputs
        .map(|((arg, info), widened)| {
            let data = if is_half(arg.as_ref()?.info) { widened.as_deref() } else { arg.as_ref()?.data };
            Some(Arg { info: info.as_ref()?, data })
        })
        .collect();
    let outputs: Vec<_> = args.outputs.iter().map(as_float).collect();
    let call = Args { inputs: &inputs, outputs: &outputs, ..*args };
    let kernel = match source {
        // All that it packs is half floats, which are widened now.
        Source::Pack(pack) => {
            kernels.select(operation, &call, &mut Source::Pack(Pack { views: &[], ..*pack }))
        }
        source => kernels.select(operation, &call, source),
    }?;
    let packed = kernel.packed_inputs().to_vec();
    let cast = |from: &TensorInfo, to: &TensorInfo, floats: &TensorInfo| {
        Change::new(kernels, OperationType::CAST, (from, to), floats, &[])
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (i, (arg, wanted)) in args.inputs.iter().zip(&inputs).enumerate() {
        if let Some((arg, wanted)) = arg.zip(*wanted).filter(|_| !packed.contains(&i)) {
            if is_half(arg.info) {
                before.push((i, cast(arg.info, wanted.info, wanted.info)?));
            }
        }
    }
    for (i, (info, made)) in args.outputs.iter().zip(&outputs).enumerate() {
        if is_half(info) {
            after.push((i, cast(made, info, made)?));
        }
    }
    let name = "from half floats";
    Some(Box::new(InForm { kernel, inputs: before, outputs: after, packed_in_place: packed, name }))
}

/// All elements as floats; `None` where there is no memory, or it was told to stop.
fn all_widened(halves: View<u16>, interrupt: &dyn Interrupt) -> Option<AlignedBuf> {
    let mut floats = AlignedBuf::zeroed(halves.len().checked_mul(size_of::<f32>())?)?;
    let stretches = bytemuck::cast_slice_mut::<u8, f32>(&mut floats).chunks_mut(STRETCH);
    for (stretch, to) in stretches.enumerate() {
        interrupt.yield_point().ok()?;
        let from = halves.pointer(stretch * STRETCH, to.len());
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: as many elements were asked for as there are in `to`.
            *to = widen(unsafe { from.add(i).read_unaligned() });
        }
    }
    Some(floats)
}

/// A kernel for this call out of one that takes the channels of input 0 and of output 0 to come last, wherever they are.
pub(super) fn channels_last(
    kernels: Kernels,
    operation: &Operation,
    args: &Args,
    kernel: Box<dyn Kernel>,
) -> Option<Box<dyn Kernel>> {
    match channels_come_first(operation, args)? {
        true => turned(kernels, args, &[0, 2, 3, 1], kernel),
        false => Some(kernel),
    }
}

/// The same out of one that takes lanes, which are along the axis of a call that has one, and channels elsewhere, to be
/// elements side by side.
pub(super) fn lanes_last(
    kernels: Kernels,
    operation: &Operation,
    args: &Args,
    kernel: Box<dyn Kernel>,
) -> Option<Box<dyn Kernel>> {
    if let Some(channels_first) = channels_come_first(operation, args) {
        return if channels_first { Some(kernel) } else { turned(kernels, args, &[0, 3, 1, 2], kernel) };
    }
    let slots = operation.signatures.get(args.signature_index)?.inputs;
    let given = slots.iter().position(|slot| slot.name == "axis");
    let axis = given.map_or(Ok(-1), |i| args.i32_or(i, -1)).ok()?;
    let dims = args.get(0).ok()?.dims();
    let axis = axis_index(axis, dims.len()).ok()?;
    if dims[axis + 1..].iter().all(|&dim| dim == 1) {
        return Some(kernel);
    }
    let order: Vec<i32> = (0..dims.len()).filter(|&i| i != axis).chain([axis]).map(|i| i as i32).collect();
    turned(kernels, args, &order, kernel)
}

/// `None` where the operation has no layout.
fn channels_come_first(operation: &Operation, args: &Args) -> Option<bool> {
    let slots = operation.signatures.get(args.signature_index)?.inputs;
    args.bool_or(slots.iter().position(|slot| slot.name == "nchw")?, false).ok()
}

/// A kernel for this call out of one that takes the dimensions of input 0 and of output 0 to be in this order.
fn turned(kernels: Kernels, args: &Args, order: &[i32], kernel: Box<dyn Kernel>) -> Option<Box<dyn Kernel>> {
    let in_order = |info: &TensorInfo| -> Option<TensorInfo> {
        let dims: Option<Dims> = order.iter().map(|&axis| info.dims.get(axis as usize).copied()).collect();
        Some(TensorInfo { dims: dims?, ..info.clone() })
    };
    let back: Option<Vec<i32>> =
        (0..order.len()).map(|i| Some(order.iter().position(|&axis| axis == i as i32)? as i32)).collect();
    let (given, out) = (args.get(0).ok()?.info, args.output(0).ok()?);
    let (wanted, made) = (in_order(given)?, in_order(out)?);
    let before = Change::new(kernels, OperationType::TRANSPOSE, (given, &wanted), &wanted, order)?;
    let after = Change::new(kernels, OperationType::TRANSPOSE, (&made, out), &made, &back?)?;
    let packed_in_place = kernel.packed_in_place().to_vec();
    let (inputs, outputs) = (vec![(0, before)], vec![(0, after)]);
    Some(Box::new(InForm { kernel, inputs, outputs, packed_in_place, name: "turned" }))
}

impl Change {
    /// By the kernel of this operation, `from` one form `to` the other, of which `wanted` is the one that the kernel wants;
    /// `order`: of dimensions, if that is what changes.
    fn new(
        kernels: Kernels,
        ty: OperationType,
        (from, to): (&TensorInfo, &TensorInfo),
        wanted: &TensorInfo,
        order: &[i32],
    ) -> Option<Self> {
        let order_info = TensorInfo::new(TENSOR_INT32, &[order.len() as u32]);
        let order_arg = Arg { info: &order_info, data: Some(bytemuck::cast_slice(order)) };
        let inputs = [Some(Arg { info: from, data: None }), Some(order_arg)];
        let inputs = if order.is_empty() { &inputs[..1] } else { &inputs };
        let outputs = std::slice::from_ref(to);
        let call = Args { signature_index: 0, inputs, outputs, interrupt: &NeverInterrupted };
        let nothing_to_pack = Slab::default();
        let kernel = kernels.select(ty.operation()?, &call, &mut Source::pack(&nothing_to_pack))?;
        Some(Change { bytes: wanted.byte_size()?, kernel })
    }

    /// Memory for the operand in the form that the kernel wants.
    fn room(&self) -> Result<AlignedBuf, OpError> {
        AlignedBuf::zeroed(self.bytes).ok_or(OpError::OutOfMemory(self.bytes))
    }
}

impl Kernel for InForm {
    fn name(&self) -> String {
        format!("{}, {}", self.kernel.name(), self.name)
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let mut changed = Vec::with_capacity(self.inputs.len());
        for (i, change) in &self.inputs {
            let given = inputs.get(*i).copied().flatten().ok_or(OpError::Unresolved)?;
            let mut wanted = change.room()?;
            change.kernel.run(&[Some(given)], &mut [Target::of(&mut wanted)], work)?;
            changed.push(wanted);
        }
        let mut views = inputs.to_vec();
        for ((i, _), wanted) in self.inputs.iter().zip(&changed) {
            views[*i] = Some(View::of(wanted));
        }
        let mut made: Vec<_> =
            self.outputs.iter().map(|(_, change)| change.room()).collect::<Result<_, _>>()?;
        let mut targets: Vec<Target<u8>> = Vec::with_capacity(outputs.len());
        for out in outputs.iter_mut() {
            let len = out.len();
            targets.push(out.part(0, len));
        }
        for ((i, _), made) in self.outputs.iter().zip(&mut made) {
            *targets.get_mut(*i).ok_or(OpError::Unresolved)? = Target::of(made);
        }
        self.kernel.run(&views, &mut targets, work)?;
        drop(changed);
        for ((i, change), made) in self.outputs.iter().zip(&made) {
            change.kernel.run(&[Some(View::of(made))], &mut outputs[*i..=*i], work)?;
        }
        Ok(())
    }

    fn weights(&self) -> Vec<&Weights> {
        self.kernel.weights()
    }

    fn packed_inputs(&self) -> &[usize] {
        self.kernel.packed_inputs()
    }

    fn packed_in_place(&self) -> &[usize] {
        &self.packed_in_place
    }
}
