//! Who waits for whom at the registry.

use super::*;
use crate::cache::{FileId, Record};
use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn who_opens_it_ahead_waits_for_nobody() {
    let registry = Registry::new(None, "driver", Limits::default());
    let (told, heard) = channel();
    std::thread::scope(|scope| {
        // Somebody waits for the disk.
        let held = registry.writing.lock().unwrap();
        scope.spawn(|| {
            registry.open_ahead();
            told.send(()).unwrap();
        });
        let heard = heard.recv_timeout(PATIENCE);
        drop(held);
        heard.expect("it does not wait");
    });
}

/// Memory that is synced only once the test says so, if it is to wait.
#[derive(Debug)]
struct SlowDisk {
    memory: InMemoryBackend,
    waits: Arc<AtomicBool>,
    began: Mutex<Sender<()>>,
    goes_on: Mutex<Receiver<()>>,
}

impl StorageBackend for SlowDisk {
    fn len(&self) -> Result<u64, std::io::Error> {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        self.memory.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        self.memory.set_len(len)
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        if self.waits.swap(false, Ordering::Relaxed) {
            self.began.lock().unwrap().send(()).unwrap();
            let _ = self.goes_on.lock().unwrap().recv_timeout(PATIENCE);
        }
        self.memory.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        self.memory.write(offset, data)
    }
}

#[test]
fn who_looks_something_up_waits_for_no_write() {
    let registry = Registry::new(None, "driver", Limits::default());
    let (waits, (began, begun), (go_on, goes_on)) = (Arc::new(AtomicBool::new(false)), channel(), channel());
    let disk = SlowDisk {
        memory: InMemoryBackend::new(),
        waits: waits.clone(),
        began: began.into(),
        goes_on: goes_on.into(),
    };
    let open = Open::ToWrite(Database::builder().create_with_backend(disk).unwrap());
    open.prepare("driver").unwrap();
    registry.table.write().unwrap().open = Some(open);
    let record = Record { hash: [0; 32], model_len: 0, data_len: 0, data_hash: None, model: 0 };
    let entry =
        |token| Entry { key: Key { uid: 1, token: [token; 32] }, file: FileId::STORE, record, last_use: 0 };
    registry.put(&entry(1)).unwrap();
    waits.store(true, Ordering::Relaxed);
    let (told, heard) = channel();
    std::thread::scope(|scope| {
        let (registry, entry) = (&registry, &entry);
        let writes = scope.spawn(move || registry.put(&entry(2)));
        begun.recv_timeout(PATIENCE).expect("the write is synced");
        scope.spawn(move || {
            let found = registry.get(&entry(1).key).unwrap();
            registry.used(&found[0]);
            told.send((found.len(), registry.is_open(), registry.list().unwrap().len())).unwrap();
        });
        let heard = heard.recv_timeout(PATIENCE / 4);
        go_on.send(()).unwrap();
        assert_eq!(heard, Ok((1, true, 1)), "it waited, or saw what is not written yet");
        writes.join().unwrap().unwrap();
    });
    assert_eq!(registry.list().unwrap().len(), 2);
}

#[test]
fn a_directory_that_is_a_link_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let [data, link] = ["data", "link"].map(|name| place.path().join(name));
    let record = Record { hash: [0; 32], model_len: 0, data_len: 0, data_hash: None, model: 0 };
    let entry = Entry { key: Key { uid: 1, token: [1; 32] }, file: FileId::STORE, record, last_use: 0 };
    let names = |directory: &Path| std::fs::read_dir(directory).unwrap().count();
    let of = |data: &Path| {
        [
            Registry::new(Some(data), "driver", Limits::default()),
            Registry::within(data, "store", "driver", Limits::default()),
        ]
    };
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink(&data, &link).unwrap();
    for linked in of(&link) {
        linked.open_ahead();
        let refused = linked.put(&entry).unwrap_err().to_string();
        assert!(refused.contains("link is a symbolic link"), "{refused}");
        assert!(linked.get(&entry.key).is_err() && linked.list().is_err());
    }
    assert_eq!(names(&data), 0, "it is followed");
    for real in of(&data) {
        real.put(&entry).unwrap();
    }
    // What is there is not believed by way of a link, either.
    for linked in of(&link) {
        linked.open_left();
        assert!(!linked.is_open() && linked.get(&entry.key).is_err());
    }
    // Nor where the link lies inside.
    let inner = place.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::os::unix::fs::symlink(data.join("store"), inner.join("store")).unwrap();
    assert!(Registry::within(&inner, "store", "driver", Limits::default()).list().is_err());
}

#[test]
fn what_a_killed_driver_left_is_in_order_before_anybody_asks() {
    let place = tempfile::tempdir().unwrap();
    let [killed, left, none] = ["killed", "left", "none"].map(|name| place.path().join(name));
    let of = |directory: &Path| Registry::new(Some(directory), "driver", Limits::default());
    let record = Record { hash: [0; 32], model_len: 0, data_len: 0, data_hash: None, model: 0 };
    let entry = Entry { key: Key { uid: 1, token: [1; 32] }, file: FileId::STORE, record, last_use: 0 };
    let open = of(&killed);
    open.put(&entry).unwrap();
    // As a kill leaves it: not closed.
    std::fs::create_dir(&left).unwrap();
    std::fs::copy(killed.join(table::FILE), left.join(table::FILE)).unwrap();
    let next = of(&left);
    next.open_ahead();
    assert!(!next.is_open(), "it was closed");
    next.open_left();
    assert!(next.is_open() && next.get(&entry.key).unwrap().len() == 1);
    let first = of(&none);
    first.open_left();
    assert!(!first.is_open() && !none.exists());
}
