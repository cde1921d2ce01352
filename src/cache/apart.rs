//! Writing to clients' files, on threads that may be lost.
//!
//! A call that writes to a file takes the lock of that file, and whoever else has it open can hold that for as long as it likes: by
//! a call of its own, which waits for memory that never comes. A thread that waits for it cannot even be killed. So
//! threads of their own write, and a thread that compiles waits for a while. How many may be lost is shared out among clients. Files
//! stay in use until their thread comes back. Reading takes no such lock.

use super::files::Lock;
use super::CacheError;
use crate::quota::Quota;
use crate::waits::wait_for;
use std::sync::mpsc::sync_channel;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

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
    /// Has `work` done on the files of `client`, which are given back if it ends in time.
    pub fn write(
        &self,
        client: u32,
        lock: Lock,
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
        receiver.recv_timeout(self.patience).map_err(|_| CacheError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::FilesInUse;
    use super::super::tests::Pair;
    use super::*;
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
            writers.write(client, pair.files().lock(&in_use).unwrap(), never).map(drop)
        };
        for pair in &pairs[1..] {
            assert!(matches!(write(CLIENT, pair), Err(CacheError::Busy)));
        }
        assert_eq!(writers.quota.held_by(CLIENT), WRITERS_OF_CLIENT);
        assert!(matches!(pairs[1].files().lock(&in_use), Err(CacheError::Busy)), "they are in use");
        assert!(matches!(write(CLIENT, &pairs[0]), Err(CacheError::Busy)));
        assert_eq!(writers.quota.held_by(CLIENT), WRITERS_OF_CLIENT, "it was not begun");
        assert!(pairs[0].files().lock(&in_use).is_ok());
        // They come back when they are answered after all.
        drop(answer);
        while writers.quota.held() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(pairs[1].files().lock(&in_use).is_ok());
        let written = |_: &Lock| Err(CacheError::NoModel);
        let patient = Writers::default();
        let (lock, done) = patient.write(CLIENT, pairs[1].files().lock(&in_use).unwrap(), written).unwrap();
        assert!(matches!(done, Err(CacheError::NoModel)));
        assert!(lock.data_changes().is_ok());
    }
}
