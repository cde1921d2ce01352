//! The mark on a registry that somebody works on, by which the next start knows that the last one died of it.
//!
//! redb takes some of what it finds in a file for granted. Where a panic ends the process, a damaged registry would end
//! every daemon that opens it. So a small file beside it notes work on it ahead; afterwards the note is removed. The
//! process that works holds the lock of that file: a note without a lock was left by a process that is gone.
//!
//! Nothing here is synced, and need not be: a power cut is not what it tells of, and redb survives those.

use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The note of one who opens it, and reads it whole.
const OPENING: &str = "o";
/// The note of one who writes to it.
const WRITING: &str = "w";
/// An opening or a write was not ended, but the registry was found in order since; struck out by the next write that is.
const SUSPECTED: &str = "s";

/// How long others may take over what they do.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(2);

/// What earlier work has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Order,
    /// An opening or a write did not end: most likely the process was killed from outside.
    Doubt,
    /// That was so twice.
    Damage,
}

/// The mark, held: nobody else works on the registry meanwhile. Dropped without [`end`](Self::end), it stays.
pub(super) struct Marker {
    file: Locked,
    note: String,
}

/// A file that is locked as long as this lives. The standard library has no locks for Android.
struct Locked(Option<Flock<File>>);

impl Drop for Locked {
    fn drop(&mut self) {
        // At once, and not when a process that is being started lets its copy of the descriptor go.
        if let Some(Err((lock, _))) = self.0.take().map(Flock::unlock) {
            // Its drop would try to unlock once more, and panic. Closing the descriptor unlocks as well.
            let _ = nix::unistd::close(lock.as_raw_fd());
            std::mem::forget(lock);
        }
    }
}

/// Where the mark of the registry at `path` is.
fn place(path: &Path) -> PathBuf {
    path.with_extension("mark")
}

impl Marker {
    /// The mark of the registry at `path`. `None` where there can be none, or where somebody else holds it for long: the
    /// work is done without.
    pub fn hold(path: &Path) -> Option<Self> {
        let options = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options
        };
        let mut file = options().open(place(path)).ok()?;
        let began = Instant::now();
        let file = loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => break Locked(Some(lock)),
                Err((other, nix::Error::EWOULDBLOCK | nix::Error::EINTR)) if began.elapsed() < PATIENCE => {
                    file = other;
                    std::thread::sleep(PAUSE);
                }
                Err(_) => return None,
            }
        };
        let mut note = Vec::new();
        file.0.as_deref()?.take(16).read_to_end(&mut note).ok()?;
        // A note that no driver writes tells of damage, too.
        Some(Marker { file, note: String::from_utf8_lossy(&note).into_owned() })
    }

    pub fn left(&self) -> Left {
        match &self.note[..] {
            "" | SUSPECTED => Left::Order,
            OPENING | WRITING => Left::Doubt,
            _ => Left::Damage,
        }
    }

    /// Notes that the registry is about to be opened.
    pub fn opening(&mut self) {
        self.write(&format!("{}{OPENING}", self.note));
    }

    /// Notes that it is about to be written to.
    pub fn writing(&mut self) {
        self.write(&format!("{}{WRITING}", self.note));
    }

    /// Strikes out the note of an opening that went well.
    pub fn opened(&mut self) {
        let note = if self.note.is_empty() { "" } else { SUSPECTED };
        self.write(note);
    }

    /// Strikes out all notes: a write went well, or there is a new registry.
    pub fn end(&mut self) {
        self.write("");
    }

    fn write(&mut self, note: &str) {
        // What cannot be noted is not known later: no worse than without a mark.
        let Some(file) = self.file.0.as_deref() else { return };
        let written = file.set_len(0).and_then(|()| file.write_all_at(note.as_bytes(), 0));
        if let Err(why) = written {
            log::debug!("the registry is used without a mark: {why}");
        }
        if note.is_empty() || note == SUSPECTED {
            self.note = note.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_struck_out_is_found_by_the_next() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("registry.redb");
        let left = |work: &dyn Fn(&mut Marker)| {
            let mut marker = Marker::hold(&path).unwrap();
            let left = marker.left();
            work(&mut marker);
            left
        };
        assert_eq!(left(&|mark| (mark.opening(), mark.opened()).1), Left::Order);
        assert_eq!(left(&|mark| mark.writing()), Left::Order);
        assert_eq!(left(&|mark| (mark.opening(), mark.opened()).1), Left::Doubt);
        assert_eq!(left(&|mark| mark.writing()), Left::Order, "it was found in order");
        assert_eq!(left(&|mark| mark.end()), Left::Damage, "two writes were not ended");
        assert_eq!(left(&|mark| (mark.writing(), mark.end()).1), Left::Order);
        assert_eq!(left(&|mark| mark.opening()), Left::Order);
        assert_eq!(left(&|mark| (mark.opening(), mark.opened()).1), Left::Doubt);
        assert_eq!(left(&|mark| mark.opening()), Left::Order, "it was found in order");
        assert_eq!(left(&|_| ()), Left::Damage, "two openings were not ended");
    }

    #[test]
    fn only_one_holds_it_and_none_is_needed() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("registry.redb");
        let held = Marker::hold(&path);
        assert!(held.is_some() && Marker::hold(&path).is_none());
        drop(held);
        assert!(Marker::hold(&path).is_some());
        assert!(Marker::hold(&directory.path().join("missing/registry.redb")).is_none());
    }
}
