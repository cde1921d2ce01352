//! The interface's rules for device buffers, each broken alone.

use super::*;
use crate::aidl;
use crate::memory::{ClientSlice, Memory, Pool};
use crate::model::{Argument, Request, RequestPool};
use crate::ops::evaluate::MOST_DIMS;
use crate::ops::NeverInterrupted;
use crate::quota::Quota;
use crate::tensor::{Dims, OperandType, TensorInfo};
use smallvec::smallvec;
use std::sync::Arc;

const ME: Owner = Owner { uid: 1000, pid: 7 };
const MODEL: u64 = 1;
const SHAPE: [u32; 2] = [2, 3];
const BYTES: usize = 24;

fn f32s(dims: &[u32]) -> TensorInfo {
    TensorInfo::new(OperandType::TENSOR_FLOAT32, dims)
}

fn q8(dims: &[u32], scale: f32, zero_point: i32) -> TensorInfo {
    TensorInfo::quantised(OperandType::TENSOR_QUANT8_ASYMM, dims, scale, zero_point)
}

fn role(model: i32, index: i32) -> aidl::BufferRole {
    aidl::BufferRole { modelIndex: model, ioIndex: index, probability: 1.0 }
}

/// Roles of one model with these operands: `ins` and `outs` list indices.
fn plan_for(
    inputs: &[TensorInfo],
    outputs: &[TensorInfo],
    dims: &[i32],
    ins: &[i32],
    outs: &[i32],
) -> Result<Plan, BufferError> {
    let roles = |list: &[i32]| list.iter().map(|&i| role(0, i)).collect::<Vec<_>>();
    plan(dims, &[RoleModel { id: MODEL, inputs, outputs }], &roles(ins), &roles(outs))
}

fn is_invalid<T>(result: Result<T, BufferError>) -> bool {
    matches!(result, Err(BufferError::Invalid(_)))
}

fn is_failed<T>(result: Result<T, BufferError>) -> bool {
    matches!(result, Err(BufferError::Failed(_)))
}

/// A buffer of model 1 for inputs 0 and 1 and outputs 0 and 1, declared with dimensions `dims`.
fn buffer(tracker: &BufferTracker, dims: &[u32]) -> BufferHandle {
    buffer_by(tracker, dims, on_this_machine())
}

/// The same, whose memory `allocator` gives.
pub(super) fn buffer_by(tracker: &BufferTracker, dims: &[u32], allocator: Allocator) -> BufferHandle {
    let infos = [f32s(dims), f32s(dims)];
    tracker.allocate(ME, plan_for(&infos, &infos, &[], &[0, 1], &[0, 1]).unwrap(), allocator).unwrap()
}

pub(super) fn memory(bytes: &[u8]) -> aidl::Memory {
    use std::io::Write;
    let fd = nix::sys::memfd::memfd_create(c"buffer", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).unwrap();
    aidl::Memory::Ashmem(aidl::Ashmem {
        fd: Some(binder::ParcelFileDescriptor::new(file)),
        size: bytes.len() as i64,
    })
}

fn copy_from(buffer: &Arc<DeviceBuffer>, bytes: &[u8], dims: &[i32]) -> Result<(), BufferError> {
    buffer.copy_from(&Pool::new(&memory(bytes)).unwrap(), dims, &NeverInterrupted)
}

pub(super) fn copy_to(buffer: &Arc<DeviceBuffer>, len: usize) -> Result<Vec<u8>, BufferError> {
    let target = memory(&vec![0xee; len]);
    let pool = Pool::new(&target).unwrap();
    buffer.copy_to(&pool, &NeverInterrupted)?;
    let mut bytes = vec![0; len];
    crate::memory::ClientSlice::whole(pool.map().unwrap()).read(&mut bytes).unwrap();
    Ok(bytes)
}

pub(super) fn pattern(len: usize) -> Vec<u8> {
    (1..=len).map(|i| i as u8).collect()
}

