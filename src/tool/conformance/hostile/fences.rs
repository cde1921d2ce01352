//! Fences that are never signalled or fail, deadlines inside of operations, and loops without an end.

use super::bench::{in_future, is_alive, one_of, refused, Bench};
use super::case::Case;
use super::models::*;
use crate::aidl::*;
use crate::client::{fence, PreparedModel};
use crate::tool::conformance::outcome::{fail, Skip, Step, Stop};
use binder::ParcelFileDescriptor;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    Case {
        name: "fence_waited_for",
        sent: "executeFenced with a fence that is signalled only once the call has come back",
        rule: "the call comes back at once, and the execution ends well after the signal: it is dispatched, not waited for",
        run: waited_for,
    },
    Case {
        name: "fence_failed",
        sent: "executeFenced with a fence that fails while it is waited for",
        rule: "an error of the call, or the driver's fence signalled or failed and an error told by getExecutionInfo",
        run: failed,
    },
    Case {
        name: "fences_by_the_dozen",
        sent: "24 fenced executions, each with a fence that is never signalled, while a second client executes",
        rule: "the second client is served: no wait for one client may take the driver from the others",
        run: by_the_dozen,
    },
    Case {
        name: "deadline_inside_an_operation",
        sent: "a convolution of 26 GFLOP with a deadline of 50 ms",
        rule: "an end within 3 s of the deadline: an execution is to be aborted once its deadline cannot be met",
        run: inside_an_operation,
    },
    Case {
        name: "endless_loop_with_a_deadline",
        sent: "a WHILE that never ends, with a loop limit of 15 s and a deadline of 300 ms",
        rule: "MISSED_DEADLINE_* within 5 s",
        run: endless_with_deadline,
    },
    Case {
        name: "endless_loop_with_a_long_limit",
        sent: "a WHILE that never ends, with a loop limit of ten minutes",
        rule: "INVALID_ARGUMENT at once, or MISSED_DEADLINE_* within 20 s: no loop may be allowed more than 15 s",
        run: endless_with_long_limit,
    },
];

const AT_ONCE: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(10);
const MISSED: &[ErrorStatus] =
    &[ErrorStatus::MISSED_DEADLINE_TRANSIENT, ErrorStatus::MISSED_DEADLINE_PERSISTENT];

/// A fence: a socket that becomes readable.
struct Fence {
    ours: UnixStream,
    theirs: ParcelFileDescriptor,
}

impl Fence {
    fn new() -> Step<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // Closing our end with this unread is an error at theirs.
        (&theirs).write_all(&[0])?;
        Ok(Fence { ours, theirs: ParcelFileDescriptor::new(OwnedFd::from(theirs)) })
    }

    fn list(&self) -> Step<[ParcelFileDescriptor; 1]> {
        Ok([self.theirs.try_clone().map_err(std::io::Error::other)?])
    }

    fn signal(mut self) -> Step<UnixStream> {
        self.ours.read_exact(&mut [0])?;
        self.ours.write_all(&[1])?;
        Ok(self.ours)
    }

    fn fail(self) {
        drop(self.ours);
    }
}

type Launched = Result<FencedExecutionResult, ErrorStatus>;

/// Launches, and sees that the call does not wait for the fence.
fn launch(bench: &Bench, prepared: &PreparedModel, request: &Request, waits: &Fence) -> Step<Launched> {
    let start = Instant::now();
    let result = prepared.executeFenced(request, &waits.list()?, false, -1, -1, -1);
    let launched = bench.answer("executeFenced", result);
    match start.elapsed() {
        time if time > AT_ONCE => {
            fail(format!("executeFenced waited {:.1} s for the fence", time.as_secs_f64()))
        }
        _ => launched,
    }
}

fn told(bench: &Bench, result: &FencedExecutionResult) -> Step<ErrorStatus> {
    let Some(callback) = &result.callback else { return fail("executeFenced gave no callback") };
    let (mut launched, mut fenced) = (Timing::default(), Timing::default());
    Ok(bench.driver.answer("getExecutionInfo", callback.getExecutionInfo(&mut launched, &mut fenced))?)
}

fn waited_for(bench: &Bench) -> Step {
    let prepared = bench.prepare(&floor(2))?;
    let (request, room) = request(&floats(&[1.5, -0.5]), 8)?;
    let waits = Fence::new()?;
    let Ok(result) = launch(bench, &prepared, &request, &waits)? else {
        return fail("executeFenced was refused");
    };
    if output(&room, 8)? != [0; 8] {
        return fail("it executed before its fence was signalled");
    }
    let _kept = waits.signal()?;
    let Some(done) = &result.syncFence else { return fail("no fence, while the execution has not ended") };
    fence::wait_for(done, SOON).or_else(|why| fail(why.to_string()))?;
    one_of("the execution", told(bench, &result)?, &[ErrorStatus::NONE])?;
    match output(&room, 8)? == floats(&[1.0, -1.0]) {
        true => Ok(()),
        false => fail("the result is wrong"),
    }
}

