//! Random calls of operations, from valid to absurd, to show that no operation panics whatever a client sends (tests
//! only): the whole table is stormed here; families whose valid calls need more than luck add tests of their own.
//!
//! Every second call is of plausible values only. Work is bounded by refusing large tensors, and by an interrupt that
//! comes soon.

use super::evaluate::{run, shapes};
use super::signature::{self, Count, Operand, Row, Signature, Slot, Ty};
use super::testing::{tensor, InterruptedAfter, Tensor};
use super::{Arg, Args, OpError, Operation, OperationType, Run};
use crate::tensor::{byte_size, element_count, ChannelQuant, Dims, OperandType, TensorInfo};
use half::f16;
use OperandType::*;
use OperationType as Op;

/// Tensors of more elements than this are not made, and outputs not computed.
const MOST_ELEMENTS: usize = 1 << 14;

/// xorshift64*: the same calls each time.
pub struct Random {
    state: u64,
    /// The next values are plausible.
    pub tame: bool,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Random { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, tame: false }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `plausible`, or in a wild call perhaps of `absurd`.
    fn value<T: Copy>(&mut self, plausible: &[T], absurd: &[T]) -> T {
        let wild = !self.tame && self.one_in(3);
        self.pick(if wild { absurd } else { plausible })
    }

    fn dim(&mut self) -> u32 {
        self.value(&[1, 2, 2, 3, 3, 4, 5], &[0, 0, 7, 1 << 16, i32::MAX as u32, u32::MAX])
    }

    fn integer(&mut self) -> i32 {
        const ABSURD: [i32; 10] =
            [i32::MIN, i32::MIN + 1, -5, -1, 7, 255, 1 << 16, 1 << 20, i32::MAX - 1, i32::MAX];
        self.value(&[0, 0, 1, 1, 1, 2, 2, 3, -1, -2], &ABSURD)
    }

