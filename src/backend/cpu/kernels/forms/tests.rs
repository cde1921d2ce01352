//! Calls of floats and of images with their channels last in other forms, to be compared with the plain evaluation; and
//! where constants come from.

use crate::backend::cpu::kernels::twins::Noise;
use crate::backend::cpu::kernels::{select, Kernel, Pack, Source, Work};
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::{AlignedBuf, Slab, Target, View};
use crate::ops::testing::{boolean, int, tensor, InterruptedAfter, Tensor};
use crate::ops::OperationType::FULLY_CONNECTED;
use crate::ops::{Arg, Args, Interrupt, NeverInterrupted, Operation};
use crate::tensor::{OperandType::*, TensorInfo};
use half::f16;

/// Random calls for each property of calls that are tried in all their forms. Where CI emulates the machine each takes many times as long.
pub const CASES: u32 = if cfg!(target_arch = "aarch64") { 24 } else { 96 };

/// A call: inputs, and an output as far as it is known.
pub type Call = (Vec<Tensor>, TensorInfo);

/// The call in all other forms.
pub fn others(operation: &Operation, signature_index: usize, call: &Call) -> Vec<Call> {
    let turned = channels_first(operation, signature_index, call);
    let halves =
        [Some(call), turned.as_ref()].into_iter().flatten().filter_map(in_halves).collect::<Vec<_>>();
    turned.into_iter().chain(halves).collect()
}

/// The same values as an image of other dimensions; `None` where the operation has no layout.
fn channels_first(operation: &Operation, signature_index: usize, (inputs, output): &Call) -> Option<Call> {
    let slots = operation.signatures[signature_index].inputs;
    let layout = slots.iter().position(|slot| slot.name == "nchw")?;
    let mut inputs = inputs.clone();
    let first = |dims: &[u32]| [0, 3, 1, 2].map(|axis| dims[axis]).to_vec();
    inputs[0].info.dims = first(&inputs[0].info.dims).into();
    if let Some(shape) = slots.iter().position(|slot| slot.name == "output shape") {
        let info = inputs[shape].info.clone();
        inputs[shape] = tensor(info, &first(bytemuck::cast_slice(&inputs[shape].data)));
    }
    inputs[layout] = boolean(true);
    Some((inputs, output.clone()))
}

/// `None` where the call is not one of floats.
fn in_halves((inputs, output): &Call) -> Option<Call> {
    let as_half = |info: &TensorInfo| match info.ty {
        TENSOR_FLOAT32 => TensorInfo { ty: TENSOR_FLOAT16, ..info.clone() },
        FLOAT32 => TensorInfo { ty: FLOAT16, ..info.clone() },
        _ => info.clone(),
    };
    let half = |input: &Tensor| match input.info.ty {
        TENSOR_FLOAT32 | FLOAT32 => {
            let values: &[f32] = bytemuck::cast_slice(&input.data);
            let halves: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
            tensor(as_half(&input.info), &halves)
        }
        _ => input.clone(),
    };
    let is_float = inputs[0].info.ty == TENSOR_FLOAT32;
    is_float.then(|| (inputs.iter().map(half).collect(), as_half(output)))
}

/// A call of floats in half floats, where some inputs may be left out.
pub fn optional_in_halves(
    inputs: &[Option<Tensor>],
    output: &TensorInfo,
) -> (Vec<Option<Tensor>>, TensorInfo) {
    let given = inputs.iter().flatten().cloned().collect();
    let (halves, output) = in_halves(&(given, output.clone())).unwrap();
    let mut halves = halves.into_iter();
    (inputs.iter().map(|input| input.as_ref().and_then(|_| halves.next())).collect(), output)
}

/// Their bytes, from the second byte of a buffer on: nowhere that an element would be aligned.
fn at_odd_places(inputs: &[Tensor]) -> Vec<Vec<u8>> {
    inputs.iter().map(|input| [&[0], &input.data[..]].concat()).collect()
}

#[test]
fn half_constants_are_packed_where_they_lie_and_found_again() {
    let noise = &mut Noise(7);
    let floats = [[5, 33], [20, 33]].map(|dims| noise.tensor(TensorInfo::new(TENSOR_FLOAT16, &dims)));
    let mut inputs = floats.to_vec();
    inputs.push(noise.tensor(TensorInfo::new(TENSOR_FLOAT16, &[20])));
    inputs.push(int(1));
    let output = TensorInfo::new(TENSOR_FLOAT16, &[5, 20]);
    let operation = FULLY_CONNECTED.operation().unwrap();
    let select = |has: &[bool], source: &mut Source, interrupt: &dyn Interrupt| {
        let data = |i: usize| has[i].then_some(&inputs[i].data[..]);
        let args: Vec<_> =
            inputs.iter().enumerate().map(|(i, t)| Some(Arg { info: &t.info, data: data(i) })).collect();
        let outputs = std::slice::from_ref(&output);
        select(operation, &Args { signature_index: 0, inputs: &args, outputs, interrupt }, source)
    };
    let pool = ThreadPool::new(1).unwrap();
    let run = |kernel: &dyn Kernel| {
        let (views, mut out) = ([Some(View::of(&inputs[0].data[..])), None, None, None], [0; 200]);
        let work = Work::new(pool.team(1), &NeverInterrupted);
        kernel.run(&views, &mut [Target::of(&mut out)], work).unwrap();
        out
    };
    let (all, steering) = ([false, true, true, true], [false, false, false, true]);
    let given = select(&all, &mut Source::pack(&Slab::default()), &NeverInterrupted).unwrap();
    assert_eq!((given.packed_inputs(), given.packed_in_place()), (&[1, 2][..], &[1, 2][..]));
    let odd = at_odd_places(&inputs);
    let views: Vec<_> = odd.iter().map(|bytes| Some(View::of(&bytes[1..]))).collect();
    let pack =
        &mut Source::Pack(Pack { slab: &Slab::default(), views: &views, interrupt: &NeverInterrupted });
    let in_place = select(&steering, pack, &NeverInterrupted).unwrap();
    assert_eq!(run(&*given), run(&*in_place));
    let mut saved = given
        .weights()
        .into_iter()
        .map(|weights| AlignedBuf::copy_of(&weights.to_private().unwrap()).unwrap());
    let found = &mut Source::Packed(&mut |_| saved.next().map(Into::into));
    let found = select(&steering, found, &NeverInterrupted).unwrap();
    assert_eq!(run(&*given), run(&*found));
    assert!(run(&*given).iter().any(|&byte| byte != 0));
    let stopped = select(&all, &mut Source::pack(&Slab::default()), &InterruptedAfter::checks(0));
    assert!(stopped.is_none());
}
