//! Device buffers, models of RELUs and requests over both, to try memory domains with.

use super::*;
use std::os::fd::AsFd;

/// The operand types that VTS tries device memory with, and the bytes of an element.
pub const TYPES: [(OperandType, usize); 4] = [
    (OperandType::TENSOR_FLOAT32, 4),
    (OperandType::TENSOR_FLOAT16, 2),
    (OperandType::TENSOR_QUANT8_ASYMM, 1),
    (OperandType::TENSOR_QUANT8_ASYMM_SIGNED, 1),
];
pub const DIMS: [i32; 4] = [1, 32, 32, 8];
pub const ELEMENTS: usize = 32 * 32 * 8;

pub const INVALID: ErrorStatus = ErrorStatus::INVALID_ARGUMENT;
pub const FAILURE: ErrorStatus = ErrorStatus::GENERAL_FAILURE;
pub const NONE: ErrorStatus = ErrorStatus::NONE;

pub fn tensor(ty: OperandType, dims: &[i32], lifetime: OperandLifeTime) -> Operand {
    let mut operand = operand(ty, dims, lifetime);
    (operand.scale, operand.zeroPoint) = match ty {
        OperandType::TENSOR_QUANT8_ASYMM => (0.5, 3),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => (0.5, -3),
        _ => (0.0, 0),
    };
    operand
}

/// A model of one RELU for each of `operands`, from input i to output i.
pub fn model_of(operands: &[Operand]) -> Model {
    let mut main = Subgraph::default();
    for operand in operands {
        let first = main.operands.len() as i32;
        let with = |lifetime| Operand { lifetime, ..operand.clone() };
        main.operands.extend([with(OperandLifeTime::SUBGRAPH_INPUT), with(OperandLifeTime::SUBGRAPH_OUTPUT)]);
        main.operations.push(Operation {
            r#type: OperationType::RELU,
            inputs: vec![first],
            outputs: vec![first + 1],
        });
        main.inputIndexes.push(first);
        main.outputIndexes.push(first + 1);
    }
    Model { main, ..Default::default() }
}

pub fn model(ty: OperandType, dims: &[i32], operations: usize) -> Model {
    model_of(&vec![tensor(ty, dims, OperandLifeTime::TEMPORARY_VARIABLE); operations])
}

pub type Prepared = Strong<dyn IPreparedModel>;

pub fn roles(indices: &[i32]) -> Vec<BufferRole> {
    indices.iter().map(|&i| BufferRole { modelIndex: 0, ioIndex: i, probability: 1.0 }).collect()
}

pub fn parcels(models: &[&Prepared]) -> Vec<IPreparedModelParcel> {
    models.iter().map(|&m| IPreparedModelParcel { preparedModel: Some(m.clone()) }).collect()
}

pub struct Device {
    pub harness: Harness,
}

impl Device {
    pub fn new() -> Self {
        Device { harness: Harness::new() }
    }

    pub fn try_allocate(
        &self,
        dims: &[i32],
        models: &[IPreparedModelParcel],
        inputs: &[BufferRole],
        outputs: &[BufferRole],
    ) -> BinderResult<DeviceBuffer> {
        self.harness.device().allocate(&BufferDesc { dimensions: dims.to_vec() }, models, inputs, outputs)
    }

    /// A buffer for these inputs and outputs of `model`.
    #[track_caller]
    pub fn allocate(&self, model: &Prepared, dims: &[i32], inputs: &[i32], outputs: &[i32]) -> Buffer {
        let buffer = self.try_allocate(dims, &parcels(&[model]), &roles(inputs), &roles(outputs));
        let DeviceBuffer { buffer, token } = buffer.expect("allocated");
        assert!(token > 0, "{token}");
        Buffer { object: buffer.expect("a buffer"), token }
    }
}

pub struct Buffer {
    pub object: Strong<dyn IBuffer>,
    pub token: i32,
}

impl Buffer {
    pub fn copy_from(&self, len: usize, dims: &[i32]) -> ErrorStatus {
        status(&self.object.copyFrom(&ashmem(&memfd(&pattern(len)), len as i64), dims))
    }

    /// The buffer's bytes, which should be `len`.
    pub fn copy_to(&self, len: usize) -> Result<Vec<u8>, ErrorStatus> {
        let file = memfd(&vec![0; len]);
        match status(&self.object.copyTo(&ashmem(&file, len as i64))) {
            NONE => Ok(bytes_of(&file)),
            error => Err(error),
        }
    }
}

/// Bytes that are at least as large as any zero point and no NaN in any type: RELU leaves them as they are.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| 8 + (i % 50) as u8).collect()
}

/// An argument of a request, and where it is.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    Shared(&'a File, usize),
    Buffer(i32),
}

/// Gives an argument dimensions.
pub type Argument<'a> = (Place<'a>, &'a [i32]);

