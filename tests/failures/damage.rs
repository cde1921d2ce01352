//! Registries that are damaged, at every byte.

use super::crashes::State;
use super::keeper::{self, Files, SECOND};
use super::opener::Opener;
use super::*;
use std::collections::BTreeMap;

/// What the next driver says when it puts a registry aside.
const MADE_ANEW: &str = "is made anew";
/// What it says where it finds nothing wrong, or could repair it.
const IN_ORDER: &str = "it is in order";
/// What must come of no damage.
const TOO_MANY: &str = "too many drivers died, or left no word of it";

/// What becomes of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    /// All bits of one byte turn.
    Byte(usize),
    /// One bit turns.
    Bit(usize),
    /// Eight bytes are all ones.
    Ones(usize),
    /// A sector is lost.
    Sector(usize),
    /// The end is lost.
    End(usize),
}

impl Damage {
    fn do_to(self, registry: &mut Vec<u8>) {
        match self {
            Damage::Byte(at) => registry[at] ^= 0xff,
            Damage::Bit(at) => registry[at] ^= 1 << (at % 8),
            Damage::Ones(at) => registry[at..at + 8].fill(0xff),
            Damage::Sector(at) => registry[at..at + 512].fill(0),
            Damage::End(len) => registry.truncate(len),
        }
    }

    fn all(len: usize) -> Vec<Damage> {
        let mut all = Vec::new();
        let long = is_long();
        // Without a common factor with what the registry is laid out by.
        all.extend((0..len).step_by(if long { 1 } else { 311 }).map(Damage::Byte));
        all.extend((0..len).step_by(if long { 1 } else { 523 }).map(Damage::Bit));
        all.extend((0..len - 7).step_by(if long { 8 } else { 8 * 101 }).map(Damage::Ones));
        all.extend((0..len - 511).step_by(if long { 512 } else { 2560 }).map(Damage::Sector));
        all.extend((0..len).step_by(if long { 512 } else { 5120 }).map(Damage::End));
        all
    }
}

/// Drivers over a registry, at `path` below what `whole` is, in each of the `damages`.
fn open_damaged(whole: &State, path: &Path, damages: Vec<Damage>) {
    let openers = Mutex::new(vec![Opener::new(), Opener::new()]);
    let (counts, wrong) = (Mutex::new(BTreeMap::<_, usize>::new()), Mutex::new(Vec::new()));
    let count = damages.len();
    each(damages, |damage| {
        let mut state = whole.clone();
        damage.do_to(state.file(path));
        let mut opener = openers.lock().expect("no panic").pop().expect("one for each");
        state.put(opener.root.path());
        let found = opener.open(&[SECOND]);
        let is_told = |what| found.log.iter().any(|line| line.contains(what));
        let outcome = match (found.deaths, is_told(MADE_ANEW), is_told(IN_ORDER)) {
            (0, false, _) => "served on",
            (0, true, _) => "put aside at once",
            (1, true, _) => "put aside after a driver died",
            (1, false, true) => "served on after a driver died",
            _ => TOO_MANY,
        };
        *counts.lock().expect("no panic").entry(outcome).or_default() += 1;
        if found.result.is_err() || outcome == TOO_MANY {
            wrong.lock().expect("no panic").push(format!("{damage:?}: {found:?}"));
        }
        openers.lock().expect("no panic").push(opener);
    });
    println!("{}, damaged in {count} ways: {:?}", path.display(), counts.into_inner().expect("no panic"));
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_mark_of_any_content_is_struck_out() {
    let root = directory();
    keeper::make_files(root.path());
    let files = Files::open(root.path());
    assert_eq!(keeper::work(root.path(), &files), Ok(vec![SECOND]));
    let (whole, mut opener) = (State::of(root.path()), Opener::new());
    let mark = Path::new("data/registry.mark");
    // Any byte, what a torn write may leave of a sector, and more than anybody writes.
    let mut notes: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    notes.extend([vec![0; 512], vec![0xff; 512], b"ow".repeat(1000)]);
    for note in notes {
        let mut state = whole.clone();
        *state.file(mark) = note.clone();
        state.put(opener.root.path());
        let found = opener.open(&[SECOND]);
        assert!(found.result.is_ok() && found.deaths == 0, "{note:?}: {found:?}");
        let left = std::fs::read(opener.root.path().join(mark)).expect("a mark");
        assert!(left.is_empty(), "{note:?} became {left:?}");
    }
}

#[test]
fn a_registry_that_is_damaged_anywhere_ends_one_driver_at_most() {
    let root = directory();
    keeper::make_files(root.path());
    let files = Files::open(root.path());
    assert_eq!(keeper::work(root.path(), &files), Ok(vec![SECOND]));
    let closed = State::of(root.path());
    let crashed = keeper::while_it_runs(root.path(), || State::of(root.path()));
    for name in ["data/registry.redb", "data/store/registry.redb"] {
        for mut state in [closed.clone(), crashed.clone()] {
            let len = state.file(Path::new(name)).len();
            open_damaged(&state, Path::new(name), Damage::all(len));
        }
    }
}
