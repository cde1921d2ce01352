//! Running routines: steps in order, IF and WHILE among them.
//!
//! Client memory is touched twice: inputs are copied in before the first step, outputs copied out after the last. What a
//! client does to its memory meanwhile changes nothing here.

use super::frame::{broken_plan, copy, Frame, Tensor};
use super::graph::check_dims;
use super::pool::{Team, ThreadPool};
use super::routine::{Place, Routine, Step};
use crate::backend::{BackendError, Control, InputTensor, OutputShape, OutputTensor};
use crate::ops::{evaluate, Arg, Args, Interrupt, OpError, OperationType, Out, Run};
use crate::tensor::TensorInfo;
use std::time::Instant;

/// What a run needs besides its memory.
pub struct Machine<'a> {
    /// The main routine first.
    pub routines: &'a [Routine],
    pub pool: &'a ThreadPool,
    /// Threads to compute on, at the most.
    pub threads: usize,
    pub control: &'a Control,
}

fn memory(what: String) -> impl FnOnce(crate::memory::MemoryError) -> BackendError {
    |source| BackendError::Memory { what, source }
}

impl Machine<'_> {
    /// Runs the main routine between client memories.
    pub fn run_main(
        &self,
        frame: &mut Frame,
        inputs: &[Option<InputTensor>],
        outputs: &[Option<OutputTensor>],
    ) -> Result<Vec<OutputShape>, BackendError> {
        let routine = &self.routines[0];
        if inputs.len() != routine.inputs.len() || outputs.len() != routine.outputs.len() {
            return Err(BackendError::Failed("the number of inputs or outputs is not the model's".into()));
        }
        frame.start(routine, inputs.iter().map(|input| input.as_ref().map(|input| &input.dims[..])));
        for (i, (&v, input)) in routine.inputs.iter().zip(inputs).enumerate() {
            let Some(input) = input else { continue };
            let read = |place: &mut [u8]| {
                if place.len() != input.data.len() {
                    return Err(BackendError::Failed(format!(
                        "{} bytes for {:?}",
                        input.data.len(),
                        input.dims
                    )));
                }
                input.data.read(place).map_err(memory(format!("input {i}")))
            };
            frame.put(routine, v, &input.dims, read).map_err(|e| e.at(format_args!("input {i}")))?;
        }
        self.run_steps(routine, frame)?;
        write_outputs(routine, frame, outputs)
    }

    fn run_steps(&self, routine: &Routine, frame: &mut Frame) -> Result<(), BackendError> {
        for step in &routine.steps {
            let team = self.pool.team(self.control.next_operation()?.min(self.threads));
            let done = match step.operation.ty {
                OperationType::IF => self.run_if(routine, step, frame),
                OperationType::WHILE => self.run_while(routine, step, frame),
                _ => self.run_step(routine, step, frame, team),
            };
            done.map_err(|e| e.at(&step.name))?;
        }
        Ok(())
    }

    fn run_step(
        &self,
        routine: &Routine,
        step: &Step,
        frame: &mut Frame,
        team: Team,
    ) -> Result<(), BackendError> {
        let part = |&v: &usize| frame.part(routine, v).map(|(_, part)| part.clone());
        let reads: Vec<_> = step.inputs.iter().flatten().filter_map(part).collect();
        let writes: Vec<_> = step.outputs.iter().map_while(part).collect();
        // Either all outputs of a step are known ahead, or it is evaluated as one of which none is.
        let known = writes.len() == step.outputs.len();
        let writes = if known { &writes[..] } else { &[] };
        let (parts, mut targets) = frame.arena.lend(&reads, writes).ok_or_else(broken_plan)?;
        let (mut parts, dynamic) = (parts.into_iter(), &frame.dynamic);
        let arg = |input: &Option<usize>| {
            let v = (*input)?;
            match (&routine.values[v].place, &dynamic[v]) {
                (Place::Constant(info, bytes), _) => Some(Arg { info, data: Some(bytes) }),
                (Place::Packed(info), _) => Some(Arg { info, data: None }),
                (Place::Arena(info, _), _) if !frame.adrift => Some(Arg { info, data: parts.next() }),
                (_, tensor) => tensor.as_ref().map(|t| Arg { info: &t.info, data: Some(&t.data) }),
            }
        };
        let inputs: Vec<Option<Arg>> = step.inputs.iter().map(arg).collect();
        let args =
            Args { form: step.form, inputs: &inputs, outputs: &step.output_infos, interrupt: self.control };
        if known {
            let outs = step.output_infos.iter().zip(&mut targets).map(|(info, data)| Out { info, data });
            return run_known(step, &args, &mut outs.collect::<Vec<_>>(), team);
        }
        let results = evaluate::run(step.operation, &args)?;
        for (&o, result) in step.outputs.iter().zip(results) {
            frame.put_tensor(routine, o, result.dims, result.data)?;
        }
        Ok(())
    }

    fn run_if(&self, routine: &Routine, step: &Step, frame: &mut Frame) -> Result<(), BackendError> {
        let condition = copy_of(routine, frame, step.inputs[0])?;
        let branch = step.routines[if truth(condition.as_ref())? { 0 } else { 1 }];
        let inputs =
            step.inputs[3..].iter().map(|&v| copy_of(routine, frame, v)).collect::<Result<Vec<_>, _>>()?;
        let mut branch_frame = Frame::new(&self.routines[branch], frame.left())?;
        let results = self.call(branch, &mut branch_frame, &inputs)?;
        for (&o, result) in step.outputs.iter().zip(results) {
            frame.put_tensor(routine, o, result.info.dims, result.data)?;
        }
        Ok(())
    }

    fn run_while(&self, routine: &Routine, step: &Step, frame: &mut Frame) -> Result<(), BackendError> {
        let (condition, body) = (step.routines[0], step.routines[1]);
        let mut values =
            step.inputs[2..].iter().map(|&v| copy_of(routine, frame, v)).collect::<Result<Vec<_>, _>>()?;
        let mut condition_frame = Frame::new(&self.routines[condition], frame.left())?;
        let mut body_frame =
            Frame::new(&self.routines[body], frame.left().saturating_sub(condition_frame.size()))?;
        let started = Instant::now();
        while truth(self.call(condition, &mut condition_frame, &values)?.first())? {
            if started.elapsed() > self.control.loop_timeout {
                return Err(BackendError::LoopTimeout(self.control.loop_timeout));
            }
            self.control.check()?;
            let results = self.call(body, &mut body_frame, &values)?;
            values.iter_mut().zip(results).for_each(|(value, result)| *value = Some(result));
        }
        for (i, (&o, value)) in step.outputs.iter().zip(values).enumerate() {
            let value = value.ok_or_else(|| BackendError::Failed(format!("output {i} has no value")))?;
            frame.put_tensor(routine, o, value.info.dims, value.data)?;
        }
        Ok(())
    }

    /// Runs routine `index` on `inputs`; gives its outputs.
    fn call(
        &self,
        index: usize,
        frame: &mut Frame,
        inputs: &[Option<Tensor>],
    ) -> Result<Vec<Tensor>, BackendError> {
        let routine = &self.routines[index];
        frame.start(routine, inputs.iter().map(|input| input.as_ref().map(|input| &input.info.dims[..])));
        for (i, (&v, input)) in routine.inputs.iter().zip(inputs).enumerate() {
            let Some(input) = input else { continue };
            let given = frame.put(routine, v, &input.info.dims, |place| copy(place, &input.data));
            given.map_err(|e| e.at(format_args!("input {i}")))?;
        }
        self.run_steps(routine, frame)?;
        let output = |(i, &v): (usize, &usize)| {
            frame.tensor(routine, v)?.ok_or_else(|| BackendError::Failed(format!("output {i} has no value")))
        };
        routine.outputs.iter().enumerate().map(output).collect()
    }
}

