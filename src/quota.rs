//! Limits on whatever can be counted, shared out so that a client that comes new always finds room.
//!
//! The rule: what a client holds may be, to all that is left, at most as `per_client` is to the rest of `total`. Alone
//! it may hold `per_client`; the more others hold, the less any of them may add. Nobody has to be counted ahead, and
//! nothing is taken back. So `n` clients that each take all they can, in whatever order and however they give back
//! between, leave `total * (1 - per_client / total)^n`: with a quarter for one client, five leave almost a quarter of
//! the total. Below that there is a `floor`: so much a client may hold as long as anything is left at all.

use std::collections::HashMap;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What is called when some is given back, on the thread that does so: it must be quick and wait for nobody.
pub type GivenBack = Box<dyn Fn() + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// So much may be held, in all and by one client.
pub struct Quota {
    total: u64,
    per_client: u64,
    floor: u64,
    held: Mutex<Held>,
    given_back: OnceLock<GivenBack>,
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    by_client: HashMap<u32, u64>,
}

/// A part of a quota, given back when dropped.
#[derive(Debug)]
pub struct Permit {
    quota: Arc<Quota>,
    client: u32,
    amount: u64,
}

/// There is nothing left of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    #[error("this client has {0}, the most that one client may have")]
    ByClient(u64),
    #[error("this client has {0}, and what is left is kept for clients that have less")]
    ByShare(u64),
    /// How much that is, is told to no client: it would be of others.
    #[error("all clients together have the most that there may be")]
    ByAll(u64),
}

impl Quota {
    /// `total` of something, of which one client may hold `per_client` where it is alone.
    pub fn new(total: u64, per_client: u64) -> Arc<Self> {
        Self::with_floor(total, per_client, 1)
    }

