//! Running routines: steps in order, IF and WHILE among them.
//!
//! Client memory is copied in before the first step and out after the last, but for [arguments](super::arguments) that
//! only kernels touch: those are in place. What a client does to its memory meanwhile changes values at most.

use super::arguments::{Arguments, Candidates, Held};
use super::calls::{Calls, KernelCall, Lent, What};
use super::chain::{Chain, Link};
use super::frame::{broken_plan, Frame, Tensor};
use super::kernels::{Attention, Next, Rowwise, Then, Work};
use super::pool::{Team, ThreadPool};
use super::routine::{Place, Routine, Step};
use super::watch::Watch;
use crate::backend::{BackendError, Control, OutputShape};
use crate::memory::{Target, View, FEW};
use crate::ops::{clear, copy, evaluate, Arg, Args, Interrupt, OpError, OperationType, Out, Run};
use crate::scheduler::{Activity, OperationId, Underway};
use crate::tensor::TensorInfo;
use smallvec::SmallVec;
use std::time::Instant;

/// What a run needs besides its memory.
pub struct Machine<'a> {
    /// The main routine first.
    pub routines: &'a [Routine],
    /// Of each.
    pub calls: &'a [Calls],
    /// Of the main routine.
    pub candidates: &'a Candidates,
    pub pool: &'a ThreadPool,
    /// Threads to compute on, at the most.
    pub threads: usize,
    pub control: &'a Control,
    /// The same, and what else stops it.
    pub watch: &'a Watch<'a>,
}

