//! How much private memory a driver takes for what clients want: constants, packed weights, values of runs.
//!
//! Linux promises more memory than there is and kills a process that uses all of it. So the large buffers are counted,
//! and one too many is an error while there is memory left to report it with. Each is counted on the account of the
//! client for whom the thread that takes it works, so that no client takes it all, and in the budget of the driver for which
//! it does, so that two drivers of one process take nothing from each other. Must not know what it is wanted for.

use super::common::Common;
use super::idle::{Idle, Keeper};
use super::machine::machine_bytes;
use super::zeroed::WORTHWHILE;
use super::MemoryError;
use crate::quota::{Exhausted, Permit, Quota};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock, Weak};

/// The part of the memory that may be taken in all unless told, and the part of that which one client alone may hold.
const PART_OF_MACHINE: u64 = 2;
const PART_OF_CLIENT: u64 = 2;
/// Bytes that every client may have while the machine has them.
const FLOOR: u64 = 4 << 20;
/// Threads that may be lost to files which other processes serve, in all and to one client's alone.
const READERS: u64 = 8;
const READERS_OF_CLIENT: u64 = 4;
/// The account of memory that no client asked for.
const NOBODY: u32 = u32::MAX;

/// What clients of a driver may have in all unless it is told otherwise, in bytes.
pub fn bytes_for_clients() -> u64 {
    machine_bytes() as u64 / PART_OF_MACHINE
}

/// The private memory that the clients of one driver may have, and what they hold of it. Clones are the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Quotas>);

#[derive(Clone)]
struct Quotas {
    private: Arc<Quota>,
    readers: Arc<Quota>,
    /// Descriptors that mapped memory holds; `None` where they are not counted.
    descriptors: Option<Arc<Quota>>,
    /// Bytes of their own memory that clients have mapped here; `None` where they are not counted.
    mapped: Option<Arc<Quota>>,
    /// Large private buffers, as each is a mapping, of which a process may have so many; `None` where they are not counted.
    large: Option<Arc<Quota>>,
    /// What is kept of the private memory though nobody uses it.
    idle: Arc<Idle>,
    /// Where equal buffers of several models lie once; `None` where each model has its own.
    common: Option<Arc<Common>>,
}

impl Budget {
    /// `bytes` for all clients together.
    pub fn new(bytes: u64) -> Self {
        let private = Quota::with_floor(bytes, bytes / PART_OF_CLIENT, FLOOR);
        let readers = Quota::new(READERS, READERS_OF_CLIENT);
        let (idle, descriptors, mapped, large) = (Arc::default(), None, None, None);
        Budget(Arc::new(Quotas { private, readers, descriptors, mapped, large, idle, common: None }))
    }

    /// The same, in which descriptors that memory holds while it is mapped are counted as well.
    pub fn with_descriptors(self, descriptors: Arc<Quota>) -> Self {
        Budget(Arc::new(Quotas { descriptors: Some(descriptors), ..(*self.0).clone() }))
    }

    /// The same, in which bytes of clients' memory are counted as well while they are mapped.
    pub fn with_mapped(self, mapped: Arc<Quota>) -> Self {
        Budget(Arc::new(Quotas { mapped: Some(mapped), ..(*self.0).clone() }))
    }

    /// The same, in which the number of large private buffers is counted as well.
    pub fn with_large(self, large: Arc<Quota>) -> Self {
        Budget(Arc::new(Quotas { large: Some(large), ..(*self.0).clone() }))
    }

    /// The same, in which weights and constants of several models, of whichever clients, lie in memory once where they are equal.
    pub fn with_common(self) -> Self {
        Budget(Arc::new(Quotas { common: Some(Arc::default()), ..(*self.0).clone() }))
    }

    /// What counts the bytes of private buffers.
    pub fn private(&self) -> &Arc<Quota> {
        &self.0.private
    }

    /// What counts threads that wait for files which other processes serve.
    pub(super) fn readers(&self) -> &Arc<Quota> {
        &self.0.readers
    }

    /// Who keeps some of it that nobody uses.
    pub(super) fn idle(&self) -> &Arc<Idle> {
        &self.0.idle
    }

    /// Has the calling thread work for `client` of this budget's driver, until what this gives is dropped.
    pub fn on_account_of(&self, client: u32) -> Entered {
        Account { client, budget: self.clone() }.enter()
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a budget of {:?}", self.0.private)
    }
}

/// Whose private memory a thread takes.
#[derive(Clone, Debug)]
pub struct Account {
    client: u32,
    budget: Budget,
}

thread_local! {
    /// `None` while the thread works for nobody.
    static THREAD: RefCell<Option<Account>> = const { RefCell::new(None) };
}

impl Account {
    /// That of the calling thread, so that another thread can go on for the same client.
    pub fn of_thread() -> Self {
        // A thread that is ending has none any more.
        THREAD.try_with(|account| account.borrow().clone()).ok().flatten().unwrap_or_else(Account::nobodys)
    }

