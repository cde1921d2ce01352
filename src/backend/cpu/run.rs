//! Running a program: values in their places, steps in order.
//!
//! Client memory is touched twice: inputs are copied in before the first step, outputs copied out after the last. What a
//! client does to its memory meanwhile changes nothing here.

use super::graph::check_dims;
use super::program::{Place, Program, Routine, Step};
use crate::backend::{BackendError, Control, InputTensor, OutputShape, OutputTensor};
use crate::memory::{AlignedBuf, Arena};
use crate::ops::evaluate::with_dims;
use crate::ops::{Arg, Args, Interrupt, OpError, OperationType, Out, Run};
use crate::tensor::{Dims, TensorInfo};
use std::ops::Range;
use std::time::Instant;

/// Memory of one run of one routine.
pub(super) struct Frame {
    arena: Arena,
    /// By value: those that live outside of the arena.
    dynamic: Vec<Option<Tensor>>,
    /// Whether dimensions known ahead are not to be trusted: an input is left out, or has dimensions of its own. All
    /// values are dynamic then, and every shape is computed anew.
    adrift: bool,
}

/// A value with the dimensions that it has in this run.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    info: TensorInfo,
    data: AlignedBuf,
}

impl Frame {
    pub fn new(routine: &Routine) -> Result<Frame, BackendError> {
        Ok(Frame {
            arena: Arena::new(routine.arena).ok_or(BackendError::OutOfMemory(routine.arena))?,
            dynamic: vec![None; routine.values.len()],
            adrift: false,
        })
    }

    /// Copies a value into its part of the arena.
    fn fill(&mut self, part: &Range<usize>, bytes: &[u8]) -> Result<(), BackendError> {
        let place =
            self.arena.write(part).filter(|place| place.len() == bytes.len()).ok_or_else(broken_plan)?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    /// Frees what a run allocated.
    pub fn clear(&mut self) {
        self.dynamic.iter_mut().for_each(|value| *value = None);
        self.adrift = false;
    }
}

fn allocate(bytes: usize) -> Result<AlignedBuf, BackendError> {
    AlignedBuf::zeroed(bytes).ok_or(BackendError::OutOfMemory(bytes))
}

fn memory(what: String) -> impl FnOnce(crate::memory::MemoryError) -> BackendError {
    |source| BackendError::Memory { what, source }
}

/// Runs the main routine between client memories.
pub(super) fn run_main(
    program: &Program,
    frame: &mut Frame,
    inputs: &[Option<InputTensor>],
    outputs: &[Option<OutputTensor>],
    control: &Control,
) -> Result<Vec<OutputShape>, BackendError> {
    let routine = &program.routines[0];
    if inputs.len() != routine.inputs.len() || outputs.len() != routine.outputs.len() {
        return Err(BackendError::Failed("the number of inputs or outputs is not the model's".into()));
    }
    frame.adrift = routine.inputs.iter().zip(inputs).any(|(&v, input)| {
        matches!((&routine.values[v].place, input), (Place::Arena(..), None))
            || matches!((&routine.values[v].place, input), (Place::Arena(info, _), Some(input)) if info.dims != input.dims)
    });
    for (i, (&v, input)) in routine.inputs.iter().zip(inputs).enumerate() {
        let Some(input) = input else { continue };
        let info = with_dims(&routine.values[v].declared, &input.dims);
        if info.byte_size() != Some(input.data.len()) {
            return Err(BackendError::Failed(format!(
                "input {i}: {} bytes do not fit {:?}",
                input.data.len(),
                info.dims
            )));
        }
        match &routine.values[v].place {
            Place::Arena(_, part) if !frame.adrift => {
                let place = frame.arena.write(part).ok_or_else(broken_plan)?;
                input.data.read(place).map_err(memory(format!("input {i}")))?;
            }
            _ => {
                let data = input.data.to_private().map_err(memory(format!("input {i}")))?;
                frame.dynamic[v] = Some(Tensor { info, data });
            }
        }
    }
    run_steps(program, routine, frame, control)?;
    write_outputs(routine, frame, outputs)
}

/// Copies the outputs to their clients, if there is room for all.
fn write_outputs(
    routine: &Routine,
    frame: &mut Frame,
    outputs: &[Option<OutputTensor>],
) -> Result<Vec<OutputShape>, BackendError> {
    let mut shapes = Vec::with_capacity(outputs.len());
    for (i, (&v, output)) in routine.outputs.iter().zip(outputs).enumerate() {
        let (info, bytes) = value(routine, frame, v)?
            .ok_or_else(|| BackendError::Failed(format!("output {i} has no value")))?;
        let mut sufficient = true;
        if let Some(output) = output {
            let expected = TensorInfo { dims: output.dims.clone(), ..info.clone() };
            check_dims(&expected, &info.dims)
                .map_err(|why| BackendError::Failed(format!("output {i}: {why}")))?;
            sufficient = bytes.len() <= output.data.len();
        }
        shapes.push(OutputShape { dims: info.dims.clone(), sufficient });
    }
    if shapes.iter().all(|shape| shape.sufficient) {
        for (i, (&v, output)) in routine.outputs.iter().zip(outputs).enumerate() {
            if let (Some(output), Some((_, bytes))) = (output, value(routine, frame, v)?) {
                output.data.write(bytes).map_err(memory(format!("output {i}")))?;
            }
        }
    }
    Ok(shapes)
}

/// A value's dimensions and bytes; `None` for an input that was left out.
fn value<'f>(
    routine: &'f Routine,
    frame: &'f Frame,
    v: usize,
) -> Result<Option<(&'f TensorInfo, &'f [u8])>, BackendError> {
    if let Some(tensor) = &frame.dynamic[v] {
        return Ok(Some((&tensor.info, &tensor.data)));
    }
    match &routine.values[v].place {
        Place::Constant(info, bytes) => Ok(Some((info, bytes))),
        Place::Arena(info, part) if !frame.adrift => {
            Ok(Some((info, frame.arena.read(part).ok_or_else(broken_plan)?)))
        }
        _ => Ok(None),
    }
}

