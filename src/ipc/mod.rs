//! The binder library: what the driver needs of one, under the same names whichever it is.
//!
//! - `rsbinder`: the crate of that name, which every build but a platform's has
//! - `platform`: libbinder_rs, the library of Android's own tree (feature `platform_binder`)
//! - `socket`: what transports of ours over sockets leave to those of rsbinder
//!
//! Whatever serves clients names a binder library by this module only; `client` and what serves sockets, which a platform's
//! build does not have, need more of rsbinder than libbinder_rs has. Nothing is decided here.

#[cfg(feature = "platform_binder")]
mod platform;
#[cfg(not(feature = "platform_binder"))]
mod rsbinder;
#[cfg(not(feature = "platform_binder"))]
mod socket;

#[cfg(feature = "platform_binder")]
pub use platform::*;
#[cfg(not(feature = "platform_binder"))]
pub use rsbinder::*;
#[cfg(not(feature = "platform_binder"))]
pub(crate) use socket::left_to_inner;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The device of the kernel's binder that services for other domains are on.
pub const KERNEL_DEVICE: &str = "/dev/binder";

/// Why a service is not registered.
pub enum NotRegistered {
    /// There is no binder, and why.
    NoBinder(String),
    /// Somebody else serves under that name.
    Taken,
    /// The service manager does not take it, and why.
    Refused(String),
}

/// The file that a client has handed over.
pub fn file(descriptor: &ParcelFileDescriptor) -> BorrowedFd<'_> {
    AsRef::<OwnedFd>::as_ref(descriptor).as_fd()
}
