//! What the caches do when what they stand on fails, each way in its turn: every system call on a file, every state that a
//! crash may leave the files in, and damage at any byte of a registry. Whatever it is, no driver dies of it (but once of a
//! damaged registry), none loads what was not saved, the next one works, and nothing is left behind that grows.
//!
//! Children of this program are the drivers. There a panic ends the process, as in Android's build. `NNHAL_CAMPAIGN=long`
//! tries all; without it, a part of that which a minute allows.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod changes;
mod crashes;
mod damage;
mod driver;
mod keeper;
mod opener;
mod trace;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use tempfile::TempDir;

/// Names the directory that a child works on.
const ROOT: &str = "NNHAL_TEST_ROOT";

fn is_long() -> bool {
    std::env::var("NNHAL_CAMPAIGN").as_deref() == Ok("long")
}

/// A directory in memory, where there is such a place: nothing here needs a disk.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let inside = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    TempDir::new_in(inside).expect("a directory")
}

/// This program as a child that is the ignored test `name` over `root`.
fn child(name: &str, root: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "--nocapture", name]).env(ROOT, root);
    command
}

/// In a child: the directory it works on. From here on a panic ends it.
fn root_of_child() -> Option<PathBuf> {
    let root = PathBuf::from(std::env::var_os(ROOT)?);
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::abort();
    }));
    Some(root)
}

/// Does `work` on each item, in two threads.
fn each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().expect("no panic while held").next();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}
