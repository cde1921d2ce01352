//! Who has prepared models, and what was counted of each.
//!
//! A prepared model counts for itself. Once it is released, its counts go to its client; clients that have none any more
//! are remembered for a while, the last few of them, and then all together.

use super::executions::{Executions, Totals};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Clients without prepared models that are remembered by themselves.
const MOST_GONE: usize = 32;

/// The clients of one driver.
#[derive(Debug, Default)]
pub struct Clients {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    by_uid: HashMap<u32, Client>,
    /// Totals of the clients that are not remembered.
    others: Totals,
    /// Counts releases.
    clock: u64,
}

#[derive(Debug, Default)]
struct Client {
    models: HashMap<u64, Arc<PreparedCounts>>,
    /// Totals of the models that were released.
    released: Totals,
    prepared: u64,
    left: u64,
}

/// What is counted of a prepared model.
#[derive(Debug)]
pub struct PreparedCounts {
    pub id: u64,
    pub client: u32,
    /// The process that asked for it; `None` where the transport does not tell.
    pub process: Option<u32>,
    pub executions: Arc<Executions>,
    bursts: AtomicU64,
}

/// A prepared model among those that are alive, until dropped.
#[derive(Debug)]
pub struct Listed {
    clients: Arc<Clients>,
    counts: Arc<PreparedCounts>,
}

/// A burst of a prepared model, until dropped.
#[derive(Debug)]
pub struct OpenBurst(Arc<PreparedCounts>);

/// What was counted of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientCounts {
    pub uid: u32,
    /// Those of its processes that have prepared models.
    pub processes: BTreeSet<u32>,
    /// Its prepared models, those with most executions first.
    pub models: Vec<Arc<PreparedCounts>>,
    /// How many it has had prepared, those included.
    pub prepared: u64,
    pub bursts: u64,
    pub executions: Totals,
}

impl Clients {
    /// Lists a prepared model.
    pub fn list(self: &Arc<Self>, client: u32, process: Option<u32>) -> Listed {
        let mut state = self.lock();
        state.last_id += 1;
        let id = state.last_id;
        let (executions, bursts) = (Arc::default(), AtomicU64::new(0));
        let counts = Arc::new(PreparedCounts { id, client, process, executions, bursts });
        let entry = state.by_uid.entry(client).or_default();
        entry.prepared += 1;
        entry.models.insert(id, counts.clone());
        Listed { clients: self.clone(), counts }
    }

