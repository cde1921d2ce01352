//! The signatures of libbinder_rs that the driver uses, as AOSP's frameworks/native/libs/binder/rust had them in 2024
//! (android-14.0.0_r55). What they do is not here: nothing built with this can run.

#![allow(unused_variables, clippy::missing_errors_doc)]

use std::ffi::CStr;
use std::fmt;
use std::io::Write;
use std::ops::Deref;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

/// What a call answers.
pub type Result<T> = std::result::Result<T, Status>;
type CodeResult<T> = std::result::Result<T, StatusCode>;

#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    OK,
    UNKNOWN_ERROR,
    NO_MEMORY,
    INVALID_OPERATION,
    BAD_VALUE,
    BAD_TYPE,
    NAME_NOT_FOUND,
    PERMISSION_DENIED,
    NO_INIT,
    ALREADY_EXISTS,
    DEAD_OBJECT,
    FAILED_TRANSACTION,
    BAD_INDEX,
    NOT_ENOUGH_DATA,
    WOULD_BLOCK,
    TIMED_OUT,
    UNKNOWN_TRANSACTION,
    FDS_NOT_ALLOWED,
    UNEXPECTED_NULL,
}

/// Neither `Clone` nor made of anything that Rust can see.
#[derive(Debug, PartialEq, Eq)]
pub struct Status(());

impl Status {
    pub fn new_service_specific_error(err: i32, message: Option<&CStr>) -> Status {
        unimplemented!()
    }

    pub fn new_service_specific_error_str<T: AsRef<str>>(err: i32, message: Option<T>) -> Status {
        unimplemented!()
    }

    pub fn is_ok(&self) -> bool {
        unimplemented!()
    }

    pub fn transaction_error(&self) -> StatusCode {
        unimplemented!()
    }

    pub fn service_specific_error(&self) -> i32 {
        unimplemented!()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}

impl std::error::Error for Status {}

impl From<StatusCode> for Status {
    fn from(code: StatusCode) -> Status {
        unimplemented!()
    }
}

pub trait Interface: Send + Sync + 'static {
    fn as_binder(&self) -> SpIBinder {
        unimplemented!()
    }

    fn dump(&self, writer: &mut dyn Write, args: &[&CStr]) -> CodeResult<()> {
        Ok(())
    }
}

pub trait FromIBinder: Interface {
    fn try_from(ibinder: SpIBinder) -> CodeResult<Strong<Self>>;
}

pub trait IBinder {
    fn link_to_death(&mut self, recipient: &mut DeathRecipient) -> CodeResult<()>;
    fn unlink_to_death(&mut self, recipient: &mut DeathRecipient) -> CodeResult<()>;
    fn ping_binder(&mut self) -> CodeResult<()>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpIBinder(());

impl SpIBinder {
    pub fn is_remote(&self) -> bool {
        unimplemented!()
    }

    pub fn into_interface<I: FromIBinder + Interface + ?Sized>(self) -> CodeResult<Strong<I>> {
        unimplemented!()
    }
}

impl IBinder for SpIBinder {
    fn link_to_death(&mut self, recipient: &mut DeathRecipient) -> CodeResult<()> {
        unimplemented!()
    }

    fn unlink_to_death(&mut self, recipient: &mut DeathRecipient) -> CodeResult<()> {
        unimplemented!()
    }

    fn ping_binder(&mut self) -> CodeResult<()> {
        unimplemented!()
    }
}

pub struct Strong<I: FromIBinder + ?Sized>(Box<I>);

impl<I: FromIBinder + ?Sized> Strong<I> {
    pub fn new(binder: Box<I>) -> Self {
        Strong(binder)
    }
}

impl<I: FromIBinder + ?Sized> Clone for Strong<I> {
    fn clone(&self) -> Self {
        unimplemented!()
    }
}

impl<I: FromIBinder + ?Sized> Deref for Strong<I> {
    type Target = I;

    fn deref(&self) -> &I {
        &self.0
    }
}

impl<I: FromIBinder + fmt::Debug + ?Sized> fmt::Debug for Strong<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}

/// Links end with it.
pub struct DeathRecipient(());

