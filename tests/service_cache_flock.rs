//! Caching where the kernel lets nobody lock a file, as Android's policy has it for a client's.
//!
//! The only test of its program: the filter holds for all of its threads, and for good.

mod common;

use common::caching::*;
use common::*;
use nnhal::aidl::*;

/// Has flock fail with EACCES, and locks by fcntl with it, in this thread and all that it starts.
fn deny_locks() {
    let load = |offset: u32| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let skip_unless = |value: libc::c_long, jf| libc::sock_filter { code: 0x15, jt: 0, jf, k: value as u32 };
    let give = |value: u32| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: value };
    let deny = libc::SECCOMP_RET_ERRNO | libc::EACCES as u32;
    // struct seccomp_data: the call's number first, its second argument 24 bytes on.
    let mut filter = vec![load(0), skip_unless(libc::SYS_flock, 1), give(deny)];
    for command in [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW] {
        filter.extend([load(0), skip_unless(libc::SYS_fcntl, 3), load(24)]);
        filter.extend([skip_unless(command.into(), 1), give(deny)]);
    }
    filter.push(give(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: both calls take numbers, and the second a program that lives until it returns.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    assert!(done, "no filter: {}", std::io::Error::last_os_error());
}

#[test]
fn caching_works_where_nobody_may_lock() {
    deny_locks();
    let refused = memfd(&[]).lock().expect_err("the filter holds");
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES));
    // Its registry is in memory: files of its own it might lock.
    let (harness, cache, input) = (Harness::with_data(None), Cache::new(1), [1.0; 32]);
    let expected = execute(&save(harness.device(), &layer(), &cache), &input).expect("executed");
    let (status, loaded) = load(harness.device(), &cache);
    assert_eq!(status, ErrorStatus::NONE);
    assert_eq!(execute(&loaded.expect("a hit"), &input), Ok(expected));
}
