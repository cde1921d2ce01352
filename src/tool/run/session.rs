//! A model compiled by a driver, with shared memory for its inputs and outputs.

use crate::aidl;
use crate::client::cache_files::{self, Found};
use crate::client::{self, ClientError, Driver, Mode, PrepareOptions, PreparedModel};
use crate::ops::OperationType;
use crate::tflite::{Imported, Port};
use crate::tool::driver::{self, ServiceName, ServiceOptions};
use crate::tool::error::ToolError;
use crate::tool::progress;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

// IMPORTER_ID, a digest of what makes a model of a .tflite file.
include!(concat!(env!("OUT_DIR"), "/importer_id.rs"));

pub struct Session {
    session: client::Session,
    /// How long the compilation took.
    pub compile_time: Duration,
}

impl Session {
    /// Connects to the driver and compiles the model there.
    pub fn with_options(
        imported: &Imported,
        service: &ServiceName,
        connect: &ServiceOptions,
        prepare: &PrepareOptions,
    ) -> Result<Self, ToolError> {
        Self::on(imported, driver::connect(service, connect)?, prepare)
    }

    /// Compiles the model there.
    pub fn on(imported: &Imported, driver: Driver, prepare: &PrepareOptions) -> Result<Self, ToolError> {
        let _progress = progress::waiting("compiling");
        let start = Instant::now();
        let prepared =
            driver.prepare(&imported.model, prepare).map_err(|why| explain(&driver, &imported.model, why))?;
        let compile_time = start.elapsed();
        Self::start(imported, driver, prepared, compile_time)
    }

    /// Connects to the driver and prepares the model in the .tflite file `bytes` from its cache in `directory`, where
    /// an embedded driver keeps its registry as well. A preparation that rounds inputs has other files than one that does not,
    /// and so has what another importer made of the file.
    pub fn cached(
        imported: &Imported,
        service: &ServiceName,
        (directory, bytes): (&Path, &[u8]),
        prepare: &PrepareOptions,
    ) -> Result<(Self, Found), ToolError> {
        let options = ServiceOptions { data: Some(directory.join("driver")), ..Default::default() };
        let driver = driver::connect(service, &options)?;
        let how: &[u8] = if prepare.dynamic_range { b"rounds inputs" } else { b"" };
        let files = cache_files::open(directory, &[IMPORTER_ID.as_bytes(), bytes, how], &driver)?;
        let _progress = progress::waiting("preparing");
        let (prepared, found, time) = cache_files::prepare(&driver, &imported.model, &files, prepare)
            .map_err(|why| explain(&driver, &imported.model, why))?;
        Ok((Self::start(imported, driver, prepared, time)?, found))
    }

    fn start(
        imported: &Imported,
        driver: Driver,
        prepared: PreparedModel,
        compile_time: Duration,
    ) -> Result<Self, ToolError> {
        let sizes = (&sizes(&imported.inputs)?[..], &sizes(&imported.outputs)?[..]);
        let session = client::Session::new(Arc::new(driver), prepared, sizes, Mode::Sync)?;
        Ok(Session { session, compile_time })
    }

    /// Runs go this way from here on.
    pub fn set_mode(&mut self, mode: Mode) -> Result<(), ToolError> {
        Ok(self.session.set_mode(mode)?)
    }

    pub fn driver(&self) -> &Driver {
        self.session.driver()
    }

    /// What it was connected to; its model goes.
    pub fn into_driver(self) -> Arc<Driver> {
        self.session.driver().clone()
    }

    /// The model that it runs.
    pub fn prepared(&self) -> &PreparedModel {
        self.session.prepared()
    }

    /// Runs another preparation of the same model once, synchronously, on whatever the inputs hold.
    pub fn run_other(&self, prepared: &PreparedModel) -> Result<(), ToolError> {
        self.session.run_other(prepared).map_err(failed)
    }

    /// Runs the model once on `inputs`; gives its outputs and how long the call took.
    pub fn run(&mut self, inputs: &[Vec<u8>]) -> Result<(Vec<Vec<u8>>, Duration), ToolError> {
        let memory = |why| ToolError::Client(ClientError::Memory(why));
        for (place, bytes) in self.session.inputs().iter().zip(inputs) {
            self.session.memory().write(place.start, bytes).map_err(memory)?;
        }
        let start = Instant::now();
        self.session.run().map_err(failed)?;
        let time = start.elapsed();
        let mut outputs = Vec::with_capacity(self.session.outputs().len());
        for place in self.session.outputs() {
            let mut bytes = vec![0; (place.end - place.start) as usize];
            self.session.memory().read(place.start, &mut bytes).map_err(memory)?;
            outputs.push(bytes);
        }
        Ok((outputs, time))
    }
}

/// An execution that the driver ended otherwise than well is an outcome, not a failure to get one.
fn failed(why: ClientError) -> ToolError {
    match why {
        why @ ClientError::Ended(_) => ToolError::Failed(why.to_string()),
        why => why.into(),
    }
}

/// How many bytes each of `ports` takes.
fn sizes(ports: &[Port]) -> Result<Vec<usize>, ToolError> {
    let size = |port: &Port| {
        let too_large = || ToolError::Usage(format!("{:?} of {:?} is too large", port.name, port.dims));
        port.info.byte_size().ok_or_else(too_large)
    };
    ports.iter().map(size).collect()
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
