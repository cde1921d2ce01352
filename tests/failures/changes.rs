//! What a child changes in files below a directory, in turn, as far as it changes what lies on the disk.

use super::trace::Call;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// One change. Paths are relative to the directory.
#[derive(Clone, Debug)]
pub enum Change {
    MakeDirectory(PathBuf),
    Make(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Resize(PathBuf, u64),
    Write(PathBuf, u64, Vec<u8>),
    /// From here on what the file holds survives a crash.
    Sync(PathBuf),
    /// The child has said that it came so far.
    Mark(String),
}

/// How the name of a mark begins: a file that is never made, and only asked for.
const MARK: &str = "mark:";

/// In the child: has the tracer note that it came so far.
pub fn mark(root: &Path, what: &str) {
    let _ = std::fs::symlink_metadata(root.join(format!("{MARK}{what}"))); // it is not there
}

pub struct Changes {
    root: PathBuf,
    pub all: Vec<Change>,
}

impl Changes {
    pub fn new(root: &Path) -> Self {
        Changes { root: root.into(), all: Vec::new() }
    }

    pub fn is_mark(&self, path: &Path) -> bool {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(MARK))
    }

    pub fn mark(&mut self, path: &Path) {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        self.all.push(Change::Mark(name.trim_start_matches(MARK).into()));
    }

    /// Notes what a call that is about to be made will change, if it succeeds.
    pub fn note(&mut self, call: &Call, path: PathBuf) {
        let is_there = path.symlink_metadata().is_ok();
        let can_be_made = !is_there && path.parent().is_some_and(Path::is_dir);
        let inside = |path: &Path| path.strip_prefix(&self.root).unwrap_or(path).to_path_buf();
        let file = inside(&path);
        let [_, second, third, fourth, ..] = call.arguments;
        let bytes = || call.memory(second, third as usize);
        let change = match call.name {
            "openat" => {
                let flags = third as i32;
                assert_eq!(flags & libc::O_TRUNC, 0, "{}: to be emptied as it is opened", path.display());
                (flags & libc::O_CREAT != 0 && can_be_made).then_some(Change::Make(file))
            }
            "mkdir" => can_be_made.then_some(Change::MakeDirectory(file)),
            "unlink" => is_there.then_some(Change::Remove(file)),
            "rename" => is_there.then(|| Change::Rename(file, inside(&call.path(1)))),
            "ftruncate" => Some(Change::Resize(file, second)),
            "pwrite64" => Some(Change::Write(file, fourth, bytes())),
            "write" => Some(Change::Write(file, call.position().expect("of a file"), bytes())),
            "fsync" | "fdatasync" => Some(Change::Sync(file)),
            "open" | "mkdirat" | "unlinkat" | "renameat" | "renameat2" | "writev" | "pwritev"
            | "fallocate" | "copy_file_range" | "sendfile" => {
                panic!("{} of {}: not known here", call.name, path.display())
            }
            _ => None,
        };
        self.all.extend(change);
    }
}
