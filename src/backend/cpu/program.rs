//! A compiled model, ready to run.

use super::arguments::{Candidates, Held};
use super::artifact::{self, Unread};
use super::calls::Calls;
use super::compile::compile;
use super::describe::describe;
use super::frame::{Frame, MAX_RUN_BYTES};
use super::idle::IdleFrames;
use super::pool::ThreadPool;
use super::routine::{Routine, STEPS};
use super::run::Machine;
use super::watch::Watch;
use crate::backend::{
    Artifact, BackendError, CompileOptions, Control, Description, Interface, OutputShape, Preference, Saved,
};
use crate::memory::{Counted, Mapping, MemoryError, Weights};
use crate::model::Model;
use crate::ops::pace::Pace;
use crate::ops::{Interrupt, OpError, OperationType};
use crate::tensor::TensorInfo;
use std::fmt::Display;
use std::sync::Arc;

/// A compiled model.
pub struct Program {
    interface: Interface,
    preference: Preference,
    /// The main routine first, then one per referenced subgraph.
    routines: Vec<Routine>,
    /// What each of them does in a run that goes as planned.
    calls: Vec<Calls>,
    /// Which arguments of the main routine may be in place.
    candidates: Candidates,
    pool: Arc<ThreadPool>,
    idle: Arc<IdleFrames>,
    /// The file that weights lie in, of a program that was loaded.
    data: Option<Arc<Mapping>>,
    /// For all that it is made of but weights and constants, which are counted where they are: a model may have very many
    /// operands and operations.
    _counted: Counted,
}

impl Program {
    /// Compiles a model of which every operation is supported.
    pub fn compile(
        model: &Model,
        options: &CompileOptions,
        pool: Arc<ThreadPool>,
        control: &Control,
    ) -> Result<Program, BackendError> {
        let mut routines = Vec::with_capacity(1 + model.referenced.len());
        let team = pool.team(threads(options.preference).min(control.threads()));
        for subgraph in std::iter::once(&model.main).chain(&model.referenced) {
            routines.push(compile(subgraph, options.dynamic_range, team, control)?);
        }
        Program::new(options.preference, routines, pool, None, control)
    }

    /// Loads what [`Program::artifact`] gave. Whatever the data bytes hold, and whenever they change, affects values only.
    pub fn load(
        saved: Saved,
        preference: Preference,
        pool: Arc<ThreadPool>,
        control: &Control,
    ) -> Result<Program, BackendError> {
        let failed =
            |why: &dyn Display| BackendError::Failed(format!("the compiled model cannot be loaded: {why}"));
        let ([model], Ok([data])) = (&saved.models[..], <[_; 1]>::try_from(saved.data)) else {
            return Err(failed(&"it lies in another number of files"));
        };
        let routines = artifact::read(model, &data, control).map_err(|why| match why {
            Unread::Stopped(why) => why.into(),
            Unread::Malformed(why) => failed(&why),
        })?;
        let (mut pace, mut needs_data) = (Pace::of(control), false);
        for step in routines.iter().flat_map(|routine| &routine.steps) {
            pace.spend(STEPS)?;
            let mut weights = step.kernel.iter().flat_map(|kernel| kernel.weights());
            needs_data |= weights.any(|weights| matches!(weights, Weights::Shared(_)));
        }
        Program::new(preference, routines, pool, needs_data.then_some(data), control)
    }

    /// A program of one routine.
    #[cfg(test)]
    pub fn of_routine(routine: Routine, pool: Arc<ThreadPool>) -> Program {
        Program::new(Preference::default(), vec![routine], pool, None, &crate::ops::NeverInterrupted)
            .expect("tests take little")
    }

