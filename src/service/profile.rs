//! What the driver tells a client of a model that it has prepared: what runs it, where its values lie, and what its
//! executions do when. Of other clients' models it tells nothing.

use super::call::handle;
use super::core::Core;
use super::prepared::{self, Prepared};
use super::status::ServiceError;
use crate::aidl::{self, BnRecorder, IPreparedModel, IRecorder, ModelDescription, Recorded};
use crate::backend::{
    BackendError, Control, Description, KernelName, StepDescription, SubgraphDescription, ValuePlace,
    MOST_DESCRIBED,
};
use crate::ipc::{self, BinderResult, Interface, Strong};
use crate::memory::{Counted, MemoryError};
use crate::ops::pace::Pace;
use crate::ops::OpError;
use crate::scheduler::{caller_gone, Activity, Noted, OperationId, Recorder, Span};
use std::sync::Arc;

/// Spans that a recorder keeps, and that one answer has: it has to fit a transaction.
const MOST_SPANS: usize = 1 << 16;
const SPANS_OF_ANSWER: usize = 1 << 12;
/// Elementary steps that it takes to write down a step or a value of a description, about.
const DESCRIBED: usize = 256;

/// What is behind `model`, which the calling client must have prepared.
fn own(core: &Arc<Core>, model: &Strong<dyn IPreparedModel>) -> Result<Arc<Prepared>, ServiceError> {
    let prepared = prepared::find(model, core)
        .ok_or_else(|| ServiceError::argument("the prepared model is not of this device"))?;
    match prepared.client() == ipc::calling_uid() {
        true => Ok(prepared),
        false => Err(ServiceError::argument("another client has prepared the model")),
    }
}

/// What `model` says of itself; `None` if it says nothing, or not yet.
pub(super) fn describe(
    core: &Arc<Core>,
    model: &Strong<dyn IPreparedModel>,
) -> Result<Option<ModelDescription>, ServiceError> {
    let prepared = own(core, model)?;
    let client = prepared.client();
    let _place = core.quotas.check(client)?;
    let (orphaned, cancelled) = (prepared.life.over(), caller_gone());
    let control = Control { client, orphaned, cancelled, ..Control::default() };
    let control = core.call_turns.check(&control);
    // Before it is made, where that is known: it may take much memory.
    let known = prepared.executable.described();
    let mut counted = count(known)?;
    let Some(described) = prepared.executable.describe(&control)? else { return Ok(None) };
    if described.count() > known {
        drop(counted);
        counted = count(described.count())?;
    }
    let told = description(described, &mut Pace::of(&control)).map_err(BackendError::from)?;
    drop(counted);
    Ok(Some(told))
}

/// Counts a description of so many steps and values, if it is not too long.
fn count(len: usize) -> Result<Counted, ServiceError> {
    if len > MOST_DESCRIBED {
        return Err(ServiceError::Failed("the description is too long for an answer".into()));
    }
    let bytes = Description::footprint(len);
    let out_of_memory = || {
        let source = MemoryError::OutOfMemory(bytes);
        ServiceError::Memory { what: "the description".into(), source }
    };
    Counted::take(bytes).ok_or_else(out_of_memory)
}

/// Begins to record executions of `model`, until the client releases what it gets.
pub(super) fn record(
    core: &Arc<Core>,
    model: &Strong<dyn IPreparedModel>,
) -> Result<Strong<dyn IRecorder>, ServiceError> {
    let prepared = own(core, model)?;
    let recorder = Recorder::new(MOST_SPANS)
        .counted()
        .ok_or_else(|| ServiceError::Exhausted("no memory for what would be recorded".into()))?;
    let recorder = Arc::new(recorder);
    prepared.record(&recorder);
    Ok(ipc::object!(BnRecorder, Recording { core: core.clone(), recorder }))
}

/// A recorder as its client holds it: it records as long as this is there.
struct Recording {
    core: Arc<Core>,
    recorder: Arc<Recorder>,
}

impl Interface for Recording {}

impl IRecorder for Recording {
    fn take(&self) -> BinderResult<Recorded> {
        handle(&self.core, "IRecorder.take", || Ok(recorded(self.recorder.take(SPANS_OF_ANSWER))))
    }
}

fn recorded(noted: Noted) -> Recorded {
    let Noted { spans, missed, threads } = noted;
    let (threads, names) = threads.into_iter().map(|(thread, name)| (int(thread), name)).unzip();
    Recorded { spans: spans.into_iter().map(span).collect(), missed: long(missed), threads, names }
}

fn span(span: Span) -> aidl::Span {
    let nothing = OperationId { subgraph: 0, index: 0 };
    let (activity, id) = match span.activity {
        Activity::Run => (aidl::Activity::RUN, nothing),
        Activity::Operation(id) => (aidl::Activity::OPERATION, id),
        Activity::Part(id) => (aidl::Activity::PART, id),
    };
    aidl::Span {
        activity,
        subgraph: int(id.subgraph),
        operation: int(id.index),
        thread: int(span.thread),
        startNs: long(span.start),
        endNs: long(span.end),
    }
}

fn description(description: Description, pace: &mut Pace) -> Result<ModelDescription, OpError> {
    let subgraphs = description.subgraphs.into_iter().map(|told| subgraph(told, pace));
    Ok(ModelDescription { subgraphs: subgraphs.collect::<Result<_, _>>()? })
}

fn subgraph(subgraph: SubgraphDescription, pace: &mut Pace) -> Result<aidl::SubgraphDescription, OpError> {
    let SubgraphDescription { steps, places, arena } = subgraph;
    let mut told = aidl::SubgraphDescription { arenaBytes: long(arena), ..Default::default() };
    pace.each(steps, DESCRIBED, |each| told.steps.push(step(each)))?;
    pace.each(places, DESCRIBED, |each| told.places.push(place(each)))?;
    Ok(told)
}

