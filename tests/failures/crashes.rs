//! Every state of the files that a crash may leave.
//!
//! What a file held when it was last synced is on the disk. Of what came after, all may be there, or nothing, or nothing of
//! one file, or all but a single change, and the last write may be torn at a sector. Names are changed in turn, and none of
//! them is ever synced: those from any turn on may be lost.

use super::calls::{do_traced, WELL};
use super::changes::Change;
use super::keeper::{self, Files, Version, FIRST, SAVED, SAVING, SECOND};
use super::opener::Opener;
use super::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

const SECTOR: usize = 512;

/// What lies below a directory: files with what they hold, and directories.
#[derive(Clone, Default, Hash)]
pub struct State(BTreeMap<PathBuf, Option<Vec<u8>>>);

impl State {
    /// What lies below `root` now.
    pub fn of(root: &Path) -> Self {
        let mut state = State::default();
        let mut left = vec![root.to_path_buf()];
        while let Some(directory) = left.pop() {
            for file in std::fs::read_dir(directory).expect("a directory").flatten() {
                let path = file.path();
                let inside = path.strip_prefix(root).expect("below it").to_path_buf();
                let bytes = (!path.is_dir()).then(|| std::fs::read(&path).expect("read"));
                if bytes.is_none() {
                    left.push(path);
                }
                state.0.insert(inside, bytes);
            }
        }
        state
    }

    /// Makes it all that lies below `root`.
    pub fn put(&self, root: &Path) {
        for file in std::fs::read_dir(root).expect("a directory").flatten() {
            let path = file.path();
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.expect("removed");
        }
        for (path, bytes) in &self.0 {
            let path = root.join(path);
            match bytes {
                None => std::fs::create_dir(path).expect("made"),
                Some(bytes) => std::fs::write(path, bytes).expect("written"),
            }
        }
    }

    pub fn file(&mut self, path: &Path) -> &mut Vec<u8> {
        self.0.get_mut(path).and_then(Option::as_mut).expect("a file")
    }
}

/// What a crash takes.
#[derive(Clone, Copy)]
enum Lost {
    Nothing,
    /// All that is not synced.
    Unsynced,
    /// All that is not synced of this file.
    UnsyncedOf(usize),
    /// The change of this turn.
    Turn(usize),
    /// All but so many bytes of the write of this turn.
    RestOf(usize, usize),
    /// The names from this turn on.
    NamesFrom(usize),
}

/// A file by its number, for as long as it lives; a directory has none.
type Names = BTreeMap<PathBuf, Option<usize>>;

fn rename(names: &mut Names, change: &Change, number: usize) {
    match change {
        Change::MakeDirectory(path) => drop(names.insert(path.clone(), None)),
        Change::Make(path) => drop(names.insert(path.clone(), Some(number))),
        Change::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Change::Remove(path) => drop(names.remove(path)),
        _ => {}
    }
}

/// What a driver has done until it crashed, beginning with what lay there before.
struct Crash<'c> {
    before: &'c State,
    changes: &'c [Change],
    /// By turn, the file that it is about.
    files: Vec<Option<usize>>,
    /// Turns of what is not synced, with their files.
    unsynced: Vec<(usize, usize)>,
}

impl<'c> Crash<'c> {
    fn new(before: &'c State, changes: &'c [Change]) -> Self {
        let (mut names, mut files) = (Self::names(before), Vec::new());
        for (turn, change) in changes.iter().enumerate() {
            rename(&mut names, change, before.0.len() + turn);
            files.push(match change {
                Change::Write(path, ..) | Change::Resize(path, _) | Change::Sync(path) => {
                    names.get(path).copied().flatten()
                }
                _ => None,
            });
        }
        let mut unsynced = Vec::new();
        for (turn, (change, file)) in changes.iter().zip(&files).enumerate() {
            match (change, file) {
                (Change::Sync(_), Some(synced)) => unsynced.retain(|&(_, file)| file != *synced),
                (Change::Write(..) | Change::Resize(..), &Some(file)) => unsynced.push((turn, file)),
                _ => {}
            }
        }
        Crash { before, changes, files, unsynced }
    }

    fn names(before: &State) -> Names {
        let files = before.0.iter().enumerate();
        files.map(|(number, (path, bytes))| (path.clone(), bytes.is_some().then_some(number))).collect()
    }

    /// All that it may have lost.
    fn losses(&self) -> Vec<Lost> {
        let mut losses = vec![Lost::Nothing, Lost::Unsynced];
        let files: BTreeSet<usize> = self.unsynced.iter().map(|&(_, file)| file).collect();
        losses.extend(files.into_iter().map(Lost::UnsyncedOf));
        losses.extend(self.unsynced.iter().map(|&(turn, _)| Lost::Turn(turn)));
        if let Some(Change::Write(_, _, bytes)) = self.changes.last() {
            let sectors = (SECTOR..bytes.len()).step_by(SECTOR);
            losses.extend(sectors.map(|len| Lost::RestOf(self.changes.len() - 1, len)));
        }
        let names = self.changes.iter().enumerate().filter(|(_, change)| {
            matches!(
                change,
                Change::MakeDirectory(_) | Change::Make(_) | Change::Rename(..) | Change::Remove(_)
            )
        });
        losses.extend(names.map(|(turn, _)| Lost::NamesFrom(turn)));
        losses
    }

