//! A delegate: its options, its link to a driver, and the compilations that it keeps.

use crate::abi;
use crate::describe::{self, describe};
use crate::link::Link;
use crate::options::Options;
use crate::partition::{self, Outcome, Ready};
use crate::runtime::Runtime;
use crate::work::Work;
use std::sync::{Arc, Mutex, PoisonError};

/// How many compilations are kept that no kernel has: those of other shapes, or of an interpreter that has gone.
const MOST_KEPT: usize = 4;

/// What the kernels of a delegate share with it.
pub struct Shared {
    pub options: Options,
    pub link: Arc<Link>,
    kept: Mutex<Vec<Work>>,
}

impl Shared {
    /// Keeps a compilation for the next graph that needs it; the oldest gives way.
    pub fn keep(&self, work: Work) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(work);
        let surplus = kept.len().saturating_sub(MOST_KEPT);
        let gone: Vec<Work> = kept.drain(..surplus).collect();
        drop(kept);
        drop(gone); // the driver hears of it, which takes a moment
    }

    fn kept(&self, key: &[u8; 32]) -> Option<Work> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|work| work.key == *key)?;
        Some(kept.remove(found))
    }
}

/// What the runtime holds a pointer to: its own structure comes first.
#[repr(C)]
pub struct NnhalDelegate {
    pub raw: abi::Delegate,
    pub shared: Arc<Shared>,
    /// Compiled, and not yet fetched by their kernels; and whether they are the whole graph.
    pub ready: Mutex<(Vec<Ready>, bool)>,
}

impl NnhalDelegate {
    /// A delegate that is connected to its driver.
    pub fn new(options: Options, prepare: PrepareFunction) -> Result<Self, String> {
        let link = Link::to(&options);
        link.driver()?;
        let raw = abi::Delegate {
            data: std::ptr::null_mut(),
            prepare: Some(prepare),
            _copy_from_buffer_handle: std::ptr::null(),
            _copy_to_buffer_handle: std::ptr::null(),
            _free_buffer_handle: std::ptr::null(),
            flags: 0,
            _opaque_delegate_builder: std::ptr::null(),
        };
        let shared = Arc::new(Shared { options, link, kept: Mutex::default() });
        Ok(NnhalDelegate { raw, shared, ready: Mutex::default() })
    }

    /// Has the driver compile what it takes of the runtime's graph; gives the nodes that the runtime is to replace.
    pub fn compile(&self, runtime: &Runtime) -> Result<Vec<usize>, String> {
        let Shared { options, link, .. } = &*self.shared;
        let described = describe(runtime)?;
        if options.verbose >= 2 {
            describe::print(&described);
        }
        let outcome =
            partition::partition(runtime, &described, (link, options), &mut |key| self.shared.kept(key))?;
        match partition::told(&outcome, &described) {
            Some(line) => eprintln!("nnhal: {line}"),
            None if options.verbose >= 1 => {
                eprintln!("nnhal: all {} nodes run on the driver", described.nodes.len());
            }
            None => {}
        }
        let Outcome { ready, left } = outcome;
        let nodes: Vec<usize> = ready.iter().flat_map(|ready| ready.nodes.iter().copied()).collect();
        let is_whole_graph = ready.len() == 1 && left.iter().all(Option::is_none);
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = (ready, is_whole_graph);
        Ok(nodes)
    }

    /// What was compiled for these nodes, and whether it is the whole graph.
    pub fn fetch(&self, nodes: &[usize]) -> Option<(Ready, bool)> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ready.0.iter().position(|ready| ready.nodes == nodes)?;
        let is_whole_graph = ready.1;
        Some((ready.0.remove(found), is_whole_graph))
    }
}

/// `TfLiteDelegate::Prepare`.
pub type PrepareFunction = unsafe extern "C" fn(*mut abi::Context, *mut abi::Delegate) -> std::ffi::c_int;