#[test]
fn allocation_checks_roles() {
    let (one, none) = ([f32s(&SHAPE)], []);
    let model = RoleModel { id: MODEL, inputs: &one, outputs: &one };
    let with = |model_index, index, probability| aidl::BufferRole {
        modelIndex: model_index,
        ioIndex: index,
        probability,
    };
    assert!(is_invalid(plan(&[], &[], &none, &none)));
    assert!(is_invalid(plan(&[], &[model], &none, &none)));
    let nan = f32::NAN;
    for bad in [
        with(1, 0, 1.0),
        with(-1, 0, 1.0),
        with(0, 1, 1.0),
        with(0, -1, 1.0),
        with(0, 0, 10.0),
        with(0, 0, 0.0),
        with(0, 0, -0.5),
        with(0, 0, nan),
    ] {
        assert!(is_invalid(plan(&[], &[model], std::slice::from_ref(&bad), &none)), "{bad:?}");
        assert!(is_invalid(plan(&[], &[model], &none, std::slice::from_ref(&bad))), "{bad:?}");
    }
    for (ins, outs) in [(&[0, 0][..], &[][..]), (&[], &[0, 0])] {
        assert!(is_invalid(plan_for(&one, &one, &[], ins, outs)));
    }
    // The same model listed twice is the same model.
    assert!(is_invalid(plan(&[], &[model, model], &[role(0, 0), role(1, 0)], &none)));
    assert!(is_invalid(plan(&[], &[model, model], &none, &[role(0, 0), role(1, 0)])));
    let other = RoleModel { id: 2, ..model };
    let good = plan(&[], &[model, other], &[role(0, 0), role(1, 0)], &[role(0, 0)]).unwrap();
    assert_eq!((&good.info.dims[..], good.roles.len()), (&SHAPE[..], 3));
    // As many dimensions as the client likes are neither copied nor printed.
    let refused = plan(&[1; MOST_DIMS + 1], &[model], &[role(0, 0)], &none).unwrap_err();
    assert!(matches!(&refused, BufferError::Invalid(why) if why.len() < 100), "{refused}");
    for (models, inputs, outputs) in [(5000, 1, 0), (1, 5000, 0), (1, 2500, 2500), (1, 1, usize::MAX)] {
        assert!(is_failed(check_counts(models, inputs, outputs)), "{models}, {inputs} and {outputs}");
    }
    assert!(check_counts(4096, 4095, 1).is_ok());
}

#[test]
fn allocation_checks_operands() {
    let base = q8(&SHAPE, 0.5, 3);
    let others = [
        TensorInfo::quantised(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, &SHAPE, 0.5, 3),
        q8(&SHAPE, 0.25, 3),
        q8(&SHAPE, 0.5, 4),
        q8(&[2, 3, 1], 0.5, 3),
        q8(&[3, 3], 0.5, 3),
    ];
    for other in others {
        let both = [base.clone(), other.clone()];
        assert!(is_invalid(plan_for(&both, &both, &[], &[0, 1], &[])), "{other:?}");
        assert!(is_invalid(plan_for(&both, &both, &[], &[], &[0, 1])), "{other:?}");
        assert!(is_invalid(plan_for(&both, &both, &[], &[0], &[1])), "{other:?}");
    }
    let one = [base];
    for bad in [&[2, 3, 1][..], &[2], &[2, 4], &[-2, 3]] {
        assert!(is_invalid(plan_for(&one, &one, bad, &[0], &[])), "{bad:?}");
        assert!(is_invalid(plan_for(&one, &one, bad, &[], &[0])), "{bad:?}");
    }
    let scalar = [TensorInfo::new(OperandType::INT32, &[])];
    assert!(is_invalid(plan_for(&scalar, &scalar, &[1], &[0], &[])));
    assert!(plan_for(&scalar, &scalar, &[], &[0], &[0]).is_ok());
    // Wildcards complete each other; together they must not be too large.
    let partial = [f32s(&[0, 3]), f32s(&[2, 0]), f32s(&[])];
    assert_eq!(plan_for(&partial, &[], &[], &[0, 1, 2], &[]).unwrap().info.dims[..], SHAPE);
    assert_eq!(plan_for(&partial, &[], &[0, 0], &[0], &[]).unwrap().info.dims[..], [0, 3]);
    assert!(is_invalid(plan_for(&partial, &[], &[7, 0], &[1], &[])));
    let huge = [f32s(&[1 << 20, 0]), f32s(&[0, 1 << 20])];
    assert!(is_invalid(plan_for(&huge, &[], &[], &[0, 1], &[])));
}

