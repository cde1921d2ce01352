//! `memory_domain`: inputs and outputs in memory that the driver keeps for the client.

use super::general::{place, prepare_model, refused};
use crate::aidl::*;
use crate::client::shared::Shared;
use crate::client::ClientError;
use crate::tool::conformance::check::{self, Shapes};
use crate::tool::conformance::context::Context;
use crate::tool::conformance::hal_model::{build, Case};
use crate::tool::conformance::outcome::{fail, Skip, Step, Stop};
use crate::tool::conformance::paths::{ExecutionPath, Ran};
use crate::tool::conformance::request::{Layout, TestRequest};
use crate::tool::conformance::session::Session;
use crate::tool::conformance::target::Terms;
use binder::Strong;

pub fn run(context: &Context, case: &Case) -> Step {
    if !context.available.device_memory {
        return Err(Stop::Skip(Skip::NoPath));
    }
    let paths = context.available.paths(ExecutionPath::has_terms)?;
    let model = build(case, false)?;
    let zero_sized = case.outputs().any(|operand| case.data(operand).is_none());
    for &with_config in context.preparations() {
        let prepared = prepare_model(context, case, &model, with_config)?;
        let buffers = Buffers::allocate(context, case, &prepared)?;
        let Buffers { shared, outputs, .. } = &buffers;
        let session = Session::new(&context.driver, &prepared, &shared.request);
        // Once: executions leave their inputs as they are.
        buffers.fill(context, case)?;
        for &path in &paths {
            let mut judge = |ran: &Ran| {
                if path.is_fenced() && zero_sized {
                    return refused(ran, ErrorStatus::INVALID_ARGUMENT);
                }
                check::success(case, ran, false, Shapes::Optional, &mut |i| {
                    read(context, case, shared, outputs, i)
                })
            };
            session
                .execute(path, &Terms::default(), &mut || Ok(shared.reset_outputs()?), &mut judge)
                .map_err(|stop| stop.at(place(path, false, with_config)))?;
        }
        session.end()?;
    }
    Ok(())
}

type Buffer = Option<Strong<dyn IBuffer>>;

/// A request with its arguments in device memory, as far as the driver gives any.
struct Buffers {
    shared: TestRequest,
    inputs: Vec<Buffer>,
    outputs: Vec<Buffer>,
}

impl Buffers {
    fn allocate(context: &Context, case: &Case, prepared: &Strong<dyn IPreparedModel>) -> Step<Self> {
        let mut shared = TestRequest::new(case, Layout::Padded)?;
        let mut inputs = Vec::new();
        let mut outputs = Vec::new();
        for i in 0..shared.request.inputs.len() {
            let omitted = shared.request.inputs[i].hasNoValue;
            let buffer = if omitted { None } else { allocate(context, prepared, i, false)? };
            inputs.push(bind(&mut shared.request, i, false, buffer));
        }
        for i in 0..shared.request.outputs.len() {
            let buffer = allocate(context, prepared, i, true)?;
            outputs.push(bind(&mut shared.request, i, true, buffer));
        }
        match inputs.iter().chain(&outputs).all(Option::is_none) {
            true => Err(Stop::Skip(Skip::Declined("no argument got device memory".into()))),
            false => Ok(Buffers { shared, inputs, outputs }),
        }
    }

    /// Copies the inputs in.
    fn fill(&self, context: &Context, case: &Case) -> Step {
        for (operand, buffer) in case.inputs().zip(&self.inputs) {
            if let (Some(buffer), Some(data)) = (buffer, case.data(operand)) {
                let memory = Shared::new(data.len() as u64)?;
                memory.write(0, data)?;
                context.driver.answer("copyFrom", buffer.copyFrom(&memory.memory()?, &[]))?;
            }
        }
        Ok(())
    }
}

/// Device memory for one role: a buffer, or GENERAL_FAILURE.
fn allocate(
    context: &Context,
    prepared: &Strong<dyn IPreparedModel>,
    index: usize,
    output: bool,
) -> Step<Option<DeviceBuffer>> {
    let models = [IPreparedModelParcel { preparedModel: Some(prepared.clone()) }];
    let role = [BufferRole { modelIndex: 0, ioIndex: index as i32, probability: 1.0 }];
    let (inputs, outputs): (&[BufferRole], &[BufferRole]) = if output { (&[], &role) } else { (&role, &[]) };
    let answer = context.driver.device().allocate(&BufferDesc::default(), &models, inputs, outputs);
    match context.driver.answer("allocate", answer) {
        Ok(buffer) if buffer.buffer.is_some() && buffer.token > 0 => Ok(Some(buffer)),
        Ok(buffer) => fail(format!("allocate gave token {} or no buffer", buffer.token)),
        Err(ClientError::Refused { status: ErrorStatus::GENERAL_FAILURE, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes an argument point at the buffer.
fn bind(request: &mut Request, index: usize, output: bool, buffer: Option<DeviceBuffer>) -> Buffer {
    let DeviceBuffer { buffer, token } = buffer?;
    let location = DataLocation { poolIndex: request.pools.len() as i32, ..Default::default() };
    let arguments = if output { &mut request.outputs } else { &mut request.inputs };
    arguments[index].location = location;
    request.pools.push(RequestMemoryPool::Token(token));
    buffer
}

/// The bytes of an output, wherever it is.
fn read(
    context: &Context,
    case: &Case,
    shared: &TestRequest,
    outputs: &[Buffer],
    index: usize,
) -> Step<Vec<u8>> {
    let Some(buffer) = &outputs[index] else { return Ok(shared.output(index)?) };
    let length = case.outputs().nth(index).and_then(|operand| case.data(operand)).map_or(0, <[u8]>::len);
    let memory = Shared::new(length as u64)?;
    context.driver.answer("copyTo", buffer.copyTo(&memory.memory()?))?;
    let mut bytes = vec![0; length];
    memory.read(0, &mut bytes)?;
    Ok(bytes)
}
