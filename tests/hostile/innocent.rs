//! An innocent client: it asks for all kinds of work, one piece after the other, looks at every answer, and notes how long
//! it waited for it.

use crate::common::domains::fenced;
use crate::common::{bytes_of, floats, floor_model, fmq, request, Connection, PATIENCE};
use crate::daemon::Daemon;
use crate::storage::{CachingClient, Counts};
use binder::Strong;
use nnhal::aidl::*;
use nnhal::fmq::Limit;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Between two pieces of work.
pub const PAUSE: Duration = Duration::from_millis(2);
/// So many pieces come between two looks at its files.
const PIECES: usize = 64;

const INPUT: [f32; 3] = [1.5, -0.5, 3.0];
const OUTPUT: [f32; 3] = [1.0, -1.0, 3.0];

/// What it asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// To execute, by one call.
    Execution,
    /// To execute by a burst's call.
    Burst,
    /// To execute by a message queue.
    Queue,
    /// To execute, and to wait until the fence is signalled and the callback has told of it.
    Fenced,
    /// To prepare a small model that the driver does not have, until its callback is called.
    Preparation,
}

const KINDS: [Kind; 5] = [Kind::Execution, Kind::Burst, Kind::Queue, Kind::Fenced, Kind::Preparation];

impl Kind {
    /// Of each piece of work: every other is a call that executes.
    fn of(piece: usize) -> Self {
        match piece % 2 {
            0 => Kind::Execution,
            _ => KINDS[1 + piece / 2 % (KINDS.len() - 1)],
        }
    }
}

/// p99 of each kind.
pub type Percentiles = [Duration; KINDS.len()];

/// What an innocent client sees.
#[derive(Debug, Default)]
pub struct Seen {
    /// How long each kind of work took that was not refused.
    times: [Vec<Duration>; KINDS.len()],
    /// What of the calls that execute was time in the driver before it computed: mostly the wait for a turn.
    waits: Vec<Duration>,
    pub wrong: usize,
    /// How often which kind was refused, and how.
    pub refused: BTreeMap<String, usize>,
    files: Counts,
}

impl Seen {
    fn count(&self) -> usize {
        self.times.iter().map(Vec::len).sum()
    }

    pub fn p99(&self) -> Percentiles {
        self.times.each_ref().map(|times| percentile(times, 99))
    }

    /// A line for all, and one for each kind of work.
    pub fn print(&self, what: &str, beside_honest: Option<Percentiles>) {
        println!(
            "{what}: {} answers, {} wrong, refused {:?}; {:?}",
            self.count(),
            self.wrong,
            self.refused,
            self.files
        );
        for (i, (kind, times)) in KINDS.iter().zip(&self.times).enumerate() {
            let [median, p99, longest] = [50, 99, 100].map(|percent| percentile(times, percent));
            let ratio = |honest: Percentiles| p99.as_secs_f64() / honest[i].as_secs_f64();
            let ratio = beside_honest.map(|honest| format!(", {:.2} of an honest one's", ratio(honest)));
            let waits = (*kind == Kind::Execution).then(|| percentile(&self.waits, 99));
            let waits = waits.map(|p99| format!(", waits p99 {p99:.2?}")).unwrap_or_default();
            println!(
                "    {kind:?}: {}, median {median:.2?}, p99 {p99:.2?}{}, longest {longest:.2?}{waits}",
                times.len(),
                ratio.unwrap_or_default()
            );
        }
    }

    /// Where all clients are one user, attackers leave it nothing.
    pub fn assert_right(&self, what: &str, is_refused_nothing: bool) {
        assert_eq!((self.wrong, self.files.wrong), (0, 0), "wrong answers {what}");
        if is_refused_nothing {
            assert!(self.refused.is_empty(), "an innocent client is refused {what}: {:?}", self.refused);
            assert!(self.files.refused.is_empty(), "it is refused {what}: {:?}", self.files.refused);
        }
    }
}

/// 0 without any.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() * percent / 100).or(times.last()).copied().unwrap_or_default()
}

