//! A model compiled by a driver, with shared memory for its inputs and outputs.

use crate::aidl::{self, ErrorStatus};
use crate::client::cache_files::{self, Found};
use crate::client::shared::Shared;
use crate::client::{name, ClientError, Driver, Mode, PrepareOptions, Runner};
use crate::ops::OperationType;
use crate::tflite::{Imported, Port};
use crate::tool::driver::{self, ServiceName, ServiceOptions};
use crate::tool::error::ToolError;
use binder::Strong;
use std::path::Path;
use std::time::{Duration, Instant};

/// Arguments start at multiples of this.
const ALIGNMENT: u64 = 64;

pub struct Session {
    // The order of fields is the order in which they go: the prepared model before its driver.
    runner: Runner,
    prepared: Strong<dyn aidl::IPreparedModel>,
    driver: Driver,
    shared: Shared,
    request: aidl::Request,
    outputs: Vec<Slot>,
    inputs: Vec<Slot>,
    /// How long the compilation took.
    pub compile_time: Duration,
}

/// Where an argument lies in the shared memory.
#[derive(Clone, Copy)]
struct Slot {
    offset: u64,
    length: usize,
}

impl Session {
    /// Connects to the driver and compiles the model there.
    pub fn with_options(
        imported: &Imported,
        service: &ServiceName,
        connect: &ServiceOptions,
        prepare: &PrepareOptions,
    ) -> Result<Self, ToolError> {
        let driver = driver::connect(service, connect)?;
        let start = Instant::now();
        let prepared =
            driver.prepare(&imported.model, prepare).map_err(|why| explain(&driver, &imported.model, why))?;
        let compile_time = start.elapsed();
        Self::start(imported, driver, prepared, compile_time)
    }

    /// Connects to the driver and prepares the model in the .tflite file `bytes` from its cache in `directory`, where
    /// an embedded driver keeps its registry as well.
    pub fn cached(
        imported: &Imported,
        service: &ServiceName,
        (directory, bytes): (&Path, &[u8]),
    ) -> Result<(Self, Found), ToolError> {
        let options = ServiceOptions { data: Some(directory.join("driver")), ..Default::default() };
        let driver = driver::connect(service, &options)?;
        let files = cache_files::open(directory, bytes, &driver)?;
        let (prepared, found, time) = cache_files::prepare(&driver, &imported.model, &files)
            .map_err(|why| explain(&driver, &imported.model, why))?;
        Ok((Self::start(imported, driver, prepared, time)?, found))
    }

    fn start(
        imported: &Imported,
        driver: Driver,
        prepared: Strong<dyn aidl::IPreparedModel>,
        compile_time: Duration,
    ) -> Result<Self, ToolError> {
        let mut size = 0;
        let inputs = slots(&imported.inputs, &mut size)?;
        let outputs = slots(&imported.outputs, &mut size)?;
        // A region of no bytes is not valid.
        let shared = Shared::new(size.max(1)).map_err(ToolError::Memory)?;
        let memory = shared.memory().map_err(ToolError::Memory)?;
        let request = aidl::Request {
            inputs: inputs.iter().map(argument).collect(),
            outputs: outputs.iter().map(argument).collect(),
            pools: vec![aidl::RequestMemoryPool::Pool(memory)],
        };
        let runner = Runner::open(Mode::Sync, &driver, &prepared, &request)?;
        Ok(Session { runner, prepared, driver, shared, request, outputs, inputs, compile_time })
    }

    /// Runs go this way from here on.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), ToolError> {
        self.runner = Runner::open(mode, &self.driver, &self.prepared, &self.request)?;
        Ok(())
    }

    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// Runs another preparation of the same model once, synchronously, on whatever the inputs hold.
    pub fn run_other(&self, prepared: &Strong<dyn aidl::IPreparedModel>) -> Result<(), ToolError> {
        let mut runner = Runner::open(Mode::Sync, &self.driver, prepared, &self.request)?;
        match runner.run(&self.driver, prepared, &self.request)? {
            ErrorStatus::NONE => Ok(()),
            other => Err(ToolError::Failed(format!("the execution ended in {}", name(other)))),
        }
    }

    /// Runs the model once on `inputs`; gives its outputs and how long the call took.
    pub fn run(&mut self, inputs: &[Vec<u8>]) -> Result<(Vec<Vec<u8>>, Duration), ToolError> {
        for (slot, bytes) in self.inputs.iter().zip(inputs) {
            self.shared.write(slot.offset, bytes).map_err(ToolError::Memory)?;
        }
        let start = Instant::now();
        let status = self.runner.run(&self.driver, &self.prepared, &self.request)?;
        let time = start.elapsed();
        match status {
            ErrorStatus::NONE => {}
            ErrorStatus::OUTPUT_INSUFFICIENT_SIZE => {
                return Err(ToolError::Failed(
                    "the driver found the outputs larger than the file says: its shapes are wrong".into(),
                ));
            }
            other => return Err(ToolError::Failed(format!("the execution ended in {}", name(other)))),
        }
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for slot in &self.outputs {
            let mut bytes = vec![0; slot.length];
            self.shared.read(slot.offset, &mut bytes).map_err(ToolError::Memory)?;
            outputs.push(bytes);
        }
        Ok((outputs, time))
    }
}

/// Places for `ports` from `size` on, which grows.
fn slots(ports: &[Port], size: &mut u64) -> Result<Vec<Slot>, ToolError> {
    let slot = |port: &Port| {
        let length = port
            .info
            .byte_size()
            .ok_or_else(|| ToolError::Usage(format!("\"{}\" of {:?} is too large", port.name, port.dims)))?;
        let offset = size.next_multiple_of(ALIGNMENT);
        *size = offset + length as u64;
        Ok(Slot { offset, length })
    };
    ports.iter().map(slot).collect()
}

fn argument(slot: &Slot) -> aidl::RequestArgument {
    let location = aidl::DataLocation {
        poolIndex: 0,
        offset: slot.offset as i64,
        length: slot.length as i64,
        padding: 0,
    };
    aidl::RequestArgument { hasNoValue: false, location, dimensions: Vec::new() }
}

/// A refusal to compile, with the operations that the driver does not take where those are the reason.
fn explain(driver: &Driver, model: &aidl::Model, why: ClientError) -> ToolError {
    let refused = why.status().is_some();
    let supported = if refused { driver.device().getSupportedOperations(model).ok() } else { None };
    let mut missing: Vec<&str> = Vec::new();
    for (operation, supported) in model.main.operations.iter().zip(supported.unwrap_or_default()) {
        let name =
            OperationType::from_code(operation.r#type.0).map_or("an unknown operation", |ty| ty.name());
        if !supported && !missing.contains(&name) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return why.into();
    }
    ToolError::Failed(format!("{why}; it does not support this use of {}", missing.join(", ")))
}
