//! Everything at once: clients that attack in every way are started, killed and started again, while an innocent one
//! executes in every way, prepares models, saves and loads, and looks at every answer.
//!
//! As root each attacker is a user of its own, as apps are, and the disk is small ([`crate::disk`]). Otherwise all are one
//! client to the driver, the innocent one too, which then has what the attackers leave it: only its answers count.
//! `NNHAL_CAMPAIGN=long` goes on for an hour, and `NNHAL_SECONDS` says how long otherwise. From a minute on it begins with
//! each attack by itself.

use crate::attackers::{self, all_ways, HONEST, WAYS};
use crate::common::campaign::amount;
use crate::common::PATIENCE;
use crate::daemon::Daemon;
use crate::disk::{self, Disk};
use crate::innocent::{innocent, Seen, PAUSE};
use std::process::Child;
use std::time::{Duration, Instant};

/// Whom attackers are run as: this user and those after it.
pub const FIRST_USER: u32 = 20_000;
/// What may be left of memory once all have ended.
const LEFT_KIB: usize = 32 << 10;
/// What may be left of descriptors, of threads and of mappings: an idle daemon keeps some for what comes next.
const LEFT: usize = 4;
/// For so long nothing more may be left: it still accepts connections of clients that are gone, each on threads of its own.
const STEADY: Duration = Duration::from_secs(1);

/// What the daemon's process has.
#[derive(Debug, Clone, Copy)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    resident_kib: usize,
}

impl Holdings {
    fn of(daemon: &Daemon) -> Self {
        Holdings {
            descriptors: daemon.descriptors(),
            threads: daemon.threads(),
            mappings: daemon.mappings(),
            resident_kib: daemon.resident_kib(),
        }
    }

    /// The larger of each.
    fn most(self, other: Self) -> Self {
        Holdings {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            mappings: self.mappings.max(other.mappings),
            resident_kib: self.resident_kib.max(other.resident_kib),
        }
    }

    /// Whether it is what was held `before`, but for what an idle daemon may keep.
    fn is_back_at(&self, before: &Holdings) -> bool {
        self.descriptors <= before.descriptors + LEFT
            && self.threads <= before.threads + LEFT
            && self.mappings <= before.mappings + LEFT
            && self.resident_kib <= before.resident_kib + LEFT_KIB
    }
}

/// An attacker that is started again when it was killed. It does not outlive its test.
struct Attacker {
    way: usize,
    process: Child,
    since: Instant,
    kills: usize,
}

impl Attacker {
    fn new(way: usize, daemon: &Daemon) -> Self {
        Attacker { way, process: Self::start(way, daemon), since: Instant::now(), kills: 0 }
    }

    /// As root a user of its own.
    fn start(way: usize, daemon: &Daemon) -> Child {
        let user = nix::unistd::geteuid().is_root().then_some(FIRST_USER + way as u32);
        attackers::start(way, user, &daemon.socket())
    }

    /// Kills it when it is time, anywhere from before it connects on, and starts the next.
    fn live_on(&mut self, daemon: &Daemon) {
        let short = (self.kills * 7919 + self.way * 131) % 1500 + 1;
        // Some have the time to take all that they may have.
        let life = if self.kills % 8 == 7 { 8 * short } else { short };
        if self.since.elapsed() >= Duration::from_millis(life as u64) {
            self.end();
            self.kills += 1;
            (self.process, self.since) = (Self::start(self.way, daemon), Instant::now());
        }
    }

    fn end(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("dead");
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.end();
    }
}

/// What an innocent client sees beside an attacker of this way, or beside an honest neighbour.
fn seen_beside(way: usize, daemon: &Daemon, time: Duration) -> Seen {
    let _neighbour = Attacker::new(way, daemon);
    // It takes a moment to connect and to prepare.
    innocent(daemon, time / 5, || ());
    innocent(daemon, time, || ())
}

/// The honest neighbour and those that compute themselves, and then each way, by name: all are measured by the first.
fn neighbours() -> impl Iterator<Item = (usize, &'static str)> {
    let named = || all_ways().enumerate().map(|(way, (name, _))| (way, name));
    named().skip(WAYS.len()).chain(named().take(WAYS.len()))
}

