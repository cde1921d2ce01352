//! Clients that mean harm, or die: whatever they do, the others are served.

use crate::common::*;
use binder::{BinderResult, Interface, Strong};
use nnhal::aidl::*;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::Mutex;
use std::time::Duration;

/// Checks that a new client is served.
#[track_caller]
fn assert_serves(harness: &Harness) {
    let connection = harness.connect();
    let model = connection.prepare(&floor_model(&[1, 3]));
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    model.executeSynchronously(&request, false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
}

#[test]
fn nonsense_in_models_is_refused() {
    let harness = Harness::new();
    const INVALID: ErrorStatus = ErrorStatus::INVALID_ARGUMENT;
    let cases: &[fn(&mut Model)] = &[
        |m| *m = Model::default(),
        |m| m.main.operands.iter_mut().for_each(|o| o.dimensions = vec![i32::MAX; 4]),
        |m| m.main.operands.iter_mut().for_each(|o| o.dimensions = vec![-1, 3]),
        |m| m.main.operands.iter_mut().for_each(|o| o.dimensions = vec![i32::MIN]),
        |m| m.main.operands[0].r#type = OperandType(-1),
        |m| m.main.operands[0].r#type = OperandType(i32::MIN),
        |m| m.main.operands[0].scale = f32::NAN,
        |m| m.main.operands[0].zeroPoint = i32::MIN,
        |m| m.main.operands[0].lifetime = OperandLifeTime(99),
        |m| m.main.operands[0].location.offset = i64::MIN,
        |m| m.main.operands[0].extraParams = Some(OperandExtraParams::default()),
        |m| m.main.operations[0].r#type = OperationType(-1),
        |m| m.main.operations[0].inputs = vec![i32::MAX],
        |m| m.main.operations[0].outputs = vec![-1],
        |m| m.main.operations[0].inputs = vec![0; 100_000],
        |m| m.main.inputIndexes = vec![i32::MIN],
        |m| m.main.outputIndexes = vec![1, 1],
        |m| {
            m.main.inputIndexes.clear();
            m.main.operands[0].lifetime = OperandLifeTime::CONSTANT_COPY;
            m.main.operands[0].location.length = 12;
            m.main.operands[0].location.offset = i64::MAX;
        },
        |m| {
            m.main.operands[0].r#type = OperandType::SUBGRAPH;
            m.main.operands[0].lifetime = OperandLifeTime::SUBGRAPH;
            m.main.operands[0].location.offset = i64::MAX;
        },
    ];
    for (i, change) in cases.iter().enumerate() {
        let mut model = floor_model(&[1, 3]);
        change(&mut model);
        assert_eq!(status(&harness.device().getSupportedOperations(&model)), INVALID, "case {i}");
        let (launch, (told, prepared)) = harness.connection.launch(&model);
        assert_eq!((status(&launch), told, prepared.is_none()), (INVALID, INVALID, true), "case {i}");
    }
    assert_serves(&harness);
}

#[test]
fn bytes_that_are_no_binder_are_ignored() {
    let harness = Harness::new();
    let mut seed = 0x9e37_79b9_u32;
    for length in [0, 1, 7, 48, 1000, 100_000] {
        let noise: Vec<u8> = (0..length)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 17;
                seed ^= seed << 5;
                seed as u8
            })
            .collect();
        let mut stream = UnixStream::connect(harness.socket()).expect("connect");
        // The driver may hang up before all is written.
        let _ = stream.write_all(&noise);
    }
    let _silent: Vec<UnixStream> =
        (0..16).map(|_| UnixStream::connect(harness.socket()).expect("connect")).collect();
    assert_serves(&harness);
}

/// Never answers, until its sender is dropped.
struct Sulking(Mutex<std::sync::mpsc::Receiver<()>>);
impl Interface for Sulking {}
impl IPreparedModelCallback for Sulking {
    fn notify(&self, _: ErrorStatus, _: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        let _ = self.0.lock().expect("no panic while held").recv();
        Ok(())
    }
}

#[test]
fn callbacks_that_never_return_hold_up_nobody() {
    let harness = Harness::new();
    let connection = harness.connect();
    let mut keep = Vec::new();
    for _ in 0..20 {
        let (sender, receiver) = channel();
        let callback = BnPreparedModelCallback::new_binder(Sulking(Mutex::new(receiver)));
        keep.push(sender);
        connection
            .device
            .prepareModelWithConfig(
                &floor_model(&[2]),
                &PrepareModelConfig { deadlineNs: -1, ..Default::default() },
                &callback,
            )
            .expect("launched, as the client is not waited for");
    }
    assert_serves(&harness);
}

#[test]
fn clients_that_hang_up_leave_the_driver_in_order() {
    let harness = Harness::new();
    for round in 0..8u64 {
        let connection = harness.connect();
        let model = connection.prepare(&floor_model(&[1 << 20]));
        let (request, _output) = request(&vec![0; 4 << 20], 4 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Whatever comes of it: the connection ends under the call.
                let _ = model.executeSynchronously(&request, false, -1, -1);
            });
            std::thread::sleep(Duration::from_millis(round));
            connection.close();
        });
    }
    assert_serves(&harness);
}

#[test]
fn many_clients_are_served_at_once() {
    let harness = Harness::new();
    std::thread::scope(|scope| {
        for client in 0..24 {
            let harness = &harness;
            scope.spawn(move || {
                let connection = harness.connect();
                let model = connection.prepare(&floor_model(&[2]));
                for i in 0..10 {
                    let (request, output) = request(&floats(&[i as f32 + 0.5, client as f32 + 0.25]), 8);
                    model.executeSynchronously(&request, false, -1, -1).expect("executed");
                    assert_eq!(bytes_of(&output), floats(&[i as f32, client as f32]));
                }
            });
        }
    });
}
