//! Compilations: what a client asks for, and what the driver's callback is told.

use super::driver::Driver;
use super::error::ClientError;
use crate::aidl::*;
use crate::model::hints;
use binder::{BinderResult, Interface, ParcelFileDescriptor, Strong};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often a wait looks whether the driver has died meanwhile.
const PULSE: Duration = Duration::from_millis(100);

/// How to compile.
#[derive(Clone, Copy, Debug)]
pub struct PrepareOptions {
    /// What to spare: time or power.
    pub preference: ExecutionPreference,
    /// Priority of the compilation and of all executions, among those of the same client.
    pub priority: Priority,
    /// On CLOCK_BOOTTIME, in nanoseconds; -1 is none.
    pub deadline_ns: i64,
    /// Whether to ask by prepareModelWithConfig.
    pub with_config: bool,
    /// Whether to hint that all of it that can wait should wait for the first execution, which only a configuration can.
    pub just_in_time: bool,
    /// Whether to permit that inputs of products are rounded to bytes where weights are dequantised bytes: see
    /// [`hints::DYNAMIC_RANGE`]. A driver before the interface's fourth version is not told.
    pub dynamic_range: bool,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        PrepareOptions {
            preference: ExecutionPreference::FAST_SINGLE_ANSWER,
            priority: Priority::MEDIUM,
            deadline_ns: -1,
            with_config: false,
            just_in_time: false,
            dynamic_range: false,
        }
    }
}

/// Files that a driver keeps a compilation in, and the name that it knows them by.
pub struct CacheFiles {
    /// As many as the driver wants for what it runs.
    pub model: Vec<ParcelFileDescriptor>,
    /// As many as the driver wants for constants.
    pub data: Vec<ParcelFileDescriptor>,
    /// The name.
    pub token: [u8; BYTE_SIZE_OF_CACHE_TOKEN as usize],
}

/// A model that a driver has compiled; it lives as long as anybody holds it.
pub type PreparedModel = Strong<dyn IPreparedModel>;

/// What a driver tells the callback of a compilation.
pub type Verdict = (ErrorStatus, Option<Strong<dyn IPreparedModel>>);

impl Driver {
    /// Compiles a model and waits for it.
    pub fn prepare(
        &self,
        model: &Model,
        options: &PrepareOptions,
    ) -> Result<Strong<dyn IPreparedModel>, ClientError> {
        let (launch, listener) = self.launch(model, options);
        self.conclude(launch, &listener)
    }

    /// Compiles a model and has the driver keep the compilation in these files.
    pub fn prepare_into(
        &self,
        model: &Model,
        files: &CacheFiles,
        options: &PrepareOptions,
    ) -> Result<Strong<dyn IPreparedModel>, ClientError> {
        let PrepareOptions { preference, priority, deadline_ns, .. } = *options;
        let CacheFiles { model: models, data, token } = files;
        if let Some(config) = self.config(options) {
            let copies = |files: &[ParcelFileDescriptor]| {
                let copy =
                    |file: &ParcelFileDescriptor| file.as_ref().try_clone().map(ParcelFileDescriptor::new);
                files.iter().map(copy).collect::<std::io::Result<Vec<_>>>().map_err(ClientError::Memory)
            };
            let (models, data) = (copies(models)?, copies(data)?);
            let config =
                PrepareModelConfig { modelCache: models, dataCache: data, cacheToken: *token, ..config };
            let (launch, listener) = self.launch_with(model, &config);
            return self.conclude(launch, &listener);
        }
        let listener = VerdictListener::new("prepareModel");
        let launch = self.device().prepareModel(
            model,
            preference,
            priority,
            deadline_ns,
            models,
            data,
            token,
            &listener.callback,
        );
        self.conclude(launch, &listener)
    }

    /// Loads a compilation from files that an earlier one was kept in.
    pub fn prepare_from(&self, files: &CacheFiles) -> Result<Strong<dyn IPreparedModel>, ClientError> {
        let CacheFiles { model: models, data, token } = files;
        let listener = VerdictListener::new("prepareModelFromCache");
        let launch = self.device().prepareModelFromCache(-1, models, data, token, &listener.callback);
        self.conclude(launch, &listener)
    }

    /// The prepared model of a compilation that was launched.
    fn conclude(
        &self,
        launch: BinderResult<()>,
        listener: &VerdictListener,
    ) -> Result<Strong<dyn IPreparedModel>, ClientError> {
        let call = listener.call;
        self.answer(call, launch)?;
        match listener.wait(self)? {
            (ErrorStatus::NONE, Some(prepared)) => Ok(prepared),
            (ErrorStatus::NONE, None) => {
                Err(ClientError::Call { call, why: "success was reported without a prepared model".into() })
            }
            (status, _) => Err(ClientError::Refused { call, status, message: String::new() }),
        }
    }

