//! Private memory that is kept for later while nobody uses it: it goes when it was not used for about a second, and at once
//! where its client would be refused memory otherwise.
//!
//! Must not know what it was used for. Whoever keeps some says so once, and not for each use.

use std::collections::BTreeMap;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// How often is looked for what was not used since the last time.
const LOOK: Duration = Duration::from_secs(1);

/// Who keeps memory that nobody uses. What is called here waits for nobody, and takes no memory.
pub trait Keeper: Send + Sync {
    /// Frees what was there already when this was called last, and is still unused. Whether anything is kept after that: if
    /// not, nobody asks again, and it has to [say so](super::note_idle) anew once it keeps something.
    fn free_unused(&self) -> bool;

    /// Frees what is of this client.
    fn free_of(&self, client: u32);
}

/// Keepers of one driver's memory.
#[derive(Default)]
pub(super) struct Idle(Mutex<Keepers>);

#[derive(Default)]
struct Keepers {
    last_key: u64,
    by_key: BTreeMap<u64, Weak<dyn Keeper>>,
    /// Whether there is a thread that looks after them: it ends when there are none.
    is_looked_after: bool,
    /// What that thread notices to be gone, and the driver with it: nothing is sent.
    lives: Option<Sender<()>>,
}

impl Idle {
    /// Notes that `keeper` keeps memory. False where it cannot be looked after.
    pub fn note(self: &Arc<Self>, keeper: Weak<dyn Keeper>) -> bool {
        let mut keepers = self.lock();
        if !keepers.is_looked_after {
            let (idle, (lives, ended)) = (Arc::downgrade(self), channel::<()>());
            let look = move || {
                // A driver that is gone has no keepers.
                while idle.upgrade().is_some_and(|idle| idle.look()) {
                    if ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            };
            if let Err(why) = std::thread::Builder::new().name("nnhal-idle".into()).spawn(look) {
                log::warn!("memory that nobody uses is kept for now: {why}");
                return false;
            }
            (keepers.is_looked_after, keepers.lives) = (true, Some(lives));
        }
        keepers.last_key += 1;
        let key = keepers.last_key;
        keepers.by_key.insert(key, keeper);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Keepers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keepers(&self) -> Vec<(u64, Arc<dyn Keeper>)> {
        let keepers = self.lock();
        keepers.by_key.iter().filter_map(|(&key, keeper)| Some((key, keeper.upgrade()?))).collect()
    }

    /// Has all free what was not used since the last time. False once there are none left, and this is called no more.
    fn look(&self) -> bool {
        let kept: Vec<_> =
            self.keepers().into_iter().map(|(key, keeper)| (key, keeper.free_unused())).collect();
        let mut keepers = self.lock();
        kept.iter().filter(|(_, kept)| !kept).for_each(|(key, _)| drop(keepers.by_key.remove(key)));
        keepers.by_key.retain(|_, keeper| keeper.strong_count() > 0);
        keepers.is_looked_after = !keepers.by_key.is_empty();
        keepers.is_looked_after
    }

    /// Has all free what is of this client.
    pub fn free_of(&self, client: u32) {
        self.keepers().iter().for_each(|(_, keeper)| keeper.free_of(client));
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::note_idle;
    use super::super::{Budget, Counted};
    use super::*;
    use std::time::Instant;

    /// Keeps some, and is told of nothing but age.
    #[derive(Default)]
    struct Shelf(Mutex<Vec<(Counted, u32, bool)>>);

    impl Keeper for Shelf {
        fn free_unused(&self) -> bool {
            let mut kept = self.0.lock().unwrap();
            kept.retain_mut(|(_, _, seen)| !std::mem::replace(seen, true));
            !kept.is_empty()
        }

        fn free_of(&self, client: u32) {
            self.0.lock().unwrap().retain(|(_, of, _)| *of != client);
        }
    }

    #[test]
    fn what_nobody_uses_goes_after_a_while_and_the_thread_with_it() {
        let budget = Budget::new(64 << 20);
        let _account = budget.on_account_of(1);
        let shelf: Arc<Shelf> = Arc::default();
        for _ in 0..2 {
            shelf.0.lock().unwrap().push((Counted::take(1 << 20).unwrap(), 1, false));
            let keeper: Arc<dyn Keeper> = shelf.clone();
            assert!(note_idle(Arc::downgrade(&keeper)));
            let until = Instant::now() + Duration::from_secs(30);
            while budget.private().held() > 0 || budget.idle().lock().is_looked_after {
                assert!(Instant::now() < until, "it is still there");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    #[test]
    fn a_client_loses_what_it_does_not_use_before_it_is_refused() {
        const SHARE: usize = 32 << 20;
        let budget = Budget::new(2 * SHARE as u64);
        let shelf: Arc<Shelf> = Arc::default();
        let keeper: Arc<dyn Keeper> = shelf.clone();
        let keep = |client, bytes| {
            let _account = budget.on_account_of(client);
            let counted = Counted::take(bytes).expect("there is room");
            shelf.0.lock().unwrap().push((counted, client, false));
            assert!(note_idle(Arc::downgrade(&keeper)));
        };
        // Nothing ages here.
        budget.idle().lock().is_looked_after = true;
        keep(1, SHARE / 2);
        keep(2, 1 << 20);
        let _account = budget.on_account_of(1);
        let taken = Counted::take(SHARE * 3 / 4).expect("what it keeps is freed for it");
        assert_eq!(budget.private().held_by(2), 1 << 20, "what another keeps stays");
        assert!(Counted::take(SHARE / 2).is_none(), "what it uses stays");
        drop(taken);
    }
}
