//! What this driver wrote, by client and token: the hash of the model cache and the lengths of both.
//!
//! It is a table in redb, whose commits are whole or not there at all, whenever the process or the machine stops. A new
//! entry is committed durably before it is of use. When an entry was last used is kept in memory and written with the
//! next new one: a crash loses nothing but the order in which entries are dropped.

use super::CacheError;
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, Table, TableDefinition,
    WriteTransaction,
};
use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A client's name for a compilation.
pub type Token = [u8; 32];

/// Whose entry it is, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub uid: u32,
    pub token: Token,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub hash: [u8; 32],
    pub model_len: u64,
    pub data_len: u64,
}

/// An entry, for people to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Key,
    pub record: Record,
    /// A larger number for a later use.
    pub last_use: u64,
}

/// How much there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub entries: usize,
    pub entries_per_uid: usize,
    /// Of model and data caches together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { entries: 4096, entries_per_uid: 512, bytes: u64::MAX }
    }
}

type Keys = [u8; 36];
type Values = [u8; 56];
const ENTRIES: TableDefinition<&Keys, &Values> = TableDefinition::new("model caches");
const FACTS: TableDefinition<&str, &str> = TableDefinition::new("facts");
const FINGERPRINT: &str = "fingerprint";
const FILE: &str = "registry.redb";
/// The table is small; more would be wasted.
const CACHE_BYTES: usize = 1 << 20;

pub struct Registry {
    directory: Option<PathBuf>,
    fingerprint: String,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Opened when first needed, and again after an error.
    database: Option<Database>,
    clock: u64,
    /// Uses that the table does not know of yet.
    uses: HashMap<Key, u64>,
    complained: bool,
}

impl Registry {
    pub fn new(directory: Option<&Path>, fingerprint: &str, limits: Limits) -> Self {
        Registry {
            directory: directory.map(Path::to_path_buf),
            fingerprint: fingerprint.into(),
            limits,
            state: Mutex::default(),
        }
    }

    /// The record of `key`, which is used now.
    pub fn get(&self, key: &Key) -> Result<Option<Record>, CacheError> {
        self.with(|database, state| {
            let table = database.begin_read()?.open_table(ENTRIES)?;
            let record =
                table.get(&key.to_bytes())?.map(|value| Entry::from_bytes(*key, value.value()).record);
            if record.is_some() {
                state.clock += 1;
                state.uses.insert(*key, state.clock);
            }
            Ok(record)
        })
    }

    /// Records `record` for `key`, durably, in place of what there was. Drops what is over the limits; gives the keys
    /// of that.
    pub fn put(&self, key: &Key, record: &Record) -> Result<Vec<Key>, CacheError> {
        self.with(|database, state| {
            state.clock += 1;
            let entry = Entry { key: *key, record: *record, last_use: state.clock };
            let transaction = database.begin_write()?;
            let dropped = {
                let mut table = transaction.open_table(ENTRIES)?;
                write_uses(&mut table, &state.uses)?;
                table.insert(&key.to_bytes(), &entry.to_bytes())?;
                evict(&mut table, key, self.limits)?
            };
            transaction.commit()?;
            state.uses.clear();
            Ok(dropped)
        })
    }

    pub fn remove(&self, key: &Key) -> Result<(), CacheError> {
        self.with(|database, state| {
            let transaction = database.begin_write()?;
            transaction.open_table(ENTRIES)?.remove(&key.to_bytes())?;
            transaction.commit()?;
            state.uses.remove(key);
            Ok(())
        })
    }

    /// All entries, by client and token.
    pub fn list(&self) -> Result<Vec<Entry>, CacheError> {
        self.with(|database, _| entries(&database.begin_read()?.open_table(ENTRIES)?))
    }

    /// Drops all entries; gives how many there were.
    pub fn clear(&self) -> Result<usize, CacheError> {
        self.with(|database, state| {
            let transaction = database.begin_write()?;
            let count = empty(&transaction)?;
            transaction.commit()?;
            state.uses.clear();
            Ok(count)
        })
    }

    /// Works on the table. After an error it is opened anew, as redb has it: the disk may have been full for a while.
    fn with<T>(
        &self,
        work: impl FnOnce(&Database, &mut State) -> Result<T, redb::Error>,
    ) -> Result<T, CacheError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match state.database.take() {
            Some(database) => database,
            None => self.open(&mut state).map_err(|why| self.complain(&mut state, &why))?,
        };
        let result = work(&database, &mut state);
        match result {
            Ok(value) => {
                (state.database, state.complained) = (Some(database), false);
                Ok(value)
            }
            Err(why) => Err(self.complain(&mut state, &why.to_string())),
        }
    }

    /// Says once, and not at every call, what is wrong.
    fn complain(&self, state: &mut MutexGuard<State>, why: &str) -> CacheError {
        let place = self.directory.as_deref().unwrap_or(Path::new("memory")).display();
        if !std::mem::replace(&mut state.complained, true) {
            log::warn!("compilations are not cached: the registry in {place} cannot be used: {why}");
        }
        CacheError::Registry(why.into())
    }

    fn open(&self, state: &mut State) -> Result<Database, String> {
        let database = match &self.directory {
            None => memory().map_err(|why| why.to_string())?,
            Some(directory) => {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory)
                    .map_err(|why| format!("cannot make the directory: {why}"))?;
                on_disk(&directory.join(FILE))?
            }
        };
        state.clock = self.prepare(&database).map_err(|why| why.to_string())?;
        state.uses.clear();
        Ok(database)
    }

    /// Makes the tables, emptied if another driver made their entries. Gives the last use of any entry.
    fn prepare(&self, database: &Database) -> Result<u64, redb::Error> {
        let transaction = database.begin_write()?;
        let same = {
            let mut facts = transaction.open_table(FACTS)?;
            let same = facts.get(FINGERPRINT)?.is_some_and(|fact| fact.value() == self.fingerprint);
            facts.insert(FINGERPRINT, self.fingerprint.as_str())?;
            same
        };
        if !same && empty(&transaction)? > 0 {
            log::info!("the driver is another one: earlier compilation caches are void");
        }
        let last = {
            let table = transaction.open_table(ENTRIES)?;
            entries(&table)?.iter().map(|entry| entry.last_use).max().unwrap_or(0)
        };
        transaction.commit()?;
        Ok(last)
    }
}

