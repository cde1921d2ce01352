//! Requests, hints, device buffers and values that lead out of bounds.

use super::bench::{one_of, refused, Bench};
use super::case::Case;
use super::models::*;
use crate::aidl::*;
use crate::client::{name, Driver, PreparedModel};
use crate::tool::conformance::outcome::{fail, Skip, Step, Stop};

pub const CASES: &[Case] = &[
    Case {
        name: "request_nonsense",
        sent: "pools that are not there, places beyond their ends or below their starts, and sizes that overflow",
        rule: "INVALID_ARGUMENT: every argument lies in a pool of the request",
        run: nonsense,
    },
    Case {
        name: "reusable_nonsense",
        sent: "createReusableExecution for a request without its input",
        rule: "INVALID_ARGUMENT from this call: the request is validated when the execution is created",
        run: reusable_nonsense,
    },
    Case {
        name: "hints_twice",
        sent: "prepareModelWithConfig with two compilation hints of one token",
        rule: "INVALID_ARGUMENT: a token may be there once",
        run: hints_twice,
    },
    Case {
        name: "outputs_overlap",
        sent: "two outputs at one place, and an output over an input",
        rule: "INVALID_ARGUMENT: an output may not overlap another output or an input",
        run: outputs_overlap,
    },
    Case {
        name: "division_traps",
        sent: "the smallest integer divided by -1, and 1 divided by 0",
        rule: "any end of the execution: a processor's trap must not end the process",
        run: division_traps,
    },
    Case {
        name: "gather_out_of_range",
        sent: "GATHER with indices of 1000000, -1, and the ends of what an INT32 holds",
        rule: "an error: there is nothing to gather there",
        run: gather_out_of_range,
    },
    Case {
        name: "tile_without_end",
        sent: "TILE of two floats by 2147483647, PAD of them by -5 and by 2147483647",
        rule: "an error, or OUTPUT_INSUFFICIENT_SIZE: sizes that overflow are not allocated",
        run: tile_without_end,
    },
    Case {
        name: "failed_execution_uninitialises",
        sent: "an execution into a device buffer that holds a value, which fails; then copyTo from the buffer",
        rule: "GENERAL_FAILURE: after a failed execution the buffer of an output is uninitialised",
        run: failed_uninitialises,
    },
    Case {
        name: "foreign_buffer_tokens",
        sent: "a second client's request with the tokens -1 to 64 and the largest, none of which it was given",
        rule: "INVALID_ARGUMENT: a token is of use to whom it was given, in the roles that it was given for",
        run: foreign_tokens,
    },
];

const INVALID: &[ErrorStatus] = &[ErrorStatus::INVALID_ARGUMENT];

fn nonsense(bench: &Bench) -> Step {
    let prepared = bench.prepare(&floor(2))?;
    type Change = fn(&mut Request);
    let changes: [(&str, Change); 11] = [
        ("a pool that is not there", |r| r.inputs[0].location.poolIndex = 2),
        ("pool 2147483647", |r| r.outputs[0].location.poolIndex = i32::MAX),
        ("pool -1", |r| r.inputs[0].location.poolIndex = -1),
        ("an offset below 0", |r| r.inputs[0].location.offset = -8),
        ("an offset beyond the end", |r| r.outputs[0].location.offset = 1 << 40),
        ("an end that overflows", |r| r.inputs[0].location.offset = i64::MAX - 3),
        ("a length below 0", |r| r.inputs[0].location.length = -8),
        ("an enormous length", |r| r.inputs[0].location.length = i64::MAX),
        ("padding that overflows", |r| r.inputs[0].location.padding = i64::MAX),
        ("dimensions below 0", |r| r.inputs[0].dimensions = vec![-2]),
        ("a hundred thousand dimensions", |r| r.inputs[0].dimensions = vec![1; 100_000]),
    ];
    for (what, change) in changes {
        let (mut request, _room) = request(&floats(&[1.5, -0.5]), 8)?;
        change(&mut request);
        one_of(&format!("an execution with {what}"), bench.execute(&prepared, &request)?, INVALID)?;
    }
    Ok(())
}

