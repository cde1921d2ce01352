//! Limits, in all and per client, on whatever can be counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// So much may be held, in all and by one client.
#[derive(Debug)]
pub struct Quota {
    total: u64,
    per_client: u64,
    held: Mutex<Held>,
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
    #[error("all clients together have {0}, the most that there may be")]
    ByAll(u64),
}

impl Quota {
    pub fn new(total: u64, per_client: u64) -> Arc<Self> {
        Arc::new(Quota { total, per_client, held: Mutex::default() })
    }

    /// Takes `amount` for `client`.
    pub fn take(self: &Arc<Self>, client: u32, amount: u64) -> Result<Permit, Exhausted> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.by_client.get(&client).copied().unwrap_or(0);
        let fits = |held: u64, limit: u64| held.checked_add(amount).filter(|&sum| sum <= limit);
        let own_after = fits(own, self.per_client).ok_or(Exhausted::ByClient(own))?;
        let total_after = fits(held.total, self.total).ok_or(Exhausted::ByAll(held.total))?;
        held.total = total_after;
        held.by_client.insert(client, own_after);
        Ok(Permit { quota: self.clone(), client, amount })
    }
}

impl Permit {
    pub fn client(&self) -> u32 {
        self.client
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.quota.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.total = held.total.saturating_sub(self.amount);
        if let Some(own) = held.by_client.get_mut(&self.client) {
            *own = own.saturating_sub(self.amount);
            if *own == 0 {
                held.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_and_permits_give_back() {
        let quota = Quota::new(5, 3);
        let first = quota.take(1, 3).unwrap();
        assert_eq!(quota.take(1, 1).unwrap_err(), Exhausted::ByClient(3));
        assert_eq!(quota.take(2, u64::MAX).unwrap_err(), Exhausted::ByClient(0));
        let second = quota.take(2, 2).unwrap();
        assert_eq!(quota.take(3, 1).unwrap_err(), Exhausted::ByAll(5));
        drop(first);
        assert!(quota.take(1, 3).is_ok());
        drop(second);
        assert!(quota.held.lock().unwrap().by_client.is_empty());
    }
}
