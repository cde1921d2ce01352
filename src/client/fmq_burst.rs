//! The client of the driver's extension: executions over fast message queues.

use super::controller::{Channels, Controller, ControllerError};
use super::driver::Driver;
use super::error::ClientError;
use super::extension::extension;
use crate::aidl::*;
use crate::fmq::codec::{Argument, RequestPacket, ResultPacket};
use crate::fmq::{FmqError, Limit};
use binder::{BinderResult, ExceptionCode, Interface, ParcelFileDescriptor, Strong};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long to poll for a result before sleeping, where no less is asked for.
pub const POLLING: Duration = Duration::from_micros(200);
const CALL: &str = "an execution over queues";

/// A burst over queues; it ends when dropped.
pub struct FmqBurst {
    controller: Controller,
    memories: Arc<Memories>,
    // It has to live: the driver ends the burst when it goes.
    context: Strong<dyn IFmqBurstContext>,
    _callback: Strong<dyn IFmqBurstCallback>,
}

fn failed(why: impl std::fmt::Display) -> ClientError {
    ClientError::Call { call: CALL, why: why.to_string() }
}

impl FmqBurst {
    /// Opens a burst that polls for a result for so long before it sleeps; `None` if the driver has no such extension.
    pub fn open(
        driver: &Driver,
        prepared: &Strong<dyn IPreparedModel>,
        polling: Duration,
    ) -> Result<Option<Self>, ClientError> {
        let Some(extension) = extension(driver, &prepared.as_binder())? else { return Ok(None) };
        let extension = extension.into_interface::<dyn IFmqBurst>().map_err(failed)?;
        let channels = Channels::create().map_err(failed)?;
        let controller = Controller::new(&channels, polling).map_err(failed)?;
        let memories = Arc::new(Memories::default());
        let callback = BnFmqBurstCallback::new_binder(Callback(memories.clone()));
        let context = extension.configureExecutionBurst(
            &callback,
            &channels.requests.descriptor().to_aidl().map_err(failed)?,
            &channels.results.descriptor().to_aidl().map_err(failed)?,
        );
        let context = driver.answer("IFmqBurst.configureExecutionBurst", context)?;
        Ok(Some(FmqBurst { controller, memories, context, _callback: callback }))
    }

    /// The packet of `request`, whose memories have names of the burst from here on.
    pub fn packet(&self, request: &Request, measure: bool) -> Result<RequestPacket, ClientError> {
        let slots = request.pools.iter().map(|pool| match pool {
            RequestMemoryPool::Pool(memory) => self.memories.add(memory),
            RequestMemoryPool::Token(_) => Err(failed("memory of the driver's cannot be used so")),
        });
        Ok(RequestPacket {
            inputs: request.inputs.iter().map(argument).collect::<Result<_, _>>()?,
            outputs: request.outputs.iter().map(argument).collect::<Result<_, _>>()?,
            slots: slots.collect::<Result<_, _>>()?,
            measure,
        })
    }

    /// Executes a request.
    pub fn execute(&mut self, driver: &Driver, packet: &RequestPacket) -> Result<ResultPacket, ClientError> {
        let dead = || driver.is_dead();
        let limit = Limit::new(driver.timeout()).or_until(&dead);
        self.controller.execute(packet, &limit).map_err(|why| match why {
            ControllerError::Queue(FmqError::Stopped) => driver.lost(CALL),
            ControllerError::Queue(FmqError::TimedOut) => {
                ClientError::TimedOut { call: CALL, after: driver.timeout().unwrap_or_default() }
            }
            why => failed(why),
        })
    }

    /// Has the driver forget the memories of `packet`.
    pub fn free(&self, driver: &Driver, packet: &RequestPacket) -> Result<(), ClientError> {
        packet.slots.iter().try_for_each(|&slot| {
            self.memories.lock().remove(&slot);
            driver.answer("IFmqBurstContext.freeMemory", self.context.freeMemory(slot))
        })
    }
}

fn argument(given: &RequestArgument) -> Result<Argument, ClientError> {
    let number = |value: i64| {
        u32::try_from(value).map_err(|_| failed(format!("{value} does not fit a packet's 32 bits")))
    };
    let RequestArgument { hasNoValue: has_no_value, location, dimensions } = given;
    Ok(Argument {
        has_no_value: *has_no_value,
        pool: number(location.poolIndex.into())?,
        offset: number(location.offset)?,
        length: number(location.length)?,
        dims: dimensions.iter().map(|&dim| number(dim.into())).collect::<Result<_, _>>()?,
    })
}

/// The memories of a burst by name.
#[derive(Default)]
struct Memories(Mutex<HashMap<i32, Memory>>);

impl Memories {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<i32, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names a memory.
    fn add(&self, memory: &Memory) -> Result<i32, ClientError> {
        let copy = duplicate(memory).map_err(failed)?;
        let mut memories = self.lock();
        let free = (0..i32::MAX).find(|slot| !memories.contains_key(slot));
        let slot = free.ok_or_else(|| failed("too many memories"))?;
        memories.insert(slot, copy);
        Ok(slot)
    }
}

fn duplicate(memory: &Memory) -> std::io::Result<Memory> {
    let copy = |fd: &Option<ParcelFileDescriptor>| {
        let copy = fd.as_ref().map(|fd| fd.as_fd().try_clone_to_owned()).transpose();
        copy.map(|fd| fd.map(ParcelFileDescriptor::new))
    };
    Ok(match memory {
        Memory::Ashmem(m) => Memory::Ashmem(Ashmem { fd: copy(&m.fd)?, size: m.size }),
        Memory::MappableFile(m) => {
            let MappableFile { length, prot, offset, .. } = *m;
            Memory::MappableFile(MappableFile { length, prot, fd: copy(&m.fd)?, offset })
        }
        Memory::HardwareBuffer(_) => return Err(std::io::ErrorKind::Unsupported.into()),
    })
}

struct Callback(Arc<Memories>);

impl Interface for Callback {}

impl IFmqBurstCallback for Callback {
    fn getMemories(&self, slots: &[i32]) -> BinderResult<Vec<Memory>> {
        let memories = self.0.lock();
        let memory = |slot: &i32| memories.get(slot).and_then(|memory| duplicate(memory).ok());
        slots
            .iter()
            .map(memory)
            .collect::<Option<_>>()
            .ok_or_else(|| binder::Status::from(ExceptionCode::IllegalArgument))
    }
}
