//! Which ways of execution a driver has: asked once, with a trivial model, so that none is left out silently.

use super::outcome::{Step, Stop};
use super::paths::{ExecutionPath, Ran};
use super::session::Session;
use super::target::Terms;
use crate::aidl::*;
use crate::client::shared::Shared;
use crate::client::{Driver, PrepareOptions};
use crate::tool::error::ToolError;

const NO_HARDWARE_BUFFERS: &str = "hardware buffers: there is nothing to allocate them with here";

/// What there is to test.
#[derive(Clone, Debug)]
pub struct Available {
    pub interface_version: i32,
    pub paths: Vec<ExecutionPath>,
    /// Memory that the driver keeps for a client.
    pub device_memory: bool,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

impl Available {
    /// Asks the driver. With `wanted`, these paths are tested whatever the driver says of them, and no others.
    pub fn probe(driver: &Driver, wanted: &[ExecutionPath]) -> Result<Available, ToolError> {
        let interface_version =
            driver.answer("getInterfaceVersion", driver.device().getInterfaceVersion())?;
        let mut available =
            Available { interface_version, paths: Vec::new(), device_memory: true, left_out: Vec::new() };
        let prepare = |model: &Model| driver.prepare(model, &PrepareOptions::default());
        let prepared = match prepare(&trivial_model()) {
            // A device may compute in 8 bits only. The reason that is reported is that of the first model.
            Err(why) if !why.is_fatal() => prepare(&trivial_quantised_model()).map_err(|_| why),
            prepared => prepared,
        }?;
        let request = trivial_request().map_err(ToolError::Memory)?;
        let session = Session::new(driver, &prepared, &request);
        for path in ExecutionPath::ALL {
            if let Some(why) = available.absence(&session, path, wanted)? {
                available.left_out.push(format!("{path}: {why}"));
            } else {
                available.paths.push(path);
            }
        }
        let models = [IPreparedModelParcel { preparedModel: Some(prepared.clone()) }];
        let roles = [BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 }];
        let buffer = driver.device().allocate(&BufferDesc::default(), &models, &roles, &[]);
        if let Err(error) = driver.answer("allocate", buffer) {
            if error.status() != Some(ErrorStatus::GENERAL_FAILURE) {
                return Err(error.into());
            }
            available.device_memory = false;
            available.left_out.push(format!("device memory: {error}"));
        }
        available.left_out.push(NO_HARDWARE_BUFFERS.into());
        Ok(available)
    }

    /// What its version has, where asking did not work: the suites will find what it has not.
    pub fn assumed(driver: &Driver, wanted: &[ExecutionPath], why: &ToolError) -> Result<Self, ToolError> {
        let interface_version =
            driver.answer("getInterfaceVersion", driver.device().getInterfaceVersion())?;
        let has = |path: &ExecutionPath| match wanted.is_empty() {
            true => interface_version >= path.version() && *path != ExecutionPath::Fmq,
            false => wanted.contains(path),
        };
        let paths = ExecutionPath::ALL.into_iter().filter(has).collect();
        let left_out = vec![
            format!("what its version does not have: a trivial model did not tell what it has ({why})"),
            NO_HARDWARE_BUFFERS.into(),
        ];
        Ok(Available { interface_version, paths, device_memory: true, left_out })
    }

    /// Why a path is not tested; `None` if it is.
    fn absence(
        &self,
        session: &Session,
        path: ExecutionPath,
        wanted: &[ExecutionPath],
    ) -> Result<Option<String>, ToolError> {
        if !wanted.is_empty() {
            return Ok((!wanted.contains(&path)).then(|| "not asked for".into()));
        }
        if self.interface_version < path.version() {
            return Ok(Some(format!("needs interface version {}", path.version())));
        }
        let mut absence = None;
        let mut judge = |ran: &Ran| {
            if ran.status == ErrorStatus::GENERAL_FAILURE {
                absence = Some(ran.tell());
            }
            Ok(())
        };
        match session.execute(path, &Terms::default(), &mut || Ok(()), &mut judge) {
            // What is there but fails is for the suites to find.
            Ok(()) | Err(Stop::Fail(_) | Stop::Skip(_)) => Ok(absence),
            Err(Stop::Fatal(error)) => Err(error),
        }
    }

    /// The paths there are of those that a suite wants.
    pub fn paths(&self, wanted: impl Fn(ExecutionPath) -> bool) -> Step<Vec<ExecutionPath>> {
        let paths: Vec<_> = self.paths.iter().copied().filter(|&path| wanted(path)).collect();
        match paths.is_empty() {
            true => Err(Stop::Skip(super::outcome::Skip::NoPath)),
            false => Ok(paths),
        }
    }
}

/// FLOOR of three numbers.
pub fn trivial_model() -> Model {
    let floats = Operand { r#type: OperandType::TENSOR_FLOAT32, dimensions: vec![3], ..Default::default() };
    unary_model(OperationType::FLOOR, &floats)
}

/// RELU of as many bytes.
fn trivial_quantised_model() -> Model {
    let r#type = OperandType::TENSOR_QUANT8_ASYMM;
    let bytes = Operand { r#type, dimensions: vec![12], scale: 1.0, ..Default::default() };
    unary_model(OperationType::RELU, &bytes)
}

/// One operation from one operand to another like it.
fn unary_model(operation: OperationType, like: &Operand) -> Model {
    let operand = |lifetime| Operand { lifetime, ..like.clone() };
    Model {
        main: Subgraph {
            operands: vec![
                operand(OperandLifeTime::SUBGRAPH_INPUT),
                operand(OperandLifeTime::SUBGRAPH_OUTPUT),
            ],
            operations: vec![Operation { r#type: operation, inputs: vec![0], outputs: vec![1] }],
            inputIndexes: vec![0],
            outputIndexes: vec![1],
        },
        ..Default::default()
    }
}

/// A request for a trivial model.
pub fn trivial_request() -> std::io::Result<Request> {
    let argument = |offset| RequestArgument {
        hasNoValue: false,
        location: DataLocation { poolIndex: 0, offset, length: 12, padding: 0 },
        dimensions: Vec::new(),
    };
    let memory = Shared::new(128)?.memory()?;
    Ok(Request {
        inputs: vec![argument(0)],
        outputs: vec![argument(64)],
        pools: vec![RequestMemoryPool::Pool(memory)],
    })
}
