//! The driver over rsbinder: over the kernel's binder, and over sockets, on any Linux. Must not do more than libbinder_rs
//! can do as well.

use super::{NotRegistered, KERNEL_DEVICE};
use binder::hub::{self, ServiceManager};
use binder::{Binder, DeathRecipient, FromIBinder, ProcessState, Proxy, Remotable, WIBinder};
use std::any::Any;
use std::sync::Arc;

pub use binder::fmq;
pub use binder::{
    get_calling_pid as calling_pid, get_calling_uid as calling_uid, BinderResult, Interface,
    ParcelFileDescriptor, SIBinder as Object, Status, StatusCode, Strong,
};

/// An argument of a dump.
pub type DumpArgument = String;

pub const PERMISSION_DENIED: StatusCode = StatusCode::PermissionDenied;
pub const WOULD_BLOCK: StatusCode = StatusCode::WouldBlock;
pub const FAILED_TRANSACTION: StatusCode = StatusCode::FailedTransaction;

/// The arguments of a dump, as text.
pub fn texts(arguments: &[DumpArgument]) -> Vec<String> {
    arguments.to_vec()
}

/// An object of class `Bn...` around what implements its interface.
macro_rules! object {
    ($class:ident, $implementation:expr) => {
        $class::new_binder($implementation)
    };
}
pub(crate) use object;

/// A failure that the service itself has a number for.
pub fn refusal(number: i32, message: String) -> Status {
    Status::new_service_specific_error(number, Some(message))
}

/// Gives `object`, which is of this process and of class `B`, an extension.
pub fn set_extension<B: Remotable + 'static>(object: &Object, extension: &Object) -> Result<(), StatusCode> {
    Binder::<B>::try_from(object.clone())?.set_extension(extension)
}

/// Notes on `object`, which is of this process and of class `B`, what is behind it, so that [`behind`] finds that.
pub fn attach<B, T>(object: Object, what: Arc<T>) -> Result<(), StatusCode>
where
    B: Remotable + 'static,
    T: Any + Send + Sync,
{
    Binder::<B>::try_from(object)?.attach_object(what);
    Ok(())
}

/// What is behind `object`; `None` if it is of another process or class.
pub fn behind<B, T>(object: Object) -> Option<Arc<T>>
where
    B: Remotable + 'static,
    T: Any + Send + Sync,
{
    if object.is_remote() {
        return None;
    }
    Binder::<B>::try_from(object).ok()?.find_object::<T>()
}

/// A notice of an object's death; there is none any more once this is dropped.
///
/// A link that is not undone stays with the object for as long as its client keeps that.
pub struct DeathLink {
    object: Object,
    recipient: Arc<Recipient>,
}

struct Recipient(Box<dyn Fn() + Send + Sync>);

impl DeathRecipient for Recipient {
    fn binder_died(&self, _: &WIBinder) {
        (self.0)();
    }
}

impl DeathLink {
    /// Has `died` called once when the process of `object` dies; at once if it is dead.
    pub fn new(object: Object, died: Box<dyn Fn() + Send + Sync>) -> Result<Self, StatusCode> {
        let recipient = Arc::new(Recipient(died));
        object.link_to_death_arc(&recipient).inspect_err(|&why| {
            if why == StatusCode::DeadObject {
                (recipient.0)();
            }
        })?;
        Ok(DeathLink { object, recipient })
    }
}

impl Drop for DeathLink {
    fn drop(&mut self) {
        // It fails where the object is dead: then there is no link any more.
        let _ = self.object.unlink_to_death_arc(&self.recipient);
    }
}

/// Registers `object`, of interface `I`, as `name`, and serves it on so many threads for as long as the process lives.
pub fn register<I: FromIBinder + ?Sized>(
    name: &str,
    object: Object,
    threads: u32,
) -> Result<(), NotRegistered> {
    ProcessState::init(KERNEL_DEVICE, threads).map_err(|why| NotRegistered::NoBinder(why.to_string()))?;
    // A client may call the service as soon as it is registered.
    ProcessState::start_thread_pool();
    let manager = service_manager().map_err(|why| NotRegistered::Refused(why.to_string()))?;
    if manager.check_interface::<I>(name).is_ok() {
        return Err(NotRegistered::Taken);
    }
    manager.add_service(name, object).map_err(|why| NotRegistered::Refused(why.to_string()))
}