fn step(step: StepDescription) -> aidl::Step {
    let (kind, kernel) = match step.kernel {
        KernelName::Fast(name) => (aidl::KernelKind::FAST, name),
        KernelName::Plain => (aidl::KernelKind::PLAIN, String::new()),
        KernelName::Nothing => (aidl::KernelKind::NOTHING, String::new()),
        KernelName::Subgraphs => (aidl::KernelKind::SUBGRAPHS, String::new()),
    };
    aidl::Step {
        operations: step.operations.into_iter().map(int).collect(),
        kind,
        kernel,
        multiplyAdds: step.multiply_adds.map_or(-1, long),
        bytes: step.bytes.map_or(-1, long),
    }
}

fn place(place: ValuePlace) -> aidl::ValuePlace {
    use aidl::PlaceKind as Kind;
    let (kind, part) = match place {
        ValuePlace::Constant(bytes) => (Kind::CONSTANT, 0..bytes),
        ValuePlace::Packed(bytes) => (Kind::PACKED, 0..bytes),
        ValuePlace::Arena(part) => (Kind::ARENA, part),
        ValuePlace::Client(part) => (Kind::CLIENT, part),
        ValuePlace::Own => (Kind::OWN, 0..0),
        ValuePlace::Nowhere => (Kind::NOWHERE, 0..0),
    };
    aidl::ValuePlace { kind, offset: long(part.start), bytes: long(part.end.saturating_sub(part.start)) }
}

/// A number that is small, as the interface has it.
fn int(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::prepared_model;
    use super::super::Driver;
    use super::*;
    use crate::aidl::ErrorStatus;
    use crate::backend::cpu::CpuBackend;
    use crate::backend::{Arguments, Binding, CompileOptions, Executable, Interface};
    use crate::compiler::{Compiled, Unsaved};
    use crate::scheduler::limits::CHECKS;
    use crate::testing::standard_samples;
    use std::sync::Mutex;

    fn driver() -> Driver {
        Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap()
    }

    /// A model that `client` has prepared.
    fn prepared(core: &Arc<Core>, client: u32) -> Strong<dyn IPreparedModel> {
        let (options, model) = (CompileOptions::default(), &standard_samples()[0].model);
        of(core, client, core.backend.compile(model, &options, &Control::default()).unwrap())
    }

    fn of(core: &Arc<Core>, client: u32, executable: Arc<dyn Executable>) -> Strong<dyn IPreparedModel> {
        let options = CompileOptions::default();
        let compiled = Compiled { executable, options, unsaved: Unsaved::new(client, None, None) };
        let place = core.quotas.model(client).unwrap();
        prepared_model::new_binder(Arc::new(Prepared::new(
            core.clone(),
            compiled,
            core.lives.of(0),
            place,
            0,
        )))
    }

    /// A model of which there is so much to tell, and what was held while it told.
    struct Telling {
        interface: Interface,
        described: usize,
        held: Mutex<Vec<(u64, u64, bool)>>,
        core: Arc<Core>,
    }

    impl Executable for Telling {
        fn interface(&self) -> &Interface {
            &self.interface
        }

        fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
            unreachable!("it is only described")
        }

        fn described(&self) -> usize {
            self.described
        }

        fn describe(&self, control: &Control) -> Result<Option<Description>, BackendError> {
            let places = self.core.quotas.all().into_iter().find(|(what, _)| *what == CHECKS.what).unwrap().1;
            let places = places.held_by(ipc::calling_uid());
            let told = (places, self.core.budget.private().held(), control.turn.is_some());
            self.held.lock().unwrap().push(told);
            Ok(Some(Description::default()))
        }
    }

    #[test]
    fn a_description_is_made_by_a_turn_within_a_place_and_counted_and_none_that_is_too_long() {
        let driver = driver();
        let core = driver.core();
        for (described, fits) in [(MOST_DESCRIBED, true), (MOST_DESCRIBED + 1, false)] {
            let interface = Interface::of(&standard_samples()[0].model);
            let telling = Telling { interface, described, held: Mutex::default(), core: core.clone() };
            let telling = Arc::new(telling);
            let model = of(core, ipc::calling_uid(), telling.clone());
            let _account = core.budget.on_account_of(ipc::calling_uid());
            assert_eq!(describe(core, &model).is_ok(), fits);
            let least = Description::footprint(described) as u64;
            let held = telling.held.lock().unwrap();
            assert_eq!(held.len(), usize::from(fits));
            assert!(held.iter().all(|&(places, bytes, turn)| places == 1 && bytes >= least && turn));
            assert_eq!(core.budget.private().held(), 0);
        }
    }

    #[test]
    fn clients_are_told_of_their_own_models_and_of_no_others() {
        let (driver, other) = (driver(), driver());
        let me = binder::get_calling_uid();
        let own = prepared(driver.core(), me);
        assert!(describe(driver.core(), &own).unwrap().is_some());
        assert!(record(driver.core(), &own).is_ok());
        for (foreign, why) in [
            (prepared(driver.core(), me + 1), "another client"),
            (prepared(other.core(), me), "not of this device"),
        ] {
            let described = describe(driver.core(), &foreign).map(drop).unwrap_err();
            let recorded = record(driver.core(), &foreign).map(drop).unwrap_err();
            for refused in [described, recorded] {
                assert_eq!(refused.status(), ErrorStatus::INVALID_ARGUMENT);
                assert!(refused.to_string().contains(why), "{refused}");
            }
        }
    }
}
