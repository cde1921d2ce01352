//! What the backend's process has for clients, by the numbers by which the service knows it.

use super::codec::{from_bytes, to_bytes};
use crate::backend::{BackendError, Binding, Executable, Memory};
use crate::memory::Counted;
use crate::scheduler::Stop;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Things {
    /// Each with its client, as memories are.
    pub executables: HashMap<u64, (u32, Arc<dyn Executable>)>,
    pub bindings: HashMap<u64, Arc<Kept>>,
    pub memories: HashMap<u64, (u32, Lent)>,
    /// What stops a call.
    pub cancels: HashMap<u64, Cancel>,
}

#[derive(Clone)]
pub struct Cancel {
    pub client: u32,
    pub stop: Arc<Stop>,
    /// Asks the device, which has the execution.
    pub device: Option<Arc<dyn Fn() + Send + Sync>>,
}

pub type Lent = Result<Memory, Arc<BackendError>>;

/// A binding, with what it counts of its client's memory: there may be very many arguments.
pub struct Kept {
    pub client: u32,
    pub binding: Arc<dyn Binding>,
    pub _counted: Counted,
}

/// What the service has let go of.
pub struct Released {
    pub client: u32,
    _executable: Option<Arc<dyn Executable>>,
    _binding: Option<Arc<Kept>>,
    _memory: Option<Lent>,
}

impl Things {
    pub fn executable(&self, number: u64) -> Option<Arc<dyn Executable>> {
        self.executables.get(&number).map(|(_, executable)| executable.clone())
    }

    pub fn binding(&self, number: u64) -> Result<Arc<Kept>, BackendError> {
        self.bindings.get(&number).cloned().ok_or_else(|| missing("binding", number))
    }

    pub fn lent(&self, memories: &[Option<u64>]) -> Result<Vec<Option<Memory>>, BackendError> {
        let lent = |number: &Option<u64>| match *number {
            None => Ok(None),
            Some(number) => match self.memories.get(&number) {
                Some((_, Ok(memory))) => Ok(Some(memory.clone())),
                Some((_, Err(why))) => Err(again(why)),
                None => Err(missing("memory", number)),
            },
        };
        memories.iter().map(lent).collect()
    }

    pub fn to_bind(&self, executable: u64) -> Result<Arc<dyn Executable>, BackendError> {
        self.executable(executable).ok_or_else(|| missing("executable", executable))
    }

    /// Takes out what has this number, if there is such.
    pub fn release(&mut self, number: u64) -> Option<Released> {
        let (of_executable, executable) = self.executables.remove(&number).unzip();
        let (of_memory, memory) = self.memories.remove(&number).unzip();
        let binding = self.bindings.remove(&number);
        let of_binding = binding.as_ref().map(|kept| kept.client);
        let client = of_executable.or(of_binding).or(of_memory)?;
        Some(Released { client, _executable: executable, _binding: binding, _memory: memory })
    }
}

fn missing(what: &str, number: u64) -> BackendError {
    BackendError::Failed(format!("there is no {what} {number}"))
}

/// The same error once more.
fn again(why: &Arc<BackendError>) -> BackendError {
    from_bytes(&to_bytes(&**why)).unwrap_or_else(|| BackendError::Failed(why.to_string()))
}