#[test]
fn tokens_are_positive_unique_and_their_owners_only() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffers: Vec<_> = (0..200).map(|_| buffer(&tracker, &SHAPE)).collect();
    let mut tokens: Vec<i32> = buffers.iter().map(|b| b.token()).collect();
    assert!(tokens.iter().all(|&t| t > 0));
    // Not counted up: neighbours are far apart.
    assert!(tokens.windows(2).filter(|t| t[0].abs_diff(t[1]) < 1000).count() < 5);
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 200);
    let token = buffers[0].token();
    assert!(tracker.find(ME, token).is_ok());
    for other in [Owner { uid: 1001, ..ME }, Owner { pid: 8, ..ME }] {
        assert!(is_invalid(tracker.find(other, token)));
    }
    assert!(is_invalid(tracker.find(ME, 0)));
    drop(buffers);
    assert!(is_invalid(tracker.find(ME, token)));
    assert_eq!(tracker.usage(), (0, 0));
}

#[test]
fn quotas_hold_for_a_client_and_for_all() {
    let tracker = BufferTracker::new(Quota::new(5 * 5000, 3 * 5000), Quota::new(4, 3));
    let allocate = |uid, dims: &[u32]| {
        let infos = [f32s(dims)];
        tracker.allocate(
            Owner { uid, pid: 1 },
            plan_for(&infos, &infos, &[], &[0], &[]).unwrap(),
            on_this_machine(),
        )
    };
    let exhausted =
        |result: Result<BufferHandle, BufferError>| matches!(result, Err(BufferError::Exhausted(_)));
    assert!(exhausted(allocate(1, &[4000])), "more bytes than one client may have");
    assert_eq!(tracker.usage(), (0, 0), "what failed costs nothing");
    let mine: Vec<_> = (0..3).map(|_| allocate(1, &[1]).unwrap()).collect();
    assert!(exhausted(allocate(1, &[1])), "more buffers than one client may have");
    let _other = allocate(2, &[1]).unwrap();
    assert!(exhausted(allocate(3, &[1])), "more buffers than all may have");
    drop(mine);
    assert!(exhausted(allocate(1, &[2500])), "what is left would be too little for others");
    let mine = allocate(1, &[1500]).unwrap();
    assert!(exhausted(allocate(2, &[1500])), "more bytes than are left for one");
    drop(mine);
    // Growing costs as well.
    let growing = allocate(1, &[0]).unwrap();
    assert!(matches!(copy_from(&growing, &vec![0; 16000], &[4000]), Err(BufferError::Exhausted(_))));
    let before = tracker.usage().1;
    copy_from(&growing, &vec![0; 4000], &[1000]).unwrap();
    assert_eq!(tracker.usage().1, before + 4000);
}

#[test]
fn a_large_buffer_costs_all_pages_that_it_takes() {
    const MIB: usize = 1 << 20;
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let none = buffer(&tracker, &[0]);
    let overhead = tracker.usage().1;
    for (bytes, taken) in [(MIB - 4, MIB - 4), (MIB, 2 * MIB), (2 * MIB, 2 * MIB), (7 * MIB, 8 * MIB)] {
        let known = buffer(&tracker, &[(bytes / 4) as u32]);
        assert_eq!(tracker.usage().1, 2 * overhead + taken, "{bytes} bytes");
        drop(known);
        let grown = buffer(&tracker, &[0]);
        copy_from(&grown, &vec![0; bytes], &[(bytes / 4) as i32]).unwrap();
        assert_eq!(tracker.usage().1, 2 * overhead + taken, "grown to {bytes} bytes");
    }
    drop(none);
    assert_eq!(tracker.usage(), (0, 0));
}