fn memory() -> Result<Database, DatabaseError> {
    Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(InMemoryBackend::new())
}

/// Opens the file, or makes it anew where it is none of ours any more: its loss costs misses, nothing else.
fn on_disk(path: &Path) -> Result<Database, String> {
    let open = || Builder::new().set_cache_size(CACHE_BYTES).create(path);
    match open() {
        Ok(database) => Ok(database),
        Err(DatabaseError::DatabaseAlreadyOpen) => Err("another daemon uses it".into()),
        Err(DatabaseError::Storage(redb::StorageError::Io(why)))
            if why.kind() != std::io::ErrorKind::InvalidData =>
        {
            Err(why.to_string())
        }
        Err(why) => {
            log::warn!("{} is made anew: {why}", path.display());
            std::fs::remove_file(path).map_err(|why| why.to_string())?;
            open().map_err(|why| why.to_string())
        }
    }
}

fn empty(transaction: &WriteTransaction) -> Result<usize, redb::Error> {
    let mut table = transaction.open_table(ENTRIES)?;
    let mut count = 0;
    table.retain(|_, _| {
        count += 1;
        false
    })?;
    Ok(count)
}

fn entries(table: &impl ReadableTable<&'static Keys, &'static Values>) -> Result<Vec<Entry>, redb::Error> {
    table
        .iter()?
        .map(|item| {
            let (key, value) = item?;
            Ok(Entry::from_bytes(Key::from_bytes(key.value()), value.value()))
        })
        .collect()
}

fn write_uses(
    table: &mut Table<&'static Keys, &'static Values>,
    uses: &HashMap<Key, u64>,
) -> Result<(), redb::Error> {
    for (key, &last_use) in uses {
        let entry = table.get(&key.to_bytes())?.map(|value| Entry::from_bytes(*key, value.value()));
        if let Some(entry) = entry {
            table.insert(&key.to_bytes(), &Entry { last_use, ..entry }.to_bytes())?;
        }
    }
    Ok(())
}

/// Drops the least recently used entries over the limits: those of `new`'s client over its own, and over the limits of
/// all, those of whoever has the most, so that no client drives out another. Gives their keys.
fn evict(
    table: &mut Table<&'static Keys, &'static Values>,
    new: &Key,
    limits: Limits,
) -> Result<Vec<Key>, redb::Error> {
    let mut all = entries(table)?;
    all.sort_by_key(|entry| entry.last_use);
    let mut dropped = Vec::new();
    loop {
        let mut counts: HashMap<u32, (usize, u64)> = HashMap::new();
        for entry in &all {
            let (count, bytes) = counts.entry(entry.key.uid).or_default();
            (*count, *bytes) = (*count + 1, bytes.saturating_add(entry.bytes()));
        }
        let bytes = all.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.bytes()));
        let own = counts.get(&new.uid).map_or(0, |&(count, _)| count);
        let uid = if own > limits.entries_per_uid {
            Some(new.uid)
        } else if all.len() > limits.entries {
            counts.iter().max_by_key(|(_, &(count, _))| count).map(|(&uid, _)| uid)
        } else if bytes > limits.bytes {
            counts.iter().max_by_key(|(_, &(_, bytes))| bytes).map(|(&uid, _)| uid)
        } else {
            None
        };
        let Some(at) = uid.and_then(|uid| all.iter().position(|entry| entry.key.uid == uid)) else {
            return Ok(dropped);
        };
        let key = all.remove(at).key;
        table.remove(&key.to_bytes())?;
        dropped.push(key);
    }
}

impl Key {
    fn to_bytes(self) -> Keys {
        let mut bytes = [0; 36];
        bytes[..4].copy_from_slice(&self.uid.to_be_bytes());
        bytes[4..].copy_from_slice(&self.token);
        bytes
    }

    fn from_bytes(bytes: &Keys) -> Self {
        let (mut uid, mut token) = ([0; 4], [0; 32]);
        uid.copy_from_slice(&bytes[..4]);
        token.copy_from_slice(&bytes[4..]);
        Key { uid: u32::from_be_bytes(uid), token }
    }
}

impl Entry {
    pub fn bytes(&self) -> u64 {
        self.record.model_len.saturating_add(self.record.data_len)
    }

    fn to_bytes(self) -> Values {
        let mut bytes = [0; 56];
        bytes[..32].copy_from_slice(&self.record.hash);
        for (to, number) in
            bytes[32..].chunks_exact_mut(8).zip([self.record.model_len, self.record.data_len, self.last_use])
        {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(key: Key, bytes: &Values) -> Self {
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[..32]);
        let record = Record { hash, model_len: number(32), data_len: number(40) };
        Entry { key, record, last_use: number(48) }
    }
}
