//! Everything at once: clients that attack in every way are started, killed and started again, while an innocent one
//! executes and looks at every answer.
//!
//! As root each attacker is a user of its own, as apps are. Otherwise all are one client to the driver, the innocent one
//! too, which then has what the attackers leave it: only its answers count. `NNHAL_CAMPAIGN=long` goes on for an hour, and
//! `NNHAL_SECONDS` says how long otherwise.

use crate::attackers::{self, HONEST, WAYS};
use crate::common::campaign::amount;
use crate::common::{bytes_of, floats, floor_model, request, Connection, PATIENCE};
use crate::daemon::Daemon;
use std::process::Child;
use std::time::{Duration, Instant};

/// Whom attackers are run as: this user and those after it.
pub const FIRST_USER: u32 = 20_000;
/// What may be left of memory once all have ended.
const LEFT_KIB: usize = 32 << 10;
/// Between two executions of the innocent client.
const PAUSE: Duration = Duration::from_millis(2);

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

    /// Whether it is what was held `before`, but for what an idle daemon may keep.
    fn is_back_at(&self, before: &Holdings) -> bool {
        self.descriptors <= before.descriptors + 4
            && self.threads <= before.threads + 4
            && self.resident_kib <= before.resident_kib + LEFT_KIB
    }
}

/// What an innocent client sees.
#[derive(Debug, Default)]
pub struct Seen {
    pub times: Vec<Duration>,
    pub wrong: usize,
    pub refused: usize,
}

impl Seen {
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[(times.len() * percent / 100).min(times.len() - 1)]
    }
}

/// Executes until the time is over; `meanwhile` is called between two executions.
pub fn innocent(daemon: &Daemon, time: Duration, mut meanwhile: impl FnMut()) -> Seen {
    let connection = Connection::new(&daemon.socket());
    let model = connection.prepare(&floor_model(&[1, 3]));
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let (mut seen, start) = (Seen::default(), Instant::now());
    while start.elapsed() < time {
        let began = Instant::now();
        match model.executeSynchronously(&request, false, -1, -1) {
            Ok(_) => {
                seen.times.push(began.elapsed());
                seen.wrong += usize::from(bytes_of(&output) != floats(&[1.0, -1.0, 3.0]));
            }
            Err(_) => seen.refused += 1,
        }
        meanwhile();
        std::thread::sleep(PAUSE);
    }
    connection.close();
    seen
}

#[test]
fn everything_at_once_hurts_no_innocent_client() {
    let is_root = nix::unistd::geteuid().is_root();
    let time = Duration::from_secs(amount("NNHAL_SECONDS", 8, 3600));
    let daemon = Daemon::start_for_all();
    // Whatever is made once only is made before the count.
    innocent(&daemon, time / 20, || ());
    let before = Holdings::of(&daemon);
    let alone = innocent(&daemon, time / 10, || ());
    let start =
        |way: usize| attackers::start(way, is_root.then_some(FIRST_USER + way as u32), &daemon.socket());
    let mut attackers: Vec<(Child, Instant)> =
        (0..WAYS.len()).map(|way| (start(way), Instant::now())).collect();
    let (mut kills, mut most) = ([0usize; WAYS.len()], before);
    let amid = innocent(&daemon, time, || {
        for (way, (attacker, since)) in attackers.iter_mut().enumerate() {
            // Anywhere from before it connects on.
            let life = Duration::from_millis((kills[way] as u64 * 7919 + way as u64 * 131) % 1500 + 1);
            if since.elapsed() >= life {
                attacker.kill().expect("killed");
                attacker.wait().expect("dead");
                kills[way] += 1;
                (*attacker, *since) = (start(way), Instant::now());
            }
        }
        if kills.iter().sum::<usize>() % 16 == 0 {
            let now = Holdings::of(&daemon);
            most.descriptors = most.descriptors.max(now.descriptors);
            most.threads = most.threads.max(now.threads);
            most.mappings = most.mappings.max(now.mappings);
            most.resident_kib = most.resident_kib.max(now.resident_kib);
        }
    });
    for (attacker, _) in &mut attackers {
        attacker.kill().expect("killed");
        attacker.wait().expect("dead");
    }
    // A daemon that keeps something says what, below.
    let ended = Instant::now();
    let mut after = Holdings::of(&daemon);
    while !after.is_back_at(&before) && ended.elapsed() < PATIENCE {
        std::thread::sleep(PAUSE);
        after = Holdings::of(&daemon);
    }
    println!(
        "attackers killed: {}",
        WAYS.iter().zip(kills).map(|((name, _), n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
    );
    for (what, seen) in [("alone", &alone), ("amid all", &amid)] {
        println!(
            "{what}: {} executions, {} wrong, {} refused, median {:?}, p99 {:?}, longest {:?}",
            seen.times.len(),
            seen.wrong,
            seen.refused,
            seen.percentile(50),
            seen.percentile(99),
            seen.percentile(100),
        );
    }
    println!("before {before:?}\nmost {most:?}\nafter {after:?}");
    assert!(after.is_back_at(&before), "the daemon keeps more than it held: {before:?}, now {after:?}");
    assert!(kills.iter().all(|&kills| kills > 0), "some never attacked: {kills:?}");
    assert_eq!((alone.wrong, amid.wrong), (0, 0), "wrong answers");
    if is_root {
        assert_eq!((alone.refused, amid.refused), (0, 0), "an innocent client is refused");
    }
    daemon.serves_an_honest_client();
}

/// How long an innocent client's executions take beside an honest neighbour, and beside each attack.
#[test]
#[ignore = "measures, for a table in BENCHMARKS.md: as root, on a machine with nothing else to do"]
fn how_long_executions_take_beside_each_attack() {
    let time = Duration::from_secs(amount("NNHAL_SECONDS", 10, 120));
    let mut honest = None;
    // The honest neighbour first, as all are measured by it.
    let ways = std::iter::once((WAYS.len(), &HONEST)).chain(WAYS.iter().enumerate());
    for (way, (name, _)) in ways {
        let daemon = Daemon::start_for_all();
        innocent(&daemon, time / 10, || ());
        let mut neighbour = attackers::start(way, Some(FIRST_USER + way as u32), &daemon.socket());
        // It takes a moment to connect and to prepare.
        innocent(&daemon, time / 5, || ());
        let seen = innocent(&daemon, time, || ());
        neighbour.kill().expect("killed");
        neighbour.wait().expect("dead");
        let (median, p99) = (seen.percentile(50), seen.percentile(99));
        let base = *honest.get_or_insert(p99);
        println!(
            "{name}: {} executions, {} wrong, {} refused, median {median:?}, p99 {p99:?}, {:.2} times that beside an honest neighbour",
            seen.times.len(),
            seen.wrong,
            seen.refused,
            p99.as_secs_f64() / base.as_secs_f64()
        );
        assert_eq!((seen.wrong, seen.refused), (0, 0), "beside {name}");
        daemon.serves_an_honest_client();
    }
}
