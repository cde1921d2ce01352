//! A child under ptrace: the calls that it makes on files below one directory, seen in turn, and one of them made to fail.
//!
//! Only threads that have called [`be_traced`], and what they start, are looked at. Calls on anything outside of the
//! directory go through unseen.

use super::changes::{Change, Changes};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::uio::{process_vm_readv, RemoteIoVec};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::{BTreeMap, HashSet};
use std::io::{IoSliceMut, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a call names its file.
#[derive(Clone, Copy)]
enum Names {
    /// By a path, which is this argument.
    Path(usize),
    /// By a directory and a path, of which the first is this argument; by the directory alone, if the path is empty.
    At(usize),
    /// By a descriptor, which is this argument.
    Descriptor(usize),
    /// A mapping is of a file, unless it says that it is of none.
    Mapping,
}

/// What is done to files, by its number.
const CALLS: &[(libc::c_long, &str, Names)] = &[
    (libc::SYS_open, "open", Names::Path(0)),
    (libc::SYS_openat, "openat", Names::At(0)),
    (libc::SYS_stat, "stat", Names::Path(0)),
    (libc::SYS_lstat, "lstat", Names::Path(0)),
    (libc::SYS_newfstatat, "newfstatat", Names::At(0)),
    (libc::SYS_statx, "statx", Names::At(0)),
    (libc::SYS_fstat, "fstat", Names::Descriptor(0)),
    (libc::SYS_fstatfs, "fstatfs", Names::Descriptor(0)),
    (libc::SYS_read, "read", Names::Descriptor(0)),
    (libc::SYS_readv, "readv", Names::Descriptor(0)),
    (libc::SYS_pread64, "pread64", Names::Descriptor(0)),
    (libc::SYS_write, "write", Names::Descriptor(0)),
    (libc::SYS_pwrite64, "pwrite64", Names::Descriptor(0)),
    (libc::SYS_writev, "writev", Names::Descriptor(0)),
    (libc::SYS_pwritev, "pwritev", Names::Descriptor(0)),
    (libc::SYS_fsync, "fsync", Names::Descriptor(0)),
    (libc::SYS_fdatasync, "fdatasync", Names::Descriptor(0)),
    (libc::SYS_ftruncate, "ftruncate", Names::Descriptor(0)),
    (libc::SYS_fallocate, "fallocate", Names::Descriptor(0)),
    (libc::SYS_lseek, "lseek", Names::Descriptor(0)),
    (libc::SYS_fcntl, "fcntl", Names::Descriptor(0)),
    (libc::SYS_flock, "flock", Names::Descriptor(0)),
    (libc::SYS_getdents64, "getdents64", Names::Descriptor(0)),
    (libc::SYS_sendfile, "sendfile", Names::Descriptor(1)),
    (libc::SYS_copy_file_range, "copy_file_range", Names::Descriptor(0)),
    (libc::SYS_mmap, "mmap", Names::Mapping),
    (libc::SYS_mkdir, "mkdir", Names::Path(0)),
    (libc::SYS_mkdirat, "mkdirat", Names::At(0)),
    (libc::SYS_rename, "rename", Names::Path(0)),
    (libc::SYS_renameat, "renameat", Names::At(0)),
    (libc::SYS_renameat2, "renameat2", Names::At(0)),
    (libc::SYS_unlink, "unlink", Names::Path(0)),
    (libc::SYS_unlinkat, "unlinkat", Names::At(0)),
    (libc::SYS_access, "access", Names::Path(0)),
    (libc::SYS_readlink, "readlink", Names::Path(0)),
];

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It fails so.
    Fails(i32),
    /// It fails so, and so do all after it.
    FailFrom(i32),
    /// It reads or writes half of what it was asked to.
    Half,
}

/// What a child did, and how it ended.
pub struct Traced {
    /// The calls, in turn.
    pub calls: Vec<&'static str>,
    /// Whether the fault came to be: there was such a call.
    pub has_failed: bool,
    pub changes: Vec<Change>,
    pub ended: WaitStatus,
    /// What it printed, on either stream.
    pub said: String,
}

impl Traced {
    pub fn count_by_name(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        self.calls.iter().for_each(|&name| *counts.entry(name).or_default() += 1);
        counts
    }
}

/// Has the tracer see the calls of this thread, and of those that it starts. Whether there is a tracer.
pub fn be_traced() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let traced = status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"));
    if traced {
        let rules = CALLS.iter().map(|&(number, ..)| (number, Vec::new())).collect();
        let arch = std::env::consts::ARCH.try_into().expect("an architecture with filters");
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trace(0), arch);
        let program: BpfProgram = filter.and_then(|filter| filter.try_into()).expect("a filter");
        seccompiler::apply_filter(&program).expect("filters");
    }
    traced
}

/// Runs `command`. `fault` names one of its calls on something below `root`, counted from 0, and what goes wrong with it.
pub fn run(command: &mut Command, root: &Path, fault: Option<(usize, Fault)>) -> Traced {
    let mut said = tempfile::tempfile().expect("a file");
    let output = || Stdio::from(said.try_clone().expect("dup"));
    command.stdin(Stdio::null()).stdout(output()).stderr(output());
    // SAFETY: it makes one system call.
    unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
    // Its stop at the start of its program is what this waits for first.
    let child = match command.spawn() {
        Ok(child) => Pid::from_raw(child.id() as i32),
        Err(why) => panic!("no child that may be traced: {why}"),
    };
    let mut tracer =
        Tracer { root, fault, calls: Vec::new(), has_failed: false, changes: Changes::new(root) };
    let ended = tracer.until_the_end(child);
    let mut text = Vec::new();
    said.rewind().and_then(|()| said.read_to_end(&mut text)).expect("what it said");
    let Tracer { calls, has_failed, changes, .. } = tracer;
    let said = String::from_utf8_lossy(&text).into_owned();
    Traced { calls, has_failed, changes: changes.all, ended, said }
}