    /// That of threads which work for no driver: those of tests and tools.
    fn nobodys() -> Self {
        static BUDGET: OnceLock<Budget> = OnceLock::new();
        let budget = BUDGET.get_or_init(|| Budget::new(bytes_for_clients())).clone();
        Account { client: NOBODY, budget }
    }

    pub fn client(&self) -> u32 {
        self.client
    }

    /// Whether it may ever have so many bytes at once.
    pub fn may_have(&self, bytes: usize) -> bool {
        bytes as u64 <= self.budget.private().per_client()
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What its models have in common with others, if they may.
    pub fn common(&self) -> Option<Arc<Common>> {
        self.budget.0.common.clone()
    }

    /// Whether the calling thread takes memory on this account.
    pub fn is_entered(&self) -> bool {
        let same = |of: &Account| of.client == self.client && Arc::ptr_eq(&of.budget.0, &self.budget.0);
        THREAD.try_with(|account| account.borrow().as_ref().is_some_and(same)).unwrap_or(false)
    }

    /// Has the calling thread take memory on this account, until what this gives is dropped.
    pub fn enter(self) -> Entered {
        let before = THREAD.try_with(|account| account.replace(Some(self))).ok().flatten();
        Entered { before, _not_send: std::marker::PhantomData }
    }
}

/// Has a thread take memory on an account, until dropped.
pub struct Entered {
    before: Option<Account>,
    /// It is the thread's own.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = THREAD.try_with(|account| account.replace(before));
    }
}

/// Has the calling thread work for `client` of the same driver as before, until what this gives is dropped.
pub fn on_account_of(client: u32) -> Entered {
    Account { client, ..Account::of_thread() }.enter()
}

/// Notes that `keeper` keeps private memory, which nobody uses, of the driver for which the calling thread works. False where
/// it cannot be looked after.
pub fn note_idle(keeper: Weak<dyn Keeper>) -> bool {
    Account::of_thread().budget().idle().note(keeper)
}

/// The client that the calling thread works for.
pub fn client_of_thread() -> u32 {
    Account::of_thread().client()
}

/// Some bytes of what a driver's private buffers may take, given back when dropped.
#[derive(Debug)]
pub struct Counted {
    permit: Permit,
}

impl Counted {
    /// `None` where there are not as many left for the thread's client, even without what is kept for it unused.
    pub fn take(bytes: usize) -> Option<Self> {
        let Account { client, budget } = Account::of_thread();
        let permit = unless_refused(bytes, || budget.private().take(client, bytes as u64).ok());
        permit.map(|permit| Counted { permit })
    }

    /// Takes so many more; `None` where there are not as many left. It stays on the account that it is on, which must be the
    /// thread's.
    pub fn raise(&mut self, bytes: usize) -> Option<()> {
        unless_refused(bytes, || self.permit.raise(bytes as u64).ok())
    }
}

/// The bytes of one private buffer, and if it is large its place among those, given back when dropped.
#[derive(Debug)]
pub(super) struct CountedBuffer {
    _bytes: Counted,
    _large: Option<Permit>,
}

impl CountedBuffer {
    /// As [`Counted::take`]; `None` also where the thread's client has as many large buffers as it may.
    pub fn take(bytes: usize) -> Option<Self> {
        let place = || {
            let Account { client, budget } = Account::of_thread();
            budget.0.large.as_ref().map(|quota| quota.take(client, 1)).transpose().ok()
        };
        let large = if bytes < WORTHWHILE { None } else { unless_refused(bytes, place)? };
        Some(CountedBuffer { _bytes: Counted::take(bytes)?, _large: large })
    }
}

/// What `take` gives, once more without what is kept unused for the thread's client, if it has to be.
fn unless_refused<T>(bytes: usize, mut take: impl FnMut() -> Option<T>) -> Option<T> {
    let taken = take().or_else(|| {
        let Account { client, budget } = Account::of_thread();
        budget.idle().free_of(client);
        take()
    });
    if taken.is_none() {
        let _ = REFUSED.try_with(|refused| refused.set(Some(bytes)));
    }
    taken
}

