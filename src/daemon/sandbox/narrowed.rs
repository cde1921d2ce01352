//! The calls of which a confined daemon may make some: as their arguments are.

use super::calls::FORKS;
use super::processes::Processes;
use libc::*;
use seccompiler::{
    BackendError, SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword, SeccompCmpOp, SeccompCondition,
    SeccompRule,
};

type Result<T> = std::result::Result<T, BackendError>;

/// Each call with the ways in which it may be made; without one, in any.
pub type Narrowed = Vec<(c_long, Vec<SeccompRule>)>;

/// Names of anonymous memory, for whoever reads a memory map.
const PR_SET_VMA: c_int = 0x53564d41;

/// `prctl` of a thread that is named, and of a C library that starts one.
#[cfg(not(target_os = "android"))]
const OF_A_THREAD: &[c_int] = &[PR_SET_NAME, PR_GET_NAME, PR_SET_VMA];
/// Beside that: what the handler of crashes wants to know, by linux/prctl.h PR_GET_TAGGED_ADDR_CTRL and
/// PR_PAC_GET_ENABLED_KEYS.
#[cfg(target_os = "android")]
const OF_A_THREAD: &[c_int] =
    &[PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, PR_GET_NO_NEW_PRIVS, PR_GET_DUMPABLE, PR_PAC_RESET_KEYS, 56, 61];
/// `prctl` of a process that starts; by linux/prctl.h PR_SET_TAGGED_ADDR_CTRL.
const OF_A_START: &[c_int] = &[PR_SET_NO_NEW_PRIVS, 55];

/// Flags of `clone` that ask for namespaces, of which it needs none.
const NAMESPACES: [c_int; 7] =
    [CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET];

/// The calls, in a process with this number.
pub fn narrowed(processes: Processes, process: u32) -> Result<Narrowed> {
    let this = u64::from(process);
    let starts = processes == Processes::Starts;
    // A process that inherits this filter is another, and has code to load.
    let unless_it_starts = |ways: Vec<SeccompRule>| if starts { Vec::new() } else { ways };
    let local = vec![rule(&[is(0, AF_UNIX as u64)?])?];
    let own = unless_it_starts(vec![rule(&[is(0, this)?])?]);
    let code = unless_it_starts(executable()?);
    let mut calls = vec![
        (SYS_socket, local.clone()),
        (SYS_socketpair, local),
        (SYS_ioctl, ioctls()?),
        (SYS_mmap, code.clone()),
        (SYS_mprotect, code),
        // A thread of its own goes to another core.
        (SYS_sched_setaffinity, vec![rule(&[is(0, 0)?])?]),
        // Nor is any other than the calling thread given time slices, or asked for them.
        (SYS_sched_setattr, vec![rule(&[is(0, 0)?])?]),
        (SYS_sched_getattr, vec![rule(&[is(0, 0)?])?]),
        // To itself, as `abort` does, and to threads whose stack is dumped.
        (SYS_tgkill, own.clone()),
        (SYS_rt_tgsigqueueinfo, own.clone()),
        // Reads of its own memory: by the binder crate, where the kernel names the caller, and by the dump of a crash.
        (SYS_process_vm_readv, own),
        // Whether two descriptors of its own are one open file.
        (SYS_kcmp, unless_it_starts(vec![rule(&[is(0, this)?, is(1, this)?, is(2, 0)?])?])),
    ];
    let mut options = OF_A_THREAD.to_vec();
    if starts {
        options.extend_from_slice(OF_A_START);
        calls.push((SYS_prlimit64, Vec::new()));
        // What starts adds its own filter to this one, which takes from it and gives nothing.
        calls.push((SYS_seccomp, vec![rule(&[is(0, u64::from(SECCOMP_SET_MODE_FILTER))?])?]));
    } else {
        // Limits are read, and not set.
        let no_new = SeccompCondition::new(2, Qword, SeccompCmpOp::Eq, 0)?;
        calls.push((SYS_prlimit64, vec![rule(&[is(0, 0)?, no_new])?]));
        // Tiles of AMX, which are asked for once.
        #[cfg(target_arch = "x86_64")]
        calls.push((SYS_arch_prctl, vec![rule(&[is(0, 0x1023)?])?]));
    }
    calls.push((SYS_prctl, one_of(0, &options)?));
    Ok(calls)
}

