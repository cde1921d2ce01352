//! What this driver wrote, by client and token: the hash of the model cache and the lengths of both.
//!
//! It is a table in redb, whose commits are whole or not there at all, whenever the process or the machine stops. A new
//! entry is committed durably before it is of use. When an entry was last used is kept in memory and written with the
//! next new one: a crash loses nothing but the order in which entries are dropped.
//!
//! Until there is something to write, the table is open for reading only, which keeps the disk out of loading.

use super::entry::{Entry, Key, KeyBytes};
use super::marker::Marker;
use super::table::{self, Limits, Open};
use super::CacheError;
use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long after the start another daemon, whose place this one takes, may still have the table.
const SUCCESSION: Duration = Duration::from_secs(2);

pub struct Registry {
    started: Instant,
    directory: Option<PathBuf>,
    fingerprint: String,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Opened when first needed, and again after an error.
    open: Option<Open>,
    clock: u64,
    /// Uses that the table does not know of yet.
    uses: HashMap<KeyBytes, u64>,
    complained: bool,
}

impl State {
    /// The number of the current use. A damaged table may hold the largest number there is.
    fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }
}

/// What a transaction on the table is for.
#[derive(Clone, Copy, PartialEq)]
enum Transaction {
    Read,
    Write,
}

impl Registry {
    pub fn new(directory: Option<&Path>, fingerprint: &str, limits: Limits) -> Self {
        Registry {
            started: Instant::now(),
            directory: directory.map(Path::to_path_buf),
            fingerprint: fingerprint.into(),
            limits,
            state: Mutex::default(),
        }
    }

    /// What is recorded for `key`: an entry for each of the files that it stands for.
    pub fn get(&self, key: &Key) -> Result<Vec<Entry>, CacheError> {
        self.with(Transaction::Read, |open, _| table::entries_of(&open.table()?, key))
    }

    /// Whether there is an entry for this client under a token that begins so.
    pub fn has_like(&self, uid: u32, prefix: &[u8]) -> Result<bool, CacheError> {
        self.with(Transaction::Read, |open, _| table::has_like(&open.table()?, uid, prefix))
    }

