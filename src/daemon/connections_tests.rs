//! Connections that break a rule end, and those that nobody needs where others have no room.

use super::*;
use crate::backend::cpu::CpuBackend;
use crate::service::Driver;
use binder::rpc::FileDescriptorTransportMode as FdMode;
use std::io::{Read, Write};
use std::time::Instant;

/// A driver behind `connections`, until dropped.
struct Served {
    connections: Arc<Connections>,
    listener: Arc<UnixListener>,
    threads: Vec<JoinHandle<()>>,
    directory: tempfile::TempDir,
}

impl Served {
    fn by(connections: Arc<Connections>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let driver = Driver::builder(Arc::new(CpuBackend::new(1).unwrap())).build().unwrap();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("nnhal-test-{}-{count}", std::process::id());
        let server = RpcServer::setup_unix_server_abstract(name.as_bytes()).unwrap();
        server.set_android13plus(2);
        server.set_supported_fd_modes(&[FdMode::Unix]);
        server.set_root(driver.device.as_binder()).unwrap();
        let listener = Arc::new(UnixListener::bind(directory.path().join("socket")).unwrap());
        let threads = connections.accept(listener.clone(), server).unwrap().into();
        Served { connections, listener, threads, directory }
    }

    fn connect(&self) -> UnixStream {
        let mut stream = UnixStream::connect(self.directory.path().join("socket")).unwrap();
        stream.write_all(&[2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        stream.write_all(b"cci\0\0\0\0\0").unwrap();
        stream
    }

    /// Waits until so many are left.
    fn wait_for(&self, count: usize) {
        let start = Instant::now();
        while self.connections.lock().by_key.len() != count {
            assert!(start.elapsed() < PATIENCE, "there are others than {count}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.connections.end(&self.listener);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(3600);

/// What a driver has for its transport.
fn transport() -> (CallTurns, Arc<Watcher>) {
    (CallTurns::new(1), Arc::new(Watcher::new().unwrap()))
}

fn never() -> bool {
    false
}

fn is_open(mut stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.read(&mut [0]).is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_message_that_does_not_end_ends_its_connection() {
    let times = Times { message: Duration::from_millis(50), idle: LONG, look: LONG };
    let connections = Connections::with(transport(), limits::CONNECTIONS.quota(), times, never);
    let served = Served::by(connections);
    let (idle, mut slow) = (served.connect(), served.connect());
    // 40 bytes are to follow.
    slow.write_all(&[0, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let end = slow.read_to_end(&mut Vec::new());
    assert!(end.is_ok() || end.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionReset));
    served.wait_for(1);
    // One that sends nothing breaks no rule.
    assert!(is_open(&idle));
}

#[test]
fn idle_connections_make_room_where_there_is_none() {
    // Four for a client, of which two are half.
    let served = |idle| {
        let times = Times { message: LONG, idle, look: LONG };
        Served::by(Connections::with(transport(), Quota::new(16, 4), times, never))
    };
    let patient = served(LONG);
    let kept: Vec<_> = (0..4).map(|_| patient.connect()).collect();
    let is_refused = || {
        let mut stream = UnixStream::connect(patient.directory.path().join("socket")).unwrap();
        stream.read(&mut [0]).is_ok_and(|read| read == 0)
    };
    assert!(is_refused(), "no process is idle yet");
    let looked = patient.connections.lock().looked;
    assert!(looked.is_some() && is_refused());
    assert_eq!(
        patient.connections.lock().looked,
        looked,
        "who connects again does not have all of them looked at again"
    );
    assert!(kept.iter().all(is_open));
    let hasty = served(Duration::ZERO);
    let earlier: Vec<_> = (0..4).map(|_| hasty.connect()).collect();
    assert!(earlier.iter().all(is_open), "as long as there is room");
    let fifth = hasty.connect();
    hasty.wait_for(3);
    let open: Vec<_> = earlier.iter().map(is_open).collect();
    assert_eq!(open.iter().filter(|open| **open).count(), 2, "{open:?}");
    assert!(is_open(&fifth));
}

#[test]
fn a_connection_goes_where_descriptors_are_short() {
    static SHORT: AtomicBool = AtomicBool::new(false);
    let times = Times { message: LONG, idle: LONG, look: Duration::from_millis(1) };
    let short = || SHORT.load(Ordering::Relaxed);
    let served = Served::by(Connections::with(transport(), limits::CONNECTIONS.quota(), times, short));
    let earlier: Vec<_> = (0..3).map(|_| served.connect()).collect();
    SHORT.store(true, Ordering::Relaxed);
    // The watching thread closes one after the other.
    let start = Instant::now();
    while earlier.iter().all(is_open) {
        assert!(start.elapsed() < PATIENCE, "none is closed");
        std::thread::sleep(Duration::from_millis(1));
    }
    SHORT.store(false, Ordering::Relaxed);
}

#[test]
fn a_connection_that_was_closed_before_takes_nothing() {
    let connections = Connections::new(CallTurns::new(1), Arc::new(Watcher::new().unwrap()));
    let admitted = |stream: UnixStream| {
        let peer = getsockopt(&stream, PeerCredentials).unwrap();
        connections.admit(peer, stream).unwrap().is_some()
    };
    let closed = |bytes: &[u8], ends: Option<Shutdown>| {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(bytes).unwrap();
        match ends {
            Some(how) => shutdown(ours.as_raw_fd(), how).unwrap(),
            None => drop(ours),
        }
        admitted(theirs)
    };
    assert!(!closed(b"", None) && !closed(b"something", None));
    assert!(closed(b"something", Some(Shutdown::Write)), "its other end still waits for answers");
    assert_eq!(connections.lock().by_key.len(), 0);
}

#[test]
fn what_a_client_has_sent_keeps_its_refused_connections_counted() {
    /// Takes long to drop.
    struct Lingers(std::sync::mpsc::Receiver<()>);
    impl Drop for Lingers {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }
    let (turns, watcher) = transport();
    let times = Times { message: LONG, idle: LONG, look: LONG };
    let connections = Connections::with((turns, watcher.clone()), limits::CONNECTIONS.quota(), times, never);
    let held = || connections.descriptors.held_by(7);
    let (let_go, lingers) = std::sync::mpsc::channel();
    watcher.close(7, Lingers(lingers));
    let [(silent, silents), (mut sender, senders), (urgent, urgents)] =
        [(); 3].map(|()| UnixStream::pair().unwrap());
    sender.write_all(b"something").unwrap();
    let has_urgent = nix::sys::socket::send(urgent.as_raw_fd(), b"!", MsgFlags::MSG_OOB).is_ok();
    connections.refuse(7, silents);
    assert!((&silent).read(&mut [0]).is_ok_and(|read| read == 0) && held() == 0, "it waits for nothing");
    connections.refuse(7, senders);
    assert_eq!((held(), sender.write(b"more").is_err()), (1, true));
    connections.refuse(7, urgents);
    assert_eq!(held(), 1 + u64::from(has_urgent), "not every kernel takes an urgent byte");
    drop(let_go);
    let start = Instant::now();
    while held() > 0 {
        assert!(start.elapsed() < PATIENCE, "it is still counted");
        std::thread::sleep(Duration::from_millis(1));
    }
}
