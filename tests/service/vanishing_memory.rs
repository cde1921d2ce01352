//! Clients that shrink, extend, punch and rewrite their shared memory while the driver uses it: nobody else notices.

use crate::common::campaign::amount;
use crate::common::conv::Convolutions;
use crate::common::*;
use binder::BinderResult;
use nix::fcntl::{fallocate, FallocateFlags};
use nnhal::aidl::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// In each way.
fn executions() -> usize {
    amount("NNHAL_EXECUTIONS", 1000, 1_000_000) as usize
}

/// Elements of the tensors: enough that copies of them are often under way when their memory goes, and that they are
/// mapped for single executions, too.
const ELEMENTS: usize = 100 << 10;
const BYTES: usize = 4 * ELEMENTS;

/// x + weights, the weights in a pool.
fn model(weights: &File) -> Model {
    sum_model(ELEMENTS as i32, ashmem(weights, BYTES as i64))
}

fn request_of(input: &File, output: &File) -> Request {
    Request {
        inputs: vec![argument(0, 0, BYTES as i64)],
        outputs: vec![argument(1, 0, BYTES as i64)],
        pools: [input, output].map(|f| RequestMemoryPool::Pool(ashmem(f, BYTES as i64))).into(),
    }
}

/// Truncates, extends, punches and rewrites `files` until `stop`.
fn vandalise(files: &[&File], stop: &AtomicBool) {
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let junk = vec![0xff; 4096];
    let mut i = 0usize;
    while !stop.load(Ordering::Relaxed) {
        let file = files[i % files.len()];
        file.set_len((i * 4099 % BYTES) as u64).expect("truncated");
        std::thread::sleep(Duration::from_micros(20));
        file.set_len(BYTES as u64).expect("extended");
        fallocate(file, hole, 0, BYTES as i64 / 2).expect("punched");
        file.write_all_at(&junk, (i * 4096 % (BYTES - 4096)) as u64).expect("written");
        // Leaves the file whole for a while, so that mappings are made at all.
        std::thread::sleep(Duration::from_micros(100));
        i += 1;
    }
}

/// How often a call failed, and how often because memory vanished during it.
#[derive(Debug, Default)]
struct Count {
    failed: usize,
    vanished: usize,
}

impl Count {
    /// Whatever fails here fails as the interface says: gone while in use, or too short already when it was mapped.
    fn note<T>(&mut self, answer: BinderResult<T>) {
        let expected = match &answer {
            Ok(_) => return,
            Err(error) if error.message().is_some_and(|m| m.contains("vanished")) => {
                ErrorStatus::GENERAL_FAILURE
            }
            Err(_) => ErrorStatus::INVALID_ARGUMENT,
        };
        assert_eq!(status(&answer), expected, "{:?}", answer.err());
        self.failed += 1;
        self.vanished += usize::from(expected == ErrorStatus::GENERAL_FAILURE);
    }
}