#[test]
fn copies_into_a_buffer_of_known_dimensions() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer(&tracker, &SHAPE);
    let bytes = pattern(BYTES);
    for bad in [BYTES / 2, BYTES * 2] {
        assert!(is_invalid(copy_from(&buffer, &pattern(bad), &[])));
    }
    for bad in [&[2][..], &[2, 3, 1], &[3, 2], &[2, 0], &[-2, 3]] {
        assert!(is_invalid(copy_from(&buffer, &bytes, bad)), "{bad:?}");
    }
    for good in [&[][..], &[2, 3]] {
        copy_from(&buffer, &bytes, good).unwrap();
        assert_eq!(copy_to(&buffer, BYTES).unwrap(), bytes);
    }
}

#[test]
fn copies_into_a_buffer_of_unknown_dimensions() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer(&tracker, &[0, 3]);
    let bytes = pattern(BYTES);
    for bad in [BYTES / 2, BYTES * 2] {
        assert!(is_invalid(copy_from(&buffer, &pattern(bad), &[2, 3])));
    }
    for bad in [&[][..], &[2], &[4, 3], &[2, 4], &[2, 0], &[0, 3]] {
        assert!(is_invalid(copy_from(&buffer, &bytes, bad)), "{bad:?}");
    }
    copy_from(&buffer, &bytes, &[2, 3]).unwrap();
    assert_eq!(copy_to(&buffer, BYTES).unwrap(), bytes);
    // Larger, and smaller again: the last write says how large it is.
    for rows in [50, 1] {
        let bytes = pattern(rows * 12);
        copy_from(&buffer, &bytes, &[rows as i32, 3]).unwrap();
        assert_eq!(copy_to(&buffer, bytes.len()).unwrap(), bytes);
        assert!(is_invalid(copy_to(&buffer, BYTES)));
    }
}

#[test]
fn copies_out_only_what_is_there() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer(&tracker, &SHAPE);
    assert!(is_failed(copy_to(&buffer, BYTES)));
    copy_from(&buffer, &pattern(BYTES), &[]).unwrap();
    for bad in [BYTES / 2, BYTES * 2] {
        assert!(is_invalid(copy_to(&buffer, bad)));
    }
    // A failed copy leaves nothing behind.
    assert!(is_invalid(copy_from(&buffer, &pattern(BYTES), &[1])));
    assert!(is_failed(copy_to(&buffer, BYTES)));
}

/// A request of model 1, two inputs and two outputs: which of the pools each is in.
fn request(inputs: [usize; 2], outputs: [usize; 2], dims: &[u32]) -> Request {
    let argument = |pool| Some(Argument { pool, offset: 0, length: 0, dims: dims.into() });
    Request { inputs: inputs.map(argument).into(), outputs: outputs.map(argument).into() }
}

/// Pool 0 is shared memory, the others are device buffers.
fn known(tokens: &[i32]) -> Vec<RequestPool<'static>> {
    let mut pools = vec![RequestPool::Known { size: 1, is_image: false }];
    pools.extend(tokens.iter().map(|&token| RequestPool::Buffer { token }));
    pools
}

pub(super) fn on_this_machine() -> Allocator {
    Arc::new(|_| Ok(None))
}

/// Memory of a device buffer as this process sees it, as far as it is used.
fn mapped((memory, size, dims): (Memory, usize, Dims)) -> (ClientSlice, Dims) {
    let Memory::Mapped(mapping) = memory else { unreachable!("it is on this machine") };
    (ClientSlice::new(mapping, 0, size).unwrap(), dims)
}

