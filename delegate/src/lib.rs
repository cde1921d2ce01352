//! A LiteRT external delegate: the nodes that an NNAPI driver takes run there, through its HAL, as any client's do.
//!
//! LiteRT and TensorFlow Lite load it by its two `tflite_plugin_` functions. All functions that the runtime calls are in
//! this file; each passes what it got to safe code and ends in a status. A panic in that code is a fault of the delegate:
//! it is reported as an error and does not cross into the runtime. No correctness rests on that.
//!
//! - `options`: what the user may ask for
//! - `abi`: the runtime's structures; `runtime`: what it tells of its graph; `params`: the options of nodes
//! - `describe`: its graph as the importer knows graphs; `partition`: which nodes go to the driver, in which groups
//! - `link`: connections to drivers; `work`: a group, compiled; `map`: its memory
//! - `delegate`, `kernel`: what the runtime holds

mod abi;
mod delegate;
mod describe;
mod kernel;
mod link;
mod map;
mod options;
mod params;
mod partition;
mod runtime;
mod work;

use abi::{Context, Delegate, DelegateParams, Node, Registration};
use delegate::NnhalDelegate;
use kernel::Kernel;
use options::Options;
use runtime::Runtime;
use std::ffi::{c_char, c_int, c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What an `init` gives that failed: `TfLiteKernelInitFailed()`.
const INIT_FAILED: *mut c_void = usize::MAX as *mut c_void;

/// Makes a delegate of `count` options; null, after one line to `report_error`, where that cannot be.
///
/// # Safety
/// As LiteRT's `external_delegate_interface.h` says: `keys` and `values` have `count` strings each that end in a zero, and
/// `report_error` takes such a string, or is null.
#[no_mangle]
pub unsafe extern "C" fn tflite_plugin_create_delegate(
    keys: *const *const c_char,
    values: *const *const c_char,
    count: usize,
    report_error: Option<unsafe extern "C" fn(*const c_char)>,
) -> *mut Delegate {
    let create = || {
        // SAFETY: the caller's contract.
        let options = unsafe { read_options(keys, values, count) }?;
        start_log(options.verbose);
        NnhalDelegate::new(options, prepare_delegate)
    };
    match caught(create) {
        Ok(delegate) => Box::into_raw(Box::new(delegate)).cast(),
        Err(why) => {
            let line = CString::new(format!("nnhal: {why}").replace('\0', "?")).unwrap_or_default();
            match report_error {
                // SAFETY: a string that ends in a zero and outlives the call.
                Some(report) => unsafe { report(line.as_ptr()) },
                None => eprintln!("{}", line.to_string_lossy()),
            }
            std::ptr::null_mut()
        }
    }
}

/// Destroys a delegate that no interpreter uses any more.
///
/// # Safety
/// `delegate` is null, or was made by [`tflite_plugin_create_delegate`] and not yet destroyed.
#[no_mangle]
pub unsafe extern "C" fn tflite_plugin_destroy_delegate(delegate: *mut Delegate) {
    if !delegate.is_null() {
        // SAFETY: it was made from such a box, by the caller's contract.
        let delegate = unsafe { Box::from_raw(delegate.cast::<NnhalDelegate>()) };
        let _ = caught(|| {
            drop(delegate);
            Ok(())
        });
    }
}

/// Options as the runtime passes them.
///
/// # Safety
/// `keys` and `values` have `count` strings each that end in a zero.
unsafe fn read_options(
    keys: *const *const c_char,
    values: *const *const c_char,
    count: usize,
) -> Result<Options, String> {
    if count == 0 || keys.is_null() || values.is_null() {
        return Options::parse(std::iter::empty());
    }
    // Python passes the count as an `int`, whose upper half is not defined.
    let count = count & 0xffff_ffff;
    // SAFETY: the caller's contract.
    let pair = |i| unsafe { (runtime::text(*keys.add(i)), runtime::text(*values.add(i))) };
    Options::parse((0..count).map(pair))
}

/// What goes on in the driver's client is told on standard error, as the runtime's own log is.
fn start_log(verbose: u8) {
    struct ToStandardError;
    impl log::Log for ToStandardError {
        fn enabled(&self, metadata: &log::Metadata) -> bool {
            metadata.target().starts_with("nnhal")
        }

        fn log(&self, record: &log::Record) {
            if self.enabled(record.metadata()) {
                eprintln!("nnhal: {}: {}", record.level().as_str().to_lowercase(), record.args());
            }
        }

        fn flush(&self) {}
    }
    // Delegates share the log: the first to start it does so, and the most talkative says how much.
    let _ = log::set_logger(&ToStandardError);
    let level = match verbose {
        0 => log::LevelFilter::Error,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    };
    log::set_max_level(log::max_level().max(level));
}

/// What `call` gives; a panic in it is an error like others.
fn caught<T>(call: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err("the delegate has a fault: it panicked; see standard error".into()))
}

