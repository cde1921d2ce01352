//! Memory that vanishes or changes, and descriptors that are not what they seem.

use super::bench::{one_of, refused, Bench};
use super::case::Case;
use super::models::*;
use crate::aidl::*;
use crate::tool::conformance::outcome::{fail, Step};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

pub const CASES: &[Case] = &[
    Case {
        name: "memory_smaller_than_said",
        sent: "a request whose pool is said to have 1 MiB, over a file of one page",
        rule: "an error: a pool's size is that of its memory, and reading beyond it must not end the process",
        run: smaller_than_said,
    },
    Case {
        name: "memory_vanished",
        sent: "an execution, then the same again over memory whose file was cut off in between, by every way to execute",
        rule: "an error, or a result of nothing: the client's memory is the client's, the process is everybody's",
        run: vanished,
    },
    Case {
        name: "memory_vanishes_amid",
        sent: "executions while the files of input and output are cut off and grown again, over and over",
        rule: "any end of the execution; the driver goes on",
        run: vanishes_amid,
    },
    Case {
        name: "constants_change",
        sent: "a model whose permutation lies in a pool, which is overwritten once it is compiled",
        rule: "the result that was compiled, or an error: what steers addressing must not be read again from the client",
        run: constants_change,
    },
    Case {
        name: "read_only_input",
        sent: "an input in a file opened for reading only, mapped for reading only",
        rule: "success: an input is only read, and MappableFile says how it may be mapped",
        run: read_only_input,
    },
    Case {
        name: "wrong_descriptors",
        sent: "a pipe, a directory, /dev/null and a socket as pools of models and requests",
        rule: "INVALID_ARGUMENT or GENERAL_FAILURE: memory that cannot be mapped is refused",
        run: wrong_descriptors,
    },
    Case {
        name: "wrong_sizes",
        sent: "pools of negative and of enormous sizes and offsets",
        rule: "INVALID_ARGUMENT or GENERAL_FAILURE: sizes and offsets lie in the memory",
        run: wrong_sizes,
    },
];

const REFUSALS: &[ErrorStatus] = &[
    ErrorStatus::INVALID_ARGUMENT,
    ErrorStatus::GENERAL_FAILURE,
    ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT,
    ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT,
];

fn pool(memory: Memory) -> RequestMemoryPool {
    RequestMemoryPool::Pool(memory)
}

fn smaller_than_said(bench: &Bench) -> Step {
    const SAID: i64 = 1 << 20;
    let prepared = bench.prepare(&floor(SAID as i32 / 4))?;
    let (mut request, _room) = request(&[0; 64], SAID as usize)?;
    request.inputs[0] = argument(0, 0, SAID);
    request.pools[0] = pool(ashmem(&unsealed(&[0; 4096])?, SAID)?);
    refused("an execution beyond the end of its memory", bench.execute(&prepared, &request)?)?;
    // The same where the driver writes.
    let (mut request, _room) = self::request(&vec![0; SAID as usize], 64)?;
    request.outputs[0] = argument(1, 0, SAID);
    request.pools[1] = pool(ashmem(&unsealed(&[0; 4096])?, SAID)?);
    refused("an execution with its output beyond the end", bench.execute(&prepared, &request)?)
}

fn vanished(bench: &Bench) -> Step {
    const SIZE: usize = 1 << 16;
    let prepared = bench.prepare(&floor(SIZE as i32 / 4))?;
    let (mut request, _room) = request(&[0; 64], SIZE)?;
    let file = unsealed(&vec![0; SIZE])?;
    request.inputs[0] = argument(0, 0, SIZE as i64);
    request.pools[0] = pool(ashmem(&file, SIZE as i64)?);
    one_of("an execution", bench.execute(&prepared, &request)?, &[ErrorStatus::NONE])?;
    let burst = bench.driver.answer("configureExecutionBurst", prepared.configureExecutionBurst())?;
    let in_burst = || burst.executeSynchronously(&request, &[0, 1], false, -1, -1);
    one_of("a burst", bench.status("IBurst.executeSynchronously", in_burst())?, &[ErrorStatus::NONE])?;
    let reusable = match bench.context.available.interface_version {
        4.. => {
            let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
            let created = prepared.createReusableExecution(&request, &config);
            Some(bench.driver.answer("createReusableExecution", created)?)
        }
        _ => None,
    };
    file.set_len(0)?;
    // Whatever comes: it is looked at who is served afterwards.
    bench.execute(&prepared, &request)?;
    bench.status("IBurst.executeSynchronously", in_burst())?;
    if let Some(reusable) = &reusable {
        bench.status("IExecution.executeSynchronously", reusable.executeSynchronously(-1))?;
    }
    Ok(())
}

fn vanishes_amid(bench: &Bench) -> Step {
    const SIZE: usize = 1 << 20;
    const RUNS: usize = 40;
    let prepared = bench.prepare(&floor(SIZE as i32 / 4))?;
    let (input, output) = (unsealed(&vec![0; SIZE])?, unsealed(&vec![0; SIZE])?);
    let (mut request, _room) = request(&[0; 64], 64)?;
    request.inputs[0] = argument(0, 0, SIZE as i64);
    request.outputs[0] = argument(1, 0, SIZE as i64);
    request.pools = vec![pool(ashmem(&input, SIZE as i64)?), pool(ashmem(&output, SIZE as i64)?)];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for file in [&input, &output] {
                    // A file in memory takes any length.
                    let _ = file.set_len(0);
                    let _ = file.set_len(SIZE as u64);
                }
            }
        });
        let ran = (0..RUNS).try_for_each(|_| bench.execute(&prepared, &request).map(|_| ()));
        over.store(true, Ordering::Relaxed);
        ran
    })
}