    /// As [`new`](Self::new); `floor` is what every client may hold while there is any left: enough to be served at all.
    pub fn with_floor(total: u64, per_client: u64, floor: u64) -> Arc<Self> {
        let (held, given_back) = (Mutex::default(), OnceLock::new());
        Arc::new(Quota { total, per_client: per_client.min(total), floor, held, given_back })
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn per_client(&self) -> u64 {
        self.per_client
    }

    /// How much all hold now.
    pub fn held(&self) -> u64 {
        self.lock().total
    }

    /// How much one client holds now.
    pub fn held_by(&self, client: u32) -> u64 {
        self.lock().by_client.get(&client).copied().unwrap_or(0)
    }

    /// How much each client holds now.
    pub fn by_client(&self) -> HashMap<u32, u64> {
        self.lock().by_client.clone()
    }

    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Has `then` called whenever some was given back. It stays with whoever said so first.
    pub fn when_given_back(&self, then: GivenBack) {
        let _ = self.given_back.set(then);
    }

    /// Takes `amount` for `client`.
    pub fn take(self: &Arc<Self>, client: u32, amount: u64) -> Result<Permit, Exhausted> {
        let mut held = self.lock();
        let own = held.by_client.get(&client).copied().unwrap_or(0);
        let fits = |held: u64, limit: u64| held.checked_add(amount).filter(|&sum| sum <= limit);
        let own_after = fits(own, self.per_client).ok_or(Exhausted::ByClient(own))?;
        let total_after = fits(held.total, self.total).ok_or(Exhausted::ByAll(held.total))?;
        if own_after > self.floor && !self.leaves_enough(own_after, self.total - total_after) {
            return Err(Exhausted::ByShare(own));
        }
        held.total = total_after;
        held.by_client.insert(client, own_after);
        Ok(Permit { quota: self.clone(), client, amount })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `own` is no more, to what is `left`, than `per_client` is to the rest of `total`.
    fn leaves_enough(&self, own: u64, left: u64) -> bool {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        product(own, self.total - self.per_client) <= product(left, self.per_client)
    }
}

impl std::fmt::Debug for Quota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quota")
            .field("total", &self.total)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl Permit {
    pub fn client(&self) -> u32 {
        self.client
    }

    /// Takes `amount` more.
    pub fn raise(&mut self, amount: u64) -> Result<(), Exhausted> {
        let mut more = self.quota.take(self.client, amount)?;
        self.amount += std::mem::take(&mut more.amount);
        Ok(())
    }

    /// Gives `amount` of it back.
    pub fn lower(&mut self, amount: u64) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        drop(Permit { quota: self.quota.clone(), client: self.client, amount });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.quota.lock();
        held.total = held.total.saturating_sub(self.amount);
        if let Some(own) = held.by_client.get_mut(&self.client) {
            *own = own.saturating_sub(self.amount);
            if *own == 0 {
                held.by_client.remove(&self.client);
            }
        }
        drop(held);
        if let Some(then) = self.quota.given_back.get() {
            then();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_hold_and_permits_give_back() {
        let quota = Quota::new(8, 3);
        let first = quota.take(1, 3).unwrap();
        assert_eq!(quota.take(1, 1).unwrap_err(), Exhausted::ByClient(3));
        assert_eq!(quota.take(2, u64::MAX).unwrap_err(), Exhausted::ByClient(0));
        // 3 of 8 are gone: to have 2 it would have to leave 4.
        let second = quota.take(2, 1).unwrap();
        assert_eq!(quota.take(2, 1).unwrap_err(), Exhausted::ByShare(1));
        let others: Vec<_> = (3..7).map(|client| quota.take(client, 1).unwrap()).collect();
        let refused = quota.take(7, 1).unwrap_err();
        assert_eq!(refused, Exhausted::ByAll(8));
        assert!(!refused.to_string().contains(char::is_numeric), "what others have is told: {refused}");
        drop(first);
        assert!(quota.take(7, 1).is_ok());
        drop((second, others));
        assert!(quota.take(1, 3).is_ok());
        assert!(quota.held.lock().unwrap().by_client.is_empty());
    }

    #[test]
    fn what_is_given_back_is_told_once_it_can_be_taken() {
        let (quota, told) = (Quota::new(8, 3), Arc::new(Mutex::new(Vec::new())));
        let (weak, tell) = (Arc::downgrade(&quota), told.clone());
        quota.when_given_back(Box::new(move || {
            let held = weak.upgrade().map(|quota| quota.held());
            tell.lock().unwrap().push(held.unwrap());
        }));
        let (first, mut second) = (quota.take(1, 1).unwrap(), quota.take(2, 2).unwrap());
        assert!(told.lock().unwrap().is_empty());
        drop(first);
        second.lower(1);
        assert_eq!(*told.lock().unwrap(), [2, 1]);
    }

    /// What a client does: asks for some, or gives back one of its permits.
    #[derive(Clone, Debug)]
    enum Act {
        Take { client: u32, amount: u64 },
        Give { which: usize },
    }

    fn acts(clients: u32) -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            3 => (0..clients, 1u64..200).prop_map(|(client, amount)| Act::Take { client, amount }),
            1 => (0usize..1000).prop_map(|which| Act::Give { which }),
        ];
        prop::collection::vec(act, 0..400)
    }

    proptest! {
        /// Whatever `greedy` clients take and give back, the next finds what the rule promises.
        #[test]
        fn who_comes_new_finds_room(greedy in 1u32..7, acts in acts(6), parts in 2u64..9, floor in 1u64..9) {
            let (total, newcomer) = (4096, 99);
            let quota = Quota::with_floor(total, total / parts, floor);
            let mut permits = Vec::new();
            for act in acts {
                match act {
                    Act::Take { client, amount } => permits.extend(quota.take(client % greedy, amount)),
                    Act::Give { which } if !permits.is_empty() => {
                        permits.swap_remove(which % permits.len());
                    }
                    Act::Give { .. } => {}
                }
            }
            // In the end each takes all that it can get.
            (0..greedy).for_each(|client| permits.extend(std::iter::from_fn(|| quota.take(client, 1).ok())));
            let held = quota.held();
            let share = 1.0 - 1.0 / parts as f64;
            let promised = total as f64 * share.powi(greedy as i32) - (u64::from(greedy) * floor) as f64;
            prop_assert!((total - held) as f64 >= promised - f64::from(greedy), "{held} of {total} are held");
            let room = (promised / (parts as f64 + 1.0)) as u64;
            prop_assert!(quota.take(newcomer, room.max(floor)).is_ok());
            drop(permits);
            prop_assert_eq!(quota.held(), 0);
        }
    }
}
