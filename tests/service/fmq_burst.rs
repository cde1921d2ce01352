//! Bursts over fast message queues, by the extension of a prepared model, between a client and a driver over RPC.

use crate::common::fmq::*;
use crate::common::*;
use nnhal::aidl::*;
use nnhal::client::controller::Channels;
use nnhal::fmq::codec::{OutputShape, RequestPacket, ResultPacket};
use nnhal::fmq::{Descriptor, Grantor};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

#[test]
fn a_model_runs_over_queues() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1, 3]));
    let mut burst = Burst::open(&extension(&model));
    for _ in 0..100 {
        let result = burst.run(&packet());
        let shapes = vec![OutputShape { sufficient: true, dims: vec![1, 3] }];
        assert_eq!(result, ResultPacket { shapes, ..ResultPacket::bare(0) });
    }
    assert_eq!(bytes_of(&burst.memories.files[1]), floats(&[1.0, -1.0, 3.0]));
    let (device, driver) = burst.run(&RequestPacket { measure: true, ..packet() }).timing;
    assert!(device <= driver && driver < 1_000_000, "{device} {driver}");
    burst.context.freeMemory(1).expect("freed");
    burst.context.freeMemory(77).expect("never seen");
    assert_eq!(burst.run(&packet()).status, 0);
    assert_eq!(*burst.memories.asked.lock().expect("no panic while held"), [vec![0, 1], vec![1]]);
}

#[test]
fn queues_that_are_not_blocking_will_do() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1, 3]));
    // Counters and ring, and nothing to sleep on.
    let mut burst = Burst::over(&extension(&model), PATIENCE, |descriptor| descriptor.grantors.truncate(3));
    for _ in 0..20 {
        assert_eq!(burst.run(&packet()).status, 0);
    }
    assert_eq!(bytes_of(&burst.memories.files[1]), floats(&[1.0, -1.0, 3.0]));
}

#[test]
fn what_is_wrong_with_a_request_is_answered() {
    let harness = Harness::new();
    let mut burst = Burst::open(&extension(&harness.prepare(&floor_model(&[0, 3]))));
    let mut known = packet();
    known.inputs[0].dims = vec![1, 3];
    assert_eq!(burst.run(&known).status, 0);
    // An output that turns out too small.
    let mut short = known.clone();
    short.outputs[0].length = 4;
    let result = burst.run(&short);
    assert_eq!(result.status, ErrorStatus::OUTPUT_INSUFFICIENT_SIZE.0);
    assert_eq!(result.shapes, [OutputShape { sufficient: false, dims: vec![1, 3] }]);
    let wrong: [fn(&mut RequestPacket); 7] = [
        |p| p.inputs[0].pool = 2,
        |p| p.inputs[0].offset = u32::MAX,
        |p| p.outputs[0].length = u32::MAX,
        |p| p.inputs[0].dims = vec![u32::MAX, u32::MAX],
        |p| p.inputs[0].has_no_value = true,
        |p| p.inputs.clear(),
        |p| p.outputs[0].pool = 0,
    ];
    for (i, wrong) in wrong.into_iter().enumerate() {
        let mut packet = known.clone();
        wrong(&mut packet);
        assert_eq!(burst.run(&packet), ResultPacket::bare(ErrorStatus::INVALID_ARGUMENT.0), "{i}");
    }
    // The callback panics on names it does not have.
    let unknown = RequestPacket { slots: vec![0, 5], ..known.clone() };
    assert_eq!(burst.run(&unknown), ResultPacket::failure());
    assert_eq!(burst.run(&known).status, 0);
}

#[test]
fn channels_that_lie_are_refused() {
    let harness = Harness::new();
    let extension = extension(&harness.prepare(&floor_model(&[1, 3])));
    let memories = Memories { files: [memfd(&[0]), memfd(&[0])], asked: Mutex::default() };
    let callback = BnFmqBurstCallback::new_binder(Callback(Arc::new(memories)));
    let channels = Channels::create().expect("channels");
    let (requests, results) = (channels.requests.descriptor(), channels.results.descriptor());
    let lies: [fn(&mut Descriptor); 4] = [
        |d| d.grantors.truncate(2),
        |d| d.quantum = 32,
        |d| d.grantors[2].extent = i64::MAX,
        |d| d.files.clear(),
    ];
    for lie in lies {
        let (mut first, mut second) = (requests.clone(), results.clone());
        lie(&mut first);
        lie(&mut second);
        let refused = |answer| assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "channel");
        refused(configure(&extension, &callback, &first, &results));
        refused(configure(&extension, &callback, &requests, &second));
    }
}

#[test]
fn channels_that_share_memory_are_refused() {
    let harness = Harness::new();
    let extension = extension(&harness.prepare(&floor_model(&[1, 3])));
    let memories = Memories { files: [memfd(&[0]), memfd(&[0])], asked: Mutex::default() };
    let callback = BnFmqBurstCallback::new_binder(Callback(Arc::new(memories)));
    let channels = Channels::create().expect("channels");
    let requests = channels.requests.descriptor();
    // One memory as both, of which the first answer would be the second request; as sent, its descriptors are two.
    assert_refused(
        configure(&extension, &callback, &requests, &requests),
        ErrorStatus::INVALID_ARGUMENT,
        "request channel",
    );
    // One file for both will do as long as each has its own bytes: counters, a ring of one element, and nothing to sleep on.
    let file = memfd(&[0; 256]);
    let at = |start: i64| Descriptor {
        grantors: [(0, 8), (8, 8), (16, 24)]
            .map(|(offset, extent)| Grantor { fd_index: 0, offset: start + offset, extent })
            .to_vec(),
        files: vec![file.as_fd()],
        quantum: 24,
        ..requests.clone()
    };
    configure(&extension, &callback, &at(0), &at(40)).expect("they are apart");
    for start in [0, 32] {
        let refused = configure(&extension, &callback, &at(0), &at(start));
        assert_refused(refused, ErrorStatus::INVALID_ARGUMENT, "request channel");
    }
}
