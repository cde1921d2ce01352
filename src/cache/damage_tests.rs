//! Whatever is damaged in a registry's file, a driver that dies of it leaves a mark, and a later start has a registry.
//!
//! Drivers are in children of this program. The database crate panics over some damage, and at times once more while it
//! unwinds, which no process survives, however it was built.

use super::tests::{in_memory, key};
use super::{Entry, FileId, Limits, Record, Registry};
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts that a damage may cost: one ends amid a write, one amid the next, one finds it.
const MOST_STARTS: usize = 4;
/// Names the directory that a child works in.
const DIRECTORY: &str = "NNHAL_TEST_DAMAGED";
/// How a child ends that is done with all damages, and one for whom that goes on with one.
const DONE: i32 = 40;
const GOES_ON: i32 = 41;
/// Files of a child: the registry as it was, and which damage it is at, after how many starts.
const WHOLE: &str = "whole";
const PLACE: &str = "place";
const FILE: &str = "registry.redb";
const MARK: &str = "registry.mark";

fn entry(token: u8) -> Entry {
    let record =
        Record { hash: [token; 32], model_len: 9, data_len: 0, data_hash: None, model: u64::from(token) };
    Entry { key: key(1, token), file: FileId { device: 1, inode: 1 }, record, last_use: 0 }
}

/// Whether a driver can do with the registry what drivers do.
fn start(directory: &Path) -> bool {
    let registry = Registry::new(Some(directory), "driver", Limits::default());
    let _ = registry.get(&entry(1).key);
    let recorded = registry.put(&entry(9)).is_ok();
    recorded && registry.get(&entry(9).key).is_ok_and(|found| !found.is_empty())
}

/// What becomes of a file.
enum Damage {
    /// Some of the bytes from there on change.
    Change(usize, fn(&mut [u8])),
    Cut(usize),
}

impl Damage {
    /// Two for each sixteen bytes; `NNHAL_CAMPAIGN=long` has two for each byte.
    fn all(whole: &[u8]) -> Vec<Damage> {
        let is_long = std::env::var("NNHAL_CAMPAIGN").is_ok_and(|campaign| campaign == "long");
        let changes: [fn(&mut [u8]); 2] = match is_long {
            true => [|bytes| bytes[0] ^= 0xcd, |bytes| bytes[0] ^= 1],
            false => [|bytes| bytes[3] ^= 0xcd, |bytes| bytes[1..3].copy_from_slice(&[0, 16])],
        };
        let is_used = |&at: &usize| whole[at..].iter().take(16).any(|&byte| byte != 0);
        let places =
            (0..whole.len()).step_by(if is_long { 1 } else { 16 }).filter(|at| is_long || is_used(at));
        let changed = places.flat_map(|at| changes.map(|change| Damage::Change(at, change)));
        changed.chain((0..whole.len()).step_by(whole.len() / 16).map(Damage::Cut)).collect()
    }

    fn of(&self, whole: &[u8]) -> Vec<u8> {
        let mut damaged = whole.to_vec();
        match self {
            Damage::Change(at, change) => change(&mut damaged[*at..]),
            Damage::Cut(len) => damaged.truncate(*len),
        }
        damaged
    }
}

/// Not a test by itself: starts over one damage after the other, from where the child before it died.
#[test]
#[ignore = "the drivers of every_damage_heals"]
fn starts_over_damaged_registries() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    // As in Android's build.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let directory = Path::new(&directory);
    let place = std::fs::read_to_string(directory.join(PLACE)).unwrap();
    let mut place = place.split(' ').map(|number| number.parse::<usize>().unwrap());
    let (first, mut starts) = (place.next().unwrap(), place.next().unwrap());
    let whole = std::fs::read(directory.join(WHOLE)).unwrap();
    for (i, damage) in Damage::all(&whole).iter().enumerate().skip(first) {
        if starts == 0 {
            std::fs::write(directory.join(FILE), damage.of(&whole)).unwrap();
            std::fs::write(directory.join(MARK), "").unwrap();
        }
        loop {
            if starts == MOST_STARTS {
                std::process::exit(GOES_ON);
            }
            starts += 1;
            std::fs::write(directory.join(PLACE), format!("{i} {starts}")).unwrap();
            if start(directory) {
                break;
            }
        }
        starts = 0;
    }
    std::process::exit(DONE);
}

#[test]
fn every_damage_heals() {
    // Each start syncs, and none of it is to outlive the machine.
    let directory = in_memory();
    let at = |name| directory.path().join(name);
    {
        // Of another driver, so that the start has to write at once.
        let registry = Registry::new(Some(directory.path()), "earlier", Limits::default());
        (0..4).for_each(|token| drop(registry.put(&entry(token)).unwrap()));
    }
    std::fs::rename(at(FILE), at(WHOLE)).unwrap();
    let count = Damage::all(&std::fs::read(at(WHOLE)).unwrap()).len();
    std::fs::write(at(PLACE), "0 0").unwrap();
    let mut deaths = 0;
    loop {
        let mut drivers = Command::new(std::env::current_exe().unwrap());
        drivers.args(["--ignored", "--exact", "cache::damage_tests::starts_over_damaged_registries"]);
        drivers.env(DIRECTORY, directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let ended = drivers.status().unwrap().code();
        let place = std::fs::read_to_string(at(PLACE)).unwrap();
        match ended {
            None => deaths += 1,
            Some(DONE) => break,
            Some(GOES_ON) => panic!("it goes on: {place}"),
            Some(other) => panic!("{other}: {place}"),
        }
        assert!(!std::fs::read(at(MARK)).unwrap().is_empty(), "{place}: nothing tells of the death");
    }
    println!("{count} damages, {deaths} deaths");
    assert!(deaths > 0, "no damage was one that ends a driver");
}

#[test]
fn a_registry_that_opens_and_cannot_be_used_is_made_anew() {
    let directory = tempfile::TempDir::new().unwrap();
    {
        let database = redb::Database::create(directory.path().join(FILE)).unwrap();
        let transaction = database.begin_write().unwrap();
        // The table's name, with other types.
        transaction.open_table(redb::TableDefinition::<u64, u64>::new("cache files")).unwrap();
        transaction.commit().unwrap();
    }
    assert!((0..MOST_STARTS).any(|_| start(directory.path())), "it goes on");
    assert!(directory.path().join("registry.damaged").exists());
}
