//! The runtime that has loaded the delegate: what it tells of its graph, and what it is asked for.
//!
//! All pointers of the runtime's are followed here (and in `params`, for the options of nodes); what leaves this module
//! are slices, numbers and text.

use crate::abi::{self, Array, Context, Delegate, DelegateParams, Node, PassedRegistration, Registration};
use std::ffi::{c_int, CStr, CString};

/// A runtime that is calling the delegate right now.
pub struct Runtime {
    context: *mut Context,
}

/// Nodes that would become one, with what goes in and comes out.
pub struct Partition {
    pub nodes: Vec<usize>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

/// More tensors than any graph has: a count above is not one.
const MOST_TENSORS: usize = 10_000_000;

impl Runtime {
    /// # Safety
    /// `context` is null or what the runtime has just passed to one of the delegate's functions, and the value does not
    /// outlive that call.
    pub unsafe fn new(context: *mut Context) -> Option<Self> {
        (!context.is_null()).then_some(Runtime { context })
    }

    fn context(&self) -> &Context {
        // SAFETY: by the contract of `new`, it points to the runtime's context for as long as `self` lives.
        unsafe { &*self.context }
    }

    /// All tensors. The runtime may move them whenever it is called: nobody keeps the slice over a call.
    pub fn tensors(&self) -> &[abi::Tensor] {
        let context = self.context();
        if context.tensors.is_null() || context.tensors_size > MOST_TENSORS {
            return &[];
        }
        // SAFETY: the runtime keeps `tensors_size` tensors there, and changes none while it waits for the delegate.
        unsafe { std::slice::from_raw_parts(context.tensors, context.tensors_size) }
    }

    /// Has tensor `index`, if it is where the planner would place it, live at `data` instead; or the other way round, with
    /// null. Gives whether it does.
    pub fn place(&self, index: usize, (from, to): (c_int, c_int), data: *mut std::ffi::c_void) -> bool {
        if self.tensors().get(index).is_none_or(|tensor| tensor.allocation_type != from) {
            return false;
        }
        // SAFETY: `index` is one of the tensors, and no reference to any is alive: the slice above is gone.
        let tensor = unsafe { &mut *self.context().tensors.add(index) };
        tensor.allocation_type = to;
        tensor.data = data;
        true
    }

    /// Tells the runtime's user.
    pub fn report(&self, message: &str) {
        let line = format!("nnhal: {}", message.split_whitespace().collect::<Vec<_>>().join(" "));
        let Some(report) = self.context().report_error else { return eprintln!("{line}") };
        let Ok(line) = CString::new(line.replace('\0', "?")) else { return };
        // SAFETY: a format that takes one string, and one string that outlives the call.
        unsafe { report(self.context, c"%s".as_ptr(), line.as_ptr()) }
    }

    /// The nodes that run, in their order.
    pub fn plan(&self) -> Result<Vec<usize>, String> {
        let get = self.context().get_execution_plan.ok_or(OTHER_LAYOUT)?;
        let mut plan: *const Array<c_int> = std::ptr::null();
        // SAFETY: the runtime fills in a pointer to an array of its own.
        if unsafe { get(self.context, &mut plan) } != abi::OK {
            return Err("the runtime does not tell its execution plan".into());
        }
        // SAFETY: valid until the next such call; it is copied out before that.
        indices(unsafe { Array::elements(plan) })
    }

    /// A node and what it does.
    pub fn node(&self, index: usize) -> Result<(&Node, &Registration), String> {
        let get = self.context().get_node_and_registration.ok_or(OTHER_LAYOUT)?;
        let (mut node, mut registration) = (std::ptr::null(), std::ptr::null());
        // SAFETY: the runtime fills in pointers to what it keeps of the node.
        let status = unsafe { get(self.context, index as c_int, &mut node, &mut registration) };
        if status != abi::OK || node.is_null() || registration.is_null() {
            return Err(format!("the runtime does not tell what node {index} is"));
        }
        // SAFETY: not null, and kept as they are while the delegate looks at the graph.
        Ok(unsafe { (&*node, &*registration) })
    }

