//! Whether client processes are alive: work for one that died stops at its next check.
//!
//! Fences, callbacks and binder objects have notices of their own; a call that is under way has none but this.

use super::stop::Stop;
use super::watcher::{Event, Key, Watcher};
use crate::memory::process_descriptor;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The lives of client processes that own something here.
pub struct Lives {
    watcher: Arc<Watcher>,
    by_process: Mutex<HashMap<i32, Weak<Life>>>,
}

/// The life of one client process, watched as long as somebody holds this.
pub struct Life {
    over: Arc<Stop>,
    watch: Option<(Arc<Watcher>, Key)>,
}

impl Lives {
    pub fn new(watcher: &Arc<Watcher>) -> Self {
        Lives { watcher: watcher.clone(), by_process: Mutex::default() }
    }

    /// The life of the process with this id. One that cannot be watched counts as immortal.
    pub fn of(&self, process: i32) -> Arc<Life> {
        let mut by_process = self.by_process.lock().unwrap_or_else(PoisonError::into_inner);
        let known = by_process.get(&process).and_then(Weak::upgrade);
        // The id may be another process's as soon as this one has ended, and so before anybody was told.
        if let Some(known) = known.filter(|life| !life.is_over()) {
            return known;
        }
        let life = Arc::new(Life::watched(&self.watcher, process));
        by_process.retain(|_, life| life.strong_count() > 0);
        by_process.insert(process, Arc::downgrade(&life));
        life
    }
}

impl Life {
    fn watched(watcher: &Arc<Watcher>, process: i32) -> Self {
        let over = Arc::<Stop>::default();
        let told = over.clone();
        let end = move |_: Event, _: &OwnedFd| told.set();
        // Where the transport does not tell, the id is negative.
        let known = Some(process).filter(|&process| process > 0);
        let descriptor = known.ok_or(std::io::ErrorKind::NotFound.into()).and_then(process_descriptor);
        let watch = descriptor.and_then(|process| watcher.readable(process, Box::new(end)));
        if let Err(why) = &watch {
            log::debug!("the life of process {process} is not watched: {why}");
            // It may have ended before its call was served.
            if why.raw_os_error() == Some(libc::ESRCH) {
                over.set();
            }
        }
        Life { over, watch: watch.ok().map(|key| (watcher.clone(), key)) }
    }

    /// Whether it has ended, whoever was told.
    fn is_over(&self) -> bool {
        self.over.is_set() || self.watch.as_ref().is_some_and(|(watcher, key)| watcher.has_happened(*key))
    }

    /// Set when it ends.
    pub fn over(&self) -> Arc<Stop> {
        self.over.clone()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some((watcher, key)) = self.watch.take() {
            watcher.forget(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    #[test]
    fn a_life_ends_with_its_process_and_one_unknown_never_does() {
        let lives = Lives::new(&Arc::new(Watcher::new().unwrap()));
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = process.id() as i32;
        let (life, unknown) = (lives.of(id), lives.of(-1));
        assert!(Arc::ptr_eq(&life, &lives.of(id)));
        assert!(!life.over().is_set());
        process.kill().unwrap();
        let began = Instant::now();
        while !life.over().is_set() {
            assert!(began.elapsed() < Duration::from_secs(20), "nobody notices");
            std::thread::sleep(Duration::from_millis(5));
        }
        process.wait().unwrap();
        assert!(!unknown.over().is_set() && unknown.watch.is_none());
        assert!(lives.of(id).over().is_set(), "it has ended before");
    }

    #[test]
    fn a_process_with_the_id_of_one_that_ended_has_a_life_of_its_own_before_anybody_was_told() {
        let watcher = Arc::new(Watcher::new().unwrap());
        let (began, begun) = channel();
        let (end, ended) = channel::<()>();
        // The watcher is about something else.
        watcher.at(
            0,
            Box::new(move || {
                began.send(()).unwrap();
                ended.recv().unwrap();
            }),
        );
        begun.recv().unwrap();
        let lives = Lives::new(&watcher);
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = process.id() as i32;
        let before = lives.of(id);
        assert!(Arc::ptr_eq(&before, &lives.of(id)));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!before.over().is_set(), "nobody was told yet");
        assert!(!Arc::ptr_eq(&before, &lives.of(id)));
        end.send(()).unwrap();
    }
}
