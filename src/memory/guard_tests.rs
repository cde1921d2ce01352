//! Files that shrink under a mapping, and faults that are none of the guard's business.

use crate::memory::{page_size, Access, Accessed, ClientSlice, Mapping, MemoryError};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn file(len: usize) -> File {
    let fd = nix::sys::memfd::memfd_create(c"guard", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let file = File::from(fd);
    file.set_len(len as u64).unwrap();
    file
}

fn map(file: &File, offset: usize, len: usize) -> Arc<Mapping> {
    Arc::new(Mapping::new(file.as_fd(), offset as u64, len, Access::ReadWrite).unwrap())
}

fn whole(mapping: &Arc<Mapping>) -> ClientSlice {
    ClientSlice::new(mapping.clone(), 0, mapping.len()).unwrap()
}

fn page() -> usize {
    page_size() as usize
}

#[test]
fn memory_that_vanishes_is_an_error_and_stays_one() {
    let file = file(4 * page());
    let (lost, written) = (map(&file, 0, 4 * page()), map(&file, 0, 4 * page()));
    file.set_len(page() as u64).unwrap();
    let mut bytes = vec![0; 4 * page()];
    assert!(matches!(whole(&lost).read(&mut bytes), Err(MemoryError::Vanished)));
    assert!(matches!(whole(&written).write(&bytes), Err(MemoryError::Vanished)));
    assert!(lost.vanished() && written.vanished());
    // The file comes back, the mapping does not: it no longer shows the file.
    file.set_len(4 * page() as u64).unwrap();
    assert!(matches!(whole(&lost).read(&mut bytes), Err(MemoryError::Vanished)));
    whole(&map(&file, 0, 4 * page())).read(&mut bytes).unwrap();
}

#[test]
fn only_the_region_that_lost_its_file_is_hurt() {
    let (shrinking, steady) = (file(2 * page()), file(2 * page()));
    steady.write_all_at(&[9; 16], 0).unwrap();
    let (lost, kept) = (map(&shrinking, 0, 2 * page()), map(&steady, 0, 2 * page()));
    // What lies within the file's rest can still be read until something fails.
    shrinking.set_len(page() as u64).unwrap();
    let slice = |mapping: &Arc<Mapping>, at| ClientSlice::new(mapping.clone(), at, 16).unwrap();
    slice(&lost, 0).read(&mut [0; 16]).unwrap();
    assert!(matches!(slice(&lost, page()).read(&mut [0; 16]), Err(MemoryError::Vanished)));
    assert!(matches!(slice(&lost, 0).read(&mut [0; 16]), Err(MemoryError::Vanished)));
    let mut bytes = [0; 16];
    slice(&kept, 0).read(&mut bytes).unwrap();
    assert_eq!((bytes, kept.vanished()), ([9; 16], false));
}

/// How many pages of `mapping` there are in memory.
fn present(mapping: &Mapping) -> usize {
    let (start, mut pages) = (mapping.pointer(0).unwrap(), vec![0; mapping.len() / page()]);
    // SAFETY: all of it is mapped, and there is a byte for each page.
    let asked = unsafe { libc::mincore(start.cast(), mapping.len(), pages.as_mut_ptr()) };
    assert_eq!(asked, 0);
    pages.iter().filter(|&&page| page & 1 == 1).count()
}

#[test]
fn what_is_written_in_place_of_lost_memory_does_not_stay() {
    const PAGES: usize = 1024;
    let write_all = |accessed: &Accessed, slice: &ClientSlice| {
        let mut target = accessed.target(slice, slice.len()).unwrap();
        target.copy_from(0, &vec![7; slice.len()]);
    };
    let lost = || {
        let file = file(PAGES * page());
        let slice = whole(&map(&file, 0, PAGES * page()));
        (file, slice)
    };
    // A run ends as it should, or is given up; and so with a copy. The mapping is kept.
    for ends in [true, false] {
        let (file, slice) = lost();
        let accessed = Accessed::new(slice.mapping(), Access::Write).unwrap().unwrap();
        let before = super::losses();
        file.set_len(0).unwrap();
        write_all(&accessed, &slice);
        assert!(super::losses() > before);
        assert_eq!(present(slice.mapping()), PAGES, "the run has them while it goes on");
        if ends {
            assert!(matches!(accessed.end(), Err(MemoryError::Vanished)));
        } else {
            drop(accessed);
        }
        assert_eq!(present(slice.mapping()), 0);
    }
    let (file, slice) = lost();
    file.set_len(0).unwrap();
    assert!(matches!(slice.write(&vec![7; slice.len()]), Err(MemoryError::Vanished)));
    assert_eq!(present(slice.mapping()), 0);
}

#[test]
fn slots_are_used_again_and_run_out_at_their_limit() {
    let file = file(page());
    for _ in 0..super::SLOTS / 4 {
        map(&file, 0, page());
    }
    let used = super::REGIONS.used.load(Ordering::SeqCst);
    assert!(used < super::SLOTS / 4, "{used} slots were taken by mappings that do not live at once");
    let mut free = super::FreeSlots { returned: vec![], fresh: 0, limit: 2 };
    assert_eq!([free.take(), free.take(), free.take()], [Some(0), Some(1), None]);
    free.returned.push(1);
    assert_eq!([free.take(), free.take()], [Some(1), None]);
}

/// Copies in and out of a file that another thread truncates, extends and punches holes into, beside a file that nobody
/// touches. `rounds` mappings are made, and none may hurt the steady one.
fn storm(rounds: usize) -> usize {
    use nix::fcntl::{fallocate, FallocateFlags};
    const PATIENCE: Duration = Duration::from_secs(60);
    const PAGES: usize = 8;
    let (shared, steady) = (file(PAGES * page()), file(PAGES * page()));
    let pattern: Vec<u8> = (0..PAGES * page()).map(|i| i as u8).collect();
    steady.write_all_at(&pattern, 0).unwrap();
    let (stop, vanished, began) = (AtomicBool::new(false), AtomicUsize::new(0), Instant::now());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            let mut i = 0;
            while !stop.load(Ordering::Relaxed) {
                i += 1;
                shared.set_len((i % PAGES * page()) as u64).unwrap();
                shared.set_len((PAGES * page()) as u64).unwrap();
                fallocate(&shared, hole, page() as libc::off_t, 2 * page() as libc::off_t).unwrap();
                shared.write_all_at(&pattern, 0).unwrap();
            }
        });
        let copies: Vec<_> = (0..2)
            .map(|thread| {
                let (shared, steady, pattern, vanished) = (&shared, &steady, &pattern, &vanished);
                threads.spawn(move || {
                    let mut bytes = vec![0; PAGES * page()];
                    // Longer where the one who truncates has not come to it yet.
                    let wanting = || vanished.load(Ordering::Relaxed) == 0 && began.elapsed() < PATIENCE;
                    for round in (0..).take_while(|&round| round < rounds / 2 || wanting()) {
                        let Ok(mapping) = Mapping::new(shared.as_fd(), 0, bytes.len(), Access::ReadWrite)
                        else {
                            continue; // caught while it was short
                        };
                        let slice = whole(&Arc::new(mapping));
                        let done = if (round + thread) % 2 == 0 {
                            slice.read(&mut bytes)
                        } else {
                            slice.write(pattern)
                        };
                        match done {
                            Ok(()) => {}
                            Err(MemoryError::Vanished) => _ = vanished.fetch_add(1, Ordering::Relaxed),
                            Err(other) => panic!("{other}"),
                        }
                        whole(&map(steady, 0, bytes.len())).read(&mut bytes).unwrap();
                        assert_eq!(bytes, *pattern, "the steady file in round {round}");
                    }
                })
            })
            .collect();
        let failed = copies.into_iter().filter_map(|copy| copy.join().err()).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0);
    });
    vanished.into_inner()
}