impl DeathRecipient {
    pub fn new<F: Fn() + Send + Sync + 'static>(callback: F) -> DeathRecipient {
        unimplemented!()
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct ParcelFileDescriptor(OwnedFd_);

// `OwnedFd` cannot be compared; the library compares numbers.
#[derive(Debug)]
struct OwnedFd_(OwnedFd);

impl PartialEq for OwnedFd_ {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_raw_fd() == other.0.as_raw_fd()
    }
}

impl Eq for OwnedFd_ {}

impl ParcelFileDescriptor {
    pub fn new<F: Into<OwnedFd>>(fd: F) -> Self {
        ParcelFileDescriptor(OwnedFd_(fd.into()))
    }
}

impl AsRef<OwnedFd> for ParcelFileDescriptor {
    fn as_ref(&self) -> &OwnedFd {
        &self.0 .0
    }
}

impl From<ParcelFileDescriptor> for OwnedFd {
    fn from(fd: ParcelFileDescriptor) -> OwnedFd {
        fd.0 .0
    }
}

impl AsRawFd for ParcelFileDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0 .0.as_raw_fd()
    }
}

impl IntoRawFd for ParcelFileDescriptor {
    fn into_raw_fd(self) -> RawFd {
        self.0 .0.into_raw_fd()
    }
}

pub struct ProcessState;

impl ProcessState {
    pub fn start_thread_pool() {}

    pub fn set_thread_pool_max_thread_count(num_threads: u32) {}

    pub fn join_thread_pool() {}
}

pub struct ThreadState;

impl ThreadState {
    pub fn get_calling_uid() -> u32 {
        unimplemented!()
    }

    pub fn get_calling_pid() -> i32 {
        unimplemented!()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BinderFeatures {
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

pub fn add_service(identifier: &str, binder: SpIBinder) -> CodeResult<()> {
    unimplemented!()
}

/// What generated code is made of, and what few others need.
pub mod binder_impl {
    use super::{CodeResult, Deref, Interface, SpIBinder, StatusCode};

    pub trait Remotable: Send + Sync + 'static {}

    pub struct Binder<T: Remotable>(pub T);

    impl<T: Remotable> Binder<T> {
        pub fn set_extension(&mut self, extension: &mut SpIBinder) -> CodeResult<()> {
            unimplemented!()
        }
    }

    impl<T: Remotable> Interface for Binder<T> {}

    impl<T: Remotable> Deref for Binder<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T: Remotable> TryFrom<SpIBinder> for Binder<T> {
        type Error = StatusCode;

        fn try_from(ibinder: SpIBinder) -> CodeResult<Self> {
            unimplemented!()
        }
    }
}

/// The classes of an interface. The library's own macro takes their descriptor and stability, too.
#[macro_export]
macro_rules! declare_binder_interface {
    ($interface:ident, $native:ident, $proxy:ident) => {
        pub struct $native(Box<dyn $interface + Sync + Send + 'static>);

        impl $native {
            pub fn new_binder<T: $interface + Sync + Send + 'static>(
                inner: T,
                features: $crate::BinderFeatures,
            ) -> $crate::Strong<dyn $interface> {
                unimplemented!()
            }

            pub fn downcast_binder<T: $interface>(&self) -> Option<&T> {
                unimplemented!()
            }
        }

        impl $crate::binder_impl::Remotable for $native {}

        pub struct $proxy(());

        impl $crate::Interface for $proxy {}

        impl $crate::FromIBinder for dyn $interface {
            fn try_from(
                ibinder: $crate::SpIBinder,
            ) -> std::result::Result<$crate::Strong<dyn $interface>, $crate::StatusCode> {
                unimplemented!()
            }
        }

        impl std::fmt::Debug for dyn $interface + '_ {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                unimplemented!()
            }
        }
    };
}

/// An enumeration: a number, which need not be one of those that it names.
#[macro_export]
macro_rules! declare_binder_enum {
    ($name:ident : [$backing:ty; $size:expr] { $($value_name:ident = $value:expr,)* }) => {
        #[derive(Debug, Default, Copy, Clone, PartialOrd, Ord, PartialEq, Eq, Hash)]
        pub struct $name(pub $backing);

        impl $name {
            $(pub const $value_name: Self = Self($value);)*

            pub const fn enum_values() -> [Self; $size] {
                [$(Self::$value_name),*]
            }
        }
    };
}
