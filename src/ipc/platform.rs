//! The driver over libbinder_rs, the library of Android's own tree: over the kernel's binder alone. Must not do more than
//! rsbinder can do as well.

use super::NotRegistered;
use binder::binder_impl::{Binder, Remotable};
use binder::{DeathRecipient, FromIBinder, IBinder, ProcessState, ThreadState};
use std::ffi::CStr;
use std::sync::Arc;

pub use binder::{Interface, ParcelFileDescriptor, SpIBinder as Object, Status, StatusCode, Strong};

/// What a call answers.
pub type BinderResult<T> = binder::Result<T>;

/// Fast message queues, as the platform's own descriptions of them have it.
pub mod fmq {
    use nnhal_interfaces::aidl::android::hardware::common::fmq;

    pub use fmq::GrantorDescriptor::GrantorDescriptor;
    pub use fmq::MQDescriptor::MQDescriptor;
    pub use fmq::SynchronizedReadWrite::SynchronizedReadWrite;
}

/// An argument of a dump.
pub type DumpArgument<'a> = &'a CStr;

pub const PERMISSION_DENIED: StatusCode = StatusCode::PERMISSION_DENIED;
pub const WOULD_BLOCK: StatusCode = StatusCode::WOULD_BLOCK;
pub const FAILED_TRANSACTION: StatusCode = StatusCode::FAILED_TRANSACTION;

/// The arguments of a dump, as text.
pub fn texts(arguments: &[DumpArgument<'_>]) -> Vec<String> {
    arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// The uid of the client whose call this thread serves; outside of any, this process's own.
pub fn calling_uid() -> u32 {
    ThreadState::get_calling_uid()
}

/// The process whose call this thread serves; outside of any, this one.
pub fn calling_pid() -> i32 {
    ThreadState::get_calling_pid()
}

/// An object of class `Bn...` around what implements its interface.
macro_rules! object {
    ($class:ident, $implementation:expr) => {
        $class::new_binder($implementation, ::binder::BinderFeatures::default())
    };
}
pub(crate) use object;

/// A failure that the service itself has a number for.
pub fn refusal(number: i32, message: String) -> Status {
    Status::new_service_specific_error_str(number, Some(message))
}

/// Gives `object`, which is of this process and of class `B`, an extension.
pub fn set_extension<B: Remotable>(object: &Object, extension: &Object) -> Result<(), StatusCode> {
    Binder::<B>::try_from(object.clone())?.set_extension(&mut extension.clone())
}

/// A class of objects that finds the implementation behind an object.
pub trait Holds<T> {
    /// `None` if the implementation is another.
    fn held(&self) -> Option<Arc<T>>;
}

/// Notes nothing: the object's class [`Holds`] it.
pub fn attach<B: Remotable + Holds<T>, T>(_: Object, _: Arc<T>) -> Result<(), StatusCode> {
    Ok(())
}

/// What is behind `object`; `None` if it is of another process or class.
pub fn behind<B: Remotable + Holds<T>, T>(object: Object) -> Option<Arc<T>> {
    if object.is_remote() {
        return None;
    }
    Binder::<B>::try_from(object).ok()?.held()
}

/// A notice of an object's death; there is none any more once this is dropped: the library unlinks a recipient that ends.
pub struct DeathLink {
    _recipient: DeathRecipient,
}

impl DeathLink {
    /// Has `died` called once when the process of `object` dies; at once if it is dead.
    pub fn new(mut object: Object, died: Box<dyn Fn() + Send + Sync>) -> Result<Self, StatusCode> {
        let died = Arc::new(died);
        let told = died.clone();
        let mut recipient = DeathRecipient::new(move || told());
        object.link_to_death(&mut recipient).inspect_err(|&why| {
            if why == StatusCode::DEAD_OBJECT {
                died();
            }
        })?;
        Ok(DeathLink { _recipient: recipient })
    }
}

/// Registers `object`, of interface `I`, as `name`, and serves it on so many threads for as long as the process lives.
/// It does not look for another service of that name: init starts a service once.
pub fn register<I: FromIBinder + ?Sized>(
    name: &str,
    object: Object,
    threads: u32,
) -> Result<(), NotRegistered> {
    ProcessState::set_thread_pool_max_thread_count(threads);
    // A client may call the service as soon as it is registered.
    ProcessState::start_thread_pool();
    binder::add_service(name, object).map_err(|why| NotRegistered::Refused(format!("{why:?}")))
}
