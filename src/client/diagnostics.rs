//! The client of the driver's extension that tells of the driver.

use super::driver::Driver;
use super::error::ClientError;
use super::extension::extension;
use super::prepare::PreparedModel;
use super::recorder::{self, Recorder};
use crate::aidl::{IDiagnostics, Model};
use crate::backend::Description;
use binder::{Interface, Strong};

/// What a driver tells of itself, by its extension `vendor.nnhal.diagnostics.IDiagnostics`.
pub struct Diagnostics<'d> {
    driver: &'d Driver,
    extension: Strong<dyn IDiagnostics>,
    version: i32,
}

/// The first version that tells of prepared models.
const TELLS_OF_MODELS: i32 = 2;

impl Driver {
    /// By which the driver tells of itself; `None` if it has no such extension.
    ///
    /// ```
    /// use nnhal::client::{builder::Builder, Address, ConnectOptions, Driver};
    /// use nnhal::daemon::embedded;
    /// use nnhal::ops::OperationType;
    /// use nnhal::tensor::{OperandType, TensorInfo};
    ///
    /// let daemon = embedded::start(&embedded::Options::default())?;
    /// let address = Address::Unix(daemon.socket().into());
    /// let driver = Driver::connect(&address, &ConnectOptions::default())?.keeping(daemon);
    ///
    /// let mut builder = Builder::default();
    /// let floats = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[2]);
    /// let (input, output) = (builder.input(floats.clone()), builder.output(floats));
    /// builder.operation(OperationType::FLOOR, &[input], &[output]);
    /// let model = builder.finish(vec![input], vec![output])?;
    ///
    /// let diagnostics = driver.diagnostics()?.expect("of this driver");
    /// assert_eq!(diagnostics.refusals(&model)?, [None]);
    /// assert!(diagnostics.status()?.starts_with('{'));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn diagnostics(&self) -> Result<Option<Diagnostics<'_>>, ClientError> {
        let Some(found) = extension(self, &self.device().as_binder())? else { return Ok(None) };
        // It may be another vendor's, which over RPC only a call tells.
        let Ok(extension) = found.into_interface::<dyn IDiagnostics>() else { return Ok(None) };
        match extension.getInterfaceVersion() {
            Ok(version) => Ok(Some(Diagnostics { driver: self, extension, version })),
            Err(_) if self.is_dead() => Err(self.lost("IDiagnostics.getInterfaceVersion")),
            Err(why) => {
                log::debug!("the device's extension is another: {why}");
                Ok(None)
            }
        }
    }
}

impl Diagnostics<'_> {
    /// The version of the extension.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Whether the driver tells of prepared models, which the first version of the extension does not.
    pub fn tells_of_models(&self) -> bool {
        self.version >= TELLS_OF_MODELS
    }

    /// What runs a prepared model of this client, and where its values lie; `None` where the driver does not know.
    ///
    /// Only where it [tells of models](Self::tells_of_models).
    pub fn describe(&self, model: &PreparedModel) -> Result<Option<Description>, ClientError> {
        let told = self.driver.answer("IDiagnostics.describe", self.extension.describe(model))?;
        Ok(told.map(recorder::description))
    }

    /// Has the driver record the executions of a prepared model of this client, until the recorder is dropped. A model has
    /// one recorder at a time: the last.
    ///
    /// Only where it [tells of models](Self::tells_of_models).
    pub fn record(&self, model: &PreparedModel) -> Result<Recorder, ClientError> {
        let recorder = self.driver.answer("IDiagnostics.record", self.extension.record(model))?;
        Ok(Recorder::new(recorder))
    }

    /// The driver's state as one JSON object, which docs/DIAGNOSTICS.md describes: all of it for whoever administers the
    /// device, else what concerns the calling client.
    pub fn status(&self) -> Result<String, ClientError> {
        self.driver.answer("IDiagnostics.status", self.extension.status())
    }

    /// For each operation of the main subgraph of `model` why the driver does not take it; `None` where it does.
    ///
    /// An error where the driver does not even look at the operations: the model is not valid, or too large.
    pub fn refusals(&self, model: &Model) -> Result<Vec<Option<String>>, ClientError> {
        let reasons = self.driver.answer("IDiagnostics.refusals", self.extension.refusals(model))?;
        Ok(reasons.into_iter().map(|why| Some(why).filter(|why| !why.is_empty())).collect())
    }
}
