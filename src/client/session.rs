//! A prepared model with shared memory for its inputs and outputs, ready to be run again and again.

use super::driver::Driver;
use super::error::ClientError;
use super::prepare::PreparedModel;
use super::runner::{Mode, Runner};
use super::shared::Shared;
use crate::aidl::{self, ErrorStatus};
use std::ops::Range;
use std::sync::Arc;

/// Arguments start at multiples of this: as far apart as vector instructions like.
const ALIGNMENT: u64 = 64;
/// So many bytes follow the last argument: kernels of other runtimes, which may work on the memory in place, read a little
/// beyond what is theirs.
const ROOM: u64 = 128;

/// A prepared model with shared memory for its inputs and outputs.
pub struct Session {
    // The order of fields is the order in which they go: the prepared model before its driver.
    runner: Runner,
    prepared: PreparedModel,
    driver: Arc<Driver>,
    memory: Shared,
    request: aidl::Request,
    inputs: Vec<Range<u64>>,
    outputs: Vec<Range<u64>>,
}

impl Session {
    /// Lays out inputs and outputs of so many bytes in one region of shared memory, and sets up what `mode` needs.
    pub fn new(
        driver: Arc<Driver>,
        prepared: PreparedModel,
        (inputs, outputs): (&[usize], &[usize]),
        mode: Mode,
    ) -> Result<Self, ClientError> {
        let mut end = 0;
        let mut place = |sizes: &[usize]| -> Vec<Range<u64>> {
            let range = |&size: &usize| {
                let start = end;
                end = (start + size as u64).next_multiple_of(ALIGNMENT);
                start..start + size as u64
            };
            sizes.iter().map(range).collect()
        };
        let (inputs, outputs) = (place(inputs), place(outputs));
        let memory = Shared::new(end + ROOM).map_err(ClientError::Memory)?;
        let request = aidl::Request {
            inputs: inputs.iter().map(argument).collect(),
            outputs: outputs.iter().map(argument).collect(),
            pools: vec![aidl::RequestMemoryPool::Pool(memory.memory().map_err(ClientError::Memory)?)],
        };
        let runner = Runner::open(mode, &driver, &prepared, &request)?;
        Ok(Session { runner, prepared, driver, memory, request, inputs, outputs })
    }

    /// Runs go this way from here on.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), ClientError> {
        self.runner = Runner::open(mode, &self.driver, &self.prepared, &self.request)?;
        Ok(())
    }

    /// Goes on with another preparation of the same model, by a driver that may be another one; inputs and outputs stay
    /// where they are.
    pub fn move_to(
        &mut self,
        driver: Arc<Driver>,
        prepared: PreparedModel,
        mode: Mode,
    ) -> Result<(), ClientError> {
        // What the old driver had goes before its connection does.
        self.runner = Runner::open(mode, &driver, &prepared, &self.request)?;
        self.prepared = prepared;
        self.driver = driver;
        Ok(())
    }

    /// The driver that runs it.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// The model that it runs.
    pub fn prepared(&self) -> &PreparedModel {
        &self.prepared
    }

    /// The memory of inputs and outputs.
    pub fn memory(&self) -> &Shared {
        &self.memory
    }

    /// Where in the memory each input lies.
    pub fn inputs(&self) -> &[Range<u64>] {
        &self.inputs
    }

    /// Where in the memory each output lies.
    pub fn outputs(&self) -> &[Range<u64>] {
        &self.outputs
    }

    /// Runs the model on what its inputs hold, and waits until it is done.
    pub fn run(&mut self) -> Result<(), ClientError> {
        ended(self.runner.run(&self.driver, &self.prepared, &self.request)?)
    }

    /// Runs another preparation of the same model once, synchronously, on what the inputs hold.
    pub fn run_other(&self, prepared: &PreparedModel) -> Result<(), ClientError> {
        let mut runner = Runner::open(Mode::Sync, &self.driver, prepared, &self.request)?;
        ended(runner.run(&self.driver, prepared, &self.request)?)
    }
}

fn argument(range: &Range<u64>) -> aidl::RequestArgument {
    let location = aidl::DataLocation {
        poolIndex: 0,
        offset: range.start as i64,
        length: (range.end - range.start) as i64,
        padding: 0,
    };
    aidl::RequestArgument { hasNoValue: false, location, dimensions: Vec::new() }
}

/// An error where an execution that was answered did not succeed.
fn ended(status: ErrorStatus) -> Result<(), ClientError> {
    match status {
        ErrorStatus::NONE => Ok(()),
        other => Err(ClientError::Ended(other)),
    }
}