    fn new(
        preference: Preference,
        mut routines: Vec<Routine>,
        pool: Arc<ThreadPool>,
        data: Option<Arc<Mapping>>,
        interrupt: &dyn Interrupt,
    ) -> Result<Program, BackendError> {
        let mut pace = Pace::of(interrupt);
        let main = &routines[0];
        // Inputs and outputs are described once more, here and where this is executed.
        let mut bytes = 0usize;
        pace.each(main.inputs.iter().chain(&main.outputs), STEPS, |&v| {
            let described = size_of::<TensorInfo>() + main.values[v].declared.heap();
            bytes = bytes.saturating_add(2 * described);
        })?;
        let candidates = Candidates::new(main, &mut pace)?;
        let mut calls = Vec::with_capacity(routines.len());
        for (i, routine) in routines.iter().enumerate() {
            let in_place = (i == 0).then_some(&candidates);
            calls.push(Calls::of(routine, in_place, &mut pace)?);
            bytes = bytes.saturating_add(routine.footprint(&mut pace)?).saturating_add(calls[i].footprint());
        }
        // All of it is counted from here on.
        routines.iter_mut().for_each(|routine| routine.inferred = None);
        let counted = Counted::take(bytes).ok_or(BackendError::OutOfMemory(bytes))?;
        let main = &routines[0];
        let mut infos = |list: &[usize]| {
            let mut infos = Vec::with_capacity(list.len());
            pace.each(list, STEPS, |&v| infos.push(main.values[v].declared.clone()))?;
            Ok::<_, OpError>(infos)
        };
        let (inputs, outputs) = (infos(&main.inputs)?, infos(&main.outputs)?);
        let mut steps = routines.iter().flat_map(|routine| &routine.steps);
        let may_loop = steps.any(|step| step.operation.ty == OperationType::WHILE);
        let interface = Interface { inputs, outputs, may_loop };
        let idle = Arc::default();
        Ok(Program {
            interface,
            preference,
            routines,
            calls,
            candidates,
            pool,
            idle,
            data,
            _counted: counted,
        })
    }

    /// Whether weights are no more where they were when the program was loaded.
    pub fn has_lost_data(&self) -> bool {
        self.data.as_ref().is_some_and(|data| data.vanished())
    }

    /// Checks that weights are where they were when the program was loaded.
    fn check_data(&self) -> Result<(), BackendError> {
        if !self.has_lost_data() {
            return Ok(());
        }
        let what = "the data cache, without which the model must be prepared again".into();
        Err(BackendError::Memory { what, source: MemoryError::Vanished })
    }

    /// How many steps and values it has.
    pub fn described(&self) -> usize {
        self.routines.iter().map(|routine| routine.steps.len() + routine.values.len()).sum()
    }

    pub fn describe(&self, interrupt: &dyn Interrupt) -> Result<Description, OpError> {
        describe(&self.routines, &self.candidates, interrupt)
    }

    #[cfg(test)]
    pub fn routines(&self) -> &[Routine] {
        &self.routines
    }

    #[cfg(test)]
    pub fn into_routines(self) -> Vec<Routine> {
        self.routines
    }

    /// A frame for the main routine, one that an earlier run left where there is one.
    fn frame(&self, interrupt: &dyn Interrupt) -> Result<Frame, BackendError> {
        self.idle.take().map_or_else(|| Frame::new(&self.routines[0], MAX_RUN_BYTES, interrupt), Ok)
    }
}

/// How many threads a run may use.
pub fn threads(preference: Preference) -> usize {
    match preference {
        Preference::LowPower => 1,
        Preference::FastSingleAnswer | Preference::SustainedSpeed => usize::MAX,
    }
}

impl Program {
    /// The compiled model as bytes.
    pub fn artifact(&self, interrupt: &dyn Interrupt) -> Result<Artifact, OpError> {
        artifact::write(&self.routines, interrupt)
    }

    /// The model's inputs and outputs.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Runs it between memories of this process, one per input and output.
    pub fn run(&self, held: Held, control: &Control) -> Result<Vec<OutputShape>, BackendError> {
        self.check_data()?;
        let (mut frame, watch) = (self.frame(control)?, Watch::new(control, &held));
        let machine = Machine {
            routines: &self.routines,
            calls: &self.calls,
            candidates: &self.candidates,
            pool: &self.pool,
            threads: threads(self.preference),
            control,
            watch: &watch,
        };
        let ran = machine.run_main(&mut frame, held);
        frame.clear(control);
        // Before others compute: the next run of this model would make one of its own.
        let freed = self.idle.keep(frame).map_or(Ok(()), |frame| frame.free(control));
        let (shapes, held) = ran?;
        freed?;
        held.let_go(control)?;
        // What has vanished meanwhile was taken for zeroes.
        self.check_data()?;
        Ok(shapes)
    }
}