/// The status of `call`, whose error is reported to the user of `context`.
///
/// # Safety
/// As [`Runtime::new`].
unsafe fn status(context: *mut Context, call: impl FnOnce(&Runtime) -> Result<(), String>) -> c_int {
    // SAFETY: the caller's contract.
    let Some(runtime) = (unsafe { Runtime::new(context) }) else { return abi::ERROR };
    match caught(|| call(&runtime)) {
        Ok(()) => abi::OK,
        Err(why) => {
            runtime.report(&why);
            abi::ERROR
        }
    }
}

/// `TfLiteDelegate::Prepare`: looks at the graph and has its nodes replaced.
unsafe extern "C" fn prepare_delegate(context: *mut Context, delegate: *mut Delegate) -> c_int {
    let prepare = |runtime: &Runtime| {
        // SAFETY: the runtime passes the pointer that it got from `tflite_plugin_create_delegate`.
        let found = unsafe { delegate.cast::<NnhalDelegate>().as_ref() }.ok_or("no delegate")?;
        let nodes = found.compile(runtime)?;
        if nodes.is_empty() {
            return Ok(());
        }
        let registration = Registration {
            init: Some(init),
            free: Some(free),
            prepare: Some(prepare_kernel),
            invoke: Some(invoke),
            _profiling_string: std::ptr::null(),
            builtin_code: 0,
            custom_name: c"NnhalDelegate".as_ptr(),
            version: 1,
            _registration_external: std::ptr::null(),
            _async_kernel: std::ptr::null(),
            _inplace_operator: 0,
        };
        match runtime.replace(&nodes, registration, delegate) {
            abi::OK => Ok(()),
            _ => Err("the runtime did not replace the nodes".to_string()),
        }
    };
    // SAFETY: the runtime's own context, for this call.
    unsafe { status(context, prepare) }
}

/// `TfLiteRegistration::init`, with a `TfLiteDelegateParams` for a buffer.
unsafe extern "C" fn init(context: *mut Context, buffer: *const c_char, _length: usize) -> *mut c_void {
    let mut made = INIT_FAILED;
    let make = |_: &Runtime| {
        let params = buffer.cast::<DelegateParams>();
        // SAFETY: what the runtime passes to the kernels of a delegate.
        let wanted = unsafe { runtime::made_for(params) }?;
        // SAFETY: the delegate that had the nodes replaced, which outlives its kernels.
        let delegate = unsafe { (*params).delegate.cast::<NnhalDelegate>().as_ref() }.ok_or("no delegate")?;
        let (ready, is_whole_graph) = delegate
            .fetch(&wanted.nodes)
            .ok_or("the runtime grouped the nodes otherwise than it had announced")?;
        let kernel = Kernel::new(delegate.shared.clone(), ready, is_whole_graph);
        made = Box::into_raw(Box::new(kernel)).cast();
        Ok(())
    };
    // SAFETY: the runtime's own context, for this call.
    unsafe { status(context, make) };
    made
}

/// `TfLiteRegistration::free`.
unsafe extern "C" fn free(context: *mut Context, data: *mut c_void) {
    if data.is_null() || data == INIT_FAILED {
        return;
    }
    // SAFETY: what `init` gave, which is freed once.
    let mut kernel = unsafe { Box::from_raw(data.cast::<Kernel>()) };
    // SAFETY: the runtime's own context, for this call.
    let runtime = unsafe { Runtime::new(context) };
    let _ = caught(|| {
        kernel.end(runtime.as_ref());
        drop(kernel);
        Ok(())
    });
}

/// `TfLiteRegistration::prepare`.
unsafe extern "C" fn prepare_kernel(context: *mut Context, node: *mut Node) -> c_int {
    // SAFETY: the runtime's own context, for this call; the node is one of this delegate's.
    unsafe { status(context, |runtime| kernel(node)?.prepare(runtime)) }
}

/// `TfLiteRegistration::invoke`.
unsafe extern "C" fn invoke(context: *mut Context, node: *mut Node) -> c_int {
    // SAFETY: the runtime's own context, for this call; the node is one of this delegate's.
    unsafe { status(context, |runtime| kernel(node)?.invoke(runtime)) }
}

/// The kernel of a node.
///
/// # Safety
/// `node` is null or a node whose registration is this delegate's, and nobody else uses its kernel for as long as `'a`.
unsafe fn kernel<'a>(node: *mut Node) -> Result<&'a mut Kernel, String> {
    // SAFETY: null, or the runtime's node.
    let data = unsafe { node.as_ref() }.ok_or("no node")?.user_data;
    // SAFETY: what `init` gave, and the runtime calls one function of a node at a time.
    unsafe { data.cast::<Kernel>().as_mut() }.ok_or_else(|| "the node has no kernel".into())
}