/// What it works with.
struct Client {
    connection: Connection,
    model: Strong<dyn IPreparedModel>,
    burst: Strong<dyn IBurst>,
    queue: fmq::Burst,
    request: Request,
    output: File,
}

/// What a piece of work came to: what was answered, or why it was refused, and how long a call that executes waited.
type Outcome = Result<(Vec<u8>, Option<Duration>), String>;

impl Client {
    fn new(daemon: &Daemon) -> Self {
        let connection = Connection::new(&daemon.socket());
        let model = connection.prepare(&floor_model(&[1, 3]));
        let burst = model.configureExecutionBurst().expect("a burst");
        let queue = fmq::Burst::open(&fmq::extension(&model));
        let (request, output) = request(&floats(&INPUT), 12);
        Client { connection, model, burst, queue, request, output }
    }

    /// Writes over the answers to earlier work.
    fn clear(&self) {
        for output in [&self.output, &self.queue.memories.files[1]] {
            output.write_all_at(&[0xee; 12], 0).expect("written");
        }
    }

    fn work(&mut self, kind: Kind, piece: usize) -> Outcome {
        let mut waited = None;
        match kind {
            Kind::Execution => {
                let result = self.model.executeSynchronously(&self.request, true, -1, -1).map_err(text)?;
                let waits = result.timing.timeInDriverNs - result.timing.timeOnDeviceNs;
                waited = Some(Duration::from_nanos(waits.max(0) as u64));
            }
            Kind::Burst => {
                self.burst.executeSynchronously(&self.request, &[0, 1], false, -1, -1).map_err(text)?;
            }
            Kind::Queue => {
                let limit = Limit::new(Some(PATIENCE));
                let result = self.queue.controller.execute(&fmq::packet(), &limit).map_err(text)?;
                if result.status != 0 {
                    return Err(format!("status {}", result.status));
                }
                return Ok((bytes_of(&self.queue.memories.files[1]), None));
            }
            Kind::Fenced => {
                let result = self.model.executeFenced(&self.request, &[], false, -1, -1, -1);
                match fenced(result) {
                    ErrorStatus::NONE => (),
                    other => return Err(text(other)),
                }
            }
            Kind::Preparation => {
                // A client's models that are equal are one.
                let model = floor_model(&[1, 4 + piece as i32]);
                let (launched, (status, prepared)) = self.connection.launch(&model);
                launched.map_err(text)?;
                return match prepared {
                    Some(_) => Ok((floats(&OUTPUT), None)),
                    None => Err(text(status)),
                };
            }
        }
        Ok((bytes_of(&self.output), waited))
    }
}

fn text(why: impl Debug) -> String {
    format!("{why:?}")
}

/// Works until the time is over, and saves and loads where there is a disk and its share is its own; `meanwhile` is called between two
/// pieces of work.
pub fn innocent(daemon: &Daemon, time: Duration, mut meanwhile: impl FnMut()) -> Seen {
    let mut client = Client::new(daemon);
    let is_root = nix::unistd::geteuid().is_root();
    let mut files = daemon.disk().filter(|_| is_root).map(|_| CachingClient::new(&daemon.socket()));
    let (mut seen, start) = (Seen::default(), Instant::now());
    for piece in 0usize.. {
        // Each kind is asked for at least once.
        if start.elapsed() >= time && piece >= 2 * KINDS.len() {
            break;
        }
        client.clear();
        let (kind, began) = (Kind::of(piece), Instant::now());
        match client.work(kind, piece) {
            Ok((answer, waited)) => {
                seen.times[kind as usize].push(began.elapsed());
                seen.waits.extend(waited);
                seen.wrong += usize::from(answer != floats(&OUTPUT));
            }
            Err(why) => *seen.refused.entry(format!("{kind:?}: {why}")).or_default() += 1,
        }
        if let Some(files) = files.as_mut().filter(|_| piece.is_multiple_of(PIECES)) {
            files.work(&client.connection);
        }
        meanwhile();
        std::thread::sleep(PAUSE);
    }
    seen.files = files.map(|files| files.counts).unwrap_or_default();
    client.connection.close();
    seen
}