#[test]
fn vanishing_pools_hurt_only_their_own_client() {
    let harness = Harness::new();
    let steady_values: Vec<f32> = (0..ELEMENTS).map(|i| i as f32).collect();
    let weights = memfd(&floats(&vec![1.0; ELEMENTS]));
    let good = harness.prepare(&model(&weights));
    let [input, output, vanishing] = [(); 3].map(|()| memfd(&vec![0; BYTES]));
    let stop = AtomicBool::new(false);
    let mut counts = [(); 4].map(|()| Count::default());
    std::thread::scope(|threads| {
        threads.spawn(|| vandalise(&[&input, &output, &vanishing], &stop));
        let steady = threads.spawn(|| {
            let connection = harness.connect();
            let model = connection.prepare(&model(&weights));
            let (input, output) = (memfd(&floats(&steady_values)), memfd(&vec![0; BYTES]));
            let request = request_of(&input, &output);
            let expected = floats(&steady_values.iter().map(|v| v + 1.0).collect::<Vec<_>>());
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                output.write_all_at(&[0; 64], 0).expect("cleared");
                model.executeSynchronously(&request, false, -1, -1).expect("executed");
                assert!(bytes_of(&output) == expected, "a wrong result");
                done += 1;
            }
            done
        });
        let request = request_of(&input, &output);
        let buffer = harness
            .device()
            .allocate(
                &BufferDesc::default(),
                &[IPreparedModelParcel { preparedModel: Some(good.clone()) }],
                &[BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 }],
                &[],
            )
            .expect("allocated");
        let buffer = buffer.buffer.expect("a buffer");
        // Keeps its mappings from one execution to the next.
        let burst = good.configureExecutionBurst().expect("a burst");
        let (still, result) = (memfd(&floats(&steady_values)), memfd(&vec![0; BYTES]));
        let still = request_of(&still, &result);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let started = Instant::now();
            let mut round = 0;
            // Who runs when is the scheduler's choice: it goes on until the point is made.
            while round < executions() || (counts[0].vanished == 0 && started.elapsed() < PATIENCE) {
                counts[0].note(good.executeSynchronously(&request, false, -1, -1));
                counts[1].note(buffer.copyFrom(&ashmem(&input, BYTES as i64), &[]));
                counts[3].note(burst.executeSynchronously(&request, &[1, 2], false, -1, -1));
                if round % 5 == 0 {
                    let (launch, (compiled, prepared)) = harness.connection.launch(&model(&vanishing));
                    counts[2].note(launch);
                    let known =
                        [ErrorStatus::NONE, ErrorStatus::GENERAL_FAILURE, ErrorStatus::INVALID_ARGUMENT];
                    assert!(known.contains(&compiled), "{compiled:?}");
                    assert_eq!(prepared.is_some(), compiled == ErrorStatus::NONE);
                    // What was compiled has its weights, whatever becomes of their file.
                    if let Some(prepared) = prepared {
                        prepared.executeSynchronously(&still, false, -1, -1).expect("executed");
                    }
                }
                round += 1;
            }
        }));
        stop.store(true, Ordering::Relaxed);
        assert!(steady.join().expect("the steady client is content") > 0);
        if let Err(panic) = broken {
            std::panic::resume_unwind(panic);
        }
    });
    println!("executions, copies, compilations, executions in a burst: {counts:?}");
    assert!(counts[0].vanished > 0, "nothing ever vanished: the test tests nothing");
}

#[test]
fn arguments_that_vanish_under_a_kernel_hurt_only_their_own_client() {
    let harness = Harness::new();
    let images = Convolutions { side: 80, channels: 16, window: 1, ..Default::default() };
    assert_eq!(images.bytes(), BYTES);
    let model = harness.prepare(&images.model());
    let [input, output] = [(); 2].map(|()| memfd(&vec![0; BYTES]));
    let stop = AtomicBool::new(false);
    let mut counts = [(); 2].map(|()| Count::default());
    std::thread::scope(|threads| {
        threads.spawn(|| vandalise(&[&input, &output], &stop));
        let steady = threads.spawn(|| {
            let connection = harness.connect();
            let (model, image) = (connection.prepare(&images.model()), images.image(1));
            let (request, output) = request(&floats(&image), BYTES);
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                output.write_all_at(&[0; 64], 0).expect("cleared");
                model.executeSynchronously(&request, false, -1, -1).expect("executed");
                assert!(bytes_of(&output) == Convolutions::result(&image), "a wrong result");
                done += 1;
            }
            done
        });
        let request = request_of(&input, &output);
        let burst = model.configureExecutionBurst().expect("a burst");
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let started = Instant::now();
            let mut round = 0;
            while round < executions() || (counts[0].vanished == 0 && started.elapsed() < PATIENCE) {
                counts[0].note(model.executeSynchronously(&request, false, -1, -1));
                counts[1].note(burst.executeSynchronously(&request, &[1, 2], false, -1, -1));
                round += 1;
            }
        }));
        stop.store(true, Ordering::Relaxed);
        assert!(steady.join().expect("the steady client is content") > 0);
        if let Err(panic) = broken {
            std::panic::resume_unwind(panic);
        }
    });
    println!("executions, executions in a burst: {counts:?}");
    assert!(counts[0].vanished > 0, "nothing ever vanished: the test tests nothing");
}