impl Machine<'_> {
    /// Runs the main routine between client memories, which are still held then.
    pub fn run_main<'h>(
        &self,
        frame: &mut Frame,
        held: Held<'h>,
    ) -> Result<(Vec<OutputShape>, Held<'h>), BackendError> {
        let routine = &self.routines[0];
        if !held.has(routine.inputs.len(), routine.outputs.len()) {
            return Err(BackendError::Failed("the number of inputs or outputs is not the model's".into()));
        }
        frame.start(self.control, routine, held.dims())?;
        let arguments = Arguments::new(self.control, held, self.candidates, routine, frame)?;
        arguments.copy_in(self.control, routine, frame)?;
        self.run_steps(0, frame, Some(&arguments)).map_err(|why| self.watch.reason(why))?;
        arguments.finish(self.control, routine, frame)
    }

    /// Runs all steps of routine `index`; `arguments` are the main routine's.
    fn run_steps(
        &self,
        index: usize,
        frame: &mut Frame,
        arguments: Option<&Arguments>,
    ) -> Result<(), BackendError> {
        if !frame.unplanned {
            return self.run_planned(index, frame, arguments);
        }
        let routine = &self.routines[index];
        for step in &routine.steps {
            self.watch.yield_point()?;
            let underway = self.begin(index, step);
            self.run_plain(routine, step, frame).map_err(|e| e.at(step.name()))?;
            underway.into_iter().for_each(Underway::end);
        }
        Ok(())
    }

    /// The same where everything has the dimensions that were known ahead.
    fn run_planned(
        &self,
        index: usize,
        frame: &mut Frame,
        arguments: Option<&Arguments>,
    ) -> Result<(), BackendError> {
        let (routine, calls) = (&self.routines[index], &self.calls[index]);
        let (mut next, mut noted) = (0, 0);
        while let Some(call) = calls.list.get(next) {
            self.watch.yield_point()?;
            let step = &routine.steps[call.step];
            self.note_idle(index, &routine.steps[noted..call.step])?;
            noted = call.step;
            let underway = self.begin(index, step);
            let team = self.pool.team(self.control.threads().min(self.threads)).on(underway.as_ref());
            next += 1;
            let done = match &call.what {
                What::Kernel(call) => self.run_kernel(calls, call, frame, arguments, team),
                What::Plain => self.run_plain(routine, step, frame),
                What::Chain(chain, instead) => {
                    let chain = &routine.chains[*chain];
                    // Where it does not pay the calls behind do it.
                    let Some(bands) = chain.bands(team.threads()) else { continue };
                    next += instead;
                    self.run_chain(routine, chain, bands, frame, arguments, team)
                }
            };
            done.map_err(|e| e.at(step.name()))?;
            underway.into_iter().for_each(Underway::end);
        }
        self.note_idle(index, &routine.steps[noted..])
    }

    /// Notes those of some steps that have nothing to do, if somebody asked for that.
    fn note_idle(&self, routine: usize, steps: &[Step]) -> Result<(), BackendError> {
        if self.control.recorder.is_none() {
            return Ok(());
        }
        // A client chooses how many there are.
        for step in steps.iter().filter(|step| step.in_place) {
            self.control.yield_point()?;
            self.begin(routine, step).into_iter().for_each(Underway::end);
        }
        Ok(())
    }

    /// Notes that a step begins, if somebody asked for that.
    fn begin(&self, routine: usize, step: &Step) -> Option<Underway> {
        let id = || OperationId { subgraph: routine as u32, index: step.index as u32 };
        let recorder = self.control.recorder.as_ref()?;
        Some(Underway::begin(recorder, Activity::Operation(id())))
    }

    /// Runs the steps of a chain together, the last image in so many bands.
    fn run_chain(
        &self,
        routine: &Routine,
        chain: &Chain,
        bands: usize,
        frame: &mut Frame,
        arguments: Option<&Arguments>,
        team: Team,
    ) -> Result<(), BackendError> {
        let part = |&v: &usize| frame.part(routine, v).map(|(_, part)| part);
        let makers = chain.links.iter().map(|link| routine.maker(link)).collect::<Option<Vec<_>>>();
        let made = |link: &Link| routine.steps[link.steps().end - 1].outputs.first().copied();
        let writes = chain.links.iter().map(|link| part(&made(link)?)).collect::<Option<Vec<_>>>();
        let (makers, writes) = makers.zip(writes).ok_or_else(broken_plan)?;
        let from = routine.steps[chain.steps.start].inputs[0].ok_or_else(broken_plan)?;
        let to = chain.links.last().and_then(made).ok_or_else(broken_plan)?;
        let reads = [part(&from).ok_or_else(broken_plan)?];
        let (mut parts, targets) = frame.arena.lend(&reads, &writes).ok_or_else(broken_plan)?;
        let ours = View::of(parts.next().ok_or_else(broken_plan)?);
        let input = arguments.and_then(|arguments| arguments.view(from)).unwrap_or(ours);
        let mut between: Vec<Target<u8>> = targets.map(Target::of).collect();
        let ours = between.pop().ok_or_else(broken_plan)?;
        let out = arguments.and_then(|arguments| arguments.target(to, ours.len())).unwrap_or(ours);
        let work = Work::new(team, self.watch);
        let rowwise = Rowwise { makers: &makers, images: &chain.images, block: chain.block, bands };
        Ok(rowwise.run(input, &between, out, work)?)
    }

    /// Calls a kernel, and what goes on with its output.
    fn run_kernel(
        &self,
        calls: &Calls,
        call: &KernelCall,
        frame: &mut Frame,
        arguments: Option<&Arguments>,
        team: Team,
    ) -> Result<(), BackendError> {
        let mut lent = Lent::default();
        calls.lend(call, &mut frame.arena, arguments, &mut lent).ok_or_else(broken_plan)?;
        let mut work = Work::new(team, self.watch);
        let (mut next, mut others) = (SmallVec::<[Next; FEW]>::new(), lent.others.iter());
        let onward = calls.onward(call).ok_or_else(broken_plan)?;
        for onward in onward {
            let kernel = onward.kernel.elementwise().ok_or_else(broken_plan)?;
            let other = if onward.has_other { *others.next().ok_or_else(broken_plan)? } else { None };
            next.push(Next { kernel, own: onward.own, other });
        }
        if !next.is_empty() {
            let picoseconds = onward.iter().fold(0, |all, onward| onward.picoseconds.saturating_add(all));
            work.then = Some(Then { next: &next, picoseconds });
        }
        if let Some(multiplier) = &call.multiplier {
            let attention = Attention::of(&*call.kernel, &**multiplier).ok_or_else(broken_plan)?;
            return Ok(attention.run(&lent.inputs, &mut lent.outputs, work)?);
        }
        Ok(call.kernel.run(&lent.inputs, &mut lent.outputs, work)?)
    }

    /// Runs a step without a kernel.
    fn run_plain(&self, routine: &Routine, step: &Step, frame: &mut Frame) -> Result<(), BackendError> {
        match step.operation.ty {
            OperationType::IF => return self.run_if(routine, step, frame),
            OperationType::WHILE => return self.run_while(routine, step, frame),
            _ => {}
        }
        let part = |&v: &usize| frame.part(routine, v).map(|(_, part)| part);
        let reads: SmallVec<[_; FEW]> = step.inputs.iter().flatten().filter_map(part).collect();
        let writes: SmallVec<[_; FEW]> = step.outputs.iter().map_while(part).collect();
        // Either all outputs of a step are known ahead, or it is evaluated as one of which none is.
        let known = writes.len() == step.outputs.len();
        let writes = if known { &writes[..] } else { &[] };
        let (mut parts, targets) = frame.arena.lend(&reads, writes).ok_or_else(broken_plan)?;
        let dynamic = &frame.dynamic;
        let arg = |input: &Option<usize>| {
            let v = (*input)?;
            match (&routine.values[v].place, &dynamic[v]) {
                (Place::Constant(info, bytes), _) => Some(Arg { info, data: Some(bytes) }),
                (Place::Packed(info), _) => Some(Arg { info, data: None }),
                (Place::Arena(info, _), _) if !frame.unplanned => Some(Arg { info, data: parts.next() }),
                (_, tensor) => tensor.as_ref().map(|t| Arg { info: &t.info, data: Some(&t.data) }),
            }
        };
        let inputs: Vec<Option<Arg>> = step.inputs.iter().map(arg).collect();
        let args = Args {
            signature_index: step.signature_index,
            inputs: &inputs,
            outputs: &step.output_infos,
            interrupt: self.control,
        };
        if known {
            let outs = step.output_infos.iter().zip(targets).map(|(info, data)| Out { info, data });
            return run_known(step, &args, &mut outs.collect::<Vec<_>>());
        }
        let results = evaluate::run(step.operation, &args)?;
        drop((parts, targets));
        for (&o, result) in step.outputs.iter().zip(results) {
            frame.put_tensor(self.control, routine, o, result.dims, result.data)?;
        }
        Ok(())
    }

    fn run_if(&self, routine: &Routine, step: &Step, frame: &mut Frame) -> Result<(), BackendError> {
        let value = |v: &Option<usize>| v.map_or(Ok(None), |v| frame.value(routine, v));
        let branch = step.routines[if truth(value(&step.inputs[0])?)? { 0 } else { 1 }];
        // They are not copied but to where the branch has them: whatever else there was would have to be freed at the end.
        let inputs = step.inputs[3..].iter().map(value).collect::<Result<Vec<_>, _>>()?;
        let within = &self.routines[branch];
        let mut branch_frame = Frame::new(within, frame.left(), self.control)?;
        let ran = self.call(branch, &mut branch_frame, inputs.iter().copied());
        let ran = ran.and_then(|()| {
            for (i, (&o, &v)) in step.outputs.iter().zip(&within.outputs).enumerate() {
                let (info, bytes) = branch_frame.value(within, v)?.ok_or_else(|| no_value(i))?;
                frame.put(routine, o, &info.dims, |place| Ok(copy(self.control, place, bytes)?))?;
            }
            Ok(())
        });
        branch_frame.free(self.control)?;
        ran
    }

    fn run_while(&self, routine: &Routine, step: &Step, frame: &mut Frame) -> Result<(), BackendError> {
        let (condition, body) = (step.routines[0], step.routines[1]);
        let mut values = step.inputs[2..]
            .iter()
            .map(|&v| self.copy_of(routine, frame, v))
            .collect::<Result<Vec<_>, _>>()?;
        let mut condition_frame = Frame::new(&self.routines[condition], frame.left(), self.control)?;
        let mut body_frame = Frame::new(
            &self.routines[body],
            frame.left().saturating_sub(condition_frame.size()),
            self.control,
        )?;
        let ended = self.repeat((condition, &mut condition_frame), (body, &mut body_frame), &mut values);
        condition_frame.free(self.control)?;
        body_frame.free(self.control)?;
        ended?;
        for (i, (&o, value)) in step.outputs.iter().zip(values).enumerate() {
            let value = value.ok_or_else(|| no_value(i))?;
            frame.put_tensor(self.control, routine, o, value.info.dims, value.data)?;
        }
        Ok(())
    }

    /// Runs the body on the values, which it changes, as long as the condition holds.
    fn repeat(
        &self,
        (condition, condition_frame): (usize, &mut Frame),
        (body, body_frame): (usize, &mut Frame),
        values: &mut [Option<Tensor>],
    ) -> Result<(), BackendError> {
        let started = Instant::now();
        let [outputs_of_condition, outputs_of_body] =
            [condition, body].map(|index| &self.routines[index].outputs[..]);
        loop {
            self.call(condition, condition_frame, values.iter().map(lent))?;
            let routine = &self.routines[condition];
            let verdict =
                outputs_of_condition.first().map_or(Ok(None), |&v| condition_frame.value(routine, v));
            if !truth(verdict?)? {
                return Ok(());
            }
            if started.elapsed() > self.control.loop_timeout {
                return Err(BackendError::LoopTimeout(self.control.loop_timeout));
            }
            // The subgraphs may have no step that would.
            self.control.yield_point()?;
            self.call(body, body_frame, values.iter().map(lent))?;
            for (i, (value, &v)) in values.iter_mut().zip(outputs_of_body).enumerate() {
                // One after the other: there is no more memory at once than must be.
                *value = None;
                let next = body_frame.tensor(self.control, &self.routines[body], v)?;
                *value = Some(next.ok_or_else(|| no_value(i))?);
            }
        }
    }

    /// Runs routine `index` on `inputs`, in its frame; its outputs are there then.
    fn call<'t>(
        &self,
        index: usize,
        frame: &mut Frame,
        inputs: impl Iterator<Item = Option<Given<'t>>> + Clone,
    ) -> Result<(), BackendError> {
        let routine = &self.routines[index];
        let dims = inputs.clone().map(|input| input.map(|(info, _)| &info.dims[..]));
        frame.start(self.control, routine, dims)?;
        for (i, (&v, input)) in routine.inputs.iter().zip(inputs).enumerate() {
            let Some((info, bytes)) = input else { continue };
            let given = frame.put(routine, v, &info.dims, |place| Ok(copy(self.control, place, bytes)?));
            given.map_err(|e| e.at(format_args!("input {i}")))?;
        }
        self.run_steps(index, frame, None)
    }

    fn copy_of(
        &self,
        routine: &Routine,
        frame: &Frame,
        v: Option<usize>,
    ) -> Result<Option<Tensor>, BackendError> {
        v.map_or(Ok(None), |v| frame.tensor(self.control, routine, v))
    }
}

/// Runs a step without a kernel whose outputs have their places already.
fn run_known(step: &Step, args: &Args, outs: &mut [Out]) -> Result<(), BackendError> {
    let Run::Shaped { eval, .. } = &step.operation.run else {
        return Err(OpError::failed("its outputs cannot be known ahead").into());
    };
    // Evaluations count on it.
    outs.iter_mut().try_for_each(|out| clear(args.interrupt, out.data))?;
    Ok(eval(args, outs)?)
}

/// The truth of a condition: any byte but 0.
fn truth(condition: Option<Given>) -> Result<bool, BackendError> {
    let byte = condition.and_then(|(_, bytes)| bytes.first());
    byte.map(|&b| b != 0).ok_or_else(|| BackendError::Failed("the condition has no value".into()))
}

/// A value, as it is handed to a subgraph.
type Given<'t> = (&'t TensorInfo, &'t [u8]);

fn lent(value: &Option<Tensor>) -> Option<Given<'_>> {
    value.as_ref().map(|tensor| (&tensor.info, &tensor.data[..]))
}

fn no_value(output: usize) -> BackendError {
    BackendError::Failed(format!("output {output} has no value"))
}