    /// How the runtime would group these nodes.
    pub fn partitions(&self, nodes: &[usize]) -> Result<Vec<Partition>, String> {
        let preview = self.context().preview_partitioning.ok_or(OTHER_LAYOUT)?;
        let (array, mut params, mut count) = (int_array(nodes), std::ptr::null(), 0);
        // SAFETY: `array` has the runtime's layout and outlives the call; the other two are filled in.
        let status = unsafe { preview(self.context, array.as_ptr().cast(), &mut params, &mut count) };
        if status != abi::OK {
            return Err("the runtime does not tell how it would group the nodes".into());
        }
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 || params.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the runtime keeps as many until the next such call; they are copied out before that.
        let params: &[DelegateParams] = unsafe { std::slice::from_raw_parts(params, count) };
        params.iter().map(partition).collect()
    }

    /// Has the runtime put kernels of `registration` in the place of these nodes.
    pub fn replace(&self, nodes: &[usize], registration: Registration, delegate: *mut Delegate) -> c_int {
        let Some(replace) = self.context().replace_node_subsets else { return abi::ERROR };
        let (array, passed) = (int_array(nodes), PassedRegistration { registration, room: [0; 8] });
        // SAFETY: `array` has the runtime's layout and outlives the call, as `delegate` does, which is the runtime's own
        // pointer; the registration is passed by value.
        unsafe { replace(self.context, passed, array.as_ptr().cast(), delegate) }
    }

    /// Gives tensor `index` these dimensions, where it has others.
    pub fn resize(&self, index: usize, dims: &[u32]) -> Result<(), String> {
        let wanted: Vec<c_int> = dims.iter().map(|&d| d as c_int).collect();
        let Some(tensor) = self.tensors().get(index) else { return Err(no_tensor(index)) };
        // SAFETY: a tensor's dimensions stay while nobody resizes it.
        if unsafe { Array::elements(tensor.dims) } == wanted {
            return Ok(());
        }
        let resize = self.context().resize_tensor_explicit.ok_or(OTHER_LAYOUT)?;
        // SAFETY: `index` is one of the tensors.
        let tensor = unsafe { self.context().tensors.add(index) };
        // SAFETY: the runtime copies the dimensions.
        match unsafe { resize(self.context, tensor, wanted.len() as c_int, wanted.as_ptr()) } {
            abi::OK => Ok(()),
            _ => Err(format!("the runtime does not give tensor {index} the dimensions {dims:?}")),
        }
    }
}

/// What is told where pointers lack that every known runtime sets.
pub const OTHER_LAYOUT: &str = "this runtime lays out its structures in another way than the one that the delegate was \
                                made for (LiteRT 2.3): use ai-edge-litert 2.x, or a delegate made for this version";

pub fn no_tensor(index: usize) -> String {
    format!("the graph has no tensor {index}")
}

/// What a kernel is made for.
///
/// # Safety
/// `params` is null, or points to what the runtime passes to a kernel's `init`.
pub unsafe fn made_for(params: *const DelegateParams) -> Result<Partition, String> {
    // SAFETY: null, or the caller vouches for it.
    unsafe { params.as_ref() }.ok_or("a kernel for no nodes".into()).and_then(partition)
}

fn partition(params: &DelegateParams) -> Result<Partition, String> {
    // SAFETY: the runtime's own arrays, copied out at once.
    let read = |array| indices(unsafe { Array::elements(array) });
    Ok(Partition {
        nodes: read(params.nodes_to_replace)?,
        inputs: read(params.input_tensors)?,
        outputs: read(params.output_tensors)?,
    })
}

fn indices(list: &[c_int]) -> Result<Vec<usize>, String> {
    list.iter().map(|&i| usize::try_from(i).map_err(|_| OTHER_LAYOUT.to_string())).collect()
}

/// An array as the runtime lays it out.
fn int_array(values: &[usize]) -> Vec<c_int> {
    let mut array = vec![values.len() as c_int];
    array.extend(values.iter().map(|&value| value as c_int));
    array
}

/// Text of the runtime's; empty for a null pointer or what is not UTF-8.
///
/// # Safety
/// `text` is null, or points to a string of the runtime's that ends in a zero and stays for as long as `'a`.
pub unsafe fn text<'a>(text: *const std::ffi::c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: not null, so the caller vouches for it.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or_default()
}