thread_local! {
    /// The bytes that the thread wanted when it was last refused some.
    static REFUSED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Starts to look whether the calling thread is refused memory.
pub fn forget_refusals() {
    let _ = REFUSED.try_with(|refused| refused.set(None));
}

/// How many bytes the calling thread was refused since then, for work that tells only whether it was done.
pub fn refused() -> Option<usize> {
    REFUSED.try_with(Cell::get).ok().flatten()
}

/// Some descriptors of those that a client may hold, given back when dropped.
#[derive(Debug)]
pub(super) struct HeldDescriptors {
    _permit: Option<Permit>,
}

impl HeldDescriptors {
    /// So many, for the thread's client.
    pub fn take(count: usize) -> Result<Self, MemoryError> {
        let Account { client, budget } = Account::of_thread();
        let permit = budget.0.descriptors.as_ref().map(|quota| quota.take(client, count as u64)).transpose();
        let too_many =
            |_| MemoryError::Exhausted("this client's memory and fences hold too many descriptors");
        Ok(HeldDescriptors { _permit: permit.map_err(too_many)? })
    }
}

/// Some bytes of what a client may have mapped of its memory, given back when dropped.
#[derive(Debug)]
pub(super) struct MappedBytes {
    _permit: Option<Permit>,
}

impl MappedBytes {
    /// So many, for the thread's client.
    pub fn take(bytes: usize) -> Result<Self, MemoryError> {
        let Account { client, budget } = Account::of_thread();
        let permit = budget.0.mapped.as_ref().map(|quota| quota.take(client, bytes as u64)).transpose();
        let too_many = |why| {
            MemoryError::Exhausted(match why {
                Exhausted::ByClient(_) => {
                    "this client would have more bytes of its memory mapped than one may"
                }
                Exhausted::ByShare(_) | Exhausted::ByAll(_) => {
                    "too many bytes of clients' memory are mapped, and what is left is kept for others"
                }
            })
        };
        Ok(MappedBytes { _permit: permit.map_err(too_many)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_that_memory_holds_are_their_clients() {
        let quota = Quota::new(8, 4);
        let budget = Budget::new(64 << 20).with_descriptors(quota.clone());
        let _account = budget.on_account_of(1);
        let held = HeldDescriptors::take(3).unwrap();
        assert!(matches!(HeldDescriptors::take(2), Err(MemoryError::Exhausted(_))));
        {
            let _other = on_account_of(2);
            let _held = HeldDescriptors::take(1).unwrap();
            assert_eq!((quota.held_by(1), quota.held_by(2)), (3, 1));
        }
        drop(held);
        assert_eq!(quota.held(), 0);
    }

    #[test]
    fn large_buffers_are_counted_by_their_number_too() {
        let quota = Quota::new(8, 4);
        let budget = Budget::new(1 << 30).with_large(quota.clone());
        let _account = budget.on_account_of(1);
        let mut held: Vec<_> = (0..4).map(|_| CountedBuffer::take(WORTHWHILE).unwrap()).collect();
        assert!(CountedBuffer::take(WORTHWHILE).is_none());
        let bytes = budget.private().held();
        assert_eq!(bytes, 4 * WORTHWHILE as u64, "nothing is counted of what was refused");
        assert!(CountedBuffer::take(WORTHWHILE - 1).is_some(), "it is no mapping of its own");
        {
            let _other = on_account_of(2);
            assert!(CountedBuffer::take(WORTHWHILE).is_some());
        }
        held.pop();
        assert!(CountedBuffer::take(WORTHWHILE).is_some());
        drop(held);
        assert_eq!(quota.held(), 0);
    }

    #[test]
    fn a_client_has_its_share_and_no_more() {
        const TOTAL: u64 = 1 << 30;
        const SHARE: usize = TOTAL as usize / 2;
        let budget = Budget::new(TOTAL);
        let _outer = budget.on_account_of(1);
        assert!(Counted::take(SHARE + 1).is_none());
        let most = Counted::take(SHARE / 2).expect("half of a client's share");
        assert!(Counted::take(SHARE * 3 / 4).is_none(), "with what it has, that is too much");
        {
            let _inner = on_account_of(2);
            assert_eq!(client_of_thread(), 2);
            let others = Counted::take(SHARE / 2).expect("another's account");
            assert_eq!(budget.private().held_by(2), SHARE as u64 / 2, "of the same budget");
            drop(others);
        }
        assert_eq!(client_of_thread(), 1);
        drop(most);
        let mut more = Counted::take(SHARE / 2).expect("what was given back can be had again");
        assert_eq!((more.raise(SHARE / 4), more.raise(SHARE / 2)), (Some(()), None));
        assert_eq!((budget.private().held_by(1), refused()), (SHARE as u64 * 3 / 4, Some(SHARE / 2)));
        drop(more);
        assert_eq!(budget.private().held(), 0);
    }

    #[test]
    fn two_budgets_take_nothing_from_each_other() {
        const TOTAL: u64 = 64 << 20;
        let (mine, other) = (Budget::new(TOTAL), Budget::new(TOTAL));
        let _all = {
            let _account = mine.on_account_of(1);
            let all = Counted::take(TOTAL as usize / 2).expect("all that a client may have");
            assert!(Counted::take(1).is_none());
            all
        };
        let account = {
            let _account = other.on_account_of(1);
            assert!(Counted::take(TOTAL as usize / 2).is_some());
            Account::of_thread()
        };
        // Nor on a thread that goes on for the client.
        let held = move || {
            let _account = account.enter();
            let counted = Counted::take(1 << 20);
            (counted.is_some(), other.private().held_by(1))
        };
        assert_eq!(std::thread::spawn(held).join().unwrap(), (true, 1 << 20));
        assert_eq!(mine.private().held(), TOTAL / 2);
    }
}