/// What only the fourth version of the interface has.
fn needs_version_4(bench: &Bench) -> Step {
    match bench.context.available.interface_version {
        4.. => Ok(()),
        _ => Err(Stop::Skip(Skip::Version(4))),
    }
}

fn reusable_nonsense(bench: &Bench) -> Step {
    needs_version_4(bench)?;
    let prepared = bench.prepare(&floor(2))?;
    let (mut request, _room) = request(&floats(&[1.5, -0.5]), 8)?;
    request.inputs.clear();
    let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
    let created = prepared.createReusableExecution(&request, &config);
    one_of("createReusableExecution", bench.status("createReusableExecution", created)?, INVALID)
}

fn hints_twice(bench: &Bench) -> Step {
    needs_version_4(bench)?;
    let hint = TokenValuePair { token: 1 << 16 | 1, value: vec![1] };
    let config = PrepareModelConfig {
        deadlineNs: -1,
        priority: Priority::MEDIUM,
        preference: ExecutionPreference::FAST_SINGLE_ANSWER,
        compilationHints: vec![hint.clone(), hint],
        extensionNameToPrefix: vec![ExtensionNameAndPrefix { name: "com.example.none".into(), prefix: 1 }],
        ..Default::default()
    };
    let (launch, listener) = bench.driver.launch_with(&floor(2), &config);
    bench.answer(listener.call(), launch)?.ok();
    one_of("the compilation", listener.wait(&bench.driver)?.0, INVALID)
}