#[test]
fn an_execution_needs_tokens_and_roles() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let all = buffer(&tracker, &SHAPE);
    let infos = [f32s(&SHAPE), f32s(&SHAPE)];
    let narrow = |ins: &[i32], outs: &[i32]| {
        tracker.allocate(ME, plan_for(&infos, &infos, &[], ins, outs).unwrap(), on_this_machine()).unwrap()
    };
    let uses = |owner, model, token, request: Request| {
        Uses::new(&tracker, owner, model, &request, &known(&[token]), &NeverInterrupted)
    };
    let (as_input, as_output) = (|| request([1, 0], [0, 0], &SHAPE), || request([0, 0], [1, 0], &SHAPE));
    assert!(uses(ME, MODEL, all.token(), as_input()).is_ok());
    for make in [&as_input as &dyn Fn() -> Request, &as_output] {
        for token in [0, 100, -1] {
            assert!(is_invalid(uses(ME, MODEL, token, make())));
        }
        assert!(is_invalid(uses(ME, 2, all.token(), make())), "another model");
        assert!(is_invalid(uses(Owner { pid: 8, ..ME }, MODEL, all.token(), make())), "another process");
    }
    let first = narrow(&[0], &[]);
    assert!(uses(ME, MODEL, first.token(), as_input()).is_ok());
    assert!(is_invalid(uses(ME, MODEL, first.token(), request([0, 1], [0, 0], &SHAPE))), "input 1");
    assert!(is_invalid(uses(ME, MODEL, first.token(), request([0, 0], [0, 1], &SHAPE))), "output 1");
    assert!(is_invalid(uses(ME, MODEL, first.token(), as_output())), "an input as output");
    let output = narrow(&[], &[0]);
    assert!(is_invalid(uses(ME, MODEL, output.token(), as_input())), "an output as input");
    // Twice in one request.
    assert!(is_invalid(uses(ME, MODEL, all.token(), request([1, 0], [1, 0], &SHAPE))));
    assert!(is_invalid(uses(ME, MODEL, all.token(), request([0, 0], [1, 1], &SHAPE))));
    let through_two_pools = request([1, 0], [2, 0], &SHAPE);
    assert!(is_invalid(Uses::new(
        &tracker,
        ME,
        MODEL,
        &through_two_pools,
        &known(&[all.token(); 2]),
        &NeverInterrupted
    )));
    copy_from(&all, &pattern(BYTES), &[]).unwrap();
    uses(ME, MODEL, all.token(), request([1, 1], [0, 0], &SHAPE)).unwrap().claim(&NeverInterrupted).unwrap();
}

#[test]
fn a_buffer_is_initialised_by_a_run_that_succeeds() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer(&tracker, &SHAPE);
    let uses = |request: Request| {
        Uses::new(&tracker, ME, MODEL, &request, &known(&[buffer.token()]), &NeverInterrupted).unwrap()
    };
    let (read, write) = (uses(request([1, 0], [0, 0], &SHAPE)), uses(request([0, 0], [1, 0], &SHAPE)));
    let shapes = [SHAPE[..].into(), SHAPE[..].into()];
    assert!(is_failed(read.claim(&NeverInterrupted)));
    let run = |succeeds: bool| {
        let mut claims = write.claim(&NeverInterrupted).unwrap();
        assert!(claims.output(1).is_none());
        let (data, dims) = mapped(claims.output(0).unwrap());
        assert_eq!((data.len(), &dims[..]), (BYTES, &SHAPE[..]));
        data.write(&pattern(BYTES)).unwrap();
        succeeds.then(|| claims.commit(&shapes).unwrap());
    };
    run(true);
    let claims = read.claim(&NeverInterrupted).unwrap();
    let (data, dims) = mapped(claims.input(0).unwrap());
    assert_eq!((&data.to_private().unwrap()[..], &dims[..]), (&pattern(BYTES)[..], &SHAPE[..]));
    drop(claims);
    run(false);
    assert!(is_failed(read.claim(&NeverInterrupted)), "what a failed run wrote is nothing");
    run(true);
    // A run that never started has harmed nothing.
    drop(write.claim(&NeverInterrupted).unwrap());
    assert!(read.claim(&NeverInterrupted).is_ok());
}

#[test]
fn readers_share_and_writers_do_not() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer(&tracker, &SHAPE);
    copy_from(&buffer, &pattern(BYTES), &[]).unwrap();
    let uses = |request: Request| {
        Uses::new(&tracker, ME, MODEL, &request, &known(&[buffer.token()]), &NeverInterrupted).unwrap()
    };
    let (read, write) = (uses(request([1, 0], [0, 0], &SHAPE)), uses(request([0, 0], [1, 0], &SHAPE)));
    let readers = (read.claim(&NeverInterrupted).unwrap(), read.claim(&NeverInterrupted).unwrap());
    assert!(is_failed(write.claim(&NeverInterrupted)));
    assert!(is_failed(copy_from(&buffer, &pattern(BYTES), &[])));
    assert!(copy_to(&buffer, BYTES).is_ok());
    drop(readers);
    let writer = write.claim(&NeverInterrupted).unwrap();
    assert!(is_failed(read.claim(&NeverInterrupted)));
    assert!(is_failed(write.claim(&NeverInterrupted)));
    assert!(is_failed(copy_to(&buffer, BYTES)));
    drop(writer);
    assert!(read.claim(&NeverInterrupted).is_ok(), "a collision spoils nothing");
}