fn constants_change(bench: &Bench) -> Step {
    let constants = unsealed(&ints(&[1, 0]))?;
    let permutation = Operand {
        location: DataLocation { poolIndex: 0, offset: 0, length: 8, padding: 0 },
        ..operand(OperandType::TENSOR_INT32, &[2], Life::CONSTANT_POOL)
    };
    let operands =
        vec![float(&[2, 3], Life::SUBGRAPH_INPUT), permutation, float(&[3, 2], Life::SUBGRAPH_OUTPUT)];
    let mut model = single(OperationType::TRANSPOSE, operands, Vec::new());
    model.pools = vec![ashmem(&constants, 8)?];
    let prepared = bench.prepare(&model)?;
    let (request, room) = request(&floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), 24)?;
    let expected = floats(&[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    for change in [[0, 1], [7, -7], [i32::MAX, i32::MIN], [0, 0]] {
        constants.write_all_at(&ints(&change), 0)?;
        room.write(0, &[0xa5; 24])?;
        let status = bench.execute(&prepared, &request)?;
        if status == ErrorStatus::NONE && output(&room, 24)? != expected {
            return fail(format!("a permutation of {change:?} came into force after the compilation"));
        }
    }
    Ok(())
}

fn read_only_input(bench: &Bench) -> Step {
    use std::os::fd::AsRawFd;
    let prepared = bench.prepare(&floor(2))?;
    let (mut request, room) = request(&[0; 8], 8)?;
    let writable = unsealed(&floats(&[1.5, -0.5]))?;
    let file = File::open(format!("/proc/self/fd/{}", writable.as_raw_fd()))?;
    let (fd, prot) = (Some(descriptor(&file)?), nix::libc::PROT_READ);
    request.pools[0] = pool(Memory::MappableFile(MappableFile { fd, prot, offset: 0, length: 8 }));
    one_of("an execution", bench.execute(&prepared, &request)?, &[ErrorStatus::NONE])?;
    match output(&room, 8)? == floats(&[1.0, -1.0]) {
        true => Ok(()),
        false => fail("the result is wrong"),
    }
}

fn wrong_descriptors(bench: &Bench) -> Step {
    let prepared = bench.prepare(&floor(2))?;
    let (pipe, _writer) = nix::unistd::pipe().map_err(std::io::Error::from)?;
    let (socket, _other) = std::os::unix::net::UnixStream::pair()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let files = [
        ("a pipe", File::from(pipe)),
        ("a directory", File::open("/")?),
        ("/dev/null", null),
        ("a socket", File::from(OwnedFd::from(socket))),
    ];
    for (what, file) in &files {
        let mappable = || -> std::io::Result<Memory> {
            let (fd, prot) = (Some(descriptor(file)?), nix::libc::PROT_READ);
            Ok(Memory::MappableFile(MappableFile { fd, prot, offset: 0, length: 64 }))
        };
        for memory in [ashmem(file, 64)?, mappable()?] {
            let (mut request, _room) = request(&[0; 64], 8)?;
            request.inputs[0] = argument(0, 0, 8);
            request.pools[0] = pool(memory);
            one_of(&format!("an execution over {what}"), bench.execute(&prepared, &request)?, REFUSALS)?;
        }
        let mut model = with_constant(OperationType::ADD, 1.0);
        model.main.operands[1].lifetime = Life::CONSTANT_POOL;
        model.pools = vec![ashmem(file, 64)?];
        let (launch, listener) = bench.driver.launch(&model, &Default::default());
        bench.answer("prepareModel", launch)?.ok();
        let (status, _) = listener.wait(&bench.driver)?;
        one_of(&format!("a compilation over {what}"), status, REFUSALS)?;
    }
    Ok(())
}

fn wrong_sizes(bench: &Bench) -> Step {
    let prepared = bench.prepare(&floor(2))?;
    let file = unsealed(&[0; 4096])?;
    let mappable = |offset, length| -> std::io::Result<Memory> {
        let (fd, prot) = (Some(descriptor(&file)?), nix::libc::PROT_READ | nix::libc::PROT_WRITE);
        Ok(Memory::MappableFile(MappableFile { fd, prot, offset, length }))
    };
    let memories = [
        ("a size of -1", ashmem(&file, -1)?),
        ("no descriptor", Memory::Ashmem(Ashmem { fd: None, size: 64 })),
        ("a negative offset", mappable(-4096, 4096)?),
        ("an enormous offset", mappable(i64::MAX - 4095, 4096)?),
        ("a negative length", mappable(0, -8)?),
    ];
    for (what, memory) in memories {
        let (mut request, _room) = request(&[0; 64], 8)?;
        request.pools[0] = pool(memory);
        // The transport itself may refuse to carry a descriptor that is none.
        let result = prepared.executeSynchronously(&request, false, -1, -1);
        if let Ok(()) = result.as_ref().map(|_| ()) {
            return fail(format!("an execution over {what} succeeded"));
        }
        if what != "no descriptor" {
            one_of(
                &format!("an execution over {what}"),
                bench.status("executeSynchronously", result)?,
                REFUSALS,
            )?;
        }
    }
    Ok(())
}
