//! The structures that TensorFlow Lite's runtime hands to a delegate, field by field in their documented order.
//!
//! The source of every fact is the runtime's `core/c/common.h`, as of LiteRT 2.3. Fields that nobody here reads keep their
//! place under a name that starts with an underscore. `tests/delegate/check.py` compares what these structures say of a
//! graph with what the runtime itself says of it, inside of the released wheel.

use std::ffi::{c_char, c_int, c_void};

/// `TfLiteStatus`: what calls give back.
pub const OK: c_int = 0;
pub const ERROR: c_int = 1;

/// `TfLiteAllocationType`: where a tensor's bytes are.
pub const MMAP_RO: c_int = 1;
pub const ARENA_RW: c_int = 2;
pub const DYNAMIC: c_int = 4;
pub const PERSISTENT_RO: c_int = 5;
pub const CUSTOM: c_int = 6;

/// `TfLiteQuantizationType`.
pub const NO_QUANTIZATION: c_int = 0;
pub const AFFINE_QUANTIZATION: c_int = 1;

/// `kTfLiteOptionalTensor`: an input that is left out.
pub const NO_TENSOR: c_int = -1;

/// `kTfLiteBuiltinCustom`: a node that is known by a name alone.
pub const BUILTIN_CUSTOM: i32 = 32;

/// `TfLiteIntArray` and `TfLiteFloatArray`: a count, and as many elements right behind it.
#[repr(C)]
pub struct Array<T> {
    pub size: c_int,
    data: [T; 0],
}

impl<T> Array<T> {
    /// The elements; none for a null pointer.
    ///
    /// # Safety
    /// `array` is null, or points to an array of the runtime's that stays as it is for as long as `'a`.
    pub unsafe fn elements<'a>(array: *const Self) -> &'a [T] {
        if array.is_null() {
            return &[];
        }
        // SAFETY: not null, so the caller vouches for it.
        let size = unsafe { (*array).size };
        let Ok(size) = usize::try_from(size) else { return &[] };
        // SAFETY: the runtime allocates as many elements as `size` says right behind it.
        unsafe { std::slice::from_raw_parts((&raw const (*array).data).cast(), size) }
    }
}

/// `TfLiteQuantization`, inside of a tensor.
#[repr(C)]
pub struct Quantization {
    pub kind: c_int,
    pub params: *const c_void,
}

/// `TfLiteAffineQuantization`.
#[repr(C)]
pub struct AffineQuantization {
    pub scale: *const Array<f32>,
    pub zero_point: *const Array<c_int>,
    pub quantized_dimension: i32,
}

/// `TfLiteTensor`.
#[repr(C)]
pub struct Tensor {
    pub ty: c_int,
    pub data: *mut c_void,
    pub dims: *const Array<c_int>,
    _old_scale: f32,
    _old_zero_point: i32,
    pub allocation_type: c_int,
    pub bytes: usize,
    _allocation: *const c_void,
    pub name: *const c_char,
    _delegate: *mut Delegate,
    _buffer_handle: c_int,
    _data_is_stale: u8,
    pub is_variable: u8,
    pub quantization: Quantization,
    pub sparsity: *const c_void,
    _dims_signature: *const Array<c_int>,
}

/// `TfLiteNode`.
#[repr(C)]
pub struct Node {
    pub inputs: *const Array<c_int>,
    pub outputs: *const Array<c_int>,
    _intermediates: *const Array<c_int>,
    _temporaries: *const Array<c_int>,
    pub user_data: *mut c_void,
    pub builtin_data: *const c_void,
    pub custom_initial_data: *const c_void,
    pub custom_initial_data_size: c_int,
    _delegate: *mut Delegate,
    _might_have_side_effect: u8,
}

