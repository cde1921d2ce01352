//! The registry's table in redb: opening it, and what is done to it.

use super::entry::{Entry, EntryBytes, Key, KeyBytes};
use super::marker::{Left, Marker};
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, DatabaseError, ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase, ReadableTable,
    StorageError, TableDefinition, TableError, TableHandle, WriteTransaction,
};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant};

/// How much there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub entries: usize,
    pub entries_per_uid: usize,
    /// Bytes of model and data caches together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { entries: 4096, entries_per_uid: 512, bytes: u64::MAX }
    }
}

pub(super) const FILE: &str = "registry.redb";

const ENTRIES: TableDefinition<&KeyBytes, &EntryBytes> = TableDefinition::new("cache files");
const FACTS: TableDefinition<&str, &str> = TableDefinition::new("facts");
const FINGERPRINT: &str = "fingerprint";
/// The table is small; more would be wasted.
const CACHE_BYTES: usize = 1 << 20;

type Table<'t> = redb::Table<'t, &'static KeyBytes, &'static EntryBytes>;

/// An open database. Reading costs no write to the disk, not even to open it.
pub(super) enum Open {
    ToRead(ReadOnlyDatabase),
    ToWrite(Database),
}

impl Open {
    /// Opens what a driver of this `fingerprint` has left at `path`, to be read. `None` if there is nothing such, or if
    /// it was not closed and has to be repaired.
    pub fn to_read(path: &Path, fingerprint: &str) -> Option<Self> {
        if !path.exists() {
            return None;
        }
        let mut marker = Marker::hold(path);
        if marker.as_ref().is_some_and(|marker| marker.left() != Left::Order) {
            return None;
        }
        marker.iter_mut().for_each(Marker::opening);
        let open = || {
            let open = Open::ToRead(builder().open_read_only(path).ok()?);
            let same = open.fingerprint().ok()?.is_some_and(|found| found == fingerprint);
            // Read whole, so that nothing unexpected is left for later.
            (same && open.entries().is_ok()).then_some(open)
        };
        let opened = catch_unwind(open);
        if opened.is_ok() {
            marker.iter_mut().for_each(Marker::opened);
        }
        opened.ok()?
    }

    /// Opens the registry at `path`, or makes a new one if the old one is not of this driver: its loss costs misses only.
    /// Waits until `patience` ends for another who uses it.
    pub fn to_write(path: &Path, patience: Instant) -> Result<Self, String> {
        const PAUSE: Duration = Duration::from_millis(5);
        loop {
            match Self::checked(path) {
                Ok(database) => return Ok(Open::ToWrite(database)),
                Err(Refused::InUse) if Instant::now() < patience => std::thread::sleep(PAUSE),
                Err(Refused::InUse) => return Err("another daemon uses it".into()),
                Err(Refused::Io(why)) => return Err(why),
                Err(Refused::Broken(why)) => {
                    put_aside(path, &why)?;
                    let opened = open(path, true).map(Open::ToWrite).map_err(|why| why.to_string());
                    Marker::hold(path).iter_mut().for_each(Marker::end);
                    return opened;
                }
            }
        }
    }

    /// Opens what is at `path` to be written, as carefully as what is known of earlier work on it asks for.
    fn checked(path: &Path) -> Result<Database, Refused> {
        let mut marker = Marker::hold(path);
        let left = marker.as_ref().map_or(Left::Order, Marker::left);
        if left == Left::Damage {
            return Err(Refused::Broken("two earlier daemons ended while they used it".into()));
        }
        marker.iter_mut().for_each(Marker::opening);
        let opened = open(path, true);
        if opened.is_ok() && left != Left::Order {
            log::warn!("{}: an earlier daemon ended while it used it; it is in order", path.display());
        }
        if !matches!(opened, Err(Refused::Broken(_))) {
            marker.iter_mut().for_each(Marker::opened);
        }
        opened
    }

    /// One that is gone with the process.
    pub fn in_memory() -> Result<Self, String> {
        builder()
            .create_with_backend(InMemoryBackend::new())
            .map(Open::ToWrite)
            .map_err(|why| why.to_string())
    }

    fn begin_read(&self) -> Result<redb::ReadTransaction, redb::Error> {
        Ok(match self {
            Open::ToRead(database) => database.begin_read(),
            Open::ToWrite(database) => database.begin_read(),
        }?)
    }

    pub fn table(&self) -> Result<ReadOnlyTable<&'static KeyBytes, &'static EntryBytes>, redb::Error> {
        Ok(self.begin_read()?.open_table(ENTRIES)?)
    }

    pub fn entries(&self) -> Result<Vec<Entry>, redb::Error> {
        entries(&self.table()?)
    }

    /// Of the driver that made the entries.
    pub fn fingerprint(&self) -> Result<Option<String>, redb::Error> {
        let facts = self.begin_read()?.open_table(FACTS)?;
        let fact = facts.get(FINGERPRINT)?;
        Ok(fact.map(|fact| fact.value().to_owned()))
    }

