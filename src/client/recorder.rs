//! What a driver tells of a prepared model and its executions, as the backend's own types have it. What a later version of
//! the driver may tell, and this one does not know, is left out.

use super::driver::Driver;
use super::error::ClientError;
use crate::aidl::{self, IRecorder, Recorded};
use crate::backend::{
    Activity, Description, KernelName, Noted, OperationId, Span, StepDescription, SubgraphDescription,
    ValuePlace,
};
use binder::Strong;

/// Records the executions of a prepared model, until it is dropped: [`Diagnostics::record`](super::Diagnostics::record).
pub struct Recorder {
    recorder: Strong<dyn IRecorder>,
}

impl Recorder {
    pub(super) fn new(recorder: Strong<dyn IRecorder>) -> Self {
        Recorder { recorder }
    }

    /// What `driver` has recorded since the last time: all of it, or so many spans, and however many its last answer has
    /// beyond.
    pub fn take(&self, driver: &Driver, most: usize) -> Result<Noted, ClientError> {
        let (mut noted, mut told) = (Noted::default(), 0);
        while told < most {
            let part = driver.answer("IRecorder.take", self.recorder.take())?;
            let count = part.spans.len();
            add(&mut noted, part);
            if count == 0 {
                break;
            }
            told += count;
        }
        Ok(noted)
    }
}

fn add(noted: &mut Noted, part: Recorded) {
    let Recorded { spans, missed, threads, names } = part;
    noted.spans.extend(spans.iter().filter_map(span));
    noted.missed = noted.missed.saturating_add(long(missed));
    noted.threads.extend(threads.into_iter().map(int).zip(names).filter(|(_, name)| !name.is_empty()));
}

fn span(span: &aidl::Span) -> Option<Span> {
    let id = OperationId { subgraph: int(span.subgraph), index: int(span.operation) };
    let activity = match span.activity {
        aidl::Activity::RUN => Activity::Run,
        aidl::Activity::OPERATION => Activity::Operation(id),
        aidl::Activity::PART => Activity::Part(id),
        _ => return None,
    };
    let start = long(span.startNs);
    Some(Span { activity, thread: int(span.thread), start, end: long(span.endNs).max(start) })
}

pub(super) fn description(told: aidl::ModelDescription) -> Description {
    Description { subgraphs: told.subgraphs.into_iter().map(subgraph).collect() }
}

fn subgraph(told: aidl::SubgraphDescription) -> SubgraphDescription {
    SubgraphDescription {
        steps: told.steps.into_iter().map(step).collect(),
        places: told.places.iter().map(place).collect(),
        arena: long(told.arenaBytes),
    }
}

fn step(told: aidl::Step) -> StepDescription {
    let operations = told.operations.into_iter().filter_map(|index| usize::try_from(index).ok());
    StepDescription {
        operations: operations.collect(),
        kernel: match told.kind {
            aidl::KernelKind::PLAIN => KernelName::Plain,
            aidl::KernelKind::NOTHING => KernelName::Nothing,
            aidl::KernelKind::SUBGRAPHS => KernelName::Subgraphs,
            _ => KernelName::Fast(told.kernel),
        },
        multiply_adds: u64::try_from(told.multiplyAdds).ok(),
        bytes: u64::try_from(told.bytes).ok(),
    }
}

fn place(told: &aidl::ValuePlace) -> ValuePlace {
    use aidl::PlaceKind as Kind;
    let (offset, bytes) = (long(told.offset), long(told.bytes));
    // Two numbers below 2^63.
    let part = offset..offset + bytes;
    match told.kind {
        Kind::CONSTANT => ValuePlace::Constant(bytes),
        Kind::PACKED => ValuePlace::Packed(bytes),
        Kind::ARENA => ValuePlace::Arena(part),
        Kind::CLIENT => ValuePlace::Client(part),
        Kind::OWN => ValuePlace::Own,
        _ => ValuePlace::Nowhere,
    }
}

/// 0 for what a driver should not have told.
fn int(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn long(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
