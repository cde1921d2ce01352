//! What this driver wrote, by client and token: the hash of the model cache and the lengths of both.
//!
//! It is a table in redb, whose commits are whole or not there at all, whenever the process or the machine stops. A new
//! entry is committed durably before it is of use. When an entry was last used is kept in memory and written with the
//! next new one: a crash loses nothing but the order in which entries are dropped.
//!
//! Until there is something to write, the table is open for reading only, which keeps the disk out of loading. Who looks
//! something up waits for nobody who writes: redb shows it what was committed last. It waits only while the table is opened.

use super::entry::{Entry, Key, KeyBytes};
use super::marker::Marker;
use super::table::{self, Limits, Open};
use super::CacheError;
use crate::waits::wait_for;
use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

/// How long after the start another daemon, whose place this one takes, may still have the table.
const SUCCESSION: Duration = Duration::from_secs(2);

pub struct Registry {
    started: Instant,
    directory: Option<PathBuf>,
    /// Directories that must lie where their names say.
    no_links: Vec<PathBuf>,
    fingerprint: String,
    limits: Limits,
    /// For reading held by whoever reads or writes the table. Only who has `writing` opens or closes it.
    table: RwLock<Slot>,
    /// Held by the one who writes, while it waits for the disk. Taken before `table`.
    writing: Mutex<()>,
    uses: Mutex<Uses>,
    complained: AtomicBool,
}

#[derive(Default)]
struct Slot {
    /// Opened when first needed, and again after an error.
    open: Option<Open>,
    /// Tells it from those before and after.
    number: u64,
}

/// When entries were used.
#[derive(Default)]
struct Uses {
    clock: u64,
    /// Uses that the table does not know of yet.
    by_key: HashMap<KeyBytes, u64>,
}

impl Uses {
    /// The number of the current use. A damaged table may hold the largest number there is.
    fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }
}