fn outputs_overlap(bench: &Bench) -> Step {
    // FLOOR to one output, ABS to the other.
    let mut model = floor(2);
    model.main.operands.push(float(&[2], Life::SUBGRAPH_OUTPUT));
    let abs = Operation { r#type: OperationType::ABS, inputs: vec![0], outputs: vec![2] };
    model.main.operations.push(abs);
    model.main.outputIndexes.push(2);
    let prepared = bench.prepare(&model)?;
    let (mut request, _room) = request(&floats(&[1.5, -0.5]), 8)?;
    request.outputs.push(argument(1, 4, 8));
    one_of("an execution with outputs over each other", bench.execute(&prepared, &request)?, INVALID)?;
    request.outputs[1] = argument(0, 4, 8);
    one_of("an execution with an output over an input", bench.execute(&prepared, &request)?, INVALID)
}

fn division_traps(bench: &Bench) -> Step {
    let scalar = DataLocation { poolIndex: 0, offset: 0, length: 4, padding: 0 };
    let tensor = |lifetime| operand(OperandType::TENSOR_INT32, &[2], lifetime);
    let operands = vec![
        tensor(Life::SUBGRAPH_INPUT),
        tensor(Life::SUBGRAPH_INPUT),
        Operand { location: scalar, ..operand(OperandType::INT32, &[], Life::CONSTANT_COPY) },
        tensor(Life::SUBGRAPH_OUTPUT),
    ];
    let prepared = bench.prepare(&single(OperationType::DIV, operands, ints(&[0])))?;
    for divisors in [[-1, -1], [0, 0]] {
        let (request, _room) = request_of(&[ints(&[i32::MIN, 1]), ints(&divisors)], 8)?;
        bench.execute(&prepared, &request)?;
    }
    Ok(())
}

fn gather(bench: &Bench) -> Step<PreparedModel> {
    let axis = DataLocation { poolIndex: 0, offset: 0, length: 4, padding: 0 };
    let operands = vec![
        float(&[4], Life::SUBGRAPH_INPUT),
        Operand { location: axis, ..operand(OperandType::INT32, &[], Life::CONSTANT_COPY) },
        operand(OperandType::TENSOR_INT32, &[2], Life::SUBGRAPH_INPUT),
        float(&[2], Life::SUBGRAPH_OUTPUT),
    ];
    bench.prepare(&single(OperationType::GATHER, operands, ints(&[0])))
}

fn gather_out_of_range(bench: &Bench) -> Step {
    let prepared = gather(bench)?;
    for index in [1_000_000, -1, i32::MAX, i32::MIN] {
        let (request, _room) = request_of(&[floats(&[0.0; 4]), ints(&[0, index])], 8)?;
        refused(&format!("GATHER of {index}"), bench.execute(&prepared, &request)?)?;
    }
    Ok(())
}

fn tile_without_end(bench: &Bench) -> Step {
    let cases = [
        (OperationType::TILE, vec![1], vec![i32::MAX]),
        (OperationType::PAD, vec![1, 2], vec![-5, 0]),
        (OperationType::PAD, vec![1, 2], vec![i32::MAX, i32::MAX]),
    ];
    for (ty, dims, values) in cases {
        let operands = vec![
            float(&[2], Life::SUBGRAPH_INPUT),
            operand(OperandType::TENSOR_INT32, &dims, Life::SUBGRAPH_INPUT),
            float(&[0], Life::SUBGRAPH_OUTPUT),
        ];
        let prepared = match bench.prepare(&single(ty, operands, Vec::new())) {
            Err(Stop::Skip(_)) => continue,
            prepared => prepared?,
        };
        let (request, _room) = request_of(&[floats(&[1.0, 2.0]), ints(&values)], 64)?;
        let result = prepared.executeSynchronously(&request, false, -1, -1);
        match bench.answer("executeSynchronously", result)? {
            Ok(result) if result.outputSufficientSize => {
                return fail(format!("operation {} with {values:?} succeeded", ty.0));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A device buffer for one output or input; a driver without device memory is not tried.
fn allocate(driver: &Driver, prepared: &PreparedModel, output: bool) -> Step<DeviceBuffer> {
    let models = [IPreparedModelParcel { preparedModel: Some(prepared.clone()) }];
    let role = [BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 }];
    let (inputs, outputs): (&[BufferRole], &[BufferRole]) = if output { (&[], &role) } else { (&role, &[]) };
    let answer = driver.device().allocate(&BufferDesc::default(), &models, inputs, outputs);
    match driver.answer("allocate", answer) {
        Ok(buffer) => Ok(buffer),
        Err(error) if error.status().is_some() => {
            Err(Stop::Skip(Skip::Inapplicable("the driver has no device memory")))
        }
        Err(error) => Err(error.into()),
    }
}

fn failed_uninitialises(bench: &Bench) -> Step {
    let prepared = gather(bench)?;
    let DeviceBuffer { buffer, token } = allocate(&bench.driver, &prepared, true)?;
    let Some(buffer) = buffer else { return fail("allocate gave no buffer") };
    let execute = |index| -> Step<ErrorStatus> {
        let (mut request, _room) = request_of(&[floats(&[1.0; 4]), ints(&[0, index])], 8)?;
        request.pools[1] = RequestMemoryPool::Token(token);
        request.outputs[0] = argument(1, 0, 0);
        bench.execute(&prepared, &request)
    };
    one_of("the first execution", execute(1)?, &[ErrorStatus::NONE])?;
    refused("the second execution", execute(1_000_000)?)?;
    let memory = super::bench::shared(&[0; 8])?.memory()?;
    let status = bench.status("copyTo", buffer.copyTo(&memory))?;
    one_of("copyTo after a failed execution", status, &[ErrorStatus::GENERAL_FAILURE])
}

fn foreign_tokens(bench: &Bench) -> Step {
    let owner = bench.client(1)?;
    let theirs = super::bench::prepare(&owner, &floor(2))?;
    let DeviceBuffer { buffer, token } = allocate(&owner, &theirs, false)?;
    let Some(buffer) = buffer else { return fail("allocate gave no buffer") };
    let value = super::bench::shared(&floats(&[7.5, 7.5]))?.memory()?;
    owner.answer("copyFrom", buffer.copyFrom(&value, &[]))?;
    let prepared = bench.prepare(&floor(2))?;
    for tried in (-1..=64).chain([token, i32::MAX, i32::MIN]) {
        let (mut request, room) = request(&floats(&[1.5, -0.5]), 8)?;
        request.pools[0] = RequestMemoryPool::Token(tried);
        request.inputs[0] = argument(0, 0, 0);
        let status = bench.execute(&prepared, &request)?;
        if output(&room, 8)? == floats(&[7.0, 7.0]) {
            return fail(format!("token {tried} gave another client's value"));
        }
        if !INVALID.contains(&status) {
            return fail(format!("token {tried} ended in {}", name(status)));
        }
    }
    Ok(())
}