    /// Launches a compilation by prepareModelWithConfig.
    pub fn launch_with(
        &self,
        model: &Model,
        config: &PrepareModelConfig,
    ) -> (BinderResult<()>, VerdictListener) {
        let listener = VerdictListener::new("prepareModelWithConfig");
        (self.device().prepareModelWithConfig(model, config, &listener.callback), listener)
    }

    /// Launches a compilation: the call's own answer, and a listener to what the callback is told.
    pub fn launch(&self, model: &Model, options: &PrepareOptions) -> (BinderResult<()>, VerdictListener) {
        if let Some(config) = self.config(options) {
            return self.launch_with(model, &config);
        }
        let PrepareOptions { preference, priority, deadline_ns, .. } = *options;
        let listener = VerdictListener::new("prepareModel");
        let token = [0; BYTE_SIZE_OF_CACHE_TOKEN as usize];
        let launch = self.device().prepareModel(
            model,
            preference,
            priority,
            deadline_ns,
            &[],
            &[],
            &token,
            &listener.callback,
        );
        (launch, listener)
    }

    /// What asks for these options; `None` where prepareModel does.
    fn config(&self, options: &PrepareOptions) -> Option<PrepareModelConfig> {
        let PrepareOptions { preference, priority, deadline_ns, with_config, just_in_time, dynamic_range } =
            *options;
        let takes_configs =
            || self.device().getInterfaceVersion().is_ok_and(|version| version >= WITH_CONFIGS);
        let dynamic_range = dynamic_range && takes_configs();
        if !(with_config || just_in_time || dynamic_range) {
            return None;
        }
        let mut config =
            PrepareModelConfig { preference, priority, deadlineNs: deadline_ns, ..Default::default() };
        for (number, given) in [(hints::JUST_IN_TIME, just_in_time), (hints::DYNAMIC_RANGE, dynamic_range)] {
            if given {
                hint(&mut config, number, vec![1]);
            }
        }
        Some(config)
    }
}

/// The first version of the interface that has prepareModelWithConfig.
const WITH_CONFIGS: i32 = 4;

/// Adds a hint of the driver's own extension. A driver that does not know it ignores it.
fn hint(config: &mut PrepareModelConfig, number: u16, value: Vec<u8>) {
    const PREFIX: u16 = 1;
    let token = i32::from(PREFIX) << EXTENSION_TYPE_LOW_BITS_TYPE | i32::from(number);
    config.compilationHints.push(TokenValuePair { token, value });
    if config.extensionNameToPrefix.is_empty() {
        let name = hints::EXTENSION.into();
        config.extensionNameToPrefix.push(ExtensionNameAndPrefix { name, prefix: PREFIX });
    }
}

/// Listens for the verdict on a compilation.
pub struct VerdictListener {
    call: &'static str,
    verdicts: Receiver<Verdict>,
    callback: Strong<dyn IPreparedModelCallback>,
}

impl VerdictListener {
    fn new(call: &'static str) -> Self {
        let (sender, verdicts) = std::sync::mpsc::channel();
        let callback = BnPreparedModelCallback::new_binder(Callback(Mutex::new(Some(sender))));
        VerdictListener { call, verdicts, callback }
    }

    /// The call that it listens for.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Waits for the first notification; later ones count for nothing.
    pub fn wait(&self, driver: &Driver) -> Result<Verdict, ClientError> {
        let mut waited = Duration::ZERO;
        loop {
            let start = Instant::now();
            // Asked before the wait, so that a verdict which came just before the death is not missed.
            let dead = driver.is_dead();
            match self.verdicts.recv_timeout(PULSE) {
                Ok(verdict) => return Ok(verdict),
                Err(RecvTimeoutError::Timeout) if !dead => {}
                Err(_) => return Err(driver.lost(self.call)),
            }
            // A process that was stopped meanwhile has not waited.
            waited += start.elapsed().min(2 * PULSE);
            if let Some(after) = driver.timeout().filter(|limit| waited >= *limit) {
                return Err(ClientError::TimedOut { call: self.call, after });
            }
        }
    }
}

struct Callback(Mutex<Option<Sender<Verdict>>>);

impl Interface for Callback {}

impl IPreparedModelCallback for Callback {
    fn notify(&self, status: ErrorStatus, prepared: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        let sender = self.0.lock().ok().and_then(|mut first| first.take());
        match sender.map(|s| s.send((status, prepared.cloned()))) {
            Some(Ok(())) => {}
            Some(Err(_)) => log::debug!("a notification came after the wait for it ended"),
            None => log::warn!("the driver notified a compilation's callback more than once"),
        }
        Ok(())
    }
}