fn broken_plan() -> BackendError {
    BackendError::Failed("the memory plan is broken; this is a fault of the driver".into())
}

fn run_steps(
    program: &Program,
    routine: &Routine,
    frame: &mut Frame,
    control: &Control,
) -> Result<(), BackendError> {
    for step in &routine.steps {
        control.check().map_err(|e| step.failed(e))?;
        match step.operation.ty {
            OperationType::IF => run_if(program, routine, step, frame, control)?,
            OperationType::WHILE => run_while(program, routine, step, frame, control)?,
            _ => run_step(program, routine, step, frame, control)?,
        }
    }
    Ok(())
}

fn run_step(
    program: &Program,
    routine: &Routine,
    step: &Step,
    frame: &mut Frame,
    control: &Control,
) -> Result<(), BackendError> {
    let in_arena =
        !frame.adrift && step.outputs.iter().all(|&o| matches!(routine.values[o].place, Place::Arena(..)));
    // Outputs that were folded into constants are not written again, so a step writes either the arena or its own.
    let mut writes = Vec::with_capacity(step.outputs.len());
    if in_arena {
        for &o in &step.outputs {
            if let Place::Arena(_, part) = &routine.values[o].place {
                writes.push(part.clone());
            }
        }
    }
    let mut reads = Vec::with_capacity(step.inputs.len());
    for &v in step.inputs.iter().flatten() {
        if let (Place::Arena(_, part), false) = (&routine.values[v].place, frame.adrift) {
            reads.push(part.clone());
        }
    }
    let (parts, mut targets) = frame.arena.lend(&reads, &writes).ok_or_else(broken_plan)?;
    let mut parts = parts.into_iter();
    let adrift = frame.adrift;
    let dynamic = &frame.dynamic;
    let inputs: Vec<Option<Arg>> = step
        .inputs
        .iter()
        .map(|input| {
            let v = (*input)?;
            match (&routine.values[v].place, &dynamic[v]) {
                (Place::Constant(info, bytes), _) => Some(Arg { info, data: Some(bytes) }),
                (Place::Arena(info, _), _) if !adrift => Some(Arg { info, data: parts.next() }),
                (_, tensor) => tensor.as_ref().map(|t| Arg { info: &t.info, data: Some(&t.data) }),
            }
        })
        .collect();
    let args = Args { form: step.form, inputs: &inputs, outputs: &step.output_infos, interrupt: control };
    if in_arena {
        let mut outs: Vec<Out> =
            step.output_infos.iter().zip(&mut targets).map(|(info, data)| Out { info, data }).collect();
        let done = match (&step.kernel, &step.operation.run) {
            (Some(kernel), _) => kernel.run(&args, &mut outs, &program.pool),
            (None, Run::Shaped { eval, .. }) => {
                outs.iter_mut().for_each(|out| out.data.fill(0)); // evaluations count on it
                eval(&args, &mut outs)
            }
            _ => Err(OpError::failed("its outputs cannot be known ahead")),
        };
        return done.map_err(|e| step.failed(e));
    }
    let results = crate::ops::evaluate::run(step.operation, &args).map_err(|e| step.failed(e))?;
    let tensors = results.into_iter().map(|result| (result.dims, result.data)).collect();
    store(routine, step, frame, tensors)
}

/// Puts a step's results where later steps look for them.
fn store(
    routine: &Routine,
    step: &Step,
    frame: &mut Frame,
    results: Vec<(Dims, AlignedBuf)>,
) -> Result<(), BackendError> {
    for (&o, (dims, data)) in step.outputs.iter().zip(results) {
        let value = &routine.values[o];
        check_dims(&value.declared, &dims).map_err(|why| step.failed(OpError::Failed(why)))?;
        match &value.place {
            Place::Arena(info, part) if !frame.adrift => {
                if info.dims != dims {
                    return Err(broken_plan());
                }
                frame.fill(part, &data)?;
            }
            _ => frame.dynamic[o] = Some(Tensor { info: with_dims(&value.declared, &dims), data }),
        }
    }
    Ok(())
}

