//! One device buffer: its bytes, whether there is anything in them, and who is at them right now.

use super::account::Charge;
use super::{decode_dims, failed, invalid, Allocator, BufferError, Direction, Owner, Plan, Role};
use crate::memory::{bytes_of_pages, ClientSlice, Mapping, Memory, MemoryError, Pool};
use crate::ops::Interrupt;
use crate::scheduler::{Copier, CopyError};
use crate::tensor::{byte_size, combine_dims, Dims, TensorInfo};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device buffer. Many may read it at once, or one may write it; a call at the wrong moment fails at once, and nobody
/// waits.
pub struct DeviceBuffer {
    token: i32,
    owner: Owner,
    plan: Plan,
    allocator: Allocator,
    state: Mutex<State>,
    /// For what its memory takes. Locked by who writes alone, also while the backend allocates.
    charge: Mutex<Charge>,
}

struct State {
    /// Dimensions of the value within; `None` while there is none.
    contents: Option<Dims>,
    store: Store,
    readers: usize,
    writing: bool,
}

/// Where a value can be kept.
#[derive(Clone)]
struct Store {
    /// At least as many bytes as the contents need.
    memory: Memory,
    /// The operand that a device's memory was laid out for.
    dims: Dims,
}

impl Store {
    /// What it takes besides what every buffer costs: that has room for a page that is used in part.
    fn taken(&self) -> usize {
        match &self.memory {
            Memory::Mapped(mapping) => pages_taken(mapping.len()),
            // Huge pages are what this process asks for. A device has its own way.
            Memory::Device(device) => device.len(),
        }
    }

    /// Whether it can keep a value of these dimensions and so many bytes.
    fn fits(&self, dims: &[u32], size: usize) -> bool {
        match &self.memory {
            Memory::Mapped(mapping) => size <= mapping.len(),
            Memory::Device(device) => self.dims[..] == *dims || device.is_plain() && size <= device.len(),
        }
    }
}

impl DeviceBuffer {
    /// A buffer without contents, and without a token yet. `charge` pays for what it takes already.
    pub(super) fn new(
        owner: Owner,
        plan: Plan,
        allocator: Allocator,
        mut charge: Charge,
    ) -> Result<Self, BufferError> {
        let store = if plan.info.is_fully_specified() {
            allocate(&plan.info, &plan.info.dims, &allocator, &mut charge, 0)?
        } else {
            Store { memory: Memory::Mapped(anonymous(0)?), dims: Dims::new() }
        };
        let state = State { contents: None, store, readers: 0, writing: false };
        let (state, charge) = (Mutex::new(state), Mutex::new(charge));
        Ok(DeviceBuffer { token: 0, owner, plan, allocator, state, charge })
    }

    /// This buffer, to be found by `token`.
    pub(super) fn called(self, token: i32) -> Self {
        DeviceBuffer { token, ..self }
    }

    pub fn token(&self) -> i32 {
        self.token
    }

    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The operand that the buffer holds; unknown dimensions are 0 or missing.
    pub fn info(&self) -> &TensorInfo {
        &self.plan.info
    }

    /// Whether the buffer may be input `index` of `model`.
    pub fn check_input(&self, model: u64, index: usize) -> Result<(), BufferError> {
        self.check_role(Role { model, direction: Direction::Input, index })
    }

    /// Whether the buffer may be output `index` of `model`.
    pub fn check_output(&self, model: u64, index: usize) -> Result<(), BufferError> {
        self.check_role(Role { model, direction: Direction::Output, index })
    }

    /// Whether the buffer was allocated to be used so.
    fn check_role(&self, role: Role) -> Result<(), BufferError> {
        match self.plan.roles.binary_search(&role) {
            Ok(_) => Ok(()),
            Err(_) => invalid(format!(
                "device buffer {} was not allocated for {} {} of this model",
                self.token, role.direction, role.index
            )),
        }
    }

    /// Fills the buffer from `source`, by the yield points of `interrupt`. Whatever fails but a collision leaves it without
    /// contents.
    pub fn copy_from(
        self: &Arc<Self>,
        source: &Pool,
        dims: &[i32],
        interrupt: &dyn Interrupt,
    ) -> Result<(), BufferError> {
        let mut writing = self.write()?;
        let of_source = |e| memory("the source", e);
        let copied = self.copied_dims(source.size(), dims).and_then(|dims| {
            writing.reserve(&dims)?;
            let from = source.map().and_then(|mapping| ClientSlice::new(mapping, 0, source.size()));
            let from = from.map_err(of_source)?;
            match writing.memory() {
                Memory::Mapped(mapping) => copy(&from, &ClientSlice::whole(mapping), interrupt, of_source)?,
                Memory::Device(device) => match device.bytes() {
                    Some(bytes) => copy(&from, &bytes, interrupt, of_source)?,
                    None => device.write(&from).map_err(of_source)?,
                },
            }
            Ok(dims)
        });
        match copied {
            Ok(dims) => writing.commit(dims),
            Err(error) => {
                writing.spoilt = true;
                Err(error)
            }
        }
    }