/// `TfLiteRegistration`: how a kind of node works.
#[repr(C)]
pub struct Registration {
    pub init: Option<unsafe extern "C" fn(*mut Context, *const c_char, usize) -> *mut c_void>,
    pub free: Option<unsafe extern "C" fn(*mut Context, *mut c_void)>,
    pub prepare: Option<unsafe extern "C" fn(*mut Context, *mut Node) -> c_int>,
    pub invoke: Option<unsafe extern "C" fn(*mut Context, *mut Node) -> c_int>,
    pub _profiling_string: *const c_void,
    pub builtin_code: i32,
    pub custom_name: *const c_char,
    pub version: c_int,
    pub _registration_external: *const c_void,
    pub _async_kernel: *const c_void,
    pub _inplace_operator: u64,
}

/// A registration as it is passed by value, with room behind it: a later runtime whose structure is longer finds zeros
/// there, which is what its new fields are where nothing is asked of them. A caller that passes more than its callee
/// takes does no harm: it goes over the stack.
#[repr(C)]
pub struct PassedRegistration {
    pub registration: Registration,
    pub room: [u64; 8],
}

/// `TfLiteDelegateParams`: what a kernel is made for.
#[repr(C)]
pub struct DelegateParams {
    pub delegate: *mut Delegate,
    pub nodes_to_replace: *const Array<c_int>,
    pub input_tensors: *const Array<c_int>,
    pub output_tensors: *const Array<c_int>,
}

/// `TfLiteContext`: the runtime, as a delegate sees it.
#[repr(C)]
pub struct Context {
    pub tensors_size: usize,
    pub get_execution_plan: Option<unsafe extern "C" fn(*mut Context, *mut *const Array<c_int>) -> c_int>,
    pub tensors: *mut Tensor,
    _impl: *mut c_void,
    _resize_tensor: *const c_void,
    pub report_error: Option<unsafe extern "C" fn(*mut Context, *const c_char, ...)>,
    _add_tensors: *const c_void,
    pub get_node_and_registration: Option<
        unsafe extern "C" fn(*mut Context, c_int, *mut *const Node, *mut *const Registration) -> c_int,
    >,
    pub replace_node_subsets: Option<
        unsafe extern "C" fn(*mut Context, PassedRegistration, *const Array<c_int>, *mut Delegate) -> c_int,
    >,
    _recommended_num_threads: c_int,
    _get_external_context: *const c_void,
    _set_external_context: *const c_void,
    _allow_fp32_relax_to_fp16: u8,
    _profiler: *mut c_void,
    _allocate_persistent_buffer: *const c_void,
    _allocate_buffer_for_eval: *const c_void,
    _request_scratch_buffer: *const c_void,
    _get_scratch_buffer: *const c_void,
    pub resize_tensor_explicit:
        Option<unsafe extern "C" fn(*mut Context, *mut Tensor, c_int, *const c_int) -> c_int>,
    pub preview_partitioning: Option<
        unsafe extern "C" fn(
            *mut Context,
            *const Array<c_int>,
            *mut *const DelegateParams,
            *mut c_int,
        ) -> c_int,
    >,
}

/// `TfLiteDelegate`: what the plugin's entry point gives.
#[repr(C)]
pub struct Delegate {
    pub data: *mut c_void,
    pub prepare: Option<unsafe extern "C" fn(*mut Context, *mut Delegate) -> c_int>,
    pub _copy_from_buffer_handle: *const c_void,
    pub _copy_to_buffer_handle: *const c_void,
    pub _free_buffer_handle: *const c_void,
    pub flags: i64,
    pub _opaque_delegate_builder: *const c_void,
}

// The sizes and places that the documented order gives on 64-bit machines.
const _: () = {
    assert!(size_of::<Tensor>() == 112);
    assert!(std::mem::offset_of!(Tensor, quantization) == 80);
    assert!(size_of::<Node>() == 80);
    assert!(size_of::<Registration>() == 88);
    assert!(std::mem::offset_of!(Context, resize_tensor_explicit) == 144);
    assert!(size_of::<Delegate>() == 56);
};