/// The ways to make a process or a thread, each of which is on the list, that give an error all the same. C libraries
/// block all signals before them.
pub fn unwanted_clones(processes: Processes) -> Result<Narrowed> {
    let mut unwanted = NAMESPACES.iter().map(|&flag| rule(&[has(0, flag)?])).collect::<Result<Vec<_>>>()?;
    if processes == Processes::Starts {
        return Ok(vec![(SYS_clone, unwanted)]);
    }
    unwanted.push(rule(&[lacks(0, CLONE_THREAD)?])?);
    let by_other_names = FORKS.iter().map(|&call| (call, Vec::new()));
    Ok(by_other_names.chain([(SYS_clone, unwanted)]).collect())
}

/// How memory may be mapped or protected: without code. On Android the libraries of hardware buffers are loaded by the
/// first client that needs them, so that there code may be mapped, but never written; which files it may come from is
/// SELinux's to say, which lets the daemon have no code that is of no file.
fn executable() -> Result<Vec<SeccompRule>> {
    let mut ways = vec![rule(&[lacks(2, PROT_EXEC)?])?];
    if cfg!(target_os = "android") {
        ways.push(rule(&[lacks(2, PROT_WRITE)?])?);
    }
    Ok(ways)
}

/// How much a socket or pipe holds, to be read or still to be sent, whether it blocks and stays with this program, and whether
/// it is a terminal.
const OF_STREAMS: [c_int; 5] =
    [FIONREAD as c_int, TIOCOUTQ as c_int, FIONBIO as c_int, FIOCLEX as c_int, TCGETS as c_int];

/// What may be asked of files and devices.
#[cfg(not(target_os = "android"))]
fn ioctls() -> Result<Vec<SeccompRule>> {
    let mut ways = one_of(1, &OF_STREAMS)?;
    // By the byte that says whose they are: binder's and dma-bufs', fences', ashmem's.
    for of in [b'b', b'>', 0x77] {
        let condition = SeccompCondition::new(1, Dword, SeccompCmpOp::MaskedEq(0xff00), u64::from(of) << 8)?;
        ways.push(rule(&[condition])?);
    }
    Ok(ways)
}

/// What may be asked of files and devices. Which devices a graphics driver in this process speaks to, as it maps hardware
/// buffers, and how, only its vendor knows; SELinux has lists for it. Terminals, which Linux would let it type into, are
/// asked nothing.
#[cfg(target_os = "android")]
fn ioctls() -> Result<Vec<SeccompRule>> {
    let mut ways = one_of(1, &OF_STREAMS)?;
    ways.push(rule(&[SeccompCondition::new(1, Dword, SeccompCmpOp::Lt, 0x5400)?])?);
    ways.push(rule(&[SeccompCondition::new(1, Dword, SeccompCmpOp::Gt, 0x54ff)?])?);
    Ok(ways)
}

fn rule(conditions: &[SeccompCondition]) -> Result<SeccompRule> {
    SeccompRule::new(conditions.to_vec())
}

/// That the argument, of which the kernel takes 32 bits, has this value.
fn is(argument: u8, value: u64) -> Result<SeccompCondition> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, value)
}

fn has(argument: u8, bits: c_int) -> Result<SeccompCondition> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(bits as u32 as u64), bits as u32 as u64)
}

/// That the argument has none of these bits.
fn lacks(argument: u8, bits: c_int) -> Result<SeccompCondition> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(bits as u32 as u64), 0)
}

fn one_of(argument: u8, values: &[c_int]) -> Result<Vec<SeccompRule>> {
    values.iter().map(|&value| rule(&[is(argument, value as u32 as u64)?])).collect()
}
