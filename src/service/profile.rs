//! What the driver tells a client of a model that it has prepared: what runs it, where its values lie, and what its
//! executions do when. Of other clients' models it tells nothing.

use super::call::handle;
use super::core::Core;
use super::prepared::{self, Prepared};
use super::status::ServiceError;
use crate::aidl::{self, BnRecorder, IPreparedModel, IRecorder, ModelDescription, Recorded};
use crate::backend::{Description, KernelName, StepDescription, SubgraphDescription, ValuePlace};
use crate::ipc::{self, BinderResult, Interface, Strong};
use crate::scheduler::{Activity, Noted, OperationId, Recorder, Span};
use std::sync::Arc;

/// Spans that a recorder keeps, and that one answer has: it has to fit a transaction.
const MOST_SPANS: usize = 1 << 16;
const SPANS_OF_ANSWER: usize = 1 << 12;
/// Steps and values of a description, for the same reason. The model itself had to come in a transaction as well.
const MOST_DESCRIBED: usize = 1 << 16;

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
    let Some(described) = own(core, model)?.executable.describe() else { return Ok(None) };
    let parts = described.subgraphs.iter().map(|subgraph| subgraph.steps.len() + subgraph.places.len());
    if parts.sum::<usize>() > MOST_DESCRIBED {
        return Err(ServiceError::Failed("the description is too long for an answer".into()));
    }
    Ok(Some(description(described)))
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

fn description(description: Description) -> ModelDescription {
    ModelDescription { subgraphs: description.subgraphs.into_iter().map(subgraph).collect() }
}

fn subgraph(subgraph: SubgraphDescription) -> aidl::SubgraphDescription {
    let SubgraphDescription { steps, places, arena } = subgraph;
    aidl::SubgraphDescription {
        steps: steps.into_iter().map(step).collect(),
        places: places.into_iter().map(place).collect(),
        arenaBytes: long(arena),
    }
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
    use crate::backend::{CompileOptions, Control};
    use crate::compiler::{Compiled, Unsaved};
    use crate::testing::standard_samples;

    fn driver() -> Driver {
        Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap()
    }

    /// A model that `client` has prepared.
    fn prepared(core: &Arc<Core>, client: u32) -> Strong<dyn IPreparedModel> {
        let (options, model) = (CompileOptions::default(), &standard_samples()[0].model);
        let executable = core.backend.compile(model, &options, &Control::default()).unwrap();
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
