//! Models that are alive: a client that compiles or loads a model which it has already gets that one, so that weights are packed,
//! and kept, once for all that one client prepares of it, be it in several processes and at once.
//!
//! Clients share nothing with each other: how soon a model is prepared tells a client of its own models only. Must not know
//! what the models' names are made of.

use crate::backend::Executable;
use crate::ops::{Interrupt, OpError};
use crate::scheduler::slow_calls::wait_for;
use crate::scheduler::{Control, Waiting};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What tells a model, and what was asked of its compilation, from all others of its client.
pub(super) type Name = [u8; 32];

/// What a name begins with: what is known of it before the constants are read. Leaves 192 bits that hold for these, whose
/// collisions nobody finds.
pub(super) type Prefix = [u8; 8];

/// Models by client and name.
#[derive(Default)]
pub(super) struct Living {
    models: Mutex<Models>,
    /// For models that others make.
    waiting: Waiting,
}

#[derive(Default)]
struct Models {
    by_name: BTreeMap<(u32, Name), State>,
    /// How many there were after those that are dead were last taken out.
    after_sweep: usize,
}

/// How far a model is.
enum State {
    InTheMaking,
    Made(Weak<dyn Executable>),
    /// Another name of one that was made.
    Also(Weak<dyn Executable>),
}

/// What is to be done about a name.
enum Look {
    /// Another makes the model, or one that may be it.
    Wait,
    /// The place was taken for who looked.
    Make,
    Made(Arc<dyn Executable>),
}

/// What there is of a model.
pub(super) enum Found<'l> {
    Alive(Arc<dyn Executable>),
    /// It is for who asked to make it.
    Missing(Making<'l>),
}

/// The place of who makes a model. Others wait until it is made, or this is dropped.
pub(super) struct Making<'l> {
    living: &'l Living,
    /// `None` once it is made: the place may be another's then.
    of: Mutex<Option<(u32, Name)>>,
}

impl Living {
    /// Whether `uid` has a model, or makes one, whose name begins so.
    pub fn has_like(&self, uid: u32, prefix: &Prefix) -> bool {
        self.lock().has_like(uid, *prefix)
    }

