//! A guard around each call of a client that says, should the call take long, what it waited for.
//!
//! A call is noted when it begins; the next call that begins a second later tells of those that last. So nobody has to
//! stand by. It ends nothing: a slow call is either the client's own work, or a fault to be looked for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A call that takes longer is slow.
const SLOW: Duration = Duration::from_millis(500);
/// How often is looked for calls that last, at the most.
const LOOK_MS: u64 = 1000;

thread_local! {
    /// The call that this thread serves.
    static CURRENT: RefCell<Option<Arc<Entry>>> = const { RefCell::new(None) };
}

struct Entry {
    name: &'static str,
    client: u32,
    began: Instant,
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    /// By what was waited for: how long.
    over: Vec<(&'static str, Duration)>,
    now: Option<(&'static str, Instant)>,
    /// Whether it was told that this call lasts.
    told: bool,
}

/// The calls of one driver that are under way.
#[derive(Default)]
pub struct Calls {
    last_key: AtomicU64,
    /// Milliseconds after the epoch at which was looked last.
    looked: AtomicU64,
    by_key: Mutex<HashMap<u64, Arc<Entry>>>,
    epoch: OnceLock<Instant>,
}

/// A call under way, until dropped.
pub struct Call {
    calls: Arc<Calls>,
    key: u64,
    entry: Arc<Entry>,
    before: Option<Arc<Entry>>,
}

/// A wait of the call that the thread serves, until dropped.
pub struct Wait(Option<Arc<Entry>>);

/// Notes that the thread waits for `what`, should it serve a call.
pub fn wait_for(what: &'static str) -> Wait {
    let entry = CURRENT.with_borrow(Option::clone);
    if let Some(entry) = &entry {
        entry.lock().now = Some((what, Instant::now()));
    }
    Wait(entry)
}

impl Calls {
    /// Notes that the thread serves the call `name` of `client`.
    pub fn begin(self: &Arc<Self>, name: &'static str, client: u32) -> Call {
        self.look(Instant::now());
        let entry = Arc::new(Entry { name, client, began: Instant::now(), waits: Mutex::default() });
        let key = self.last_key.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, entry.clone());
        let before = CURRENT.replace(Some(entry.clone()));
        Call { calls: self.clone(), key, entry, before }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of calls that last, unless somebody has looked just now.
    fn look(&self, now: Instant) {
        let since = now.saturating_duration_since(*self.epoch.get_or_init(|| now)).as_millis() as u64;
        let looked = self.looked.load(Ordering::Relaxed);
        let due = since >= looked + LOOK_MS;
        if !due || self.looked.compare_exchange(looked, since, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let slow: Vec<_> = self.lock().values().filter(|entry| entry.took(now) > SLOW).cloned().collect();
        for entry in slow {
            if !std::mem::replace(&mut entry.lock().told, true) {
                log::warn!("{} (and lasts)", entry.account(now));
            }
        }
    }
}

impl Entry {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// What took how long.
    fn account(&self, now: Instant) -> String {
        let waits = self.lock();
        let mut over = waits.over.clone();
        if let Some((what, since)) = waits.now {
            add(&mut over, what, now.saturating_duration_since(since));
        }
        let of = |(what, time): &(&str, Duration)| format!("{} ms waiting for {what}", time.as_millis());
        let parts: Vec<_> = over.iter().map(of).collect();
        let parts = if parts.is_empty() { "waiting for nobody".into() } else { parts.join(", ") };
        format!("{} of uid {} took {} ms: {parts}", self.name, self.client, self.took(now).as_millis())
    }
}

fn add(waits: &mut Vec<(&'static str, Duration)>, what: &'static str, time: Duration) {
    match waits.iter_mut().find(|(other, _)| *other == what) {
        Some((_, sum)) => *sum += time,
        None => waits.push((what, time)),
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(entry) = &self.0 else { return };
        let mut waits = entry.lock();
        if let Some((what, since)) = waits.now.take() {
            add(&mut waits.over, what, since.elapsed());
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
        let ended = self.calls.lock().remove(&self.key);
        drop(ended); // not under the lock
        let now = Instant::now();
        if self.entry.took(now) > SLOW {
            log::info!("{}", self.entry.account(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_waited_for_is_told() {
        let calls = Arc::new(Calls::default());
        let outer = calls.begin("outer", 7);
        drop(wait_for("a turn"));
        drop(wait_for("a file"));
        let inner = calls.begin("inner", 8);
        let waiting = wait_for("a turn");
        let later = Instant::now() + Duration::from_secs(3);
        let account = inner.entry.account(later);
        assert!(account.starts_with("inner of uid 8 took ") && account.contains(" ms waiting for a turn"));
        assert!(outer.entry.lock().now.is_none(), "that is another call's wait");
        drop((waiting, inner));
        drop(wait_for("a turn"));
        let waits: Vec<_> = outer.entry.lock().over.iter().map(|(what, _)| *what).collect();
        assert_eq!(waits, ["a turn", "a file"]);
        // A long wait is reported once.
        outer.calls.look(later);
        assert!(outer.entry.lock().told);
        drop(outer);
        assert!(CURRENT.with_borrow(Option::is_none));
        assert!(wait_for("nothing").0.is_none());
    }
}