/// Who has it is the only one who writes.
type Writing<'r> = MutexGuard<'r, ()>;

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
            no_links: directory.map(Path::to_path_buf).into_iter().collect(),
            fingerprint: fingerprint.into(),
            limits,
            table: RwLock::default(),
            writing: Mutex::default(),
            uses: Mutex::default(),
            complained: AtomicBool::new(false),
        }
    }

    /// One in the directory `name` of a driver's data directory.
    pub fn within(data: &Path, name: &str, fingerprint: &str, limits: Limits) -> Self {
        let mut registry = Registry::new(Some(&data.join(name)), fingerprint, limits);
        registry.no_links.insert(0, data.to_path_buf());
        registry
    }

    /// What is recorded for `key`: an entry for each of the files that it stands for.
    pub fn get(&self, key: &Key) -> Result<Vec<Entry>, CacheError> {
        self.read(|open| table::entries_of(&open.table()?, key))
    }

    /// Whether there is an entry for this client under a token that begins so.
    pub fn has_like(&self, uid: u32, prefix: &[u8]) -> Result<bool, CacheError> {
        self.read(|open| table::has_like(&open.table()?, uid, prefix))
    }

    /// Notes that `entry` is used now.
    pub fn used(&self, entry: &Entry) {
        let mut uses = self.uses();
        let now = uses.tick();
        uses.by_key.insert(entry.key_bytes(), now);
    }

    /// Records `entry` as used now, durably, in place of what there was for its key: other files of the same model are
    /// kept, a few. Drops what is over the limits; gives the keys of that. Where that would be `entry` itself, it is too large,
    /// and nothing changes.
    pub fn put(&self, entry: &Entry) -> Result<Vec<Key>, CacheError> {
        let dropped = self.write(|open| {
            let mut uses = self.uses();
            let (entry, noted) = (Entry { last_use: uses.tick(), ..*entry }, uses.by_key.clone());
            drop(uses);
            let dropped = open.write_if(Option::is_some, |transaction| {
                let mut table = table::table(transaction)?;
                table::write_uses(&mut table, &noted)?;
                table::insert(&mut table, &entry)?;
                table::evict(&mut table, &entry, self.limits)
            })?;
            if dropped.is_some() {
                self.uses().by_key.retain(|key, at| noted.get(key) != Some(at));
            }
            Ok(dropped)
        })?;
        dropped.ok_or(CacheError::TooLarge(usize::try_from(entry.bytes()).unwrap_or(usize::MAX)))
    }

    /// Forgets the files of `key` of which `forget` says so.
    pub fn remove(&self, key: &Key, forget: impl Fn(&Entry) -> bool) -> Result<(), CacheError> {
        self.write(|open| {
            open.write(|transaction| {
                let mut table = table::table(transaction)?;
                for entry in table::entries_of(&table, key)?.iter().filter(|entry| forget(entry)) {
                    table.remove(&entry.key_bytes())?;
                }
                Ok(())
            })
        })
    }

    /// Forgets all that these keys stand for, in one change.
    pub fn remove_all(&self, keys: &[Key]) -> Result<(), CacheError> {
        self.write(|open| {
            open.write(|transaction| {
                let mut table = table::table(transaction)?;
                for key in keys {
                    for entry in table::entries_of(&table, key)? {
                        table.remove(&entry.key_bytes())?;
                    }
                }
                Ok(())
            })
        })
    }

    /// All entries, by client and token.
    pub fn list(&self) -> Result<Vec<Entry>, CacheError> {
        self.read(Open::entries)
    }

    /// Opens the table before it is needed, if that takes no waiting and no writing.
    pub fn open_ahead(&self) {
        // Who has the lock opens it, or waits for the disk.
        let writing = match self.writing.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if self.table().open.is_none() && self.check_links().is_ok() {
            let open = self.to_read().filter(|open| self.continued(open).is_ok());
            self.put_in_place(&writing, open);
        }
    }

    /// Opens the table that an earlier driver has left, if there is one: for a start, before the first client comes. One that
    /// was not closed is put in order.
    pub fn open_left(&self) {
        self.open_ahead();
        if self.is_there() && !self.is_open() {
            let _ = self.read(|_| Ok(())); // what is wrong was logged
        }
    }

    /// Whether there is a table on the disk, open or not: without one nothing is recorded.
    pub fn is_there(&self) -> bool {
        self.is_open()
            || self.directory.as_ref().is_some_and(|directory| directory.join(table::FILE).exists())
    }

    /// Tells openings of the table from each other: a damaged one is made anew, and then without what was recorded.
    pub fn opening(&self) -> u64 {
        self.table().number
    }

    /// Whether the table is open, so that nobody need open it ahead.
    pub fn is_open(&self) -> bool {
        self.table().open.is_some()
    }

    /// Reads the table. After an error it is opened anew, as redb demands: the disk may have been full for a while.
    fn read<T>(&self, work: impl FnOnce(&Open) -> Result<T, redb::Error>) -> Result<T, CacheError> {
        let mut table = self.table();
        while table.open.is_none() {
            drop(table);
            let writing = self.writing();
            // Somebody else may have opened it meanwhile.
            if self.table().open.is_none() {
                let open = self.open(Transaction::Read).map_err(|why| self.complain(&why))?;
                self.put_in_place(&writing, Some(open));
            }
            drop(writing);
            table = self.table();
        }
        let (number, done) = (table.number, work_on(&table, work));
        drop(table);
        match done {
            Ok(Ok(value)) => {
                self.complained.store(false, Ordering::Relaxed);
                Ok(value)
            }
            failed => self.failed(&self.writing(), number, failed),
        }
    }

    /// Works on the table alone, but for those who read. The same after an error.
    fn write<T>(&self, work: impl FnOnce(&Open) -> Result<T, redb::Error>) -> Result<T, CacheError> {
        let writing = self.writing();
        let is_to_write = matches!(self.table().open, Some(Open::ToWrite(_)));
        if !is_to_write {
            // Reading on must be over before writing can begin.
            drop(self.put_in_place(&writing, None));
            let open = self.open(Transaction::Write).map_err(|why| self.complain(&why))?;
            self.put_in_place(&writing, Some(open));
        }
        let mut marker = self.marker();
        marker.iter_mut().for_each(Marker::writing);
        let table = self.table();
        let (number, done) = (table.number, work_on(&table, work));
        drop(table);
        if done.is_ok() {
            marker.iter_mut().for_each(Marker::end);
        }
        drop(marker);
        match done {
            Ok(Ok(value)) => {
                self.complained.store(false, Ordering::Relaxed);
                Ok(value)
            }
            failed => self.failed(&writing, number, failed),
        }
    }

    /// Gives up the table of this number, unless another has taken its place already.
    fn failed<T>(&self, writing: &Writing, number: u64, failed: Worked<T>) -> Result<T, CacheError> {
        let is_same = self.table().number == number;
        let open = if is_same { self.put_in_place(writing, None) } else { None };
        match failed {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(why)) => {
                open.into_iter().for_each(|open| self.give_up(open, &why));
                Err(self.complain(&why.to_string()))
            }
            Err(panic) => {
                drop(open);
                resume_unwind(panic)
            }
        }
    }

    fn table(&self) -> RwLockReadGuard<'_, Slot> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> Writing<'_> {
        let _waiting = wait_for("the registry");
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives what was in its place. Waits for those who read that, which takes no writing to the disk.
    fn put_in_place(&self, _: &Writing, open: Option<Open>) -> Option<Open> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.number += 1;
        std::mem::replace(&mut table.open, open)
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
    fn complain(&self, why: &str) -> CacheError {
        let place = self.directory.as_deref().unwrap_or(Path::new("memory")).display();
        if !self.complained.swap(true, Ordering::Relaxed) {
            log::warn!("compilations are not cached: the registry in {place} cannot be used: {why}");
        }
        CacheError::Registry(why.into())
    }

    /// Refuses a directory that is a link to another: whoever may change the link would choose what the driver believes and
    /// overwrites. Where Android keeps such data, init makes the directory, and follows no link when it gives it its owner.
    fn check_links(&self) -> Result<(), String> {
        let is_link = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|facts| facts.is_symlink());
        match self.no_links.iter().find(is_link) {
            Some(path) => Err(format!("{} is a symbolic link: name the directory itself", path.display())),
            None => Ok(()),
        }
    }

    fn open(&self, transaction: Transaction) -> Result<Open, String> {
        self.check_links()?;
        let readable = (transaction == Transaction::Read).then(|| self.to_read()).flatten();
        let open = match (readable, &self.directory) {
            (Some(open), _) => open,
            (None, None) => Open::in_memory()?,
            (None, Some(directory)) => {
                make(directory).map_err(|why| format!("cannot make the directory: {why}"))?;
                Open::to_write(&directory.join(table::FILE), self.started + SUCCESSION)?
            }
        };
        match self.prepare(&open).and_then(|()| self.continued(&open)) {
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

    /// Goes on counting uses where the table ends.
    fn continued(&self, open: &Open) -> Result<(), redb::Error> {
        let last = open.entries()?.iter().map(|entry| entry.last_use).max().unwrap_or(0);
        let mut uses = self.uses();
        uses.clock = uses.clock.max(last);
        Ok(())
    }
}

/// What became of work on the table: redb may panic over a damaged one.
type Worked<T> = std::thread::Result<Result<T, redb::Error>>;

fn work_on<T>(table: &Slot, work: impl FnOnce(&Open) -> Result<T, redb::Error>) -> Worked<T> {
    catch_unwind(AssertUnwindSafe(|| match &table.open {
        Some(open) => work(open),
        None => Err(redb::Error::Io(std::io::ErrorKind::NotConnected.into())),
    }))
}

impl Drop for Registry {
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = table.open.take() {
            self.close(open);
        }
    }
}

fn make(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