    /// Makes a durable change; whatever was read before, the change is to what there is now.
    pub fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        self.write_if(|_| true, change)
    }

    /// The same, but nothing is changed unless what the change gives `is_to_stay`.
    pub fn write_if<T>(
        &self,
        is_to_stay: impl FnOnce(&T) -> bool,
        change: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        let Open::ToWrite(database) = self else {
            return Err(redb::Error::Corrupted("it was opened to be read".into()));
        };
        let transaction = database.begin_write()?;
        let changed = change(&transaction)?;
        match is_to_stay(&changed) {
            true => transaction.commit()?,
            false => transaction.abort()?,
        }
        Ok(changed)
    }

    /// Makes the tables, without entries of drivers of another fingerprint. Writes only if it has to.
    pub fn prepare(&self, fingerprint: &str) -> Result<(), redb::Error> {
        if self.fingerprint().is_ok_and(|found| found.as_deref() == Some(fingerprint)) && self.table().is_ok()
        {
            return Ok(());
        }
        let dropped = self.write(|transaction| {
            transaction.open_table(FACTS)?.insert(FINGERPRINT, fingerprint)?;
            drop_others(transaction)?;
            empty(transaction)
        })?;
        if dropped > 0 {
            log::info!("the driver is another one: {dropped} earlier compilations are void");
        }
        Ok(())
    }
}

/// Moves the registry at `path` out of the way if `why` says that it is damaged, so that the next open makes a new one.
/// Other errors, such as a full disk, pass.
pub(super) fn give_up_damaged(path: &Path, why: &redb::Error) {
    if is_damaged(why) {
        if let Err(why) = put_aside(path, &why.to_string()) {
            log::warn!("{} stays as it is: {why}", path.display());
        }
    }
}

/// Whether an error tells of the file, and not of the disk or of this process.
fn is_damaged(why: &redb::Error) -> bool {
    use redb::Error::{Corrupted, Io, TableIsMultimap, TableTypeMismatch, TypeDefinitionChanged};
    match why {
        Corrupted(_) | TableTypeMismatch { .. } | TableIsMultimap(_) | TypeDefinitionChanged { .. } => true,
        Io(why) => is_damage(why),
        _ => false,
    }
}

