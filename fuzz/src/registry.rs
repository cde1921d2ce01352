//! The registry's file with any bytes in it, and the mark beside it with any note.
//!
//! redb takes some of what it finds for granted, and panics. That ends the driver, once or twice: the mark tells the next
//! start, which makes the registry anew. So a panic of redb's is no find while the mark says that somebody works on the
//! file; any other panic is, and so is a driver that still has no registry after a few starts.
//!
//! Without Android's build a panic unwinds, and redb may panic once more as it does: that ends this process, and not as a
//! find.
//!
//! An input: which registry to begin with, the mark's note, and changes to the file.

#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use nnhal::cache::{Entry, FileId, Key, Limits, Offline, Record, Registry};
use nnhal_fuzz::{bytes, next, scratch_directory};
use std::fs;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, Once};

const FINGERPRINT: &str = "driver";
/// Starts that may die of a registry, or have none: one that writes, one that writes again, one that looks whether it is in
/// order, one that opens it.
const DEATHS: usize = 4;
const NOTES: [&str; 8] = ["", "", "", "", "w", "s", "o", "sw"];

fn limits() -> Limits {
    Limits { entries: 4, entries_per_uid: 3, bytes: 35 }
}

fn entry(i: u8) -> Entry {
    let record = Record {
        hash: [i; 32],
        model_len: 9,
        data_len: 1,
        data_hash: Some([i; 32]),
        model: u64::from(i / 2),
    };
    let file = FileId { device: 1, inode: u64::from(i) };
    Entry { key: Key { uid: u32::from(i & 1), token: [i / 2; 32] }, file, record, last_use: 0 }
}

/// A registry's file as some driver left it, and where in it there is something.
struct Left {
    bytes: Vec<u8>,
    filled: Vec<usize>,
}

static LEFT: LazyLock<Vec<Left>> = LazyLock::new(|| {
    let directory = scratch_directory();
    let path = directory.join("registry.redb");
    let mut left = vec![Vec::new()];
    let registry = Registry::new(Some(&directory), FINGERPRINT, limits());
    for i in 0..4 {
        registry.put(&entry(i)).expect("room");
    }
    // While it is open it looks as after a power cut.
    left.push(fs::read(&path).expect("a registry"));
    drop(registry);
    left.push(fs::read(&path).expect("a registry"));
    let other = Registry::new(Some(&directory), "an earlier driver", Limits::default());
    for i in 0..40 {
        other.put(&entry(i)).expect("room");
    }
    drop(other);
    left.push(fs::read(&path).expect("a registry"));
    let filled = |bytes: &[u8]| {
        bytes.chunks(16).enumerate().filter(|(_, c)| c.iter().any(|&b| b != 0)).map(|(i, _)| i * 16).collect()
    };
    left.into_iter().map(|bytes| Left { filled: filled(&bytes), bytes }).collect()
});

/// Where the registry is that is being worked on.
static PLACE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Has a panic end the process unless it is one that the mark is for.
fn tolerate_what_the_mark_is_for() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let fatal = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let of_redb = panic.location().is_some_and(|place| place.file().contains("/redb-"));
            let marked = PLACE.lock().is_ok_and(|place| {
                place.as_ref().is_some_and(|path| {
                    fs::read(path.with_extension("mark")).is_ok_and(|note| !note.is_empty())
                })
            });
            let amid_another = panic.payload_as_str() == Some("panic in a destructor during cleanup");
            if marked && amid_another {
                // Nobody could go on: run.sh has libFuzzer begin again with the next input.
                // SAFETY: it ends the process, whatever its state.
                unsafe { libc::_exit(0) }
            }
            if !(of_redb && marked) {
                fatal(panic);
            }
        }));
    });
}

/// What a driver does with it. An error if it did not live through it, or has no registry.
fn start(directory: &Path, kind: u8) -> Result<(), String> {
    let work = || {
        let registry = Registry::new(Some(directory), FINGERPRINT, limits());
        if kind & 1 == 1 {
            registry.open_ahead();
        }
        let _ = (registry.get(&entry(0).key), registry.list(), registry.has_like(1, &[0; 4]));
        if kind & 2 == 2 {
            registry.used(&entry(1));
            let _ = registry.remove(&entry(2).key, |_| true);
        }
        registry.put(&entry(7)).map(drop).map_err(|why| why.to_string())
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err("it died".into()))
}

fn look(directory: &Path) {
    let Ok(Offline { clients: Some(mut clients), .. }) = Offline::open(directory) else { return };
    let _ = (clients.fingerprint(), clients.entries(), clients.faults(), clients.clear());
}

fuzz_target!(|data: &[u8]| {
    tolerate_what_the_mark_is_for();
    let mut input = Unstructured::new(data);
    let (kind, note) = (next::<u8>(&mut input), next::<u8>(&mut input));
    let left = &LEFT[usize::from(kind >> 6) % LEFT.len()];
    let mut file = left.bytes.clone();
    while !input.is_empty() {
        let (how, place) = (next::<u8>(&mut input), usize::from(next::<u16>(&mut input)));
        let place = match how & 0x80 {
            0 if !left.filled.is_empty() => {
                left.filled[place % left.filled.len()] + usize::from(how >> 3 & 15)
            }
            _ => place * 16,
        };
        match how & 7 {
            7 => file.truncate(place),
            count => {
                let bytes = bytes(&mut input, 1 << count.min(6));
                let end = place.saturating_add(bytes.len()).min(1 << 22);
                file.resize(file.len().max(end), 0);
                file[place..end].copy_from_slice(&bytes[..end - place]);
            }
        }
    }
    let directory = scratch_directory();
    let path = directory.join("registry.redb");
    fs::write(&path, &file).expect("room");
    fs::write(path.with_extension("mark"), NOTES[usize::from(note) % NOTES.len()]).expect("room");
    if let Ok(mut place) = PLACE.lock() {
        *place = Some(path.clone());
    }
    if kind & 32 == 32 {
        // People's own looks: nobody's start depends on them, and a panic is theirs.
        fs::write(path.with_extension("mark"), "a look").expect("room");
        let _ = catch_unwind(|| look(&directory));
        return;
    }
    let starts: Vec<_> = (0..=DEATHS).map_while(|_| start(&directory, kind).err()).collect();
    assert!(starts.len() <= DEATHS, "no driver ever has a registry again: {starts:?}");
});