/// Runs a step whose outputs have their places already.
fn run_known(step: &Step, args: &Args, outs: &mut [Out], team: Team) -> Result<(), BackendError> {
    let done = match (&step.kernel, &step.operation.run) {
        (Some(kernel), _) => return kernel.run(args, outs, team),
        (None, Run::Shaped { eval, .. }) => {
            outs.iter_mut().for_each(|out| out.data.fill(0)); // evaluations count on it
            eval(args, outs)
        }
        _ => Err(OpError::failed("its outputs cannot be known ahead")),
    };
    Ok(done?)
}

fn copy_of(routine: &Routine, frame: &Frame, v: Option<usize>) -> Result<Option<Tensor>, BackendError> {
    v.map_or(Ok(None), |v| frame.tensor(routine, v))
}

/// The truth of a condition: any byte but 0.
fn truth(condition: Option<&Tensor>) -> Result<bool, BackendError> {
    let byte = condition.and_then(|tensor| tensor.data.first());
    byte.map(|&b| b != 0).ok_or_else(|| BackendError::Failed("the condition has no value".into()))
}

/// Copies the outputs to their clients, if there is room for all.
fn write_outputs(
    routine: &Routine,
    frame: &Frame,
    outputs: &[Option<OutputTensor>],
) -> Result<Vec<OutputShape>, BackendError> {
    let mut shapes = Vec::with_capacity(outputs.len());
    for (i, (&v, output)) in routine.outputs.iter().zip(outputs).enumerate() {
        let value = frame.value(routine, v)?;
        let (info, bytes) = value.ok_or_else(|| BackendError::Failed(format!("output {i} has no value")))?;
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
            if let (Some(output), Some((_, bytes))) = (output, frame.value(routine, v)?) {
                output.data.write(bytes).map_err(memory(format!("output {i}")))?;
            }
        }
    }
    Ok(shapes)
}