/// Whether reading failed for what was read, and not for the disk.
fn is_damage(why: &std::io::Error) -> bool {
    matches!(why.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

/// Moves the registry at `path` out of the way, and keeps it for people who want to know what happened to it.
fn put_aside(path: &Path, why: &str) -> Result<(), String> {
    let aside = path.with_extension("damaged");
    log::warn!("{} is made anew, the old one is {}: {why}", path.display(), aside.display());
    match std::fs::rename(path, &aside).or_else(|_| std::fs::remove_file(path)) {
        // The daemon that left the note had not made the registry yet, or had put it aside already.
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        moved => moved.map_err(|why| why.to_string()),
    }
}

/// Why a database was not opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("it is in use by another process, probably a running daemon")]
    InUse,
    #[error("{0}")]
    Io(String),
    #[error("it is not a registry, or is damaged: {0}")]
    Broken(String),
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Opens the database at `path`, repaired where that was needed, for reading and writing. To `create` is for drivers: what is
/// there is checked whole, page by page, as redb does not survive every write to a damaged file.
pub(super) fn open(path: &Path, create: bool) -> Result<Database, Refused> {
    let open = || match create {
        true => builder().set_check_integrity_on_open(true).create(path),
        false => builder().open(path),
    };
    // redb takes some of what it finds for granted.
    let read = || open().map(|database| (read_whole(&database), database));
    match catch_unwind(AssertUnwindSafe(read)) {
        // redb writes nothing once reading has failed, so a driver that needs to write makes the registry anew.
        Ok(Ok((Err(why), _))) if create && is_damaged(&why) => Err(Refused::Broken(why.to_string())),
        Ok(Ok((read, database))) => {
            if let Err(why) = read {
                log::warn!("the registry cannot be read whole: {why}");
            }
            Ok(database)
        }
        Ok(Err(DatabaseError::DatabaseAlreadyOpen)) => Err(Refused::InUse),
        Ok(Err(DatabaseError::Storage(StorageError::Io(why)))) if !is_damage(&why) => {
            Err(Refused::Io(why.to_string()))
        }
        Ok(Err(why)) => Err(Refused::Broken(why.to_string())),
        Err(_) => Err(Refused::Broken("reading it failed".into())),
    }
}

/// Reads all there is, so that nothing unexpected is left for later. What is not there yet will be made.
fn read_whole(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_read()?;
    match transaction.open_table(FACTS) {
        Err(TableError::TableDoesNotExist(_)) => {}
        facts => drop(facts?.get(FINGERPRINT)?),
    }
    match transaction.open_table(ENTRIES) {
        Err(TableError::TableDoesNotExist(_)) => Ok(()),
        table => entries(&table?).map(drop),
    }
}

/// Drops all entries; gives how many there were.
pub(super) fn empty(transaction: &WriteTransaction) -> Result<usize, redb::Error> {
    let mut count = 0;
    table(transaction)?.retain(|_, _| {
        count += 1;
        false
    })?;
    Ok(count)
}

/// Drops tables that this driver does not know: older drivers had others.
fn drop_others(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    let tables: Vec<_> = transaction.list_tables()?.collect();
    for other in tables.into_iter().filter(|table| ![ENTRIES.name(), FACTS.name()].contains(&table.name())) {
        transaction.delete_table(other)?;
    }
    Ok(())
}

pub(super) fn table(transaction: &WriteTransaction) -> Result<Table<'_>, redb::Error> {
    Ok(transaction.open_table(ENTRIES)?)
}

fn entries(
    table: &impl ReadableTable<&'static KeyBytes, &'static EntryBytes>,
) -> Result<Vec<Entry>, redb::Error> {
    collect(table.iter()?)
}

/// All entries of a client's token.
pub(super) fn entries_of(
    table: &impl ReadableTable<&'static KeyBytes, &'static EntryBytes>,
    key: &Key,
) -> Result<Vec<Entry>, redb::Error> {
    let [first, last] = key.range();
    collect(table.range::<&KeyBytes>(&first..=&last)?)
}

/// Whether a client has an entry under a token that begins so.
pub(super) fn has_like(
    table: &impl ReadableTable<&'static KeyBytes, &'static EntryBytes>,
    uid: u32,
    prefix: &[u8],
) -> Result<bool, redb::Error> {
    let filled = |rest: u8| {
        let mut token = [rest; 32];
        token[..prefix.len()].copy_from_slice(prefix);
        Key { uid, token }.range()
    };
    let ([first, _], [_, last]) = (filled(0), filled(u8::MAX));
    Ok(table.range::<&KeyBytes>(&first..=&last)?.next().transpose()?.is_some())
}

fn collect(range: redb::Range<&'static KeyBytes, &'static EntryBytes>) -> Result<Vec<Entry>, redb::Error> {
    let entry = |item: Result<(redb::AccessGuard<_>, redb::AccessGuard<_>), _>| {
        let (key, value) = item?;
        Ok(Entry::from_bytes(key.value(), value.value()))
    };
    range.map(entry).collect()
}

/// Notes when entries were used.
pub(super) fn write_uses(table: &mut Table, uses: &HashMap<KeyBytes, u64>) -> Result<(), redb::Error> {
    for (key, &last_use) in uses {
        let entry = table.get(key)?.map(|value| Entry::from_bytes(key, value.value()));
        if let Some(entry) = entry {
            table.insert(key, &Entry { last_use, ..entry }.to_bytes())?;
        }
    }
    Ok(())
}

/// How many files of one token are remembered.
const PLACES: usize = 4;

/// Inserts `entry`, which replaces what its files held before. Entries of its token in other files stay if they are of the
/// same model and not too many.
pub(super) fn insert(table: &mut Table, entry: &Entry) -> Result<(), redb::Error> {
    let mut others = entries_of(&*table, &entry.key)?;
    others.sort_by_key(|other| std::cmp::Reverse(other.last_use));
    let is_same = |other: &Entry| other.record.model == entry.record.model && other.file != entry.file;
    let (same, void): (Vec<_>, Vec<_>) = others.into_iter().partition(is_same);
    for other in void.iter().chain(same.iter().skip(PLACES - 1)) {
        table.remove(&other.key_bytes())?;
    }
    table.insert(&entry.key_bytes(), &entry.to_bytes())?;
    Ok(())
}

/// Drops the least recently used entries over the limits: those of `new`'s client over its own, and over the limits of
/// all, those of the client that has the most, so that no client drives out another. Gives their keys; `None` where `new`
/// itself is such an entry, so that it is not to be recorded, nor anything dropped for it.
pub(super) fn evict(table: &mut Table, new: &Entry, limits: Limits) -> Result<Option<Vec<Key>>, redb::Error> {
    let client = new.key.uid;
    let mut all = entries(&*table)?;
    all.sort_by_key(|entry| entry.last_use);
    let mut dropped = Vec::new();
    loop {
        let mut counts: HashMap<u32, (usize, u64)> = HashMap::new();
        for entry in &all {
            let (count, bytes) = counts.entry(entry.key.uid).or_default();
            (*count, *bytes) = (*count + 1, bytes.saturating_add(entry.bytes()));
        }
        let bytes = all.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.bytes()));
        let own = counts.get(&client).map_or(0, |&(count, _)| count);
        let uid = if own > limits.entries_per_uid {
            Some(client)
        } else if all.len() > limits.entries {
            counts.iter().max_by_key(|(&uid, &(count, _))| (count, uid != client)).map(|(&uid, _)| uid)
        } else if bytes > limits.bytes {
            // Of two clients with the same, the one that saves: otherwise each would drive out the other over and over.
            counts.iter().max_by_key(|(&uid, &(_, bytes))| (bytes, uid == client)).map(|(&uid, _)| uid)
        } else {
            None
        };
        let Some(at) = uid.and_then(|uid| all.iter().position(|entry| entry.key.uid == uid)) else {
            return Ok(Some(dropped));
        };
        let entry = all.remove(at);
        if entry.key_bytes() == new.key_bytes() {
            return Ok(None);
        }
        table.remove(&entry.key_bytes())?;
        dropped.push(entry.key);
    }
}
