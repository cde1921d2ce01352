//! What the driver sees: a backend like any other, which has the real one in another process do everything.

use super::binding::Shares;
use super::constants::{constant_file, not_copied, Part};
use super::executable;
use super::instance::{ask_any, count, Made, Recipe};
use super::memory::Lent;
use super::message::{Answer, Order, Source, Terms, With};
use super::model::{pack, Packed};
use super::supervisor::{MakeCommand, Supervisor};
use crate::backend::{
    submission_threads, Backend, BackendError, ClientMemory, ClientMemoryKind, CompileOptions, Control,
    DeviceMemory, Executable, Info, Saved,
};
use crate::memory::{client_of_thread, Access, ClientSlice, Counted, Mapping};
use crate::model::Model;
use crate::scheduler::{boottime_ns, limits, CallTurns, Copier, Errands, Starter, Waiting};
use crate::tensor::TensorInfo;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;

/// How long the process may think about which operations it takes.
const SUPPORT_NS: u64 = 30_000_000_000;

/// A backend in a process of its own.
pub struct Isolated {
    supervisor: Arc<Supervisor>,
    shares: Shares,
}

impl Isolated {
    /// Starts the process that `command` makes, and starts it again whenever it has ended. It has to call
    /// [`serve`](super::serve), with the same backend every time. An error if it does not become ready.
    pub fn start(command: impl Fn() -> Command + Send + Sync + 'static) -> std::io::Result<Self> {
        let command: MakeCommand = Box::new(command);
        let (lent, copied) = (limits::LENT.quota(), limits::COPIED.quota());
        let waiting = Arc::<Waiting>::default();
        let room = waiting.clone();
        copied.when_given_back(Box::new(move || room.look_again()));
        let turns = CallTurns::new(std::thread::available_parallelism().map_or(1, |n| n.get()));
        let (submitted, replies) = (submission_threads(), Errands::new("nnhal-reply", &Starter::new()?));
        let shares = Shares { lent, copied, waiting, turns, submitted, replies };
        Ok(Isolated { supervisor: Supervisor::new(command)?, shares })
    }

    /// The backend's process, if it is there now: for tests and tools that kill it.
    pub fn process(&self) -> Option<u32> {
        self.supervisor.now().map(|life| life.process())
    }

    /// Has the process make an executable. What it is made of is kept as long as that, should the process end, unless its
    /// client holds too much.
    fn prepare(
        &self,
        recipe: Recipe,
        counted: Counted,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let permit = self.shares.lent.take(control.client, recipe.files.len() as u64);
        let (instance, interface) = recipe.prepare(&self.supervisor, control)?;
        let kept = permit.ok().map(|permit| (recipe, permit));
        // The process has the data, kept here or not.
        let made = Arc::new(Made::new(&self.supervisor, (kept, counted), interface, instance));
        let (shares, files) = (self.shares.clone(), self.supervisor.info().cache_files);
        Ok(Arc::new(executable::Isolated { made, shares, files }))
    }
}

impl Backend for Isolated {
    fn info(&self) -> Info {
        // The service waits for them, and hands over what can begin.
        Info { waits_for_fences: false, ..self.supervisor.info().clone() }
    }

    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>> {
        let expected = model.main.operations.len();
        let patience = boottime_ns().saturating_add(SUPPORT_NS);
        let deadline_ns = Some(control.deadline_ns.map_or(patience, |deadline| deadline.min(patience)));
        let control = Control { client: client_of_thread(), deadline_ns, ..control.clone() };
        let asked = || {
            let (packed, _counted) = pack(model, count, &self.shares.turns.check(&control))?;
            let order = |call| Order::Support { call, terms: Terms::of(&control) };
            let files: Vec<_> = packed.constants.iter().map(AsFd::as_fd).collect();
            let with = With { body: &packed.bytes, files: &files };
            let (life, answer) = ask_any(&self.supervisor, &order, with, &control)?;
            match answer {
                Answer::Support(verdicts) if verdicts.len() == expected => Ok(verdicts),
                _ => Err(life.condemn("it does not say which operations it takes")),
            }
        };
        asked().unwrap_or_else(|why| vec![Err(why.to_string()); expected])
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let _account = control.on_account();
        let turn = self.shares.turns.check(control);
        let (Packed { bytes: body, constants }, counted) = pack(model, count, &turn)?;
        drop(turn); // what follows waits for the process
        let (files, options) = (constants.into_iter().collect(), *options);
        self.prepare(Recipe { source: Source::Model, body, files, options }, counted, control)
    }

    fn load(
        &self,
        saved: Saved,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let _account = control.on_account();
        let lens: Vec<usize> = saved.data.iter().map(|data| data.len()).collect();
        let models: Vec<usize> = saved.models.iter().map(Vec::len).collect();
        let counted = count(lens.iter().chain(&models).copied().fold(0, usize::saturating_add))?;
        let turn = self.shares.turns.check(control);
        let mut copier = Copier::new(&turn);
        let mut file = |mapping: &Arc<Mapping>| {
            let slice = ClientSlice::whole(mapping.clone());
            constant_file(&mut copier, slice.len(), &[(0, Part::Client(slice))])
        };
        let files: Result<Vec<File>, _> = saved.data.iter().map(&mut file).collect();
        let files = files.map_err(not_copied("a data cache"))?;
        drop(turn); // what follows waits for the process
        let (source, options) = (Source::Saved { models, data: lens }, *options);
        let body = saved.models.into_iter().reduce(|all, next| [all, next].concat()).unwrap_or_default();
        self.prepare(Recipe { source, body, files, options }, counted, control)
    }

    /// `None` for what cannot be lent: the driver maps it then, and finds the words for its client where that fails.
    fn import(&self, memory: &ClientMemory) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        let ClientMemory { fd, offset, len, kind, access } = *memory;
        if kind == ClientMemoryKind::HardwareBuffer {
            return Ok(None);
        }
        let Ok(permit) = self.shares.lent.take(client_of_thread(), 1) else { return Ok(None) };
        // Mapped here first: that checks that the file has these bytes, and may be used so.
        let map = |access| Mapping::new(fd, offset, len, access).ok();
        let mapping = match access {
            Some(access) => map(access),
            None => map(Access::ReadWrite).or_else(|| map(Access::Read)),
        };
        let lent = mapping.zip(fd.try_clone_to_owned().ok());
        let lent = lent.map(|(mapping, file)| Lent::new(file, offset, kind, mapping, permit));
        Ok(lent.map(|lent| Arc::new(lent) as Arc<dyn DeviceMemory>))
    }

    /// `None` for what cannot be lent for long: it is copied for each execution then.
    fn allocate(&self, operand: &TensorInfo) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        let permit = self.shares.lent.take(client_of_thread(), 1).ok();
        let Some((size, permit)) = operand.byte_size().zip(permit) else { return Ok(None) };
        let lent = Lent::buffer(size.max(1), permit);
        Ok(Some(Arc::new(lent.map_err(BackendError::memory("a device buffer"))?)))
    }
}
