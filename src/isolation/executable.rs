//! A compiled model, as the driver has it.

use super::binding::{Bound, Shares};
use super::codec::Blob;
use super::instance::{ask, Made};
use super::message::{Answer, Order, Terms};
use crate::backend::{
    Arguments, Artifact, BackendError, Binding, CacheFileCounts, Control, Description, Executable, Interface,
};
use crate::memory::{Access, ClientSlice, Mapping, Weights};
use crate::ops::Interrupt;
use crate::scheduler::boottime_ns;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// How long the process may take to save a model, and to describe one.
const SAVE_NS: u64 = 60_000_000_000;
const DESCRIBE_NS: u64 = 5_000_000_000;

pub struct Isolated {
    pub made: Arc<Made>,
    pub shares: Shares,
    /// As many files as it is saved in.
    pub files: CacheFileCounts,
}

impl Isolated {
    /// What the process says of its data files, mapped.
    fn artifact_of(&self, (models, data): (Vec<Blob>, Vec<usize>), files: &[OwnedFd]) -> Option<Artifact> {
        let CacheFileCounts { models: wanted, data: wanted_data } = self.files;
        let expected = [wanted as usize, wanted_data as usize, files.len()];
        if [models.len(), data.len(), data.len()] != expected {
            return None;
        }
        let part = |(file, len): (&OwnedFd, usize)| {
            if len == 0 {
                return Some(Vec::new());
            }
            let mapping = Mapping::new(file.as_fd(), 0, len, Access::Read).ok()?;
            Some(vec![(0, Weights::shared(ClientSlice::whole(mapping.into()))?)])
        };
        let data = files.iter().zip(data).map(part).collect::<Option<_>>()?;
        Some(Artifact { models: models.into_iter().map(|model| model.0).collect(), data })
    }
}

/// `control` with a limit of so much time from now.
fn within(ns: u64, control: &Control) -> Control {
    let latest = Some(boottime_ns().saturating_add(ns));
    Control { deadline_ns: control.deadline_ns.or(latest).min(latest), ..control.clone() }
}

impl Executable for Isolated {
    fn interface(&self) -> &Interface {
        &self.made.interface
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        Ok(Arc::new(Bound::new(&self.made, arguments, &self.shares)?))
    }

    fn artifact(&self, control: &Control) -> Result<Option<Artifact>, BackendError> {
        let Some(instance) = self.made.ready() else { return Ok(None) };
        let control = within(SAVE_NS, control);
        let order = |call| Order::Save { call, number: instance.number, terms: Terms::of(&control) };
        match ask(&instance.life, order, &control)? {
            (Answer::Saved(None), _) => Ok(None),
            (Answer::Saved(Some(saved)), files) => match self.artifact_of(saved, &files) {
                None => Err(instance.life.condemn("it saves a model in a way that makes no sense")),
                artifact => Ok(artifact),
            },
            _ => Err(instance.life.condemn("it does not save a model")),
        }
    }

    fn is_lost(&self) -> bool {
        self.made.is_lost()
    }

    fn describe(&self, control: &Control) -> Result<Option<Description>, BackendError> {
        let Some(instance) = self.made.ready() else { return Ok(None) };
        let control = within(DESCRIBE_NS, control);
        let order = |call| Order::Describe { call, number: instance.number, terms: Terms::of(&control) };
        control.before_waiting();
        match ask(&instance.life, order, &control)? {
            (Answer::Described(description), _) => Ok(description),
            _ => Err(instance.life.condemn("it does not describe a model")),
        }
    }
}
