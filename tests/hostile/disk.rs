//! A small disk that the daemon's data and its clients' files share.
//!
//! As root it is a file system in memory, mounted where only this thread and what it starts see it. Otherwise it is a
//! directory, which is never full: who fills it stops at [`SIZE`].

use nix::sched::{unshare, CloneFlags};
use nix::sys::statvfs::statvfs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes that it has.
pub const SIZE: u64 = 16 << 20;

pub struct Disk {
    path: PathBuf,
    is_mounted: bool,
}

impl Disk {
    pub fn new(path: &Path) -> Self {
        std::fs::create_dir(path).expect("a directory");
        let is_mounted = mount(path);
        if !is_mounted {
            println!("nothing can be mounted here: the disk is a directory, and is never full");
        }
        let disk = Disk { path: path.into(), is_mounted };
        std::fs::create_dir(disk.clients()).expect("a directory");
        for (directory, mode) in [(disk.path.clone(), 0o755), (disk.clients(), 0o1777)] {
            std::fs::set_permissions(directory, Permissions::from_mode(mode)).expect("a mode");
        }
        disk
    }

    /// Where the daemon's data are.
    pub fn data(&self) -> PathBuf {
        self.path.join("driver")
    }

    /// KiB that are free, if it is as small as it should be.
    pub fn free_kib(&self) -> Option<u64> {
        let facts = statvfs(&self.path).expect("a file system");
        self.is_mounted.then(|| (facts.blocks_free() * facts.block_size()) >> 10)
    }

    /// Where any client may have files.
    fn clients(&self) -> PathBuf {
        clients_of(&self.path)
    }
}

/// Where clients of the disk at `path` may have files.
pub fn clients_of(path: &Path) -> PathBuf {
    path.join("clients")
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            // Whatever has files there may go on with them. Else it goes with this thread.
            let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
        }
    }
}

fn mount(path: &Path) -> bool {
    let is_done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    nix::unistd::geteuid().is_root()
        && unshare(CloneFlags::CLONE_NEWNS).is_ok()
        && is_done(Command::new("mount").args(["--make-rprivate", "/"]))
        && is_done(
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={SIZE}"), "none"]).arg(path),
        )
}