#[test]
fn a_storm_of_truncations_hurts_nobody_else() {
    assert!(storm(10_000) > 0, "no mapping ever vanished: the test tests nothing");
}

#[test]
#[ignore = "takes a minute"]
fn a_long_storm_of_truncations_hurts_nobody_else() {
    assert!(storm(1_000_000) > 0, "no mapping ever vanished: the test tests nothing");
}

/// Runs this binary's test `child` in a process of its own, in the part `role`.
fn child(role: &str) -> std::process::ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "memory::guard::tests::child_process", "--include-ignored", "--nocapture"]);
    command.env("NNHAL_GUARD_TEST", role).output().unwrap().status
}

const CHAINED: i32 = 42;

extern "C" fn plain_handler(_: libc::c_int) {
    // SAFETY: ends the process, which is all that the test looks for.
    unsafe { libc::_exit(CHAINED) }
}

extern "C" fn info_handler(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes valid information, and ends the process.
    unsafe { libc::_exit(if (*info).si_code > 0 { CHAINED + 1 } else { CHAINED + 2 }) }
}

fn set_action(action: usize, flags: libc::c_int) {
    // SAFETY: the handlers above have the signatures that the flags ask for.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        (new.sa_sigaction, new.sa_flags) = (action, flags);
        assert_eq!(libc::sigaction(libc::SIGBUS, &new, std::ptr::null_mut()), 0);
    }
}

/// Touches a page that its file does not have, in a mapping that the guard does not know.
fn fault_elsewhere() {
    let file = file(0);
    // SAFETY: a fresh mapping; reading it raises SIGBUS, which is the point.
    unsafe {
        use std::os::fd::AsRawFd;
        let base =
            libc::mmap(std::ptr::null_mut(), page(), libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(base, libc::MAP_FAILED);
        base.cast::<u8>().read_volatile();
    }
}

#[test]
#[ignore = "a part of other tests, which run it in a process of its own"]
fn child_process() {
    let Ok(role) = std::env::var("NNHAL_GUARD_TEST") else { return };
    let (action, end) = role.split_once(' ').unwrap();
    match action {
        "none" => {}
        "default" => set_action(libc::SIG_DFL, 0),
        "ignore" => set_action(libc::SIG_IGN, 0),
        "plain" => set_action(plain_handler as *const () as usize, 0),
        "info" => set_action(info_handler as *const () as usize, libc::SA_SIGINFO),
        other => panic!("no action {other}"),
    }
    // Core files of processes that are meant to die are in nobody's interest.
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0).unwrap();
    memory_that_vanishes_is_an_error_and_stays_one();
    match end {
        "fault" => fault_elsewhere(),
        // SAFETY: sends this process a signal.
        "sent" => _ = unsafe { libc::raise(libc::SIGBUS) },
        other => panic!("no end {other}"),
    }
}

#[test]
fn other_faults_go_where_they_went_before() {
    let killed = |role| assert_eq!(child(role).signal(), Some(libc::SIGBUS), "{role}");
    let ended = |role, code| assert_eq!(child(role).code(), Some(code), "{role}");
    // Rust's own handler stands in the first place, and gives up on what is no stack overflow.
    killed("none fault");
    killed("default fault");
    killed("default sent");
    killed("ignore fault");
    ended("ignore sent", 0);
    ended("plain fault", CHAINED);
    ended("plain sent", CHAINED);
    ended("info fault", CHAINED + 1);
    ended("info sent", CHAINED + 2);
}
