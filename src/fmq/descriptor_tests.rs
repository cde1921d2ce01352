//! Tests of descriptors: what ours say, and every field in which another's can lie.

use super::*;
use crate::fmq::Queue;
use std::os::fd::OwnedFd;

const QUANTUM: usize = 24;
const ELEMENTS: usize = 10;

fn shared() -> SharedQueue {
    SharedQueue::create(ELEMENTS, QUANTUM).unwrap()
}

fn attach(descriptor: &Descriptor) -> Result<Queue, FmqError> {
    Queue::attach(descriptor, QUANTUM, 1024)
}

#[test]
fn the_layout_is_libfmqs() {
    // 3 elements of 4 bytes: the event flag goes to the next multiple of 8 after 16 + 12.
    let shared = SharedQueue::create(3, 4).unwrap();
    let descriptor = shared.descriptor();
    let grantor = |offset, extent| Grantor { fd_index: 0, offset, extent };
    assert_eq!(descriptor.grantors, [grantor(0, 8), grantor(8, 8), grantor(16, 12), grantor(32, 4)]);
    assert_eq!((descriptor.quantum, descriptor.flags), (4, 1));
    assert_eq!(shared.file.metadata().unwrap().len(), page_size());
    assert!(shared.file.set_len(0).is_err(), "it must be sealed");
    for (elements, quantum) in [(0, 4), (usize::MAX, 4), (1, 0), (1 << 30, 2)] {
        assert!(SharedQueue::create(elements, quantum).is_err(), "{elements} {quantum}");
    }
}

#[test]
fn it_survives_the_interface() {
    let shared = shared();
    let sent = shared.descriptor().to_aidl::<i32>().unwrap();
    let back = Descriptor::from_aidl(&sent);
    assert_eq!(back.grantors, shared.descriptor().grantors);
    assert_eq!(attach(&back).unwrap().capacity(), ELEMENTS);
}

#[test]
fn every_lie_is_refused() {
    let shared = shared();
    let honest = shared.descriptor();
    attach(&honest).unwrap();
    type Lie = fn(&mut Descriptor);
    let lies: &[(&str, Lie)] = &[
        ("no flavour", |d| d.flags = 0),
        ("the unsynchronized flavour", |d| d.flags = 2),
        ("a large flavour", |d| d.flags = (1 << 32) | 1),
        ("a quantum of 0", |d| d.quantum = 0),
        ("a quantum of less", |d| d.quantum = 12),
        ("a negative quantum", |d| d.quantum = -24),
        ("no file", |d| d.files.clear()),
        ("many files", |d| d.files = vec![d.files[0]; 5]),
        ("no grantors", |d| d.grantors.clear()),
        ("no ring", |d| d.grantors.truncate(2)),
        ("a short counter", |d| d.grantors[0].extent = 4),
        ("a long counter", |d| d.grantors[1].extent = 16),
        ("a long event flag", |d| d.grantors[3].extent = 8),
        ("an empty event flag", |d| d.grantors[3].extent = 0),
        ("an empty ring", |d| d.grantors[2].extent = 0),
        ("a ring of half an element more", |d| d.grantors[2].extent += 12),
        ("a negative ring", |d| d.grantors[2].extent = -24),
        ("a ring of more than allowed", |d| d.grantors[2].extent = 24 * 1025),
        ("a ring of everything", |d| d.grantors[2].extent = i64::MAX - i64::MAX % 24),
        ("a ring beyond the file", |d| d.grantors[2].extent = 24 * 1000),
        ("counters that are one", |d| d.grantors[1].offset = 0),
        ("a counter in the ring", |d| d.grantors[0].offset = 32),
        ("the event flag in a counter", |d| d.grantors[3].offset = 8),
    ];
    for (what, lie) in lies {
        let mut descriptor = honest.clone();
        lie(&mut descriptor);
        assert!(attach(&descriptor).is_err(), "{what}");
    }
    for index in 0..4 {
        for (what, offset) in [("odd", 4097), ("within a word", 4), ("negative", -8), ("huge", i64::MAX - 7)]
        {
            let mut descriptor = honest.clone();
            descriptor.grantors[index].offset = offset;
            assert!(attach(&descriptor).is_err(), "grantor {index}, {what} offset");
        }
        for fd_index in [-1, 1, i64::MAX] {
            let mut descriptor = honest.clone();
            descriptor.grantors[index].fd_index = fd_index;
            assert!(attach(&descriptor).is_err(), "grantor {index} in file {fd_index}");
        }
        let mut descriptor = honest.clone();
        descriptor.grantors[index].offset = page_size() as i64;
        assert!(attach(&descriptor).is_err(), "grantor {index} beyond the file");
    }
}

#[test]
fn only_shared_memory_will_do() {
    let shared = shared();
    let executable = File::open(std::env::current_exe().unwrap()).unwrap();
    let (pipe, _end) = nix::unistd::pipe().unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&shared.file)));
    let files: [(&str, OwnedFd); 3] =
        [("on a disk", executable.into()), ("a pipe", pipe), ("read-only", read_only.unwrap().into())];
    for (what, file) in &files {
        let descriptor = Descriptor { files: vec![file.as_fd()], ..shared.descriptor() };
        assert!(attach(&descriptor).is_err(), "{what}");
    }
}

#[test]
fn regions_may_lie_in_files_of_their_own_and_more_grantors_may_follow() {
    let files = [0; 4].map(|_| {
        let file = File::from(memfd_create(c"region", MFdFlags::empty()).unwrap());
        file.set_len(page_size() * 2).unwrap();
        file
    });
    let grantor = |fd_index, extent| Grantor { fd_index, offset: page_size() as i64, extent };
    let descriptor = Descriptor {
        grantors: vec![grantor(0, 8), grantor(1, 8), grantor(2, 48), grantor(3, 4), grantor(99, -1)],
        files: files.iter().map(AsFd::as_fd).collect(),
        quantum: 24,
        flags: SYNCHRONIZED,
    };
    assert_eq!(attach(&descriptor).unwrap().capacity(), 2);
}

#[test]
#[ignore = "mounts a file system, as root: tests/ignored.sh mounts"]
fn queues_in_files_that_a_process_serves_are_refused_at_once() {
    let silent = crate::memory::blocking::tests::Silent::mount();
    let file = silent.open();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let shared = shared();
        // Each of the regions may lie in a file of its own.
        let refused = [0, 1, 2, 3].map(|served| {
            let mut descriptor = shared.descriptor();
            descriptor.files.push(file.as_fd());
            descriptor.grantors[served].fd_index = 1;
            attach(&descriptor).map(drop).map_err(|why| why.to_string())
        });
        sender.send(refused)
    });
    // Its server never answers: what asks about the file blocks for ever.
    let refused = receiver.recv_timeout(std::time::Duration::from_secs(20));
    drop(silent);
    for (grantor, refused) in refused.expect("no call waits for its server").into_iter().enumerate() {
        let why = refused.expect_err("no page of it may be touched");
        assert!(why.contains("another process serves"), "grantor {grantor}: {why}");
    }
}
