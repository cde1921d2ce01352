//! The daemon's log: Android's, else lines on standard error. A source that floods it is cut short.
//!
//! On Android, init discards standard error: what stops the daemon must be told here, too.

use log::{Level, LevelFilter, Log, Metadata, Record};
#[cfg(not(target_os = "android"))]
use std::io::Write;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines per second of the binder crate and of our own: a client can have one written for each call that it makes.
const BINDER_LINES: u32 = 10;
const OUR_LINES: u32 = 200;

/// The longest line, in bytes: a client can have the driver say what it sent, and Android's log takes no more in one piece.
const LONGEST_LINE: usize = 4000;

/// By what name Android's log knows the daemon.
#[cfg(target_os = "android")]
const TAG: &str = "nnhal";

struct Logger {
    output: Output,
    binder: Mutex<Budget>,
    ours: Mutex<Budget>,
}

/// How much may still be written in the current second.
#[derive(Debug)]
struct Budget {
    since: Instant,
    per_second: u32,
    left: u32,
    withheld: u64,
}

impl Budget {
    fn new(per_second: u32, now: Instant) -> Self {
        Budget { since: now, per_second, left: per_second, withheld: 0 }
    }

    /// Whether a line may be written, and how many were not since the last that was.
    fn spend(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.left) = (now, self.per_second);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.withheld))
            }
            None => {
                self.withheld += 1;
                None
            }
        }
    }
}

/// Starts to log, at the level that NNHAL_LOG or RUST_LOG names; without either, at the level that an administrator needs.
pub fn start() {
    let level = ["NNHAL_LOG", "RUST_LOG"].iter().find_map(|name| std::env::var(name).ok());
    let level = level.and_then(|text| LevelFilter::from_str(&text).ok()).unwrap_or(LevelFilter::Info);
    let now = Instant::now();
    let budget = |lines| Mutex::new(Budget::new(lines, now));
    let logger = Logger { output: Output::new(now), binder: budget(BINDER_LINES), ours: budget(OUR_LINES) };
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        log::error!("panic at {place}: {}", text.unwrap_or("no message"));
    }));
}

/// Says why the daemon ends before it was told to. It is the last line of the log.
pub fn failed(why: std::fmt::Arguments) {
    #[cfg(target_os = "android")]
    log::error!("{why}");
    #[cfg(not(target_os = "android"))]
    let _ = writeln!(std::io::stderr(), "nnhald: {why}"); // there is nowhere else to say it
}

/// Where lines go.
#[cfg(not(target_os = "android"))]
struct Output {
    start: Instant,
}

#[cfg(not(target_os = "android"))]
impl Output {
    fn new(start: Instant) -> Self {
        Output { start }
    }

    fn write(&self, record: &Record, text: &str) {
        let line = format!("{:10.3} {:5} {text}\n", self.start.elapsed().as_secs_f64(), record.level());
        // There is nobody to tell that the log cannot be written.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// Where lines go: logd, which adds time, process and level.
#[cfg(target_os = "android")]
struct Output {
    logd: android_logger::AndroidLogger,
}

#[cfg(target_os = "android")]
impl Output {
    fn new(_: Instant) -> Self {
        let config = android_logger::Config::default().with_tag(TAG).with_max_level(LevelFilter::Trace);
        Output { logd: android_logger::AndroidLogger::new(config) }
    }

    fn write(&self, record: &Record, text: &str) {
        let metadata = record.metadata().clone();
        self.logd.log(&Record::builder().metadata(metadata).args(format_args!("{text}")).build());
    }
}

fn is_ours(target: &str) -> bool {
    target.starts_with("nnhal")
}

/// Whether the binder crate warns of nothing but a client that closed its connections between two calls, as each does
/// that comes to its end.
///
/// A session is over when the first of its connections ends, and that is where the crate tells the reason. The others
/// then end because the session did, which it takes for a stream that is lost. A connection that is closed before a word
/// was said is of somebody who looked whether anybody listens.
fn is_a_clients_end(target: &str, message: &str) -> bool {
    const ENDS: [&str; 3] = [
        "RPC session ended: ended by the peer or the stream, stream lost (SessionEnded)",
        "RPC attached connection ended: ended by the peer or the stream, stream lost (SessionEnded)",
        "android-13+ RPC handshake failed: RPC stream ended",
    ];
    target.starts_with("rsbinder::rpc") && ENDS.contains(&message)
}

/// A message as one line that is not too long, whatever a client's name or a panic's text has in it.
fn to_line(message: &mut String) {
    if message.len() > LONGEST_LINE {
        let end = (0..=LONGEST_LINE).rev().find(|&end| message.is_char_boundary(end));
        message.truncate(end.unwrap_or(0));
        message.push_str("...");
    }
    message.retain(|c| !c.is_control());
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // What the binder crate has to say below a warning is about itself.
        is_ours(metadata.target()) || metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut line = record.args().to_string();
        let target = record.target();
        let lowered;
        let record = match is_a_clients_end(target, &line) {
            true if log::max_level() < Level::Debug => return,
            true => {
                lowered = Record::builder().target(target).level(Level::Debug).build();
                &lowered
            }
            false => record,
        };
        let budget = if is_ours(record.target()) { &self.ours } else { &self.binder };
        let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(withheld) = budget.spend(Instant::now()) else { return };
        drop(budget);
        to_line(&mut line);
        if withheld > 0 {
            line.push_str(&format!(" ({withheld} more were left out)"));
        }
        self.output.write(record, &line);
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_are_cut_short_and_counted() {
        let now = Instant::now();
        let mut budget = Budget::new(BINDER_LINES, now);
        let written = (0..100).filter(|_| budget.spend(now).is_some()).count();
        assert_eq!(written, BINDER_LINES as usize);
        assert_eq!(budget.spend(now + Duration::from_secs(1)), Some(100 - u64::from(BINDER_LINES)));
        assert_eq!(budget.spend(now + Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        for (message, line) in [
            ("as it is".into(), "as it is".into()),
            ("two\r\nlines\0".into(), "twolines".into()),
            ("x".repeat(LONGEST_LINE), "x".repeat(LONGEST_LINE)),
            ("x".repeat(1 << 20), "x".repeat(LONGEST_LINE) + "..."),
            // Of two bytes each, the first after one of one.
            (
                format!("x{}", "\u{e4}".repeat(1 << 20)),
                format!("x{}...", "\u{e4}".repeat(LONGEST_LINE / 2 - 1)),
            ),
        ] {
            let mut message: String = message;
            to_line(&mut message);
            let line: String = line;
            assert!(message == line, "{} bytes, not {}", message.len(), line.len());
        }
    }

    #[test]
    fn only_a_clients_own_end_is_no_warning() {
        let rpc = "rsbinder::rpc::end";
        let end = "RPC session ended: ended by the peer or the stream, stream lost (SessionEnded)";
        assert!(is_a_clients_end(rpc, end));
        for (target, message) in [
            ("nnhal::daemon", end),
            (rpc, "RPC session ended: ended by the peer or the stream, stream lost (Unreadable)"),
            (rpc, "RPC session ended: ended by the peer or the stream, stream lost (Frame(NotEnoughData))"),
            (rpc, "android-13+ RPC handshake failed: RPC protocol violation: no header"),
        ] {
            assert!(!is_a_clients_end(target, message), "{target}: {message}");
        }
    }
}