    /// The dimensions that a copy of `size` bytes will have, `dims` being what the client says of them.
    fn copied_dims(&self, size: usize, dims: &[i32]) -> Result<Dims, BufferError> {
        let (given, info) = (decode_dims(dims)?, self.info());
        if info.ty.is_scalar() && !given.is_empty() {
            return invalid(format!("dimensions {given:?} for a scalar"));
        }
        let whole = if given.is_empty() { info.dims.clone() } else { given };
        if info.ty.is_tensor() && (whole.is_empty() || whole.contains(&0)) {
            return invalid(format!("dimensions {whole:?} must be known and above 0"));
        }
        if info.ty.is_tensor() && combine_dims(&whole, &info.dims).is_none() {
            return invalid(format!("dimensions {whole:?} for a device buffer of {:?}", info.dims));
        }
        match byte_size(info.ty, &whole) {
            Some(expected) if expected == size => Ok(whole),
            _ => invalid(format!("a memory of {size} bytes for a {} of {whole:?}", info.ty)),
        }
    }

    /// Copies the contents to `target`, which must be just as large, by the yield points of `interrupt`.
    pub fn copy_to(self: &Arc<Self>, target: &Pool, interrupt: &dyn Interrupt) -> Result<(), BufferError> {
        let reading = self.read()?;
        let (size, given) = (reading.size, target.size());
        if size != given {
            return invalid(format!("a memory of {given} bytes for a device buffer with {size}"));
        }
        let of_target = |e| memory("the target", e);
        let to = target.map().and_then(|mapping| ClientSlice::new(mapping, 0, target.size()));
        let to = to.map_err(of_target)?;
        match &reading.memory {
            Memory::Mapped(mapping) => {
                let from = ClientSlice::new(mapping.clone(), 0, size).map_err(of_target)?;
                copy(&from, &to, interrupt, of_target)
            }
            Memory::Device(device) => match device.bytes() {
                Some(bytes) => {
                    let from = bytes.part(0, size).map_err(of_target)?;
                    copy(&from, &to, interrupt, of_target)
                }
                None => device.read(&to).map_err(of_target),
            },
        }
    }

    /// Starts to read the contents.
    pub(super) fn read(self: &Arc<Self>) -> Result<Reading, BufferError> {
        let mut state = self.state();
        if state.writing {
            return failed(format!("device buffer {} is being written; wait for that to end", self.token));
        }
        let Some(dims) = state.contents.clone() else {
            return failed(format!("device buffer {} is not initialised", self.token));
        };
        let size = byte_size(self.info().ty, &dims).unwrap_or(usize::MAX);
        let memory = state.store.memory.clone();
        state.readers += 1;
        Ok(Reading { buffer: self.clone(), memory, size, dims })
    }

    /// Starts to write the contents.
    pub(super) fn write(self: &Arc<Self>) -> Result<Writing, BufferError> {
        let mut state = self.state();
        if state.writing || state.readers > 0 {
            return failed(format!("device buffer {} is in use; wait for that to end", self.token));
        }
        state.writing = true;
        Ok(Writing { buffer: self.clone(), store: state.store.clone(), spoilt: false, written: None })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is a secret of its owner.
        write!(f, "DeviceBuffer of {:?}", self.plan)
    }
}

/// Copies `from` to the start of `to`, by the yield points of `interrupt`: how much there is of it is the client's choice.
fn copy(
    from: &ClientSlice,
    to: &ClientSlice,
    interrupt: &dyn Interrupt,
    failed: impl Fn(MemoryError) -> BufferError,
) -> Result<(), BufferError> {
    Copier::new(interrupt).copy(from, to).map_err(|why| match why {
        CopyError::Memory(source) => failed(source),
        CopyError::Stopped(why) => why.into(),
    })
}

fn memory(what: &'static str, source: MemoryError) -> BufferError {
    match source {
        MemoryError::Invalid(why) => BufferError::Invalid(format!("{what}: {why}")),
        source => BufferError::Memory { what, source },
    }
}

