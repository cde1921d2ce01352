//! Memory of files that another process serves: what can be had of them is a copy, and only if it comes in time.
//!
//! Touching a page of such a file can block for ever, and a thread that blocks so is lost. So a thread that may be lost
//! reads it, and the thread that wants the bytes waits for a while. How many threads may be lost is shared out among clients:
//! beyond its share a client's memory of this kind is refused until one comes back. The bytes are a copy, so this is for
//! memory that is read once: constants, inputs of one execution.

use super::budget::{Account, Counted};
use super::pages::{self, Pages};
use super::{Access, MemoryError};
use crate::waits::wait_for;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long such a file may take to be read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Private pages, counted, with the bytes of such a file.
type Copied = (Pages, Counted);

/// A copy of `len` bytes of `fd` from `offset`.
pub(super) fn copy(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Copied, MemoryError> {
    if access != Access::Read {
        return Err(MemoryError::Access("memory of a file that another process serves can only be read"));
    }
    let file = File::from(fd.try_clone_to_owned().map_err(MemoryError::Map)?);
    read_in_time(len, PATIENCE, move |bytes| file.read_exact_at(bytes, offset))
}

/// A private copy of the `len` bytes that `read` gives, if it does within `patience`.
fn read_in_time(
    len: usize,
    patience: Duration,
    read: impl FnOnce(&mut [u8]) -> std::io::Result<()> + Send + 'static,
) -> Result<Copied, MemoryError> {
    let account = Account::of_thread();
    // Given back when the thread ends, if it ever does.
    let reader = account.budget().readers().take(account.client(), 1).map_err(|_| {
        MemoryError::Exhausted("too many files that other processes serve are being waited for")
    })?;
    let (sender, receiver) = sync_channel(1);
    let work = move || {
        let _account = account.enter();
        let copied = pages::filled(len, read).map_err(|why| match why {
            MemoryError::Vanished => {
                MemoryError::Invalid(format!("the memory's file has not its {len} bytes"))
            }
            other => other,
        });
        // Nobody may be waiting any more.
        let _ = sender.send(copied);
        drop(reader);
    };
    std::thread::Builder::new().name("nnhal-served".into()).spawn(work).map_err(MemoryError::Map)?;
    let _waiting = wait_for("a file that another process serves");
    receiver.recv_timeout(patience).unwrap_or(Err(MemoryError::Unsupported(
        "memory of a file that another process serves did not come in time; copy it into shared memory",
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Budget, ClientSlice, Mapping};
    use std::os::fd::AsFd;
    use std::sync::{Arc, Mutex};

    const CLIENT: u32 = 7;

    fn budget() -> Budget {
        Budget::new(1 << 30)
    }

    #[test]
    fn what_comes_in_time_is_copied() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        let copied = copy(file.as_fd(), 10, 80, Access::Read).unwrap();
        file.write_all_at(&[8; 100], 0).unwrap();
        assert_eq!(
            ClientSlice::whole(Arc::new(Mapping::private(80, copied))).to_private().unwrap()[..],
            [7; 80]
        );
        assert!(matches!(copy(file.as_fd(), 50, 51, Access::Read), Err(MemoryError::Invalid(_))));
        assert!(matches!(copy(file.as_fd(), 0, 1, Access::ReadWrite), Err(MemoryError::Access(_))));
    }

    #[test]
    fn what_never_comes_is_given_up_and_only_so_many_are_waited_for() {
        let budget = budget();
        let _account = budget.on_account_of(CLIENT);
        let moment = Duration::from_millis(10);
        let (answer, silence) = std::sync::mpsc::channel::<()>();
        let silence = Arc::new(Mutex::new(silence));
        let never = || {
            let silence = silence.clone();
            move |_: &mut [u8]| {
                let _ = silence.lock().unwrap().recv(); // until the test ends it
                Ok(())
            }
        };
        for _ in 0..budget.readers().per_client() {
            let copied = read_in_time(1, moment, never());
            assert!(matches!(copied, Err(MemoryError::Unsupported(_))));
        }
        assert!(matches!(read_in_time(1, moment, never()), Err(MemoryError::Exhausted(_))));
        {
            let _other = budget.on_account_of(CLIENT + 1);
            assert!(read_in_time(1, PATIENCE, |_| Ok(())).is_ok(), "there is room for another client");
        }
        // They come back when they are answered after all.
        drop(answer);
        while budget.readers().held() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(read_in_time(1, PATIENCE, never()).is_ok());
    }

    #[test]
    #[ignore = "mounts a file system, as root: tests/ignored.sh mounts"]
    fn files_that_a_process_serves_are_read_if_they_come_in_time() {
        let budget = budget();
        let _account = budget.on_account_of(CLIENT);
        let served = crate::memory::blocking::tests::Silent::mount();
        let answering = served.answer(true);
        let file = File::open(served.path()).unwrap();
        let bytes = |mapping| ClientSlice::whole(Arc::new(mapping)).to_private().unwrap();
        let (constants, input) = (Mapping::or_copy, Mapping::for_one_use);
        assert_eq!(bytes(constants(file.as_fd(), 10, 80, Access::Read).unwrap())[..], [7; 80]);
        assert_eq!(bytes(input(file.as_fd(), 0, 100, Access::Read).unwrap())[..], [7; 100]);
        assert!(matches!(constants(file.as_fd(), 50, 51, Access::Read), Err(MemoryError::Invalid(_))));
        drop(answering);
        let answering = served.answer(false);
        for map in [constants, input] {
            let began = std::time::Instant::now();
            let late = map(file.as_fd(), 0, 10, Access::Read).map(drop);
            assert!(
                matches!(&late, Err(MemoryError::Unsupported(why)) if why.contains("in time")),
                "{late:?}"
            );
            assert!(began.elapsed() >= PATIENCE);
        }
        assert_eq!(budget.readers().held(), 2, "both are lost");
        drop((answering, served));
        while budget.readers().held() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
