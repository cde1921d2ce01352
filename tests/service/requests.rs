//! Requests that break the interface's rules are refused, whichever way they are executed, by a message that says why.

use crate::common::*;
use binder::ParcelFileDescriptor;
use nnhal::aidl::*;

/// A change that makes a good request bad, and what the refusal must say.
type Case = (&'static str, fn(&mut Request));

const CASES: &[Case] = &[
    ("the model has 1 and 1", |r| r.inputs.clear()),
    ("the model has 1 and 1", |r| r.outputs.clear()),
    ("the model has 1 and 1", |r| r.inputs.push(r.inputs[0].clone())),
    ("pool 2 does not exist", |r| r.inputs[0].location.poolIndex = 2),
    ("pool -1 does not exist", |r| r.outputs[0].location.poolIndex = -1),
    ("offset -4 is negative", |r| r.inputs[0].location.offset = -4),
    ("length -12 is negative", |r| r.outputs[0].location.length = -12),
    ("padding -1 is negative", |r| r.inputs[0].location.padding = -1),
    ("not inside of the pool", |r| r.inputs[0].location.offset = 1),
    ("not inside of the pool", |r| r.inputs[0].location.offset = i64::MAX),
    ("not inside of the pool", |r| r.inputs[0].location.length = i64::MAX),
    ("not inside of the pool", |r| r.inputs[0].location.padding = 1),
    ("not inside of the pool", |r| r.inputs[0].location.length = 0),
    ("8 bytes for a", |r| r.inputs[0].location.length = 8),
    ("8 bytes for a", |r| r.outputs[0].location.length = 8),
    ("input 0: dimensions", |r| r.inputs[0].dimensions = vec![3, 1]),
    ("input 0: dimensions", |r| r.inputs[0].dimensions = vec![4]),
    ("input 0: dimension -3", |r| r.inputs[0].dimensions = vec![-3]),
    ("output 0: dimensions", |r| r.outputs[0].dimensions = vec![4]),
    ("output 0: dimension", |r| r.outputs[0].dimensions = vec![i32::MIN]),
    ("an argument without value", |r| r.inputs[0].hasNoValue = true),
    ("an argument without value", |r| {
        r.outputs[0] = RequestArgument { hasNoValue: true, dimensions: vec![3], ..Default::default() }
    }),
    ("overlaps", |r| r.outputs[0].location.poolIndex = 0),
    ("pool 1: a memory pool of 0 bytes", |r| set_size(r, 0)),
    ("pool 1: a memory pool of -1 bytes", |r| set_size(r, -1)),
    ("pool 1: a memory pool of", |r| set_size(r, 1 << 32)),
    ("pool 1: the memory ends at byte 4096, but its file has only 12", |r| set_size(r, 4096)),
    ("pool 1: the memory's file descriptor has no size", |r| {
        let (reader, _) = nix::unistd::pipe().expect("a pipe");
        r.pools[1] = pool_of(ParcelFileDescriptor::new(reader));
    }),
    ("pool 1: the memory ends at byte 12", |r| {
        let null = std::fs::File::open("/dev/null").expect("open");
        r.pools[1] = pool_of(ParcelFileDescriptor::new(null));
    }),
    ("pool 0: 0 is not a token", |r| r.pools[0] = RequestMemoryPool::Token(0)),
    ("a device buffer is used whole", |r| r.pools[0] = RequestMemoryPool::Token(100)),
    ("no buffer has the token 100", |r| {
        r.pools[0] = RequestMemoryPool::Token(100);
        r.inputs[0].location = DataLocation::default();
    }),
    ("no buffer has the token 100", |r| {
        r.pools[1] = RequestMemoryPool::Token(100);
        r.outputs[0].location = DataLocation { poolIndex: 1, ..Default::default() };
    }),
    ("a hardware buffer without a handle", |r| {
        r.pools[0] = RequestMemoryPool::Pool(Memory::HardwareBuffer(HardwareBuffer::default()))
    }),
];

/// Descriptors and handles that this driver cannot use, by what it says of them.
const UNDECODABLE: &[&str] = &["file descriptor has no size", "hardware buffer without a handle"];

fn set_size(request: &mut Request, size: i64) {
    if let RequestMemoryPool::Pool(Memory::Ashmem(ashmem)) = &mut request.pools[1] {
        ashmem.size = size;
    }
}

fn pool_of(fd: ParcelFileDescriptor) -> RequestMemoryPool {
    RequestMemoryPool::Pool(Memory::Ashmem(Ashmem { fd: Some(fd), size: 12 }))
}

#[test]
fn every_rule_is_kept_in_every_way_to_execute() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[3]));
    let burst = model.configureExecutionBurst().expect("a burst");
    let none: &[ParcelFileDescriptor] = &[];
    let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
    for (message, change) in CASES {
        let (mut request, output) = request(&floats(&[1.5; 3]), 12);
        model.executeSynchronously(&request, false, -1, -1).expect("good before the change");
        assert_eq!(bytes_of(&output), floats(&[1.0; 3]));
        change(&mut request);
        // What cannot be decoded may be somebody else's to use: no fault of the request.
        let expected = if UNDECODABLE.iter().any(|part| message.contains(part)) {
            ErrorStatus::GENERAL_FAILURE
        } else {
            ErrorStatus::INVALID_ARGUMENT
        };
        let refused = |answer| assert_refused(answer, expected, message);
        refused(model.executeSynchronously(&request, false, -1, -1).map(drop));
        refused(model.executeSynchronouslyWithConfig(&request, &config, -1).map(drop));
        refused(model.executeFenced(&request, none, false, -1, -1, -1).map(drop));
        refused(model.executeFencedWithConfig(&request, none, &config, -1, -1).map(drop));
        refused(model.createReusableExecution(&request, &config).map(drop));
        let tokens = vec![-1; request.pools.len()];
        refused(burst.executeSynchronously(&request, &tokens, false, -1, -1).map(drop));
        refused(burst.executeSynchronouslyWithConfig(&request, &tokens, &config, -1).map(drop));
        let tokens: Vec<i64> = (0..request.pools.len() as i64).collect();
        refused(burst.executeSynchronously(&request, &tokens, false, -1, -1).map(drop));
    }
}