struct Tracer<'r> {
    root: &'r Path,
    fault: Option<(usize, Fault)>,
    calls: Vec<&'static str>,
    has_failed: bool,
    changes: Changes,
}

impl Tracer<'_> {
    fn until_the_end(&mut self, child: Pid) -> WaitStatus {
        // Other tests of this program have children, too: this thread's alone.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let mut known = HashSet::new();
        loop {
            let status = match waitpid(None, Some(flags)) {
                Ok(status) => status,
                Err(nix::Error::EINTR) => continue,
                Err(why) => panic!("waiting for a child: {why}"),
            };
            let Some(thread) = status.pid() else { continue };
            let signal = match status {
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) if thread == child => return status,
                WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_SECCOMP) => {
                    self.call(thread);
                    None
                }
                WaitStatus::Stopped(_, signal) => match known.insert(thread) {
                    true if thread == child => {
                        use ptrace::Options;
                        let options = Options::PTRACE_O_TRACESECCOMP
                            | Options::PTRACE_O_TRACECLONE
                            | Options::PTRACE_O_EXITKILL;
                        ptrace::setoptions(thread, options).expect("it stands still");
                        None
                    }
                    // So a thread begins.
                    true if signal == Signal::SIGSTOP => None,
                    _ => Some(signal),
                },
                WaitStatus::PtraceEvent(..) => None,
                _ => continue,
            };
            // It may be dead by now.
            let _ = ptrace::cont(thread, signal);
        }
    }

    /// A thread is about to make a call.
    fn call(&mut self, thread: Pid) {
        let Ok(mut registers) = ptrace::getregs(thread) else { return };
        let number = registers.orig_rax as libc::c_long;
        let r = &registers;
        let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        let Some(&(_, name, names)) = CALLS.iter().find(|call| call.0 == number) else { return };
        let call = Call { thread, name, arguments };
        let Some(path) = call.file(names).filter(|path| path.starts_with(self.root)) else { return };
        if self.changes.is_mark(&path) {
            return self.changes.mark(&path);
        }
        let turn = self.calls.len();
        self.calls.push(name);
        let fault = self.fault.and_then(|(at, fault)| match fault {
            Fault::FailFrom(_) => (turn >= at).then_some(fault),
            _ => (turn == at).then_some(fault),
        });
        match fault {
            None => return self.changes.note(&call, path),
            Some(Fault::Fails(errno) | Fault::FailFrom(errno)) => {
                registers.orig_rax = u64::MAX; // no call at all
                registers.rax = i64::from(-errno) as u64;
            }
            Some(Fault::Half) if is_of_bytes(name) && registers.rdx > 1 => registers.rdx /= 2,
            Some(Fault::Half) => return,
        }
        self.has_failed = ptrace::setregs(thread, registers).is_ok();
    }
}

/// Whether a call moves as many bytes as its third argument says, or fewer.
pub fn is_of_bytes(name: &str) -> bool {
    matches!(name, "read" | "write" | "pread64" | "pwrite64")
}

/// A call that a thread is about to make.
pub struct Call {
    thread: Pid,
    pub name: &'static str,
    pub arguments: [u64; 6],
}

impl Call {
    fn file(&self, names: Names) -> Option<PathBuf> {
        match names {
            Names::Path(at) => Some(self.path(at)),
            Names::At(at) => {
                let path = self.path(at + 1);
                match path.as_os_str().is_empty() {
                    true => self.descriptor(at),
                    // Only absolute ones lie below the root: drivers here open no files by another directory.
                    false => Some(path),
                }
            }
            Names::Descriptor(at) => self.descriptor(at),
            Names::Mapping if self.arguments[3] & libc::MAP_ANONYMOUS as u64 != 0 => None,
            Names::Mapping => self.descriptor(4),
        }
    }

    pub fn descriptor(&self, at: usize) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/fd/{}", self.thread, self.arguments[at] as i32)).ok()
    }

    /// Where reading or writing goes on.
    pub fn position(&self) -> Option<u64> {
        let facts = std::fs::read_to_string(format!("/proc/{}/fdinfo/{}", self.thread, self.arguments[0]));
        facts.ok()?.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok())
    }

    /// The path that an argument points to; empty if it points to none.
    pub fn path(&self, at: usize) -> PathBuf {
        let (mut bytes, mut from) = (Vec::new(), self.arguments[at]);
        // Up to the end of each page: the next need not be there.
        while bytes.len() < 4096 {
            let more = self.memory(from, 4096 - (from % 4096) as usize);
            let end = more.iter().position(|&byte| byte == 0);
            bytes.extend(&more[..end.unwrap_or(more.len())]);
            if end.is_some() || more.is_empty() {
                break;
            }
            from += more.len() as u64;
        }
        PathBuf::from(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Bytes of the child's memory; none where there are not so many.
    pub fn memory(&self, from: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let there = RemoteIoVec { base: from as usize, len };
        let read = process_vm_readv(self.thread, &mut [IoSliceMut::new(&mut bytes)], &[there]);
        if read == Ok(len) {
            bytes
        } else {
            Vec::new()
        }
    }
}
