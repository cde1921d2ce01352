//! What the driver asks of a vendor.

use crate::compile::{self, Program};
use crate::execute::Loaded;
use crate::link::{lock, Link};
use crate::memory::{Region, Tiled};
use crate::{plan, protocol, Result};
use nnhal::backend::{
    Backend, BackendError, CacheFileCounts, Capabilities, ClientMemory, CompileOptions, Control,
    DeviceMemory, DeviceType, Executable, Extension, ExtensionOperandType, Info, Performance, Saved,
};
use nnhal::model::Model;
use nnhal::ops::Interrupt;
use nnhal::tensor::TensorInfo;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The vendor's extension. Clients find it by this name.
pub const EXTENSION: &str = "com.example.sample_npu";
/// Its operation: each byte of input 0 becomes its entry in the table that is input 1. A signed byte counts as unsigned.
pub const LOOKUP: u16 = 0;
/// Its operand type: a table, whose elements are bytes.
pub const TABLE: ExtensionOperandType = ExtensionOperandType { code: 0, is_tensor: true, byte_size: 1 };

/// The backend. Its device starts with the first compilation, as the driver has to be registered before anything takes
/// time; should it die, the next compilation starts another.
pub struct SampleNpu {
    program: PathBuf,
    /// The latest device, if there was one.
    link: Mutex<Option<Arc<Link>>>,
    /// Held while a thread starts one: `link` is not, as others only look, and may not wait.
    starting: Mutex<()>,
}

impl SampleNpu {
    /// A backend whose device is a process of the file `program`, which is `sample_npu_device`.
    pub fn new(program: PathBuf) -> Self {
        SampleNpu { program, link: Mutex::default(), starting: Mutex::default() }
    }

    /// The same, with that file beside the one of this process.
    pub fn beside_this_program() -> io::Result<Self> {
        Ok(SampleNpu::new(std::env::current_exe()?.with_file_name("sample_npu_device")))
    }

    /// The device's process, so that a test can end it; `None` before the first compilation.
    pub fn device_process(&self) -> Option<u32> {
        self.link().map(|link| link.process)
    }

    fn link(&self) -> Option<Arc<Link>> {
        lock(&self.link).clone()
    }

    /// A device that lives. Whoever prepares a model asks for it, and may wait for its start: such a thread is nobody
    /// else's.
    fn living(&self) -> Result<Arc<Link>> {
        let _one = lock(&self.starting);
        if let Some(link) = self.link().filter(|link| link.check().is_ok()) {
            return Ok(link);
        }
        let lost = |why: io::Error| BackendError::DeviceLost(format!("it cannot be started: {why}"));
        let link = Link::start(&self.program).map_err(lost)?;
        log::info!("the device is process {} now", link.process);
        *lock(&self.link) = Some(link.clone());
        Ok(link)
    }
}

impl Backend for SampleNpu {
    /// Called when the driver starts and whenever a client asks: it must be quick, and always say the same.
    fn info(&self) -> Info {
        // The runtime gives us what we claim to do faster than its own code on the processor: 8-bit tensors.
        let slow = Performance { exec_time: 2.0, power_usage: 2.0 };
        let fast = Performance { exec_time: 0.2, power_usage: 0.1 };
        let mut capabilities = Capabilities::uniform(slow);
        for (_, performance) in capabilities.operands.iter_mut().filter(|(ty, _)| ty.is_quant8_asymm()) {
            *performance = fast;
        }
        let tables = Extension { name: EXTENSION.into(), operand_types: vec![TABLE] };
        Info {
            // Whenever streams or results change, this must: saved models of other versions are not loaded.
            version: "sample-npu-4".into(),
            device_type: DeviceType::Accelerator,
            extensions: vec![tables],
            capabilities,
            // The command stream; weights, and tables of scales and biases.
            cache_files: CacheFileCounts { models: 1, data: 2 },
            depth: Some(protocol::DEPTH),
            // The device knows nothing of sync fences: the driver submits once they are signalled.
            waits_for_fences: false,
        }
    }

    fn support(&self, model: &Model, _: &Control) -> Vec<Result<(), String>> {
        plan::steps(model).into_iter().map(|step| step.map(drop)).collect()
    }

    fn compile(&self, model: &Model, _: &CompileOptions, control: &Control) -> Result<Arc<dyn Executable>> {
        let program = compile::compile(model, control)?;
        Ok(Arc::new(Loaded::new(program, &self.living()?)?))
    }

    fn load(&self, saved: Saved, _: &CompileOptions, control: &Control) -> Result<Arc<dyn Executable>> {
        control.check()?;
        Ok(Arc::new(Loaded::new(Program::load(&saved)?, &self.living()?)?))
    }

    /// Called once per memory and execution, or per burst or reusable execution: these keep what it gives. Without a device
    /// no model can be there either.
    fn import(&self, memory: &ClientMemory) -> Result<Option<Arc<dyn DeviceMemory>>> {
        let imported = self.link().and_then(|link| Region::import(&link, memory));
        Ok(imported.map(|memory| Arc::new(memory) as Arc<dyn DeviceMemory>))
    }

    fn allocate(&self, operand: &TensorInfo) -> Result<Option<Arc<dyn DeviceMemory>>> {
        let Some(link) = self.link() else { return Ok(None) };
        let tiled = Tiled::new(&link, operand)?;
        Ok(tiled.map(|memory| Arc::new(memory) as Arc<dyn DeviceMemory>))
    }
}
