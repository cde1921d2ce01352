//! The daemon's log: lines on standard error, without a crate for it. Whoever floods it is cut short.

use log::{Level, LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines per second of the binder crate and of our own: a client can have one written for each call that it makes.
const BINDER_LINES: u32 = 10;
const OUR_LINES: u32 = 200;

struct Logger {
    start: Instant,
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

/// Starts to log, at the level that NNHAL_LOG or RUST_LOG names; without either, what matters to whoever runs it.
pub fn start() {
    let level = ["NNHAL_LOG", "RUST_LOG"].iter().find_map(|name| std::env::var(name).ok());
    let level = level.and_then(|text| LevelFilter::from_str(&text).ok()).unwrap_or(LevelFilter::Info);
    let now = Instant::now();
    let budget = |lines| Mutex::new(Budget::new(lines, now));
    let logger = Logger { start: now, binder: budget(BINDER_LINES), ours: budget(OUR_LINES) };
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

fn is_ours(target: &str) -> bool {
    target.starts_with("nnhal")
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
        let budget = if is_ours(record.target()) { &self.ours } else { &self.binder };
        let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(withheld) = budget.spend(Instant::now()) else { return };
        drop(budget);
        let mut line =
            format!("{:10.3} {:5} {}", self.start.elapsed().as_secs_f64(), record.level(), record.args());
        // A message is one line, whatever a client's name or a panic's text has in it.
        line.retain(|c| !c.is_control());
        if withheld > 0 {
            line.push_str(&format!(" ({withheld} more were left out)"));
        }
        line.push('\n');
        // There is nobody to tell that the log cannot be written.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
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
}
