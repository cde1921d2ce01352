//! The service on the kernel's binder, and why it cannot be offered there or on a socket.

use crate::aidl::IDevice;
use crate::ipc::{self, NotRegistered, Strong, KERNEL_DEVICE};
use crate::scheduler::limits::{CHECKS, EXECUTIONS};
use std::path::PathBuf;

/// The interface's name, under which instances are registered.
pub const INTERFACE: &str = "android.hardware.neuralnetworks.IDevice";

/// Calls served at once over the kernel's binder besides executions and checks of models: such as wait for nobody.
const QUICK_CALLS: u64 = 32;

/// Why the service cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{} is served by another daemon already: stop that one, or choose another path", .0.display())]
    Taken(PathBuf),
    #[error("{} exists and is not a socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    #[error("cannot listen on {}: {why}", .path.display())]
    Listen { path: PathBuf, why: String },
    #[error(
        "{INTERFACE}/{0} is served by another daemon already: stop that one, or choose another instance"
    )]
    Registered(String),
    #[error("no kernel binder at {KERNEL_DEVICE} ({0}): use --service unix:PATH")]
    NoKernelBinder(String),
    #[error("the service manager does not register {INTERFACE}/{instance}: {why}")]
    Register { instance: String, why: String },
}

/// Registers `device` as `instance` with the kernel binder's service manager. It is served on threads of its own for
/// as long as the process lives.
pub fn register(instance: &str, device: &Strong<dyn IDevice>) -> Result<(), ServeError> {
    let registered =
        ipc::register::<dyn IDevice>(&format!("{INTERFACE}/{instance}"), device.as_binder(), threads());
    registered.map_err(|why| match why {
        // The text may have lines.
        NotRegistered::NoBinder(why) => {
            ServeError::NoKernelBinder(why.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        NotRegistered::Taken => ServeError::Registered(instance.into()),
        NotRegistered::Refused(why) => ServeError::Register { instance: instance.into(), why },
    })
}

/// How many threads serve calls over the kernel's binder.
fn threads() -> u32 {
    u32::try_from(EXECUTIONS.total() + CHECKS.total() + QUICK_CALLS).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::limits::Limit;

    #[test]
    fn calls_that_wait_leave_threads_for_others() {
        // Clients of all kinds take all that there are.
        let most = |limit: Limit| {
            let quota = limit.quota();
            let all_of = |client| std::iter::from_fn(|| quota.take(client, 1).ok()).collect::<Vec<_>>();
            let waiting: Vec<_> = (0..1000).flat_map(all_of).collect();
            assert_eq!(waiting.len() as u64, limit.total());
            waiting.len()
        };
        assert!(threads() as usize >= most(EXECUTIONS) + most(CHECKS) + 32);
    }
}