/// A request with one pool for each place: the same buffer is the same pool.
pub fn request(inputs: &[Argument], outputs: &[Argument]) -> Request {
    let mut request = Request::default();
    let mut tokens: Vec<(i32, i32)> = Vec::new();
    let mut place = |(place, dims): &Argument| {
        let pools = &mut request.pools;
        let (pool, length) = match *place {
            Place::Shared(file, len) => {
                pools.push(RequestMemoryPool::Pool(ashmem(file, len as i64)));
                (pools.len() as i32 - 1, len as i64)
            }
            Place::Buffer(token) => match tokens.iter().find(|(t, _)| *t == token) {
                Some(&(_, pool)) => (pool, 0),
                None => {
                    pools.push(RequestMemoryPool::Token(token));
                    tokens.push((token, pools.len() as i32 - 1));
                    (pools.len() as i32 - 1, 0)
                }
            },
        };
        RequestArgument { dimensions: dims.to_vec(), ..argument(pool, 0, length) }
    };
    let inputs: Vec<_> = inputs.iter().map(&mut place).collect();
    let outputs: Vec<_> = outputs.iter().map(&mut place).collect();
    Request { inputs, outputs, ..request }
}

/// The ways to execute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Sync,
    SyncWithConfig,
    Burst,
    Fenced,
    Reusable,
    ReusableFenced,
}

pub const WAYS: [Way; 6] =
    [Way::Sync, Way::SyncWithConfig, Way::Burst, Way::Fenced, Way::Reusable, Way::ReusableFenced];

/// Those that can tell the dimensions of outputs.
pub const WAYS_WITH_SHAPES: [Way; 4] = [Way::Sync, Way::SyncWithConfig, Way::Burst, Way::Reusable];

impl Way {
    pub fn execute(self, model: &Prepared, request: &Request) -> ErrorStatus {
        let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
        let result = match self {
            Way::Sync => model.executeSynchronously(request, false, -1, -1),
            Way::SyncWithConfig => model.executeSynchronouslyWithConfig(request, &config, -1),
            Way::Burst => {
                let burst = model.configureExecutionBurst().expect("a burst");
                burst.executeSynchronously(request, &vec![-1; request.pools.len()], false, -1, -1)
            }
            Way::Fenced => return fenced(model.executeFenced(request, &[], false, -1, -1, -1)),
            Way::Reusable => model
                .createReusableExecution(request, &config)
                .and_then(|execution| execution.executeSynchronously(-1)),
            Way::ReusableFenced => {
                let execution = model.createReusableExecution(request, &config);
                return fenced(execution.and_then(|execution| execution.executeFenced(&[], -1, -1)));
            }
        };
        match result {
            Ok(result) if !result.outputSufficientSize => ErrorStatus::OUTPUT_INSUFFICIENT_SIZE,
            other => status(&other),
        }
    }
}

/// Waits for a fenced execution. What fails without any fence to wait for fails at once: a fence in its error state would
/// be a surprise.
pub fn fenced(result: BinderResult<FencedExecutionResult>) -> ErrorStatus {
    let result = match result {
        Ok(result) => result,
        error => return status(&error),
    };
    if let Some(fence) = result.syncFence {
        use nix::poll::{PollFd, PollFlags};
        let mut poll = [PollFd::new(fence.as_fd(), PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut poll, 20_000u16), Ok(1), "the fence is not signalled");
        let events = poll[0].revents().unwrap_or(PollFlags::POLLNVAL);
        assert!(!events.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL), "{events:?}");
    }
    let (mut launched, mut after_fences) = (Timing::default(), Timing::default());
    let callback = result.callback.expect("a callback");
    callback.getExecutionInfo(&mut launched, &mut after_fences).expect("an answer")
}

pub struct ForeignModel;
impl binder::Interface for ForeignModel {}
#[allow(non_snake_case)]
impl IPreparedModel for ForeignModel {
    fn executeSynchronously(&self, _: &Request, _: bool, _: i64, _: i64) -> BinderResult<ExecutionResult> {
        Err(binder::StatusCode::UnknownTransaction.into())
    }
    fn executeFenced(
        &self,
        _: &Request,
        _: &[binder::ParcelFileDescriptor],
        _: bool,
        _: i64,
        _: i64,
        _: i64,
    ) -> BinderResult<FencedExecutionResult> {
        Err(binder::StatusCode::UnknownTransaction.into())
    }
    fn configureExecutionBurst(&self) -> BinderResult<Strong<dyn IBurst>> {
        Err(binder::StatusCode::UnknownTransaction.into())
    }
    fn createReusableExecution(
        &self,
        _: &Request,
        _: &ExecutionConfig,
    ) -> BinderResult<Strong<dyn IExecution>> {
        Err(binder::StatusCode::UnknownTransaction.into())
    }
    fn executeSynchronouslyWithConfig(
        &self,
        _: &Request,
        _: &ExecutionConfig,
        _: i64,
    ) -> BinderResult<ExecutionResult> {
        Err(binder::StatusCode::UnknownTransaction.into())
    }
    fn executeFencedWithConfig(
        &self,
        _: &Request,
        _: &[binder::ParcelFileDescriptor],
        _: &ExecutionConfig,
        _: i64,
        _: i64,
    ) -> BinderResult<FencedExecutionResult> {
        Err(binder::StatusCode::UnknownTransaction.into())
    }
}