    fn real(&mut self) -> f32 {
        const ABSURD: [f32; 10] =
            [-0.0, -1.0, 1e-40, 1e30, 1e38, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let plausible = self.below(32) as f32 / 8.0;
        self.value(&[plausible], &ABSURD)
    }

    /// The value of an INT32 scalar of this name.
    fn scalar(&mut self, name: &str) -> i32 {
        match name {
            "activation" => self.value(&[0, 1, 2, 3], &[-1, 4, i32::MAX]),
            name if name.starts_with("padding ") => self.value(&[0, 0, 1, 1, 2], &[-1, i32::MAX, i32::MIN]),
            "groups" | "depth multiplier" => self.value(&[1, 1, 1, 2, 3], &[0, -1, i32::MIN, i32::MAX]),
            name if name.contains("width") || name.contains("height") => {
                self.value(&[1, 1, 1, 2, 2, 3], &[0, -1, 1 << 20, i32::MIN, i32::MAX])
            }
            _ => self.integer(),
        }
    }

    /// An operand of type `ty` without a value.
    fn info(&mut self, ty: OperandType, dims: &[u32]) -> TensorInfo {
        let mut info = TensorInfo::new(ty, dims);
        let Some((lo, hi)) = ty.integer_range().filter(|_| ty.is_tensor()) else { return info };
        if ty == TENSOR_QUANT8_SYMM_PER_CHANNEL {
            let dim = self.value(&[0, 3], &[1, 9]);
            let count = dims.get(dim as usize).map_or(1, |&d| d.min(4096) as usize);
            info.channel_quant = Some(ChannelQuant { scales: vec![self.scale(); count].into(), dim });
        } else if ty != TENSOR_INT32 {
            info.scale = self.scale();
            if ty.is_quant8_asymm() {
                info.zero_point = self.value(&[0, lo, lo + 128], &[lo, hi]);
            }
        }
        info
    }

    fn scale(&mut self) -> f32 {
        let absurd = [0.0, -1.0, 1e-45, 1e-30, 1e30, f32::MAX, f32::INFINITY, f32::NAN];
        self.value(&[1.0 / 256.0, 1.0 / 128.0, 0.5, 1.0], &absurd)
    }

    /// An operand of random elements; `None` where it would be too large.
    pub fn filled(&mut self, info: TensorInfo) -> Option<Tensor> {
        let count = element_count(&info.dims).filter(|&n| n <= MOST_ELEMENTS)?;
        Some(match info.ty.element_size()? {
            4 if info.ty.is_float() => tensor(info, &Vec::from_iter((0..count).map(|_| self.real()))),
            4 => tensor(info, &Vec::from_iter((0..count).map(|_| self.integer()))),
            2 if info.ty.is_float() => {
                tensor(info, &Vec::from_iter((0..count).map(|_| f16::from_f32(self.real()))))
            }
            2 => tensor(info, &Vec::from_iter((0..count).map(|_| self.next() as u16))),
            _ => tensor(info, &Vec::from_iter((0..count).map(|_| self.next() as u8))),
        })
    }
}

/// The type that a slot asks for in a row.
pub fn type_of(slot: &Slot, row: &Row, random: &mut Random) -> OperandType {
    match slot.ty {
        Ty::Var(column) => row.1[column],
        Ty::Is(ty) => ty,
        Ty::Any(types) => random.pick(types),
    }
}

/// Makes `calls` random calls of `operation`; says how many of them succeeded.
fn storm(operation: &Operation, calls: usize, random: &mut Random) -> usize {
    let mut call = || {
        random.tame = random.one_in(2);
        let (inputs, outputs) = random_call(operation, random)?;
        attack(operation, &inputs, &outputs).ok()
    };
    (0..calls).filter_map(|_| call()).count()
}

/// Inputs, and what outputs are declared to be.
pub type Call = (Vec<Option<Tensor>>, Vec<TensorInfo>);

/// A call of `operation`, plausible or not; `None` where it would take too much.
pub fn random_call(operation: &Operation, random: &mut Random) -> Option<Call> {
    let signature = &operation.signatures[random.below(operation.signatures.len())];
    let row = random.pick(signature.rows);
    let slots = input_slots(signature, random);
    let mut dims: Vec<Vec<u32>> = slots.iter().map(|slot| random_dims(slot, random)).collect();
    if random.tame || random.one_in(2) {
        fit(operation.ty, &slots, &mut dims, random);
    }
    let mut inputs: Vec<Option<Tensor>> = Vec::new();
    for (slot, dims) in slots.iter().zip(&dims) {
        let mut ty = type_of(slot, &row, random);
        if !random.tame && random.one_in(50) {
            ty = random.pick(&OperandType::ALL[..15]);
        }
        let mut info = random.info(ty, if ty.is_scalar() { &[] } else { dims });
        if let (true, [Some(input), Some(filter), ..]) = (slot.name == "bias", &inputs[..]) {
            info.scale = input.info.scale * filter.info.scale;
        }
        inputs.push(match ty {
            _ if slot.optional && random.one_in(2) => None,
            INT32 => Some(tensor(info, &[random.scalar(slot.name)])),
            _ => Some(random.filled(info)?),
        });
    }
    let mut slots = signature.outputs.to_vec();
    if let Count::Repeat(at) = signature.output_count {
        (0..random.below(3)).for_each(|_| slots.insert(at, slots[at]));
    }
    let mut output = |slot: &Slot| {
        let ty = type_of(slot, &row, random);
        if slot.name == "hits" && random.one_in(2) {
            return TensorInfo::quantised(ty, &[], 1.0, 0);
        }
        let like = inputs.iter().flatten().find(|input| input.info.ty == ty);
        match like.filter(|_| random.one_in(2)) {
            Some(input) => TensorInfo { dims: Dims::new(), ..input.info.clone() },
            None => random.info(ty, &[]),
        }
    };
    let outputs = slots.iter().map(&mut output).collect();
    Some((inputs, outputs))
}

fn input_slots(signature: &Signature, random: &mut Random) -> Vec<Slot> {
    let mut slots = signature.inputs.to_vec();
    match signature.input_count {
        Count::All => {}
        Count::OneOf(counts) => slots.truncate(random.pick(counts)),
        Count::Repeat(at) => (0..random.below(3)).for_each(|_| slots.insert(at, slots[at])),
    }
    slots
}

fn random_dims(slot: &Slot, random: &mut Random) -> Vec<u32> {
    let usual = random.value(&[1, 2, 3, 4, 4], &[5, 8]);
    let rank = usual.clamp(usize::from(slot.rank.0), usize::from(slot.rank.1));
    (0..rank).map(|_| random.dim()).collect()
}

/// Makes dimensions go together as the operation wants them, as far as names of slots tell.
fn fit(ty: OperationType, slots: &[Slot], dims: &mut [Vec<u32>], random: &mut Random) {
    match ty {
        Op::CONV_2D | Op::GROUPED_CONV_2D | Op::TRANSPOSE_CONV_2D | Op::DEPTHWISE_CONV_2D => {
            for dims in &mut dims[..2] {
                dims.resize(4, 2);
            }
            let depth = dims[0][3];
            match ty {
                Op::DEPTHWISE_CONV_2D => (dims[1][0], dims[1][3]) = (1, depth),
                Op::GROUPED_CONV_2D => dims[1][3] = random.pick(&[1, depth]),
                _ => dims[1][3] = depth,
            }
            dims[2] = vec![dims[1][if ty == Op::DEPTHWISE_CONV_2D { 3 } else { 0 }]];
            if slots[3].name == "output shape" {
                dims[3] = vec![4];
            }
        }
        Op::FULLY_CONNECTED => {
            dims[1].resize(2, 2);
            dims[2] = vec![dims[1][0]];
            let inputs = dims[1][1];
            dims[0].last_mut().into_iter().for_each(|last| *last = inputs);
        }
        Op::BATCH_MATMUL => {
            let (mut right, rank) = (dims[0].clone(), dims[0].len());
            if rank > 1 {
                (right[rank - 2], right[rank - 1]) = (right[rank - 1], random.dim());
            }
            dims[1] = right;
        }
        _ => fit_to_first(slots, dims, random),
    }
}

/// Tensors like the first; those that steer have a value for each of its dimensions.
fn fit_to_first(slots: &[Slot], dims: &mut [Vec<u32>], random: &mut Random) {
    let first = dims[0].clone();
    let blocks = slots.iter().any(|slot| slot.name == "block sizes");
    if blocks || slots.iter().any(|slot| slot.name.eq_ignore_ascii_case("nchw")) {
        dims[0].resize(4, 2);
    }
    let rank = if blocks { 2 } else { first.len() as u32 };
    for (slot, dims) in slots.iter().zip(dims).skip(1) {
        *dims = match slot.ty {
            Ty::Is(TENSOR_INT32) => match slot.name {
                "paddings" => vec![rank, 2],
                "block sizes" => vec![2],
                "axis" => vec![1],
                _ => vec![random.pick(&[rank, rank, first[0], 1])],
            },
            _ if first.len() > usize::from(slot.rank.1) => vec![first[first.len() - 1]],
            _ => first.clone(),
        };
    }
}

/// Calls `operation` as a backend would; what it gives must fit its type.
pub fn attack(
    operation: &Operation,
    inputs: &[Option<Tensor>],
    outputs: &[TensorInfo],
) -> Result<(), OpError> {
    let operands: Vec<_> = inputs
        .iter()
        .map(|t| t.as_ref().map_or(Operand::Omitted(None), |t| Operand::Present(&t.info)))
        .collect();
    let out_operands: Vec<_> = outputs.iter().map(Operand::Present).collect();
    let signature_index = signature::find(operation.signatures, &operands, &out_operands)
        .map_err(OpError::Failed)?
        .signature_index;
    let with = |data: fn(&Tensor) -> Option<&[u8]>| -> Vec<Option<Arg>> {
        inputs.iter().map(|t| t.as_ref().map(|t| Arg { info: &t.info, data: data(t) })).collect()
    };
    let (unknown, known) = (with(|_| None), with(|t| Some(&t.data)));
    let interrupt = &InterruptedAfter::checks(20);
    // Validation and compilation know no values yet.
    let early = Args { signature_index, inputs: &unknown, outputs, interrupt };
    let _ = (operation.check)(&early);
    let _ = shapes(operation, &early);
    let args = Args { inputs: &known, ..early };
    (operation.check)(&args)?;
    if matches!(operation.run, Run::Shaped { .. }) {
        let dims = shapes(operation, &args)?;
        if dims.iter().any(|dims| element_count(dims).is_none_or(|n| n > MOST_ELEMENTS)) {
            return Err(OpError::failed("too large for this test"));
        }
    }
    let results = run(operation, &args);
    if SHAPES_DECIDE.contains(&operation.ty) {
        assert!(
            !matches!(results, Err(OpError::Failed(_))),
            "{}: shapes accepted what eval refuses: {results:?}",
            operation.ty
        );
    }
    let results = results?;
    assert_eq!(results.len(), outputs.len(), "{}", operation.ty);
    for (result, info) in results.iter().zip(outputs) {
        assert_eq!(byte_size(info.ty, &result.dims), Some(result.data.len()), "{}", operation.ty);
        let boolean = info.ty == TENSOR_BOOL8 && MAKES_BOOLEANS.contains(&operation.ty);
        assert!(!boolean || result.data.iter().all(|&b| b <= 1), "{} gave other than 0 and 1", operation.ty);
    }
    Ok(())
}

/// Operations that run to the end once their shapes are accepted, whatever the tensors hold.
const SHAPES_DECIDE: &[OperationType] = &[
    Op::AVERAGE_POOL_2D,
    Op::BATCH_MATMUL,
    Op::CONV_2D,
    Op::DEPTHWISE_CONV_2D,
    Op::FULLY_CONNECTED,
    Op::GROUPED_CONV_2D,
    Op::L2_POOL_2D,
    Op::MAX_POOL_2D,
    Op::RESIZE_BILINEAR,
    Op::RESIZE_NEAREST_NEIGHBOR,
    Op::TRANSPOSE_CONV_2D,
];

/// Operations that compute booleans rather than move them.
const MAKES_BOOLEANS: &[OperationType] = &[
    Op::CAST,
    Op::EQUAL,
    Op::GREATER,
    Op::GREATER_EQUAL,
    Op::LESS,
    Op::LESS_EQUAL,
    Op::LOGICAL_AND,
    Op::LOGICAL_NOT,
    Op::LOGICAL_OR,
    Op::NOT_EQUAL,
    Op::REDUCE_ALL,
    Op::REDUCE_ANY,
];

mod tests {
    use super::*;