    /// The place of who makes a model whose name is not known yet, but for its beginning; `None` where its client has a model like
    /// it, or makes one.
    pub fn begin(&self, uid: u32, prefix: Prefix) -> Option<Making<'_>> {
        let of = unnamed(uid, prefix);
        let mut models = self.lock();
        if models.has_like(uid, prefix) {
            return None;
        }
        models.put(of, State::InTheMaking);
        Some(Making { living: self, of: Mutex::new(Some(of)) })
    }

    /// The model that the client of `control` has under this name, once it is made if somebody makes it; otherwise the place
    /// of who does. Waits without a turn, as long as `control` allows.
    pub fn find(&self, name: Name, control: &Control) -> Result<Found<'_>, OpError> {
        let of = (control.client, name);
        let mut wait = None;
        let look = || {
            let found = self.look(of);
            if found.is_none() && wait.is_none() {
                control.before_waiting();
                wait = Some(wait_for("the same model, which is being compiled"));
            }
            found
        };
        Ok(match self.waiting.until(control, look)? {
            Some(executable) => Found::Alive(executable),
            None => Found::Missing(Making { living: self, of: Mutex::new(Some(of)) }),
        })
    }

    /// The model, or nothing and the place to make it; `None` while it may be in the making.
    fn look(&self, of: (u32, Name)) -> Option<Option<Arc<dyn Executable>>> {
        let mut lost = None;
        loop {
            let look = self.lock().look(of, lost.as_ref());
            // All compilations wait for the lock, so it is not held here: a model may ask the disk whether it is lost, and what is lost may
            // be dropped.
            match look {
                Look::Wait => return None,
                Look::Make => return Some(None),
                Look::Made(executable) if !executable.is_lost() => return Some(Some(executable)),
                Look::Made(executable) => lost = Some(executable),
            }
        }
    }

    /// Has a model that is alive found under another name as well, until it gets the next one: a model may be saved over and over,
    /// each time under a new name.
    pub fn also(&self, uid: u32, name: Name, executable: &Arc<dyn Executable>) {
        let (mut models, made) = (self.lock(), Arc::downgrade(executable));
        if models.by_name.get(&(uid, name)).is_none_or(|state| !state.is_of_use()) {
            models.forget_other_name(uid, &made);
            models.put((uid, name), State::Also(made));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Models> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stands for a model whose name is not known yet. No name is this.
fn unnamed(uid: u32, prefix: Prefix) -> (u32, Name) {
    filled(uid, prefix, u8::MAX)
}

fn filled(uid: u32, prefix: Prefix, rest: u8) -> (u32, Name) {
    let mut name = [rest; 32];
    name[..prefix.len()].copy_from_slice(&prefix);
    (uid, name)
}

impl Models {
    fn has_like(&self, uid: u32, prefix: Prefix) -> bool {
        let like = filled(uid, prefix, 0)..=unnamed(uid, prefix);
        self.by_name.range(like).any(|(_, state)| state.is_of_use())
    }

    /// What to do about a model, unless it is the one that is `lost`.
    fn look(&mut self, of: (u32, Name), lost: Option<&Arc<dyn Executable>>) -> Look {
        let [a, b, c, d, e, f, g, h, ..] = of.1;
        if let Some(State::InTheMaking) = self.by_name.get(&unnamed(of.0, [a, b, c, d, e, f, g, h])) {
            return Look::Wait;
        }
        let is_lost = |made| lost.is_some_and(|lost| Weak::ptr_eq(made, &Arc::downgrade(lost)));
        match self.by_name.get(&of) {
            Some(State::InTheMaking) => return Look::Wait,
            Some(State::Made(made) | State::Also(made)) if !is_lost(made) => {
                if let Some(executable) = made.upgrade() {
                    return Look::Made(executable);
                }
            }
            _ => {}
        }
        self.put(of, State::InTheMaking);
        Look::Make
    }

    /// Forgets the other name that a model of this client has.
    fn forget_other_name(&mut self, uid: u32, of: &Weak<dyn Executable>) {
        let is_it = |state: &State| matches!(state, State::Also(made) if Weak::ptr_eq(made, of));
        let mut names = self.by_name.range((uid, [0; 32])..=(uid, [u8::MAX; 32]));
        let other = names.find(|(_, state)| is_it(state)).map(|(name, _)| *name);
        if let Some(name) = other {
            self.by_name.remove(&name);
        }
    }

    fn put(&mut self, of: (u32, Name), state: State) {
        /// Fewer are not worth a sweep.
        const FEW: usize = 64;
        self.by_name.insert(of, state);
        // Once it has grown to twice its size: so few steps for each model, however many there are.
        if self.by_name.len() > 2 * self.after_sweep.max(FEW) {
            self.by_name.retain(|_, state| state.is_of_use());
            self.after_sweep = self.by_name.len();
        }
    }
}

impl State {
    fn is_of_use(&self) -> bool {
        match self {
            State::InTheMaking => true,
            State::Made(made) | State::Also(made) => made.strong_count() > 0,
        }
    }
}

impl Making<'_> {
    /// Gives the model its name: those who want others that are like it need not wait any more.
    pub fn name(&self, name: Name) {
        if let Some(of) = &mut *self.of() {
            let mut models = self.living.lock();
            models.by_name.remove(of);
            of.1 = name;
            models.put(*of, State::InTheMaking);
        }
        self.living.waiting.look_again();
    }

    /// Has others find the model for as long as anybody has it.
    pub fn made(self, executable: &Arc<dyn Executable>) {
        self.give_up_for(executable);
    }

    /// From here on the place may be another's, who makes the model anew as it was lost.
    fn give_up_for(&self, executable: &Arc<dyn Executable>) {
        if let Some(of) = self.of().take() {
            self.living.lock().put(of, State::Made(Arc::downgrade(executable)));
        }
    }

    fn of(&self) -> MutexGuard<'_, Option<(u32, Name)>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.of().take() {
            self.living.lock().by_name.remove(&of);
        }
        self.living.waiting.look_again();
    }
}

#[cfg(test)]
#[path = "living_tests.rs"]
mod tests;
