//! Device buffers over binder: allocated, copied, used in executions, and misused in every way that VTS tries.

use crate::common::domains::{
    fenced, model, model_of, parcels, pattern, request, roles, tensor, Argument, Buffer, Device,
    ForeignModel, Place, Prepared, Way, DIMS, ELEMENTS, FAILURE, INVALID, NONE, TYPES, WAYS,
    WAYS_WITH_SHAPES,
};
use crate::common::*;
use nnhal::aidl::*;

/// Allocation with `roles` as inputs and as outputs; both must be refused as invalid.
#[track_caller]
fn refuse_both(device: &Device, dims: &[i32], models: &[IPreparedModelParcel], roles: &[BufferRole]) {
    assert_eq!(status(&device.try_allocate(dims, models, roles, &[])), INVALID);
    assert_eq!(status(&device.try_allocate(dims, models, &[], roles)), INVALID);
}

#[test]
fn allocation_refuses_bad_models_and_roles() {
    let device = Device::new();
    for (ty, _) in TYPES {
        let model = device.harness.prepare(&model(ty, &DIMS, 1));
        let ours = || parcels(&[&model]);
        assert_eq!(status(&device.try_allocate(&[], &[], &[], &[])), INVALID);
        assert_eq!(status(&device.try_allocate(&[], &ours(), &[], &[])), INVALID);
        refuse_both(&device, &[], &[IPreparedModelParcel { preparedModel: None }], &roles(&[0]));
        let foreign = BnPreparedModel::new_binder(ForeignModel);
        refuse_both(&device, &[], &parcels(&[&foreign]), &roles(&[0]));
        let role = |model, index, probability| BufferRole { modelIndex: model, ioIndex: index, probability };
        for bad in [role(1, 0, 1.0), role(0, 1, 1.0), role(0, 0, 10.0), role(0, 0, 0.0), role(0, 0, -0.5)] {
            refuse_both(&device, &[], &ours(), &[bad]);
        }
        refuse_both(&device, &[], &ours(), &roles(&[0, 0]));
        refuse_both(&device, &[], &parcels(&[&model, &model]), &[role(0, 0, 1.0), role(1, 0, 1.0)]);
    }
}

/// The message is read before anything is counted: what it lists must not be listed once more.
#[test]
fn allocation_refuses_too_many_models_and_roles_before_it_looks_at_them() {
    let device = Device::new();
    let many: Vec<_> = (0..5000).map(|_| IPreparedModelParcel { preparedModel: None }).collect();
    let (one, roles) = (roles(&[0]), roles(&[0; 5000]));
    assert_eq!(status(&device.try_allocate(&[], &many, &one, &[])), FAILURE);
    assert_eq!(status(&device.try_allocate(&[], &many[..1], &roles, &[])), FAILURE);
    assert_eq!(status(&device.try_allocate(&[], &many[..1], &[], &roles)), FAILURE);
}

#[test]
fn allocation_refuses_operands_that_differ() {
    let device = Device::new();
    for (ty, _) in TYPES {
        let base = tensor(ty, &DIMS, OperandLifeTime::TEMPORARY_VARIABLE);
        let other_type = TYPES[(TYPES.iter().position(|(t, _)| *t == ty).unwrap() + 1) % 4].0;
        let mut others = vec![
            tensor(other_type, &DIMS, base.lifetime),
            Operand { dimensions: vec![32, 32, 8], ..base.clone() },
            Operand { dimensions: vec![1, 32, 32, 4], ..base.clone() },
        ];
        if base.scale != 0.0 {
            others.push(Operand { scale: 1.0, ..base.clone() });
            others.push(Operand { zeroPoint: base.zeroPoint + 1, ..base.clone() });
        }
        for other in others {
            let model = device.harness.prepare(&model_of(&[base.clone(), other.clone()]));
            refuse_both(&device, &[], &parcels(&[&model]), &roles(&[0, 1]));
            let mixed = device.try_allocate(&[], &parcels(&[&model]), &roles(&[0]), &roles(&[1]));
            assert_eq!(status(&mixed), INVALID, "{other:?}");
        }
    }
}