/// Memory for a value of these dimensions: the device's if it gives some, else this process's. `charge`, which has paid for
/// `before`, pays for what it takes beyond that.
fn allocate(
    info: &TensorInfo,
    dims: &[u32],
    allocator: &Allocator,
    charge: &mut Charge,
    before: usize,
) -> Result<Store, BufferError> {
    let operand = TensorInfo { dims: dims.into(), ..info.clone() };
    let Some(size) = operand.byte_size() else {
        return failed(format!("a value of {dims:?} is too large for a device buffer"));
    };
    let mut paid = before;
    let mut pay = |whole: usize| {
        let more = whole.saturating_sub(paid);
        charge.raise(more).inspect(|()| paid += more)
    };
    let mut memory = || match pay(size).and_then(|()| allocator(&operand))? {
        Some(device) if device.len() == size => Ok(Memory::Device(device)),
        Some(device) => failed(format!("the device gave {} bytes for a value of {size}", device.len())),
        None => {
            pay(pages_taken(size))?;
            Ok(Memory::Mapped(anonymous(size)?))
        }
    };
    match memory() {
        Ok(memory) => Ok(Store { memory, dims: operand.dims }),
        Err(why) => {
            charge.lower(paid - before);
            Err(why)
        }
    }
}

/// What memory of so many bytes in this process takes besides what every buffer costs.
fn pages_taken(size: usize) -> usize {
    const LARGE: usize = 1 << 20;
    match size {
        LARGE.. => bytes_of_pages(size).unwrap_or(usize::MAX),
        _ => size,
    }
}

fn anonymous(size: usize) -> Result<Arc<Mapping>, BufferError> {
    // Whatever the reason, it comes down to there being no memory.
    let mapping = Mapping::anonymous(size).map_err(|_| MemoryError::OutOfMemory(size));
    mapping.map(Arc::new).map_err(|e| memory("a device buffer", e))
}

/// Contents being read; nobody writes them until this is dropped.
pub(super) struct Reading {
    buffer: Arc<DeviceBuffer>,
    pub memory: Memory,
    /// Bytes of the contents.
    pub size: usize,
    pub dims: Dims,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.buffer.state();
        state.readers = state.readers.saturating_sub(1);
    }
}

/// Contents being written; nobody else reads or writes them until this is dropped. They are lost if the memory was handed
/// out and nobody committed what was written.
pub(super) struct Writing {
    buffer: Arc<DeviceBuffer>,
    store: Store,
    spoilt: bool,
    written: Option<Dims>,
}

impl Writing {
    /// All memory there is.
    pub fn memory(&mut self) -> Memory {
        self.spoilt = true;
        self.store.memory.clone()
    }

    /// Makes room for a value of these dimensions, and tells whether that took other memory; what was in the buffer is
    /// lost then.
    pub fn reserve(&mut self, dims: &[u32]) -> Result<bool, BufferError> {
        let info = self.buffer.info();
        let Some(size) = byte_size(info.ty, dims) else {
            return failed(format!("a value of {dims:?} is too large for a device buffer"));
        };
        if self.store.fits(dims, size) {
            return Ok(false);
        }
        let before = self.store.taken();
        // Not under the buffer's lock: others who come meanwhile are refused at once, however long the device takes.
        let mut charge = self.buffer.charge.lock().unwrap_or_else(PoisonError::into_inner);
        let store = allocate(info, dims, &self.buffer.allocator, &mut charge, before)?;
        let less = before.saturating_sub(store.taken());
        let mut state = self.buffer.state();
        state.contents = None;
        state.store = store.clone();
        drop(state);
        self.store = store;
        // Memory of a device may serve values of its dimensions only: then that of a smaller one takes its place.
        charge.lower(less);
        Ok(true)
    }

    /// Whether a value of dimensions `dims` may be committed.
    pub fn check(&self, dims: &[u32]) -> Result<(), BufferError> {
        let info = self.buffer.info();
        let known = |(&i, &d): (&u32, &u32)| i == 0 || i == d;
        let rank_fits = info.dims.is_empty() && info.ty.is_tensor() || info.dims.len() == dims.len();
        let has_room = byte_size(info.ty, dims).is_some_and(|size| self.store.fits(dims, size));
        if !rank_fits || !info.dims.iter().zip(dims).all(known) || !has_room {
            return failed(format!("a value of {dims:?} for a device buffer of {:?}", info.dims));
        }
        Ok(())
    }

    /// Ends the writing: the buffer now holds a value of dimensions `dims`.
    pub fn commit(mut self, dims: Dims) -> Result<(), BufferError> {
        self.check(&dims)?;
        self.written = Some(dims);
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.buffer.state();
        state.writing = false;
        if self.written.is_some() || self.spoilt {
            state.contents = self.written.take();
        }
    }
}
