//! Models of concurrency: modules of the driver over a checker (loom) that tries their interleavings one by one, with the
//! weak ordering that hardware allows, up to a number of forced switches. In under a minute, all or those whose name
//! contains a word:
//!
//!     cargo test -p nnhal_models
//!     cargo run -p nnhal_models turns
//!
//! The files under test are those of the driver, compiled here a second time: what they know as `crate::sync`, the standard
//! library's locks and atomics there, is the checker's here. What holds is said at each model; beside that no thread may
//! wait for ever, nor touch what another touches at the same time.
//!
//! - `turns`: turns at computing, and the line of fenced executions, which is the same queue; what ends a wait for them
//! - `waiting`: threads that sleep until something has changed
//! - `workers`: the threads that compile, load and save
//! - `errands`: what is done for clients on threads of their own; the cache of threads is a stand-in, and so is for both who
//!   tries again where no thread could be had
//! - `on_demand`: what is made by one of those who need it
//! - `regions`: the table that the handler of SIGBUS reads
//! - `busy`: who may use the request that a burst keeps
//! - `pool`: the threads that compute; here they look once whether there is work before they sleep
//! - `fmq::model_tests`, a unit test, does the same for fast message queues
//!
//! Not here: the burst's cache of mappings, and whose lives are watched, which one lock each covers whole; the watcher, which the
//! kernel wakes, and the cache of threads and who tries again, which wait in channels and for times: the checker has none of these.

// The modules' unit tests run where they belong.
#![cfg(not(test))]

mod busy;
mod done;
mod errands;
mod on_demand;
mod pool;
mod regions;
mod stand_ins;
mod sync;
mod turns;
mod waiting;
mod workers;

use stand_ins::{backend, memory, ops, scheduler};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const MODELS: &[(&str, fn())] = &[
    ("turns::nobody_computes_beside_another", turns::nobody_computes_beside_another),
    ("turns::no_client_has_more_than_its_limit", turns::no_client_has_more_than_its_limit),
    ("turns::who_waits_is_passed_to_at_once", turns::who_waits_is_passed_to_at_once),
    ("turns::who_gives_up_leaves_the_turn_to_others", turns::who_gives_up_leaves_the_turn_to_others),
    ("turns::who_is_told_to_stop_does_not_wait_on", turns::who_is_told_to_stop_does_not_wait_on),
    ("turns::a_death_ends_all_waits_of_its_client", turns::a_death_ends_all_waits_of_its_client),
    (
        "turns::a_line_moves_on_whatever_becomes_of_who_is_next",
        turns::a_line_moves_on_whatever_becomes_of_who_is_next,
    ),
    (
        "turns::what_leaves_never_starts_and_what_began_is_left_alone",
        turns::what_leaves_never_starts_and_what_began_is_left_alone,
    ),
    ("waiting::no_change_is_missed", waiting::no_change_is_missed),
    ("waiting::who_is_told_to_stop_does_not_wait_on", waiting::who_is_told_to_stop_does_not_wait_on),
    (
        "waiting::who_is_told_to_stop_leaves_a_change_to_others",
        waiting::who_is_told_to_stop_leaves_a_change_to_others,
    ),
    ("workers::each_task_runs_once", workers::each_task_runs_once),
    ("workers::a_stop_drops_what_waits", workers::a_stop_drops_what_waits),
    ("workers::no_client_waits_for_anothers", workers::no_client_waits_for_anothers),
    (
        "workers::without_a_thread_a_task_begins_as_another_ends",
        workers::without_a_thread_a_task_begins_as_another_ends,
    ),
    (
        "workers::without_a_thread_a_task_begins_once_one_can_be_had",
        workers::without_a_thread_a_task_begins_once_one_can_be_had,
    ),
    (
        "errands::a_clients_errands_are_done_one_after_the_other",
        errands::a_clients_errands_are_done_one_after_the_other,
    ),
    ("errands::no_client_waits_for_anothers", errands::no_client_waits_for_anothers),
    (
        "on_demand::it_is_made_once_and_all_who_wait_have_it",
        on_demand::it_is_made_once_and_all_who_wait_have_it,
    ),
    ("on_demand::who_is_told_to_stop_does_not_wait_on", on_demand::who_is_told_to_stop_does_not_wait_on),
    ("regions::a_reader_sees_whole_entries_only", regions::a_reader_sees_whole_entries_only),
    ("busy::a_request_is_used_by_one_execution", busy::a_request_is_used_by_one_execution),
    (
        "pool::every_index_is_done_once_before_a_call_returns",
        pool::every_index_is_done_once_before_a_call_returns,
    ),
    ("pool::a_call_after_another_is_done_whole", pool::a_call_after_another_is_done_whole),
    ("pool::calls_at_once_all_end", pool::calls_at_once_all_end),
];

/// How many interleavings were tried.
static WAYS: AtomicU64 = AtomicU64::new(0);

/// No test by itself: a model that fails may take the process down.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    for (name, model) in MODELS {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            print!("model {name} ... ");
            let start = Instant::now();
            model();
            let ways = WAYS.swap(0, Ordering::Relaxed);
            println!("holds in {ways} interleavings, {:.1} s", start.elapsed().as_secs_f64());
        }
    }
}

/// Runs `model` in every interleaving of up to `switches` forced switches.
fn explore(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(move || {
        WAYS.fetch_add(1, Ordering::Relaxed);
        sync::restart_clock();
        sync::thread::refuse(0);
        model();
    });
}