/// Waits until the daemon holds about what it held `before`, for a while; what it holds in the end.
fn after_all(daemon: &Daemon, before: &Holdings) -> Holdings {
    let (ended, mut last_over) = (Instant::now(), Instant::now());
    loop {
        let now = Holdings::of(daemon);
        if !now.is_back_at(before) {
            last_over = Instant::now();
        }
        // A daemon that keeps something says what: its caller looks.
        if last_over.elapsed() >= STEADY || ended.elapsed() >= PATIENCE {
            let took = last_over.duration_since(ended);
            println!("after {now:?}, so from {took:?} on; threads {:?}", daemon.threads_by_name());
            return now;
        }
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn everything_at_once_hurts_no_innocent_client() {
    let is_root = nix::unistd::geteuid().is_root();
    let time = Duration::from_secs(amount("NNHAL_SECONDS", 8, 3600));
    let quiet = (time / 20).min(Duration::from_secs(60));
    let mut daemon = Daemon::start_for_all_on_a_disk();
    // Whatever is made once only is made before the count.
    innocent(&daemon, quiet, || ());
    let before = Holdings::of(&daemon);
    println!("before {before:?}");
    let alone = innocent(&daemon, quiet, || ());
    alone.print("alone", None);
    let mut beside_honest = None;
    if time >= Duration::from_secs(60) {
        for (way, name) in neighbours() {
            let seen = seen_beside(way, &daemon, time / 200);
            let honest = *beside_honest.get_or_insert(seen.p99());
            seen.print(&format!("beside {name}"), Some(honest));
            seen.assert_right(name, is_root);
        }
    }
    let mut attackers = Vec::new();
    let (mut most, mut least_free, mut turn) = (before, disk::SIZE >> 10, 0usize);
    let amid = innocent(&daemon, time, || {
        // Once the innocent client is connected: where all are one user, there may be no room for it afterwards.
        if attackers.is_empty() {
            attackers = (0..WAYS.len()).map(|way| Attacker::new(way, &daemon)).collect();
        }
        attackers.iter_mut().for_each(|attacker| attacker.live_on(&daemon));
        turn += 1;
        if turn.is_multiple_of(16) {
            most = most.most(Holdings::of(&daemon));
            least_free = least_free.min(daemon.disk().and_then(Disk::free_kib).unwrap_or(u64::MAX));
        }
    });
    let kills: Vec<_> = attackers.iter().map(|attacker| (WAYS[attacker.way].0, attacker.kills)).collect();
    drop(attackers);
    amid.print("amid all", beside_honest);
    println!("killed: {kills:?}\nmost {most:?}, {least_free} KiB of the disk free at the least");
    assert!(daemon.is_alive(), "the daemon has died");
    let after = after_all(&daemon, &before);
    assert!(after.is_back_at(&before), "the daemon keeps more than it held: {before:?}, now {after:?}");
    assert!(kills.iter().all(|&(_, kills)| kills > 0), "some never attacked: {kills:?}");
    alone.assert_right("alone", is_root);
    amid.assert_right("amid all", is_root);
    daemon.serves_an_honest_client();
}

/// How long an innocent client's requests take alone, beside an honest neighbour, and beside each attack, or those of `NNHAL_WAYS`,
/// names with commas between them.
#[test]
#[ignore = "measures, for a table in BENCHMARKS.md: as root, on a machine with nothing else to do"]
fn how_long_requests_take_beside_each_attack() {
    let time = Duration::from_secs(amount("NNHAL_SECONDS", 10, 120));
    let alone = Daemon::start_for_all_on_a_disk();
    innocent(&alone, time / 10, || ());
    innocent(&alone, time, || ()).print("alone", None);
    drop(alone);
    let mut beside_honest = None;
    let only = std::env::var("NNHAL_WAYS").unwrap_or_default();
    let is_wanted =
        |name: &str| name == HONEST.0 || only.is_empty() || only.split(',').any(|way| way == name);
    for (way, name) in neighbours().filter(|(_, name)| is_wanted(name)) {
        let daemon = Daemon::start_for_all_on_a_disk();
        innocent(&daemon, time / 10, || ());
        let seen = seen_beside(way, &daemon, time);
        let honest = *beside_honest.get_or_insert(seen.p99());
        seen.print(&format!("beside {name}"), Some(honest));
        seen.assert_right(name, true);
        daemon.serves_an_honest_client();
    }
}
