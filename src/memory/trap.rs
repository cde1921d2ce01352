//! What happens to a call that a filter of the process traps: it fails with EPERM, and whoever writes the log is told.
//!
//! The handler of SIGSYS here puts the error where the call's result is expected, and a note into a pipe. It decides
//! nothing about which calls are trapped. Nothing that it calls may lock, allocate or panic. It belongs to the process, as
//! filters and the actions of signals do.

use super::guard::chain;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use std::io::{pipe, Error, PipeReader, PipeWriter, Read, Result};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// A call that was trapped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Trapped {
    /// Its number on this architecture.
    pub call: i32,
    /// The thread that made it, by the kernel's number.
    pub thread: i32,
    name: [u8; 16],
}

impl Trapped {
    /// The name of the thread.
    pub fn name(&self) -> String {
        let name = self.name.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// Tells of trapped calls, in their order. More than a pipe holds, while nobody reads, are not told.
#[derive(Debug)]
pub struct Traps(PipeReader);

impl Iterator for Traps {
    type Item = Trapped;

    /// Waits for the next.
    fn next(&mut self) -> Option<Trapped> {
        let mut trapped = Trapped::default();
        self.0.read_exact(bytemuck::bytes_of_mut(&mut trapped)).ok()?;
        Some(trapped)
    }
}

/// What SIGSYS did before, and where notes go.
static EARLIER: OnceLock<libc::sigaction> = OnceLock::new();
static NOTES: OnceLock<PipeWriter> = OnceLock::new();

/// From here on trapped calls fail with EPERM. Gives where to learn of them; an error, if that was given before.
pub fn refuse_trapped_calls() -> Result<Traps> {
    let (reader, writer) = pipe()?;
    // A thread that makes a trapped call must not wait until the note is read.
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    NOTES.set(writer).map_err(|_| Error::other("trapped calls are refused already"))?;
    // SAFETY: plain data, of which all zeroes is a valid value.
    let mut earlier: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only reads the present action, into memory of ours.
    if unsafe { libc::sigaction(libc::SIGSYS, std::ptr::null(), &mut earlier) } != 0 {
        return Err(Error::last_os_error());
    }
    // What the earlier handler wanted blocked stays blocked; the alternate stack is used where a thread has one.
    let action = libc::sigaction {
        sa_sigaction: on_sigsys as *const () as usize,
        sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART,
        ..*EARLIER.get_or_init(|| earlier)
    };
    // SAFETY: `on_sigsys` has the signature that SA_SIGINFO asks for and is safe in a signal's context.
    match unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) } {
        0 => Ok(Traps(reader)),
        _ => Err(Error::last_os_error()),
    }
}

extern "C" fn on_sigsys(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    /// asm-generic/siginfo.h: a filter has sent it.
    const SYS_SECCOMP: libc::c_int = 1;
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler.
    let code = unsafe { (*info).si_code };
    if code != SYS_SECCOMP {
        return chain(EARLIER.get(), signal, code, info, context);
    }
    let errno = nix::errno::Errno::last_raw();
    // SAFETY: the kernel passes a valid context, which nobody else knows until the handler returns. The thread goes on
    // with what it holds then: behind a call that was trapped, and so not made.
    let call = unsafe { refuse(&mut *context.cast()) };
    if let Some(notes) = NOTES.get() {
        let mut name = [0; 16];
        // SAFETY: stores a name of up to 16 bytes, with its end, where there is room for it.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        // SAFETY: takes nothing, and gives a number.
        let thread = unsafe { libc::gettid() };
        let note = Trapped { call, thread, name };
        let bytes = bytemuck::bytes_of(&note);
        // SAFETY: reads as many bytes as there are. A pipe takes so few at once or not at all; if it is full, there is
        // nobody to tell.
        unsafe { libc::write(notes.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    }
    nix::errno::Errno::set_raw(errno);
}

/// Has the call that was trapped give EPERM; its number.
#[cfg(target_arch = "x86_64")]
fn refuse(context: &mut libc::ucontext_t) -> i32 {
    let result = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
    // It holds the call's number until there is a result.
    std::mem::replace(result, -libc::greg_t::from(libc::EPERM)) as i32
}

/// Has the call that was trapped give EPERM; its number.
#[cfg(target_arch = "aarch64")]
fn refuse(context: &mut libc::ucontext_t) -> i32 {
    let registers = &mut context.uc_mcontext.regs;
    registers[0] = -i64::from(libc::EPERM) as u64;
    registers[8] as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_name_ends_where_it_should() {
        let named = |name: &[u8; 16]| Trapped { name: *name, ..Trapped::default() }.name();
        assert_eq!(named(b"nnhal-cpu-1\0\0\0\0\0"), "nnhal-cpu-1");
        assert_eq!(named(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(named(&[0; 16]), "");
    }
}
