//! Writing to clients' files, on threads that may be lost.
//!
//! A call that writes to a file takes the lock of that file, and whoever else has it open can hold that for as long as it likes: by
//! a call of its own, which waits for memory that never comes. A thread that waits for it cannot even be killed. So
//! threads of their own write, and a thread that compiles waits for a while. How many may be lost is shared out among clients. Files
//! stay in use until their thread comes back. Reading takes no such lock.

use super::files::Lock;
use super::CacheError;
use crate::ops::Interrupt;
use crate::quota::Quota;
use crate::waits::wait_for;
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How often who waits for a writing thread looks whether to stop.
const LOOK: Duration = Duration::from_millis(20);
/// How long writing may take, to a slow disk too.
const PATIENCE: Duration = Duration::from_secs(10);
/// Threads that may write, in all and of one client alone: more than compile.
const WRITERS: u64 = 16;
const WRITERS_OF_CLIENT: u64 = 8;

/// The threads of one driver that write to clients' files.
pub struct Writers {
    quota: Arc<Quota>,
    patience: Duration,
}

impl Default for Writers {
    fn default() -> Self {
        Writers { quota: Quota::new(WRITERS, WRITERS_OF_CLIENT), patience: PATIENCE }
    }
}

impl Writers {
    /// Has `work` done on the files of `client`, which are given back if it ends in time, and before `interrupt` says that who waits is
    /// to stop.
    pub fn write(
        &self,
        client: u32,
        lock: Lock,
        interrupt: &dyn Interrupt,
        work: impl FnOnce(&Lock) -> Result<(), CacheError> + Send + 'static,
    ) -> Result<(Lock, Result<(), CacheError>), CacheError> {
        // Given back when the thread ends, if it ever does.
        let writer = self.quota.take(client, 1).map_err(|_| CacheError::Busy)?;
        let (sender, receiver) = sync_channel(1);
        let work = move || {
            let written = work(&lock);
            // Nobody may be waiting any more: then nobody uses the files from here on.
            let _ = sender.send((lock, written));
            drop(writer);
        };
        let spawned = Builder::new().name("nnhal-write".into()).spawn(work);
        spawned.map_err(|why| CacheError::Io { what: "model", why })?;
        let _waiting = wait_for("a client's cache files to be written");
        let until = Instant::now() + self.patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left.min(LOOK)) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {
                    interrupt.check().map_err(CacheError::Stopped)?;
                }
                Err(_) => return Err(CacheError::Busy),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::FilesInUse;
    use super::super::tests::Pair;
    use super::*;
    use crate::ops::{NeverInterrupted, OpError};
    use crate::scheduler::{Control, Stop};
    use std::sync::mpsc::channel;
    use std::sync::Mutex;

    const CLIENT: u32 = 7;

    #[test]
    fn who_never_comes_back_has_the_files_and_only_so_many_are_waited_for() {
        let writers = Writers { patience: Duration::from_millis(10), ..Writers::default() };
        let in_use = FilesInUse::default();
        let pairs: Vec<_> = (0..=WRITERS_OF_CLIENT).map(|_| Pair::new()).collect();
        let (answer, silence) = channel::<()>();
        let silence = Arc::new(Mutex::new(silence));
        let write = |client, pair: &Pair| {
            let silence = silence.clone();
            let never = move |_: &Lock| {
                let _ = silence.lock().unwrap().recv(); // until the test ends it
                Ok(())
            };
            let lock = pair.files().lock(&in_use, &NeverInterrupted).unwrap();
            writers.write(client, lock, &NeverInterrupted, never).map(drop)
        };
        for pair in &pairs[1..] {
            assert!(matches!(write(CLIENT, pair), Err(CacheError::Busy)));
        }
        assert_eq!(writers.quota.held_by(CLIENT), WRITERS_OF_CLIENT);
        assert!(
            matches!(pairs[1].files().lock(&in_use, &NeverInterrupted), Err(CacheError::Busy)),
            "they are in use"
        );
        assert!(matches!(write(CLIENT, &pairs[0]), Err(CacheError::Busy)));
        assert_eq!(writers.quota.held_by(CLIENT), WRITERS_OF_CLIENT, "it was not begun");
        assert!(pairs[0].files().lock(&in_use, &NeverInterrupted).is_ok());
        // They come back when they are answered after all.
        drop(answer);
        while writers.quota.held() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(pairs[1].files().lock(&in_use, &NeverInterrupted).is_ok());
        let written = |_: &Lock| Err(CacheError::NoModel);
        let patient = Writers::default();
        let lock = pairs[1].files().lock(&in_use, &NeverInterrupted).unwrap();
        let (lock, done) = patient.write(CLIENT, lock, &NeverInterrupted, written).unwrap();
        assert!(matches!(done, Err(CacheError::NoModel)));
        assert!(lock.data_changes().is_ok());
    }

    #[test]
    fn who_waits_for_files_or_for_their_writing_stops_with_the_work() {
        let (writers, in_use, pair) = (Writers::default(), FilesInUse::default(), Pair::new());
        let gone = Control { orphaned: Stop::already(), ..Control::default() };
        let (answer, silence) = channel::<()>();
        let lock = pair.files().lock(&in_use, &gone).expect("nobody is waited for");
        let never = move |_: &Lock| {
            let _ = silence.recv(); // until the test ends it
            Ok(())
        };
        let stopped = |why: CacheError| matches!(why, CacheError::Stopped(OpError::Cancelled));
        assert!(stopped(writers.write(CLIENT, lock.waited_for(), &gone, never).map(drop).unwrap_err()));
        assert!(stopped(pair.files().lock(&in_use, &gone).map(drop).unwrap_err()));
        drop(answer);
        assert!(pair.files().lock(&in_use, &NeverInterrupted).is_ok(), "the writing has ended");
    }
}
