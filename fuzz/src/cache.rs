//! A client's cache files, and the driver's own store, of which anything may have changed since they were written.
//!
//! An input is a list of steps: saving, reserving, filling, loading, and what a client does to its files in between. What
//! is loaded must be what was saved, byte for byte, as far as the model goes.

#![no_main]

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use nnhal::cache::{Cache, CacheFiles, Content, Key, Loaded, Offline, Parts, Reserved, Store};
use nnhal::memory::AlignedBuf;
use nnhal::ops::NeverInterrupted;
use nnhal_fuzz::{bytes, file, next, scratch_directory, shared_memory};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What is saved: one of a few compiled models, in so many files.
struct Made {
    models: Vec<Vec<u8>>,
    data: Vec<Parts>,
}

impl Made {
    fn new(kind: u8, models: usize, data: usize) -> Self {
        let part = |bytes: &[u8]| AlignedBuf::copy_of(bytes).expect("memory").into();
        let parts = |_| match kind & 3 {
            0 => Vec::new(),
            1 => vec![(0, part(b"weights"))],
            _ => vec![(0, part(b"first")), (64, part(&[kind; 100]))],
        };
        Made { models: vec![vec![kind; usize::from(kind)]; models], data: (0..data).map(parts).collect() }
    }

    fn content(&self) -> Content<'_> {
        Content { models: &self.models, data: &self.data }
    }
}

/// A data file of a little data ends here, but for a byte.
const DATA_END: u64 = 64 << 10;

/// What the client does to a file.
fn change(file: &File, input: &mut Unstructured) {
    let (kind, place) = (next::<u8>(input), u64::from(next::<u8>(input)));
    let at = if kind & 1 == 1 { DATA_END - place } else { place };
    let _ = match kind & 3 {
        0 => file.set_len(place),
        1 => file.set_len(at),
        _ => file.write_all_at(bytes(input, usize::from(kind >> 2)), at),
    };
}

fn check(loaded: &Loaded, saved: &HashSet<Vec<Vec<u8>>>) {
    assert!(saved.contains(&loaded.models), "something was loaded that was never saved");
}

fn change_stored(directory: &Path, input: &mut Unstructured) {
    let mut paths: Vec<_> = std::fs::read_dir(directory.join("store"))
        .map(|files| files.flatten().map(|file| file.path()).collect())
        .unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|kind| kind != "redb" && kind != "mark"));
    paths.sort();
    let index = usize::from(next::<u8>(input));
    let Some(path) = paths.get(index % paths.len().max(1)) else { return };
    if index & 0x80 == 0x80 {
        return drop(std::fs::remove_file(path));
    }
    let Ok(file) = File::options().write(true).open(path) else { return };
    match index & 0x40 {
        0 => change(&file, input),
        // As after months in which nobody loaded it.
        _ => drop(file.set_modified(SystemTime::now() - Duration::from_secs(200 * 24 * 3600))),
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let shape = next::<u8>(&mut input);
    let (models, parts) = (1 + usize::from(shape & 1), usize::from(shape >> 1 & 3).min(2));
    let files: Vec<File> = (0..models + parts + 1).map(|_| shared_memory()).collect();
    let directory = (shape & 8 == 8).then(scratch_directory);
    // What it holds at the most: in the smaller one there is room for a few models.
    let most = if shape & 16 == 16 { 600 } else { 1 << 20 };
    let cache = Cache::new(None, "driver");
    // What was loaded is in use for as long as it is kept.
    let mut kept = None;
    let mut saved = HashSet::new();
    let mut reserved: Option<(Key, Reserved)> = None;
    let key = |kind: u8| Key { uid: u32::from(kind >> 4 & 1), token: [kind >> 5; 32] };
    let of = |extra: bool| {
        let all: Vec<&File> = files.iter().skip(usize::from(extra)).collect();
        CacheFiles::new(&all[..models], &all[models..models + parts])
    };
    let mut store = directory.as_ref().map(|directory| Store::new(directory, "driver", most));
    while !input.is_empty() {
        let step = next::<u8>(&mut input);
        let (key, other) = (key(step), step & 0x80 == 0x80);
        match step & 15 {
            0 | 1 => {
                let made = Made::new(next(&mut input), models, parts);
                saved.insert(made.models.clone());
                let _ =
                    of(other).and_then(|files| cache.save(&key, &files, made.content(), &NeverInterrupted));
            }
            2 => {
                let left = of(other).and_then(|files| cache.reserve(&key, &files, &NeverInterrupted));
                reserved = left.ok().map(|left| (key, left))
            }
            3 => {
                let made = Made::new(next(&mut input), models, parts);
                saved.insert(made.models.clone());
                if let (Some((key, left)), Ok(files)) = (reserved.take(), of(other)) {
                    let _ = cache.fill(&key, &files, &left, made.content(), &NeverInterrupted);
                }
            }
            4..=6 => {
                if let Ok(loaded) = of(other).and_then(|files| cache.load(&key, &files)) {
                    check(&loaded, &saved);
                }
            }
            7 | 8 => change(&files[usize::from(step >> 4) % files.len()], &mut input),
            9 => {
                // Fewer or more files than there should be, of other kinds, or the same twice.
                let (kind, wrong) = (next::<u8>(&mut input), file(step >> 4));
                let list = [wrong, file(kind), file(kind >> 4)];
                let (first, second) = list.split_at(usize::from(kind) % 3);
                if let Ok(files) = CacheFiles::new(first, second) {
                    let _ = cache.load(&key, &files);
                }
            }
            10 => {
                if let Some(store) = &store {
                    let made = Made::new(next(&mut input), models, parts);
                    saved.insert(made.models.clone());
                    let _ = store.save(&key, made.content(), &NeverInterrupted);
                }
            }
            11 => {
                if let Some(Ok(loaded)) = store.as_ref().map(|store| store.load(&key)) {
                    check(&loaded, &saved);
                    kept = other.then_some(loaded);
                }
            }
            12 => directory.iter().for_each(|directory| change_stored(directory, &mut input)),
            13 => {
                // The driver starts again, or another one.
                let fingerprint = if other { "another driver" } else { "driver" };
                drop(store.take());
                store = directory.as_ref().map(|directory| Store::new(directory, fingerprint, most));
            }
            14 => {
                if let Some(directory) = &directory {
                    drop(store.take());
                    if let Ok(Offline { store: Some(mut stored), .. }) = Offline::open(directory) {
                        let _ = (stored.faults(), stored.entries(), stored.fingerprint());
                        if other {
                            let _ = stored.clear();
                        }
                    }
                    store = Some(Store::new(directory, "driver", most));
                }
            }
            _ => {
                if let Some(store) = &store {
                    store.open_ahead();
                    let _ = (store.has_like(key.uid, &key.token[..8]), store.size(), store.most_bytes());
                }
                if let Some(directory) = &directory {
                    let _ = Store::count(directory);
                }
            }
        }
    }
    drop((store, kept));
});