    /// Operations of these have too many operands that must agree for luck to find a valid call.
    fn is_stormed_in_its_family(operation: &Operation) -> bool {
        let in_families = [
            Op::AXIS_ALIGNED_BBOX_TRANSFORM,
            Op::BOX_WITH_NMS_LIMIT,
            Op::DETECTION_POSTPROCESSING,
            Op::GENERATE_PROPOSALS,
            Op::HEATMAP_MAX_KEYPOINT,
            Op::ROI_ALIGN,
            Op::ROI_POOLING,
            Op::RNN,
            Op::SVDF,
            Op::UNIDIRECTIONAL_SEQUENCE_RNN,
            Op::BIDIRECTIONAL_SEQUENCE_RNN,
        ];
        in_families.contains(&operation.ty) || operation.ty.name().contains("LSTM")
    }

    #[test]
    fn no_operation_panics() {
        for operation in OperationType::ALL.iter().filter_map(|ty| ty.operation()) {
            let succeeded = storm(operation, 3000, &mut Random::new(operation.ty as u64 + 1));
            let unlikely = is_stormed_in_its_family(operation) || matches!(operation.run, Run::ControlFlow);
            println!("{}: {succeeded}", operation.ty);
            assert!(succeeded > 20 || unlikely, "{}: only {succeeded} calls succeeded", operation.ty);
        }
    }
}