    /// What lies on the disk.
    fn state(&self, lost: Lost) -> State {
        let is_lost = |turn: usize| match lost {
            Lost::Turn(lost) => turn == lost,
            Lost::Unsynced => self.unsynced.iter().any(|&(unsynced, _)| unsynced == turn),
            Lost::UnsyncedOf(file) => self.unsynced.contains(&(turn, file)),
            _ => false,
        };
        let mut names = Self::names(self.before);
        let mut files: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for (number, bytes) in self.before.0.values().enumerate() {
            files.insert(number, bytes.clone().unwrap_or_default());
        }
        for (turn, change) in self.changes.iter().enumerate() {
            let have_names = !matches!(lost, Lost::NamesFrom(from) if turn >= from);
            if have_names {
                rename(&mut names, change, self.before.0.len() + turn);
            }
            let Some(file) = self.files[turn].filter(|_| !is_lost(turn)) else { continue };
            let file = files.entry(file).or_default();
            match change {
                Change::Resize(_, len) => file.resize(*len as usize, 0),
                Change::Write(_, at, bytes) => {
                    let kept = match lost {
                        Lost::RestOf(torn, len) if torn == turn => &bytes[..len],
                        _ => &bytes[..],
                    };
                    let end = *at as usize + kept.len();
                    file.resize(file.len().max(end), 0);
                    file[*at as usize..end].copy_from_slice(kept);
                }
                _ => {}
            }
        }
        let held = |file: Option<usize>| file.map(|file| files.get(&file).cloned().unwrap_or_default());
        State(names.into_iter().map(|(path, file)| (path, held(file))).collect())
    }

    /// What the client's first token may stand for.
    fn versions(&self) -> &'static [Version] {
        let has =
            |name| self.changes.iter().any(|change| matches!(change, Change::Mark(mark) if mark == name));
        match (has(SAVING), has(SAVED)) {
            (false, _) => &[FIRST],
            (true, false) => &[FIRST, SECOND],
            (true, true) => &[SECOND],
        }
    }
}

#[test]
#[ignore = "the child of whatever_a_crash_leaves_is_opened"]
fn recorded_child() {
    let Some(root) = root_of_child() else { return };
    let files = Files::open(&root);
    let versions = do_traced(|| keeper::work(&root, &files)).expect("nothing wrong");
    assert_eq!(versions, [SECOND], "all was saved");
    println!("{WELL}");
}

#[test]
fn whatever_a_crash_leaves_is_opened() {
    let root = directory();
    keeper::make_files(root.path());
    let before = State::of(root.path());
    let traced = trace::run(&mut child("crashes::recorded_child", root.path()), root.path(), None);
    assert!(traced.said.contains(WELL), "{:?}: {}", traced.ended, traced.said);
    let changes = &traced.changes;
    let whole = Crash::new(&before, changes).state(Lost::Nothing);
    assert!(whole.0 == State::of(root.path()).0, "not all that was changed is known");
    let (mut known, mut states) = (HashSet::new(), Vec::new());
    for end in 0..=changes.len() {
        let crash = Crash::new(&before, &changes[..end]);
        for lost in crash.losses() {
            let mut hasher = DefaultHasher::new();
            (crash.state(lost), crash.versions()).hash(&mut hasher);
            if known.insert(hasher.finish()) {
                states.push((end, lost));
            }
        }
    }
    let all = states.len();
    let stride = if is_long() { 1 } else { all.div_ceil(1200) };
    let states: Vec<_> = states.into_iter().step_by(stride).collect();
    let openers = Mutex::new(vec![Opener::new(), Opener::new()]);
    let (hits, opened, wrong) = (AtomicUsize::new(0), states.len(), Mutex::new(Vec::new()));
    each(states, |(end, lost)| {
        let crash = Crash::new(&before, &changes[..end]);
        let mut opener = openers.lock().expect("no panic").pop().expect("one for each");
        crash.state(lost).put(opener.root.path());
        let found = opener.open(crash.versions());
        match found.result {
            Ok(count) if found.deaths == 0 => drop(hits.fetch_add(count, Ordering::Relaxed)),
            _ => {
                wrong.lock().expect("no panic").push(format!("after {:?}: {found:?}", changes[..end].last()))
            }
        }
        openers.lock().expect("no panic").push(opener);
    });
    let (hits, wrong) = (hits.into_inner(), wrong.into_inner().expect("no panic"));
    println!(
        "{opened} of {all} states that {} changes may leave: {hits} loads found something",
        changes.len()
    );
    assert!(wrong.is_empty(), "{} of {opened}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(hits > opened, "most states have something saved");
}