/// A copy of a value, to hand to a subgraph.
fn tensor(routine: &Routine, frame: &mut Frame, v: Option<usize>) -> Result<Option<Tensor>, BackendError> {
    let Some(v) = v else { return Ok(None) };
    let Some((info, bytes)) = value(routine, frame, v)? else { return Ok(None) };
    let mut data = allocate(bytes.len())?;
    data.copy_from_slice(bytes);
    Ok(Some(Tensor { info: info.clone(), data }))
}

fn tensors(
    routine: &Routine,
    frame: &mut Frame,
    list: &[Option<usize>],
) -> Result<Vec<Option<Tensor>>, BackendError> {
    list.iter().map(|&v| tensor(routine, frame, v)).collect()
}

fn run_if(
    program: &Program,
    routine: &Routine,
    step: &Step,
    frame: &mut Frame,
    control: &Control,
) -> Result<(), BackendError> {
    let condition = tensor(routine, frame, step.inputs[0])?;
    let branch = if truth(step, condition.as_ref())? { step.routines[0] } else { step.routines[1] };
    let inputs = tensors(routine, frame, &step.inputs[3..])?;
    let mut inner = Frame::new(&program.routines[branch])?;
    let results = run_routine(program, branch, &mut inner, &inputs, step, control)?;
    store(routine, step, frame, results.into_iter().map(|t| (t.info.dims, t.data)).collect())
}

fn run_while(
    program: &Program,
    routine: &Routine,
    step: &Step,
    frame: &mut Frame,
    control: &Control,
) -> Result<(), BackendError> {
    let (condition, body) = (step.routines[0], step.routines[1]);
    let mut values = tensors(routine, frame, &step.inputs[2..])?;
    let mut condition_frame = Frame::new(&program.routines[condition])?;
    let mut body_frame = Frame::new(&program.routines[body])?;
    let started = Instant::now();
    loop {
        let verdict = run_routine(program, condition, &mut condition_frame, &values, step, control)?;
        if !truth(step, verdict.first())? {
            break;
        }
        if started.elapsed() > control.loop_timeout {
            return Err(BackendError::LoopTimeout(control.loop_timeout));
        }
        control.check().map_err(|e| step.failed(e))?;
        let results = run_routine(program, body, &mut body_frame, &values, step, control)?;
        for (value, result) in values.iter_mut().zip(results) {
            *value = Some(result);
        }
    }
    let mut results = Vec::with_capacity(step.outputs.len());
    for (i, value) in values.into_iter().take(step.outputs.len()).enumerate() {
        let value = value.ok_or_else(|| step.failed(OpError::failed(format!("output {i} has no value"))))?;
        results.push((value.info.dims, value.data));
    }
    store(routine, step, frame, results)
}

/// The truth of a condition: any byte but 0.
fn truth(step: &Step, condition: Option<&Tensor>) -> Result<bool, BackendError> {
    let byte = condition.and_then(|tensor| tensor.data.first());
    byte.map(|&b| b != 0).ok_or_else(|| step.failed(OpError::failed("the condition has no value")))
}

/// Runs routine `index` on `inputs`; gives its outputs.
fn run_routine(
    program: &Program,
    index: usize,
    frame: &mut Frame,
    inputs: &[Option<Tensor>],
    step: &Step,
    control: &Control,
) -> Result<Vec<Tensor>, BackendError> {
    let routine = &program.routines[index];
    frame.clear();
    frame.adrift =
        routine.inputs.iter().zip(inputs).any(|(&v, input)| match (&routine.values[v].place, input) {
            (Place::Arena(info, _), Some(input)) => info.dims != input.info.dims,
            (Place::Arena(..), None) => true,
            _ => false,
        });
    for (i, (&v, input)) in routine.inputs.iter().zip(inputs).enumerate() {
        let Some(input) = input else { continue };
        let declared = &routine.values[v].declared;
        check_dims(declared, &input.info.dims)
            .map_err(|why| step.failed(OpError::Failed(format!("input {i}: {why}"))))?;
        match &routine.values[v].place {
            Place::Arena(_, part) if !frame.adrift => {
                frame.fill(part, &input.data)?;
            }
            _ => {
                frame.dynamic[v] =
                    Some(Tensor { info: with_dims(declared, &input.info.dims), data: input.data.clone() });
            }
        }
    }
    run_steps(program, routine, frame, control)?;
    let outputs = routine.outputs.iter().enumerate().map(|(i, &v)| {
        tensor(routine, frame, Some(v))?
            .ok_or_else(|| step.failed(OpError::failed(format!("output {i} has no value"))))
    });
    outputs.collect()
}