    /// Notes that `entry` is used now.
    pub fn used(&self, entry: &Entry) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.tick();
        state.uses.insert(entry.key_bytes(), now);
    }

    /// Records `entry` as used now, durably, in place of what there was for its key: other files of the same model are
    /// kept, a few. Drops what is over the limits; gives the keys of that.
    pub fn put(&self, entry: &Entry) -> Result<Vec<Key>, CacheError> {
        self.with(Transaction::Write, |open, state| {
            let entry = Entry { last_use: state.tick(), ..*entry };
            let dropped = open.write(|transaction| {
                let mut table = table::table(transaction)?;
                table::write_uses(&mut table, &state.uses)?;
                table::insert(&mut table, &entry)?;
                table::evict(&mut table, &entry.key, self.limits)
            })?;
            state.uses.clear();
            Ok(dropped)
        })
    }

    /// Forgets the files of `key` of which `forget` says so.
    pub fn remove(&self, key: &Key, forget: impl Fn(&Entry) -> bool) -> Result<(), CacheError> {
        self.with(Transaction::Write, |open, _| {
            open.write(|transaction| {
                let mut table = table::table(transaction)?;
                for entry in table::entries_of(&table, key)?.iter().filter(|entry| forget(entry)) {
                    table.remove(&entry.key_bytes())?;
                }
                Ok(())
            })
        })
    }

    /// All entries, by client and token.
    pub fn list(&self) -> Result<Vec<Entry>, CacheError> {
        self.with(Transaction::Read, |open, _| open.entries())
    }

    /// Opens the table before it is needed, if that takes no waiting and no writing.
    pub fn open_ahead(&self) {
        // Who has the lock opens it, or waits for the disk.
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if state.open.is_none() {
            state.open = self.to_read().filter(|open| continued(&mut state, open).is_ok());
        }
    }

    /// Works on the table. After an error the table is opened anew, as redb demands: the disk may have been full for a while.
    fn with<T>(
        &self,
        transaction: Transaction,
        work: impl FnOnce(&Open, &mut State) -> Result<T, redb::Error>,
    ) -> Result<T, CacheError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Reading on must be over before writing can begin.
        let fits = |open: &Open| transaction == Transaction::Read || matches!(open, Open::ToWrite(_));
        let open = match state.open.take().filter(fits) {
            Some(open) => open,
            None => self.open(&mut state, transaction).map_err(|why| self.complain(&mut state, &why))?,
        };
        let mut marker = (transaction == Transaction::Write).then(|| self.marker()).flatten();
        marker.iter_mut().for_each(Marker::writing);
        let result = work(&open, &mut state);
        marker.iter_mut().for_each(Marker::end);
        drop(marker);
        match result {
            Ok(value) => {
                (state.open, state.complained) = (Some(open), false);
                Ok(value)
            }
            Err(why) => {
                self.give_up(open, &why);
                Err(self.complain(&mut state, &why.to_string()))
            }
        }
    }

    /// Closes the table: redb writes to it once more then.
    fn close(&self, open: Open) {
        match open {
            Open::ToRead(_) => drop(open),
            Open::ToWrite(_) => self.noted(|| drop(open)),
        }
    }

    /// Does work that writes to the table outside of a caller's transaction. The marker notes it as it notes any write, and
    /// keeps the doubts that it had.
    fn noted<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut marker = self.marker();
        marker.iter_mut().for_each(Marker::writing);
        let done = work();
        marker.iter_mut().for_each(Marker::opened);
        done
    }

    /// Closes the table after an error, and puts it aside if `why` says that it is damaged.
    fn give_up(&self, open: Open, why: &redb::Error) {
        self.close(open);
        if let Some(directory) = &self.directory {
            table::give_up_damaged(&directory.join(table::FILE), why);
        }
    }

    /// The mark on the table's file, if it has one.
    fn marker(&self) -> Option<Marker> {
        Marker::hold(&self.directory.as_ref()?.join(table::FILE))
    }

    /// Says once, and not at every call, what is wrong.
    fn complain(&self, state: &mut MutexGuard<State>, why: &str) -> CacheError {
        let place = self.directory.as_deref().unwrap_or(Path::new("memory")).display();
        if !std::mem::replace(&mut state.complained, true) {
            log::warn!("compilations are not cached: the registry in {place} cannot be used: {why}");
        }
        CacheError::Registry(why.into())
    }

    fn open(&self, state: &mut State, transaction: Transaction) -> Result<Open, String> {
        let readable = (transaction == Transaction::Read).then(|| self.to_read()).flatten();
        let open = match (readable, &self.directory) {
            (Some(open), _) => open,
            (None, None) => Open::in_memory()?,
            (None, Some(directory)) => {
                make(directory).map_err(|why| format!("cannot make the directory: {why}"))?;
                Open::to_write(&directory.join(table::FILE), self.started + SUCCESSION)?
            }
        };
        match self.prepare(&open).and_then(|()| continued(state, &open)) {
            Ok(()) => Ok(open),
            Err(why) => {
                self.give_up(open, &why);
                Err(why.to_string())
            }
        }
    }

    /// Gets a table ready that is open to be written.
    fn prepare(&self, open: &Open) -> Result<(), redb::Error> {
        match open {
            Open::ToRead(_) => Ok(()),
            Open::ToWrite(_) => self.noted(|| open.prepare(&self.fingerprint)),
        }
    }

    /// The table to be read, if this driver has left one that is in order.
    fn to_read(&self) -> Option<Open> {
        Open::to_read(&self.directory.as_ref()?.join(table::FILE), &self.fingerprint)
    }
}

/// Goes on counting uses where the table ends.
fn continued(state: &mut State, open: &Open) -> Result<(), redb::Error> {
    let last = open.entries()?.iter().map(|entry| entry.last_use).max().unwrap_or(0);
    state.clock = state.clock.max(last);
    Ok(())
}

impl Drop for Registry {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = state.open.take() {
            self.close(open);
        }
    }
}

fn make(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_opens_it_ahead_waits_for_nobody() {
        let registry = Registry::new(None, "driver", Limits::default());
        let (told, heard) = channel();
        std::thread::scope(|scope| {
            // Somebody waits for the disk.
            let held = registry.state.lock().unwrap();
            scope.spawn(|| {
                registry.open_ahead();
                told.send(()).unwrap();
            });
            let heard = heard.recv_timeout(Duration::from_secs(10));
            drop(held);
            heard.expect("it does not wait");
        });
    }
}
