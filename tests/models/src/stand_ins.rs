//! What the modules under test know of others: as little of it as they use.

pub mod ops {
    #[derive(Debug)]
    pub enum OpError {
        Cancelled,
        DeadlinePassed,
        Failed,
    }

    impl OpError {
        pub fn failed(_: &str) -> Self {
            OpError::Failed
        }
    }

    pub trait Interrupt {
        fn check(&self) -> Result<(), OpError>;

        #[allow(dead_code)] // of no model's interest
        fn yield_point(&self) -> Result<(), OpError> {
            self.check()
        }

        #[allow(dead_code)] // as above
        fn before_waiting(&self) {}
    }
}

pub mod memory {
    #[derive(Clone)]
    pub struct Account;

    impl Account {
        pub fn of_thread() -> Self {
            Account
        }

        pub fn is_entered(&self) -> bool {
            true
        }

        pub fn enter(self) -> Entered {
            Entered
        }
    }

    pub struct Entered;

    /// Nothing is taken on anybody's account.
    #[derive(Clone, Debug)]
    pub struct Budget;

    impl Budget {
        pub fn on_account_of(&self, _: u32) -> Entered {
            Entered
        }
    }

    pub fn on_account_of(_: u32) -> Entered {
        Entered
    }
}

pub mod scheduler {
    pub use super::{cores, time_slices};

    /// Nothing is recorded.
    #[derive(Clone)]
    pub struct Underway;

    impl Underway {
        pub fn part(&self) -> Option<Self> {
            None
        }

        pub fn end(self) {}
    }
}

/// Threads of a model have no cores.
pub mod cores {
    pub fn core() -> Option<usize> {
        None
    }

    pub fn leave(_: Option<usize>) {}
}

pub mod apart {
    pub struct Apart;

    impl Apart {
        pub fn new(_: usize) -> Self {
            Apart
        }

        pub fn take(&self) -> Option<usize> {
            None
        }

        pub fn give(&self, _: usize) {}

        pub fn look(&self, _: usize) {}
    }
}

/// The model decides who goes first.
pub mod time_slices {
    pub struct Long;

    pub fn long() -> Long {
        Long
    }

    pub fn look() {}
}

pub mod clock {
    use std::time::Duration;

    /// No model has a deadline.
    pub fn boottime_ns() -> u64 {
        0
    }

    pub fn sleep_until(_: u64) -> Duration {
        Duration::MAX
    }
}

pub mod recorder {
    #[derive(Debug)]
    pub struct Recorder;
}

pub mod watcher {
    /// No model has a device that tells of its end.
    pub struct Watcher;
}

pub mod backend {
    pub use crate::turns::control::Control;
}

/// Threads for one task each.
pub mod thread_cache {
    use crate::sync::thread::Builder;
    use std::sync::Arc;
    use std::time::Duration;

    pub struct ThreadCache(&'static str);

    impl ThreadCache {
        pub fn new(name: &'static str, _: Duration) -> Self {
            ThreadCache(name)
        }

        pub fn run(self: &Arc<Self>, task: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
            Builder::new().name(self.0.into()).spawn(task).map(drop)
        }
    }
}

pub mod starter {
    use crate::sync::thread::are_refused;
    use loom::thread;

    #[derive(Clone)]
    pub struct Starter;

    impl Starter {
        /// On a thread for this alone. What can never succeed is not tried.
        pub fn until(&self, mut attempt: impl FnMut() -> bool + Send + 'static) {
            if !are_refused() {
                thread::spawn(move || {
                    while !attempt() {
                        thread::yield_now();
                    }
                });
            }
        }
    }
}

pub mod slow_calls {
    pub struct Wait;

    pub fn about_to_wait() {}

    pub fn wait_for(_: &'static str) -> Wait {
        Wait
    }
}

pub mod status {
    #[derive(Debug)]
    pub enum ServiceError {
        Failed(String),
    }
}
