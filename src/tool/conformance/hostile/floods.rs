//! Too much of everything, and clients that leave in the middle, with a second client watched.

use super::bench::{is_alive, one_of, served, Bench, SERVED_WITHIN};
use super::case::Case;
use super::models::*;
use crate::aidl::*;
use crate::client::Address;
use crate::tool::conformance::outcome::{fail, Skip, Step, Stop};
use binder::{BinderResult, Interface, Strong};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    Case {
        name: "compilations_by_the_hundred",
        sent: "200 compilations of 2000 operations each, none of which is waited for",
        rule: "the second client is served: RESOURCE_EXHAUSTED_* is there for who asks too much",
        run: compilations,
    },
    Case {
        name: "callbacks_that_never_return",
        sent: "20 compilations whose callbacks do not come back from notify",
        rule: "the second client is served: notify is one way for the client, and no thread of the driver may be lost to it",
        run: callbacks,
    },
    Case {
        name: "executions_by_the_dozen",
        sent: "16 executions at once, each of some seconds, while a second client executes",
        rule: "the second client is served, and not only after all the others",
        run: executions,
    },
    Case {
        name: "buffers_without_end",
        sent: "allocate of device buffers of 4 MiB until 16 GiB are asked for",
        rule: "a refusal at some time: one client's memory has an end",
        run: buffers,
    },
    Case {
        name: "client_hangs_up",
        sent: "connections that end amid an execution and amid a compilation",
        rule: "the driver goes on",
        run: hangs_up,
    },
    Case {
        name: "noise_on_the_socket",
        sent: "bytes that are not binder, and connections that say nothing",
        rule: "the driver goes on",
        run: noise,
    },
];

fn watched(bench: &Bench) -> Step {
    is_alive(bench.context).map_err(|stop| stop.at("the second client"))
}

fn compilations(bench: &Bench) -> Step {
    let client = bench.client(4)?;
    let model = floors(64, 2000);
    let mut listeners = Vec::new();
    for _ in 0..200 {
        let (launch, listener) = client.launch(&model, &Default::default());
        // A refusal is an answer, too.
        match client.answer(listener.call(), launch) {
            Err(error) if error.status().is_none() => return Err(error.into()),
            _ => listeners.push(listener),
        }
    }
    let served = watched(bench);
    client.close();
    served
}

/// Does not come back, until its sender is gone.
struct Sulking(Mutex<Receiver<()>>);
impl Interface for Sulking {}
impl IPreparedModelCallback for Sulking {
    fn notify(&self, _: ErrorStatus, _: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        if let Ok(receiver) = self.0.lock() {
            let _ = receiver.recv(); // waits for the end of the sender
        }
        Ok(())
    }
}

fn callbacks(bench: &Bench) -> Step {
    let client = bench.client(4)?;
    let mut kept = Vec::new();
    for _ in 0..20 {
        let (sender, receiver) = channel();
        kept.push(sender);
        let callback = BnPreparedModelCallback::new_binder(Sulking(Mutex::new(receiver)));
        let launched = client.device().prepareModel(
            &floor(2),
            ExecutionPreference::FAST_SINGLE_ANSWER,
            Priority::MEDIUM,
            -1,
            &[],
            &[],
            &[0; BYTE_SIZE_OF_CACHE_TOKEN as usize],
            &callback,
        );
        match client.answer("prepareModel", launched) {
            Err(error) if error.status().is_none() => return Err(error.into()),
            _ => {}
        }
    }
    let served = watched(bench);
    drop(kept);
    served
}

fn executions(bench: &Bench) -> Step {
    const CALLS: usize = 16;
    const COUNT: i32 = 1 << 22;
    const SOME_SECONDS: f64 = 2.0;
    let client = bench.client(CALLS as u32)?;
    let (request, _room) = request(&vec![0; 4 * COUNT as usize], 4 * COUNT as usize)?;
    // As many operations as take some seconds here and now, whatever else the machine does.
    let single = super::bench::prepare(&client, &floors(COUNT, 1))?;
    let mut took = Duration::ZERO;
    for _ in 0..2 {
        let start = Instant::now();
        client.answer("executeSynchronously", single.executeSynchronously(&request, false, -1, -1))?;
        took = start.elapsed();
    }
    let operations = (SOME_SECONDS / took.as_secs_f64()).clamp(1.0, 100.0) as i32;
    let prepared = super::bench::prepare(&client, &floors(COUNT, operations))?;
    let under_way = AtomicUsize::new(CALLS);
    // A busy machine makes all of them slow: that the others are not over tells more than a time.
    let patience = bench.context.driver.timeout().unwrap_or(SERVED_WITHIN);
    std::thread::scope(|scope| {
        for _ in 0..CALLS {
            scope.spawn(|| {
                // All write the same; what comes of it is not asked.
                let _ = prepared.executeSynchronously(&request, false, -1, -1);
                under_way.fetch_sub(1, Ordering::Relaxed);
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let served = served(bench.context, patience).map_err(|stop| stop.at("the second client"));
        let others = under_way.load(Ordering::Relaxed);
        client.close();
        match served? {
            time if time > SERVED_WITHIN && others == 0 => fail(format!(
                "the second client was served after {:.1} s, when the others were over",
                time.as_secs_f64()
            )),
            _ => Ok(()),
        }
    })
}

fn buffers(bench: &Bench) -> Step {
    const COUNT: i32 = 1 << 20;
    const MOST: usize = 4096;
    let prepared = bench.prepare(&floor(COUNT))?;
    let models = [IPreparedModelParcel { preparedModel: Some(prepared) }];
    let role = [BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 }];
    let mut kept = Vec::new();
    for i in 0..MOST {
        let answer = bench.driver.device().allocate(&BufferDesc::default(), &models, &role, &[]);
        match (bench.answer("allocate", answer)?, i) {
            (Ok(buffer), _) => kept.push(buffer),
            (Err(_), 0) => return Err(Stop::Skip(Skip::Inapplicable("the driver has no device memory"))),
            (Err(status), _) => {
                let refusals = [
                    ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT,
                    ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT,
                    ErrorStatus::GENERAL_FAILURE,
                ];
                return one_of("allocate", status, &refusals);
            }
        }
    }
    fail(format!("{} buffers of 4 MiB were given", kept.len()))
}

fn hangs_up(bench: &Bench) -> Step {
    const COUNT: i32 = 1 << 20;
    for round in 0..8 {
        let client = bench.client(2)?;
        let prepared = super::bench::prepare(&client, &floors(COUNT, 20))?;
        let (request, _room) = request(&vec![0; 4 * COUNT as usize], 4 * COUNT as usize)?;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = prepared.executeSynchronously(&request, false, -1, -1); // ends with the connection
            });
            let _compiles = client.launch(&floors(64, 500), &Default::default());
            std::thread::sleep(Duration::from_millis(3 * round));
            client.close();
        });
    }
    Ok(())
}

fn noise(bench: &Bench) -> Step {
    let Address::Unix(socket) = bench.driver.address() else {
        return Err(Stop::Skip(Skip::Inapplicable("the driver has no socket")));
    };
    let mut state = 0x9e37_79b9_u32;
    for length in [0, 1, 7, 48, 1000, 100_000] {
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            // Marsaglia's xorshift.
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .take(length)
        .collect();
        // The driver may hang up before all is written.
        let _ = UnixStream::connect(socket)?.write_all(&bytes);
    }
    let silent = (0..16).map(|_| UnixStream::connect(socket)).collect::<std::io::Result<Vec<_>>>()?;
    let served = watched(bench);
    drop(silent);
    served
}
