//! Device memory: IDevice.allocate, and the IBuffer that it gives.

use super::call::handle;
use super::core::Core;
use super::prepared;
use super::status::ServiceError;
use crate::aidl::*;
use crate::backend::BackendError;
use crate::buffer::{self, BufferError, BufferHandle, Owner, RoleModel};
use crate::ipc::{self, BinderResult, Interface};
use crate::memory::Pool;
use crate::scheduler::{caller_gone, Control, Life, Permit};
use crate::tensor::TensorInfo;
use std::sync::Arc;

/// The process that makes the call which this thread serves.
pub(super) fn caller() -> Owner {
    Owner { uid: ipc::calling_uid(), pid: ipc::calling_pid() }
}

/// Allocates a buffer for roles of prepared models, which must be `core`'s.
pub(super) fn allocate(
    core: &Arc<Core>,
    desc: &BufferDesc,
    models: &[IPreparedModelParcel],
    inputs: &[BufferRole],
    outputs: &[BufferRole],
) -> Result<DeviceBuffer, ServiceError> {
    buffer::check_counts(models.len(), inputs.len(), outputs.len())?;
    let models = models.iter().enumerate().map(|(i, model)| {
        let model = model.preparedModel.as_ref();
        let model = model.ok_or_else(|| ServiceError::argument(format!("prepared model {i} is null")))?;
        prepared::find(model, core)
            .ok_or_else(|| ServiceError::argument(format!("prepared model {i} is not of this device")))
    });
    let models = models.collect::<Result<Vec<_>, _>>()?;
    let models: Vec<RoleModel> = models
        .iter()
        .map(|model| {
            let interface = model.executable.interface();
            RoleModel { id: model.id, inputs: &interface.inputs, outputs: &interface.outputs }
        })
        .collect();
    let plan = buffer::plan(&desc.dimensions, &models, inputs, outputs)?;
    let backend = core.backend.clone();
    let allocator = move |operand: &TensorInfo| backend.allocate(operand).map_err(of_backend);
    let buffer = core.buffers.allocate(caller(), plan, Arc::new(allocator))?;
    let token = buffer.token();
    let (core, life) = (core.clone(), core.lives.of(caller().pid));
    Ok(DeviceBuffer { buffer: Some(ipc::object!(BnBuffer, Buffer { core, buffer, life })), token })
}

fn of_backend(error: BackendError) -> BufferError {
    match error {
        BackendError::OutOfDeviceMemory(_) | BackendError::OutOfMemory(_) | BackendError::DeviceBusy(_) => {
            BufferError::Exhausted(error.to_string())
        }
        error => BufferError::Failed(error.to_string()),
    }
}

/// A device buffer as its client holds it. When the client lets go of it, or dies, the buffer ends.
struct Buffer {
    core: Arc<Core>,
    buffer: BufferHandle,
    /// That of the client's process.
    life: Arc<Life>,
}

impl Buffer {
    /// The memory that a client copies from or to, if it may.
    fn pool<'m>(&self, memory: &'m Memory) -> Result<Pool<'m>, ServiceError> {
        if self.buffer.owner() != caller() {
            let why = "a device buffer can only be used by the process that allocated it";
            return Err(BufferError::Invalid(why.into()).into());
        }
        Pool::new(memory).map_err(|source| ServiceError::Memory { what: "the memory".into(), source })
    }

    /// The terms of a copy, and its place: it holds a thread as an execution does, and so is counted as one. It is to stop
    /// when its caller goes, and to take a turn once it is long.
    fn copying(&self) -> Result<(Control, Permit), ServiceError> {
        let client = self.buffer.owner().uid;
        let place = self.core.quotas.execution(client)?;
        let (orphaned, cancelled) = (self.life.over(), caller_gone());
        let control = Control { client, orphaned, cancelled, ..Control::default() };
        Ok((self.core.call_turns.check(&control), place))
    }
}

impl Interface for Buffer {}

impl IBuffer for Buffer {
    fn copyFrom(&self, source: &Memory, dims: &[i32]) -> BinderResult<()> {
        handle(&self.core, "copyFrom", || {
            let (pool, (control, _place)) = (self.pool(source)?, self.copying()?);
            Ok(self.buffer.copy_from(&pool, dims, &control)?)
        })
    }

    fn copyTo(&self, target: &Memory) -> BinderResult<()> {
        handle(&self.core, "copyTo", || {
            let (pool, (control, _place)) = (self.pool(target)?, self.copying()?);
            Ok(self.buffer.copy_to(&pool, &control)?)
        })
    }
}