fn failed(bench: &Bench) -> Step {
    let prepared = bench.prepare(&floor(2))?;
    let (request, _room) = request(&floats(&[1.5, -0.5]), 8)?;
    let waits = Fence::new()?;
    let Ok(result) = launch(bench, &prepared, &request, &waits)? else { return Ok(()) };
    waits.fail();
    if let Some(done) = &result.syncFence {
        match fence::wait_for(done, SOON) {
            Err(why) if why.to_string().contains("did not signal") => return fail(why.to_string()),
            _ => {} // signalled, or an error
        }
    }
    refused("an execution whose fence failed", told(bench, &result)?)
}

fn by_the_dozen(bench: &Bench) -> Step {
    const CALLS: usize = 24;
    let client = bench.client(CALLS as u32)?;
    let prepared = super::bench::prepare(&client, &floor(2))?;
    let (request, _room) = request(&floats(&[1.5, -0.5]), 8)?;
    let fences = (0..CALLS).map(|_| Fence::new()).collect::<Step<Vec<_>>>()?;
    std::thread::scope(|scope| {
        for waits in &fences {
            let (prepared, request) = (&prepared, &request);
            scope.spawn(move || {
                let Ok(list) = waits.list() else { return };
                // What comes of it is not asked: the second client is.
                let _ = prepared.executeFenced(request, &list, false, -1, -1, -1);
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let served = is_alive(bench.context).map_err(|stop| stop.at("the second client"));
        // Calls that still wait return now.
        client.close();
        served
    })
}

fn inside_an_operation(bench: &Bench) -> Step {
    const SIZE: usize = 256 * 256 * 64 * 4;
    let count = |values: &[i32]| ints(values);
    let at = |offset, length, operand| Operand {
        location: DataLocation { poolIndex: 0, offset, length, padding: 0 },
        ..operand
    };
    let scalar = |offset| at(offset, 4, operand(OperandType::INT32, &[], Life::CONSTANT_COPY));
    // Bias, then padding SAME, strides of 1, no activation.
    let values = [vec![0; 256], count(&[1]), count(&[1]), count(&[0])].concat();
    let operands = vec![
        float(&[1, 256, 256, 64], Life::SUBGRAPH_INPUT),
        float(&[64, 7, 7, 64], Life::SUBGRAPH_INPUT),
        at(0, 256, float(&[64], Life::CONSTANT_COPY)),
        scalar(256),
        scalar(260),
        scalar(260),
        scalar(264),
        float(&[1, 256, 256, 64], Life::SUBGRAPH_OUTPUT),
    ];
    let prepared = bench.prepare(&single(OperationType::CONV_2D, operands, values))?;
    let (request, _room) = request_of(&[vec![0; SIZE], vec![0; 64 * 49 * 64 * 4]], SIZE)?;
    let start = Instant::now();
    let deadline = in_future(Duration::from_millis(50))?;
    let status = bench.execute_until(&prepared, &request, deadline, -1)?;
    one_of("the execution", status, &[ErrorStatus::NONE, MISSED[0], MISSED[1]])?;
    match start.elapsed() {
        time if time > Duration::from_secs(3) => fail(format!("it ended after {:.1} s", time.as_secs_f64())),
        _ => Ok(()),
    }
}

fn endless(bench: &Bench, deadline: Option<Duration>, limit: Duration) -> Step<(ErrorStatus, Duration)> {
    let prepared = match bench.prepare(&super::models::endless()) {
        Err(Stop::Skip(_)) => return Err(Stop::Skip(Skip::Unsupported(vec!["WHILE".into()]))),
        prepared => prepared?,
    };
    let (request, _room) = request_of(&[vec![1], floats(&[1.5])], 4)?;
    let deadline = deadline.map_or(Ok(-1), in_future)?;
    let start = Instant::now();
    let limit = i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX);
    Ok((bench.execute_until(&prepared, &request, deadline, limit)?, start.elapsed()))
}

fn endless_with_deadline(bench: &Bench) -> Step {
    let (status, time) = endless(bench, Some(Duration::from_millis(300)), Duration::from_secs(15))?;
    one_of("the endless loop", status, MISSED)?;
    match time > AT_ONCE {
        true => fail(format!("it ended {:.1} s after the start", time.as_secs_f64())),
        false => Ok(()),
    }
}

fn endless_with_long_limit(bench: &Bench) -> Step {
    let (status, time) = endless(bench, None, Duration::from_secs(600))?;
    one_of("the endless loop", status, &[ErrorStatus::INVALID_ARGUMENT, MISSED[0], MISSED[1]])?;
    match time > Duration::from_secs(20) {
        true => fail(format!("it ended after {:.1} s", time.as_secs_f64())),
        false => Ok(()),
    }
}