#[test]
fn allocation_refuses_dimensions_that_do_not_fit() {
    let device = Device::new();
    for (ty, _) in TYPES {
        let model = device.harness.prepare(&model(ty, &DIMS, 1));
        for bad in [&[1, 32, 32][..], &[1, 32, 32, 8, 1], &[1, 32, 32, 4], &[2, 32, 32, 8], &[-1, 32, 32, 8]]
        {
            refuse_both(&device, bad, &parcels(&[&model]), &roles(&[0]));
        }
        device.allocate(&model, &[0, 0, 32, 0], &[0], &[0]);
    }
    // A scalar: the activation of an ADD.
    let float = |lifetime| operand(OperandType::TENSOR_FLOAT32, &[2], lifetime);
    let mut add = Model::default();
    add.main.operands = vec![
        float(OperandLifeTime::SUBGRAPH_INPUT),
        float(OperandLifeTime::SUBGRAPH_INPUT),
        operand(OperandType::INT32, &[], OperandLifeTime::SUBGRAPH_INPUT),
        float(OperandLifeTime::SUBGRAPH_OUTPUT),
    ];
    add.main.operations =
        vec![Operation { r#type: OperationType::ADD, inputs: vec![0, 1, 2], outputs: vec![3] }];
    (add.main.inputIndexes, add.main.outputIndexes) = (vec![0, 1, 2], vec![3]);
    let model = device.harness.prepare(&add);
    let scalar = device.try_allocate(&[1], &parcels(&[&model]), &roles(&[2]), &[]);
    assert_eq!(status(&scalar), INVALID);
    let scalar = device.allocate(&model, &[], &[2], &[]);
    assert_eq!(
        [scalar.copy_from(8, &[]), scalar.copy_from(4, &[1]), scalar.copy_from(4, &[])],
        [INVALID, INVALID, NONE]
    );
}

#[test]
fn copies_check_sizes_and_dimensions() {
    let device = Device::new();
    for (ty, element) in TYPES {
        let size = ELEMENTS * element;
        let fixed = device.harness.prepare(&model(ty, &DIMS, 1));
        let buffer = device.allocate(&fixed, &[], &[0], &[0]);
        assert_eq!(buffer.copy_to(size), Err(FAILURE), "not initialised");
        assert_eq!([buffer.copy_from(size / 2, &[]), buffer.copy_from(size * 2, &[])], [INVALID; 2]);
        for bad in [&[1, 32, 32][..], &[2, 32, 32, 8], &[0, 32, 32, 8]] {
            assert_eq!(buffer.copy_from(size, bad), INVALID, "{bad:?}");
        }
        assert_eq!([buffer.copy_from(size, &[]), buffer.copy_from(size, &DIMS)], [NONE; 2]);
        assert_eq!([buffer.copy_to(size / 2), buffer.copy_to(size * 2)], [Err(INVALID), Err(INVALID)]);
        assert_eq!(buffer.copy_to(size), Ok(pattern(size)));

        let dynamic = device.harness.prepare(&model(ty, &[0, 32, 32, 8], 1));
        let buffer = device.allocate(&dynamic, &[], &[0], &[0]);
        assert_eq!(buffer.copy_to(size), Err(FAILURE), "not initialised");
        assert_eq!([buffer.copy_from(size / 2, &DIMS), buffer.copy_from(size * 2, &DIMS)], [INVALID; 2]);
        for bad in [&[][..], &[1, 32, 32], &[2, 32, 32, 8], &[2, 32, 32, 4], &[1, 32, 32, 0]] {
            assert_eq!(buffer.copy_from(size, bad), INVALID, "{bad:?}");
        }
        assert_eq!(buffer.copy_from(size, &DIMS), NONE);
        assert_eq!([buffer.copy_to(size / 2), buffer.copy_to(size * 2)], [Err(INVALID), Err(INVALID)]);
        assert_eq!(buffer.copy_to(size), Ok(pattern(size)));
    }
}

#[test]
fn copies_reach_every_kind_of_pool() {
    let device = Device::new();
    let model = device.harness.prepare(&model(OperandType::TENSOR_FLOAT32, &[16], 1));
    let buffer = device.allocate(&model, &[], &[0], &[0]);
    let (read, both) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
    let file = memfd(&[vec![0; 100], pattern(64)].concat());
    buffer.object.copyFrom(&mappable(&file, read, 100, 64), &[]).expect("copied");
    assert_eq!(status(&buffer.object.copyTo(&mappable(&file, read, 0, 64))), INVALID, "read-only");
    buffer.object.copyTo(&mappable(&file, both, 4, 64)).expect("copied");
    assert_eq!(bytes_of(&file)[4..68], pattern(64));
    let image = |width| {
        Memory::HardwareBuffer(HardwareBuffer {
            description: HardwareBufferDescription {
                width,
                height: 1,
                layers: 1,
                format: PixelFormat::RGBA_8888,
                ..Default::default()
            },
            handle: NativeHandle { fds: vec![descriptor(&file).expect("dup")], ints: vec![] },
        })
    };
    let expected = [(16, FAILURE), (64, INVALID)];
    for (width, expected) in expected {
        assert_eq!(status(&buffer.object.copyTo(&image(width))), expected, "{width} pixels of 4 bytes");
    }
    for (width, expected) in expected {
        assert_eq!(
            status(&buffer.object.copyFrom(&image(width), &[])),
            expected,
            "{width} pixels of 4 bytes"
        );
    }
    assert_eq!(status(&buffer.object.copyFrom(&ashmem(&file, 0), &[])), INVALID);
    assert_eq!(status(&buffer.object.copyFrom(&ashmem(&file, 1 << 20), &[])), INVALID);
}

#[test]
fn executions_check_tokens_models_and_roles() {
    let device = Device::new();
    for (ty, element) in TYPES {
        let size = ELEMENTS * element;
        let file = memfd(&pattern(size));
        let (one, two) = (model(ty, &DIMS, 1), model(ty, &DIMS, 2));
        let shared = || (Place::Shared(&file, size), &[][..]);
        let at = |token| (Place::Buffer(token), &[][..]);
        let (first, second) = (device.harness.prepare(&one), device.harness.prepare(&one));
        let pair = device.harness.prepare(&two);
        let buffer = device.allocate(&first, &[], &[0], &[0]);
        let (input, output) =
            (device.allocate(&first, &[], &[0], &[]), device.allocate(&first, &[], &[], &[0]));
        let narrow = device.allocate(&pair, &[], &[0], &[]);
        for buffer in [&buffer, &input, &output, &narrow] {
            assert_eq!(buffer.copy_from(size, &DIMS), NONE);
        }
        for way in WAYS {
            let refused = |model, inputs: &[Argument], outputs: &[Argument], why: &str| {
                assert_eq!(way.execute(model, &request(inputs, outputs)), INVALID, "{way:?}: {why}");
            };
            for token in [0, 100, -1] {
                refused(&first, &[at(token)], &[shared()], "a bad token as input");
                refused(&first, &[shared()], &[at(token)], "a bad token as output");
            }
            refused(&second, &[at(buffer.token)], &[shared()], "another model's, as input");
            refused(&second, &[shared()], &[at(buffer.token)], "another model's, as output");
            refused(&pair, &[shared(), at(narrow.token)], &[shared(), shared()], "input 1 without a role");
            refused(&pair, &[shared(), shared()], &[shared(), at(narrow.token)], "output 1 without a role");
            refused(&first, &[shared()], &[at(input.token)], "an input's as output");
            refused(&first, &[at(output.token)], &[shared()], "an output's as input");
        }
    }
}

#[test]
fn executions_initialise_buffers() {
    let device = Device::new();
    for (ty, element) in TYPES {
        let size = ELEMENTS * element;
        let model = device.harness.prepare(&model(ty, &DIMS, 1));
        for way in WAYS {
            let buffer = device.allocate(&model, &[], &[0], &[0]);
            let (source, target) = (memfd(&pattern(size)), memfd(&vec![0; size]));
            let from_buffer =
                request(&[(Place::Buffer(buffer.token), &[])], &[(Place::Shared(&target, size), &[])]);
            let to_buffer =
                request(&[(Place::Shared(&source, size), &[])], &[(Place::Buffer(buffer.token), &[])]);
            assert_eq!(way.execute(&model, &from_buffer), FAILURE, "not initialised");
            assert_eq!(way.execute(&model, &to_buffer), NONE);
            assert_eq!(way.execute(&model, &from_buffer), NONE);
            assert_eq!(bytes_of(&target), pattern(size), "{ty:?} {way:?}");
            assert_eq!(buffer.copy_to(size), Ok(pattern(size)));
        }
    }
}

#[test]
fn a_buffer_has_one_role_in_a_request_unless_it_is_only_read() {
    let device = Device::new();
    for (ty, element) in TYPES {
        let size = ELEMENTS * element;
        let model = device.harness.prepare(&model(ty, &DIMS, 2));
        let buffer = device.allocate(&model, &[], &[0, 1], &[0, 1]);
        let files =
            [memfd(&pattern(size)), memfd(&pattern(size)), memfd(&vec![0; size]), memfd(&vec![0; size])];
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| (Place::Shared(&files[i], size), &[][..]));
        let own = (Place::Buffer(buffer.token), &[][..]);
        for way in WAYS {
            assert_eq!(buffer.copy_from(size, &[]), NONE);
            assert_eq!(way.execute(&model, &request(&[own, a], &[own, c])), INVALID, "input and output");
            assert_eq!(way.execute(&model, &request(&[a, b], &[own, own])), INVALID, "two outputs");
            assert_eq!(way.execute(&model, &request(&[own, own], &[c, d])), NONE, "two inputs");
            assert_eq!([bytes_of(&files[2]), bytes_of(&files[3])], [pattern(size), pattern(size)]);
        }
    }
}

#[test]
fn executions_check_dimensions() {
    let device = Device::new();
    for (ty, element) in TYPES {
        let size = ELEMENTS * element;
        let model = device.harness.prepare(&model(ty, &[0, 32, 32, 8], 1));
        let buffer = device.allocate(&model, &DIMS, &[0], &[0]);
        assert_eq!(buffer.copy_from(size, &DIMS), NONE);
        let file = memfd(&pattern(2 * size));
        let bad = &[2, 32, 32, 8][..];
        let shared = (Place::Shared(&file, 2 * size), bad);
        let own = |dims| (Place::Buffer(buffer.token), dims);
        for way in WAYS_WITH_SHAPES {
            assert_eq!(way.execute(&model, &request(&[own(bad)], &[shared])), INVALID);
            assert_eq!(way.execute(&model, &request(&[shared], &[own(bad)])), INVALID);
            assert_eq!(buffer.copy_to(size), Ok(pattern(size)), "nothing has run");
            assert_eq!(way.execute(&model, &request(&[shared], &[own(&[])])), FAILURE);
            assert_eq!(buffer.copy_to(size), Err(FAILURE), "a run has failed");
            assert_eq!(buffer.copy_from(size, &DIMS), NONE);
        }
    }
}

#[test]
fn buffers_of_unknown_dimensions_take_those_of_the_last_write() {
    let device = Device::new();
    let model = device.harness.prepare(&model(OperandType::TENSOR_FLOAT32, &[0, 4], 1));
    let buffer = device.allocate(&model, &[], &[0], &[0]);
    for way in WAYS_WITH_SHAPES {
        for rows in [3usize, 1, 100] {
            let (dims, size) = ([rows as i32, 4], rows * 16);
            let (source, target) = (memfd(&pattern(size)), memfd(&vec![0; size]));
            let write =
                request(&[(Place::Shared(&source, size), &dims)], &[(Place::Buffer(buffer.token), &[])]);
            let result = model.executeSynchronously(&write, false, -1, -1).expect("executed");
            assert_eq!(result.outputShapes, [OutputShape { dimensions: dims.to_vec(), isSufficient: true }]);
            assert_eq!(buffer.copy_to(size), Ok(pattern(size)));
            // Nobody needs to say what is in the buffer.
            let read = request(&[(Place::Buffer(buffer.token), &[])], &[(Place::Shared(&target, size), &[])]);
            assert_eq!(way.execute(&model, &read), NONE);
            assert_eq!(bytes_of(&target), pattern(size));
            let wrong = request(
                &[(Place::Buffer(buffer.token), &[rows as i32 + 1, 4])],
                &[(Place::Shared(&target, size), &[])],
            );
            assert_eq!(way.execute(&model, &wrong), INVALID);
        }
    }
}

#[test]
fn a_buffer_passes_from_one_fenced_execution_to_the_next() {
    let device = Device::new();
    let prepared = device.harness.prepare(&model(OperandType::TENSOR_FLOAT32, &DIMS, 1));
    let size = ELEMENTS * 4;
    let state = [(), ()].map(|()| device.allocate(&prepared, &[], &[0], &[0]));
    let (source, target) = (memfd(&pattern(size)), memfd(&vec![0; size]));
    let at = |i: usize| (Place::Buffer(state[i].token), &[][..]);
    let shared = |file| (Place::Shared(file, size), &[][..]);
    let steps = [
        request(&[shared(&source)], &[at(0)]),
        request(&[at(0)], &[at(1)]),
        request(&[at(1)], &[at(0)]),
        request(&[at(0)], &[shared(&target)]),
    ];
    for _ in 0..20 {
        // None waits here for the one before; each waits for its fence.
        let mut fences = Vec::new();
        let mut last = None;
        for step in &steps {
            let mut result = prepared.executeFenced(step, &fences, false, -1, -1, -1).expect("launched");
            fences = result.syncFence.iter().map(|fence| fence.try_clone().expect("dup")).collect();
            last = Some(std::mem::take(&mut result));
        }
        assert_eq!(fenced(Ok(last.expect("a last step"))), NONE);
        assert_eq!(bytes_of(&target), pattern(size));
        std::os::unix::fs::FileExt::write_all_at(&target, &vec![0; size], 0).expect("cleared");
    }
}

#[test]
fn an_output_that_is_too_small_leaves_no_buffer_initialised() {
    let device = Device::new();
    let model = device.harness.prepare(&model(OperandType::TENSOR_FLOAT32, &[0, 4], 2));
    let buffer = device.allocate(&model, &[2, 4], &[], &[0]);
    assert_eq!(buffer.copy_from(32, &[2, 4]), NONE);
    let (source, small) = (memfd(&pattern(32)), memfd(&[0; 16]));
    let input = (Place::Shared(&source, 32), &[2, 4][..]);
    let request =
        request(&[input, input], &[(Place::Buffer(buffer.token), &[]), (Place::Shared(&small, 16), &[])]);
    for way in WAYS_WITH_SHAPES {
        assert_eq!(way.execute(&model, &request), ErrorStatus::OUTPUT_INSUFFICIENT_SIZE, "{way:?}");
        assert_eq!(buffer.copy_to(32), Err(FAILURE));
    }
}

#[test]
fn a_buffer_ends_with_its_last_reference_or_its_client() {
    let device = Device::new();
    let prepared = device.harness.prepare(&model(OperandType::TENSOR_FLOAT32, &DIMS, 1));
    let size = ELEMENTS * 4;
    let file = memfd(&pattern(size));
    let use_it = |model: &Prepared, token| {
        let request = request(&[(Place::Buffer(token), &[])], &[(Place::Shared(&file, size), &[])]);
        Way::Sync.execute(model, &request)
    };
    let Buffer { object, token } = device.allocate(&prepared, &[], &[0], &[0]);
    assert_eq!(use_it(&prepared, token), FAILURE, "not initialised, but known");
    drop(object);
    let ended = |check: &dyn Fn() -> ErrorStatus| {
        let started = std::time::Instant::now();
        while check() != INVALID {
            assert!(started.elapsed() < PATIENCE, "the token is still known");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    ended(&|| use_it(&prepared, token));

    // A client hangs up with a thousand buffers, three times: without their end its limit of 2048 would be reached.
    for _ in 0..3 {
        let connection = device.harness.connect();
        let model = connection.prepare(&model(OperandType::TENSOR_FLOAT32, &[4], 1));
        let desc = BufferDesc::default();
        let mut buffers = Vec::new();
        for _ in 0..1000 {
            let allocated = connection.device.allocate(&desc, &parcels(&[&model]), &roles(&[0]), &[]);
            buffers.push(allocated.expect("allocated"));
        }
        connection.close();
    }
}

#[test]
fn too_many_buffers_exhaust_a_clients_quota() {
    let device = Device::new();
    let model = device.harness.prepare(&model(OperandType::TENSOR_FLOAT32, &[4], 1));
    let mut buffers = Vec::new();
    let refused = loop {
        match device.try_allocate(&[], &parcels(&[&model]), &roles(&[0]), &[]) {
            Ok(buffer) => buffers.push(buffer),
            refused => break refused,
        }
        assert!(buffers.len() < 100_000, "there is no limit");
    };
    assert_refused(refused, ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT, "limit");
    assert!(buffers.len() > 1000);
}

#[test]
fn one_buffer_from_many_threads_never_blocks_or_mixes_values() {
    let device = Device::new();
    let prepared = device.harness.prepare(&model(OperandType::TENSOR_FLOAT32, &[0, 4], 1));
    let buffer = device.allocate(&prepared, &[], &[0], &[0]);
    let done: usize = std::thread::scope(|threads| {
        let workers: Vec<_> = (0..4usize)
            .map(|worker| {
                let (prepared, buffer) = (&prepared, &buffer);
                threads.spawn(move || {
                    let mut done = 0;
                    for round in 0..200usize {
                        let rows = 1 + (worker + round) % 7;
                        let size = rows * 16;
                        let bytes = vec![8 + rows as u8; size];
                        let (source, target) = (memfd(&bytes), memfd(&vec![0; size]));
                        let own = (Place::Buffer(buffer.token), &[][..]);
                        let dims = [rows as i32, 4];
                        let (request, reads) = match worker % 2 {
                            0 => (request(&[(Place::Shared(&source, size), &dims)], &[own]), false),
                            _ => (request(&[own], &[(Place::Shared(&target, size), &[])]), true),
                        };
                        match Way::Sync.execute(prepared, &request) {
                            NONE if reads => {
                                let seen = bytes_of(&target);
                                let rows = usize::from(seen[0] - 8);
                                assert!(seen[..rows * 16].iter().all(|&b| b == seen[0]), "mixed values");
                                done += 1;
                            }
                            NONE => done += 1,
                            // In use, not initialised, or larger than this reader's memory.
                            FAILURE | ErrorStatus::OUTPUT_INSUFFICIENT_SIZE => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    done
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    assert!(done > 0);
}