    fn release(&self, counts: &PreparedCounts) {
        let mut state = self.lock();
        state.clock += 1;
        let now = state.clock;
        let Some(client) = state.by_uid.get_mut(&counts.client) else { return };
        let released = client.models.remove(&counts.id);
        client.released.add(&counts.executions.totals());
        client.left = now;
        if !client.models.is_empty() {
            return drop(state);
        }
        state.forget_oldest();
        drop(state);
        drop(released);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that are known, or the one with this uid; those with most executions first. The lock is held for as long as it
    /// takes to copy what each of the prepared models is known by.
    pub fn counts(&self, only: Option<u32>) -> Vec<ClientCounts> {
        let state = self.lock();
        let wanted = |uid: &u32| only.is_none_or(|only| only == *uid);
        let entries = state.by_uid.iter().filter(|(uid, _)| wanted(uid));
        let mut all: Vec<ClientCounts> = entries.map(|(uid, client)| client.counts(*uid)).collect();
        drop(state);
        all.iter_mut().for_each(ClientCounts::complete);
        all.sort_by_cached_key(|client| (std::cmp::Reverse(client.executions.times.count()), client.uid));
        all
    }

    /// Totals of clients that are not remembered any more.
    pub fn others(&self) -> Totals {
        self.lock().others
    }
}

impl State {
    fn forget_oldest(&mut self) {
        let gone = |client: &Client| client.models.is_empty();
        if self.by_uid.values().filter(|client| gone(client)).count() <= MOST_GONE {
            return;
        }
        let oldest = self.by_uid.iter().filter(|(_, client)| gone(client)).min_by_key(|(_, c)| c.left);
        if let Some(client) = oldest.map(|(uid, _)| *uid).and_then(|uid| self.by_uid.remove(&uid)) {
            self.others.add(&client.released);
        }
    }
}

impl Client {
    /// All but what has to be added up.
    fn counts(&self, uid: u32) -> ClientCounts {
        let models = self.models.values().cloned().collect();
        let (prepared, executions) = (self.prepared, self.released);
        ClientCounts { uid, models, prepared, executions, ..ClientCounts::default() }
    }
}

impl ClientCounts {
    /// Adds up what its prepared models have counted.
    fn complete(&mut self) {
        let mut models: Vec<_> =
            self.models.drain(..).map(|model| (model.executions.totals(), model)).collect();
        for (totals, model) in &models {
            self.executions.add(totals);
            self.bursts += model.bursts();
            self.processes.extend(model.process);
        }
        models.sort_by_cached_key(|(totals, model)| (std::cmp::Reverse(totals.times.count()), model.id));
        self.models = models.into_iter().map(|(_, model)| model).collect();
    }
}

impl PreparedCounts {
    pub fn bursts(&self) -> u64 {
        self.bursts.load(Ordering::Relaxed)
    }
}

impl Listed {
    /// Counts a burst.
    pub fn burst(&self) -> OpenBurst {
        self.counts.bursts.fetch_add(1, Ordering::Relaxed);
        OpenBurst(self.counts.clone())
    }
}

impl std::ops::Deref for Listed {
    type Target = PreparedCounts;

    fn deref(&self) -> &PreparedCounts {
        &self.counts
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.clients.release(&self.counts);
    }
}

impl Drop for OpenBurst {
    fn drop(&mut self) {
        self.0.bursts.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Running;
    use super::*;
    use std::time::Instant;

    fn run(model: &Listed, times: usize) {
        (0..times).for_each(|_| Running::new(&*model.executions, Instant::now()).succeeded());
    }

    #[test]
    fn counts_outlive_models_and_go_to_their_clients() {
        let clients = Arc::new(Clients::default());
        let (first, second) = (clients.list(7, Some(70)), clients.list(7, Some(71)));
        let other = clients.list(8, None);
        run(&first, 1);
        run(&second, 2);
        run(&other, 5);
        let burst = first.burst();
        let counts = clients.counts(None);
        assert_eq!(counts.iter().map(|client| client.uid).collect::<Vec<_>>(), [8, 7]);
        let own = clients.counts(Some(7)).remove(0);
        assert_eq!((own.executions.times.count(), own.bursts, own.prepared), (3, 1, 2));
        assert_eq!(own.processes, BTreeSet::from([70, 71]));
        assert_eq!(own.models.iter().map(|model| model.id).collect::<Vec<_>>(), [second.id, first.id]);
        drop((own, first, second));
        let own = clients.counts(Some(7)).remove(0);
        assert_eq!((own.executions.times.count(), own.models.len(), own.prepared), (3, 0, 2));
        assert_eq!(burst.0.bursts(), 1);
        assert!(clients.counts(Some(9)).is_empty());
    }

    #[test]
    fn a_million_models_and_clients_come_and_go_and_nothing_is_lost_nor_kept() {
        let clients = Arc::new(Clients::default());
        for uid in 0..1_000_000 {
            run(&clients.list(uid, None), 1);
        }
        let known = clients.counts(None);
        assert_eq!(known.len(), MOST_GONE);
        let mut all = clients.others();
        known.iter().for_each(|client| all.add(&client.executions));
        assert_eq!(all.times.count(), 1_000_000);
        // The last ones are those that are remembered.
        assert!(known.iter().all(|client| client.uid >= 1_000_000 - MOST_GONE as u32));
    }
}
