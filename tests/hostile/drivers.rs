//! Two drivers in one process: what a client takes from one it does not take from the other.

use crate::common::caching::{another_layer, execute};
use crate::common::{status, Connection};
use crate::daemon::wait_until;
use nnhal::aidl::ErrorStatus;
use nnhal::backend::cpu::CpuBackend;
use nnhal::daemon::embedded::{start_with, EmbeddedDaemon, Options};
use std::sync::Arc;

/// A layer of so many inputs and outputs has 4 MiB of weights.
const SIZE: i32 = 1024;
/// Bytes of private memory for all clients: of the small driver, and of the large one.
const MEMORY: [u64; 2] = [32 << 20, 512 << 20];
/// More layers than the small driver has memory for.
const LAYERS: usize = 12;

fn driver(memory: u64) -> EmbeddedDaemon {
    let backend = CpuBackend::new(1).expect("threads");
    start_with(Arc::new(backend), &Options { memory: Some(memory), ..Options::default() }).expect("a driver")
}

/// How many layers, up to [`LAYERS`], a driver takes before it has no memory for the next.
fn fill(connection: &Connection) -> (usize, Vec<impl Sized>) {
    let mut kept = Vec::new();
    for taken in 0..LAYERS {
        let (layer, memory, expected) = another_layer(SIZE, taken as f32);
        let (launch, (told, model)) = connection.launch(&layer);
        assert_eq!(status(&launch), ErrorStatus::NONE);
        let ran = match &model {
            Some(model) => execute(model, &vec![1.0; SIZE as usize]),
            None => Err(told),
        };
        match ran {
            Ok(output) => assert_eq!(output, expected),
            Err(ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT | ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT) => {
                return (taken, kept)
            }
            Err(other) => panic!("layer {taken}: {other:?}"),
        }
        kept.push((model, memory));
    }
    (LAYERS, kept)
}

#[test]
fn what_one_driver_has_given_another_still_has() {
    let [small, large] = MEMORY.map(driver);
    let [to_small, to_large] = [&small, &large].map(|driver| Connection::new(driver.socket()));
    let (first, kept) = fill(&to_small);
    assert!((1..LAYERS).contains(&first), "the small driver took {first} layers");
    let (taken, others) = fill(&to_large);
    assert_eq!(taken, LAYERS, "the small driver's layers are counted in the large one");
    // What the large one gave is not counted in the small one, either.
    drop(kept);
    // It takes a moment until the driver knows.
    wait_until("the small driver takes as many layers again", || fill(&to_small).0 == first);
    drop(others);
    to_small.close();
    to_large.close();
}