/// The newest API level that the binder crate has a protocol for.
const NEWEST_LEVEL: u32 = 37;
#[cfg(target_os = "android")]
const _: () = assert!(NEWEST_LEVEL == hub::sdk_versions::MAX_SUPPORTED);

/// What the platform says its API level is; `None` where there is no such platform.
fn api_level() -> Option<u32> {
    #[cfg(target_os = "android")]
    return Some(binder::get_android_sdk_version());
    #[cfg(not(target_os = "android"))]
    None
}

/// The service manager, by the protocol of this platform.
fn service_manager() -> Result<Arc<ServiceManager>, StatusCode> {
    let level = api_level();
    if speaks_what_is_known(level) {
        return hub::default();
    }
    if let Some(level) = level {
        log::warn!("the platform has API level {level}: its service manager is spoken to like that of {NEWEST_LEVEL}");
    }
    // A newer service manager has kept to its protocol so far; a daemon that does not try hangs every app (the manifest
    // declares it).
    let context = ProcessState::as_self().context_object()?;
    let newest = hub::android_16::BpServiceManager::from_binder(context).ok_or(StatusCode::BadType)?;
    Ok(Arc::new(ServiceManager::Android16(newest)))
}

/// Whether the binder crate has a protocol for this API level. Of one that is newer it has the nearest, the newest: that
/// is also what service managers for other systems speak.
fn speaks_what_is_known(level: Option<u32>) -> bool {
    level.is_some_and(|level| level <= NEWEST_LEVEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aidl::{BnFmqBurstCallback, IFmqBurstCallback};
    use binder::entry::{Client, Endpoint, Uri, WireProfile, WireVersion};
    use binder::rpc::RpcServer;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    struct Nobody;

    impl Interface for Nobody {}

    impl IFmqBurstCallback for Nobody {
        fn getMemories(&self, _: &[i32]) -> BinderResult<Vec<crate::aidl::Memory>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_newer_platform_is_spoken_to_like_the_newest_that_is_known() {
        assert!(speaks_what_is_known(Some(NEWEST_LEVEL)) && speaks_what_is_known(Some(31)));
        assert!(!speaks_what_is_known(Some(NEWEST_LEVEL + 1)) && !speaks_what_is_known(Some(10_000)));
        // tests/vm speaks to a service manager so.
        assert!(!speaks_what_is_known(api_level()), "this platform has no API level");
    }

    #[test]
    fn a_link_ends_when_dropped_and_death_is_told_until_then() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let server = RpcServer::setup_unix_server(&path).unwrap();
        server.set_android13plus(WireVersion::MAX.get());
        let object: Strong<dyn IFmqBurstCallback> = BnFmqBurstCallback::new_binder(Nobody);
        server.set_root(object.as_binder()).unwrap();
        let _accepting = server.run_background();
        let uri = Uri::new(Endpoint::unix(&path)).with_wire(WireProfile::Android13Plus(WireVersion::MAX));
        let client = Client::open_with(uri, |o, _| o.incoming_connections = Some(1)).unwrap();
        let object = client.session().unwrap().get_root().unwrap();
        let (told, heard) = channel();
        let watch = |name: &'static str| {
            let told = told.clone();
            DeathLink::new(object.clone(), Box::new(move || told.send(name).unwrap()))
                .expect("a remote object")
        };
        for _ in 0..3 {
            let watch = watch("ended");
            let recipient = watch.recipient.clone();
            assert_eq!(Arc::weak_count(&recipient), 1, "the object knows it");
            drop(watch);
            assert_eq!(Arc::weak_count(&recipient), 0, "the object has forgotten it");
        }
        let _watch = watch("alive");
        server.terminate();
        assert_eq!(heard.recv_timeout(Duration::from_secs(20)), Ok("alive"));
        assert!(heard.try_recv().is_err());
    }
}