#[test]
fn dimensions_follow_the_last_write() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer(&tracker, &[0, 3]);
    let uses = |request: Request| {
        Uses::new(&tracker, ME, MODEL, &request, &known(&[buffer.token()]), &NeverInterrupted)
    };
    let (read, write) =
        (|dims: &[u32]| request([1, 0], [0, 0], dims), |dims: &[u32]| request([0, 0], [1, 0], dims));
    assert!(is_invalid(uses(write(&[2, 4]))));
    let mut claims = uses(write(&[0, 0])).unwrap().claim(&NeverInterrupted).unwrap();
    let (data, dims) = mapped(claims.output(0).unwrap());
    assert_eq!((data.len(), &dims[..]), (0, &[0, 3][..]));
    // The run says how much room it needs, and runs again.
    let shapes = [smallvec![2, 3], smallvec![]];
    assert!(claims.make_room(&shapes).unwrap());
    assert!(!claims.make_room(&shapes).unwrap());
    mapped(claims.output(0).unwrap()).0.write(&pattern(BYTES)).unwrap();
    claims.commit(&shapes).unwrap();
    for good in [&[2, 3][..], &[0, 3], &[]] {
        assert_eq!(
            uses(read(good)).unwrap().claim(&NeverInterrupted).unwrap().input(0).unwrap().2[..],
            SHAPE
        );
    }
    assert!(is_invalid(uses(read(&[1, 3])).unwrap().claim(&NeverInterrupted)), "not what it holds");
    // A value of another shape than the buffer's is a failure of the run.
    let mut claims = uses(write(&[])).unwrap().claim(&NeverInterrupted).unwrap();
    claims.output(0);
    assert!(is_failed(claims.commit(&[smallvec![2, 4], smallvec![]])));
    assert!(is_failed(copy_to(&buffer, BYTES)));
    // A value without elements is a value.
    let mut claims = uses(write(&[])).unwrap().claim(&NeverInterrupted).unwrap();
    claims.output(0);
    claims.commit(&[smallvec![0, 3], smallvec![]]).unwrap();
    assert_eq!(uses(read(&[])).unwrap().claim(&NeverInterrupted).unwrap().input(0).unwrap().1, 0);
}

#[test]
fn a_buffer_in_use_outlives_its_handle() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let handle = buffer(&tracker, &SHAPE);
    copy_from(&handle, &pattern(BYTES), &[]).unwrap();
    let uses = Uses::new(
        &tracker,
        ME,
        MODEL,
        &request([1, 0], [0, 0], &SHAPE),
        &known(&[handle.token()]),
        &NeverInterrupted,
    )
    .unwrap();
    let claims = uses.claim(&NeverInterrupted).unwrap();
    let token = handle.token();
    drop(handle);
    assert!(is_invalid(tracker.find(ME, token)));
    assert_eq!(mapped(claims.input(0).unwrap()).0.to_private().unwrap()[..], pattern(BYTES));
    drop((claims, uses));
    assert_eq!(tracker.usage(), (0, 0));
}

#[test]
fn a_source_that_vanishes_leaves_nothing() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer(&tracker, &[0]);
    let len = 1 << 20;
    let source = memory(&vec![1; len]);
    let aidl::Memory::Ashmem(aidl::Ashmem { fd: Some(fd), .. }) = &source else { unreachable!() };
    let file = std::fs::File::from(std::os::fd::AsFd::as_fd(fd).try_clone_to_owned().unwrap());
    file.set_len(100).unwrap();
    assert!(is_invalid(buffer.copy_from(&Pool::new(&source).unwrap(), &[len as i32 / 4], &NeverInterrupted)));
    assert!(is_failed(copy_to(&buffer, len)));
}
