//! Writes what each target begins with to `DIRECTORY/TARGET`: small things that are right, or nearly, all made here.

use binder::fmq::{GrantorDescriptor, MQDescriptor, SynchronizedReadWrite};
use binder::Serialize;
use nnhal::aidl::{
    BufferDesc, ExecutionConfig, ExecutionPreference, ExtensionNameAndPrefix, Model, PrepareModelConfig,
    Priority, Request, TokenValuePair,
};
use nnhal::backend::{Backend, CompileOptions, Control, Executable};
use nnhal::fmq::codec::{Argument, OutputShape, RequestPacket, ResultPacket};
use nnhal::fmq::SharedQueue;
use nnhal::model::hints;
use nnhal_fuzz::{artifact_start, backend, making, FILE};
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

type Done = Result<(), Box<dyn Error>>;

struct Seeds {
    directory: PathBuf,
}

impl Seeds {
    fn write(&self, target: &str, name: &str, bytes: &[u8]) -> Done {
        let directory = self.directory.join(target);
        fs::create_dir_all(&directory)?;
        Ok(fs::write(directory.join(name), bytes)?)
    }
}

/// A pool of shared memory, as [`nnhal_fuzz::pool`] reads it.
fn pool(kind: u8) -> Vec<u8> {
    [&[kind << 2][..], &FILE.to_le_bytes()].concat()
}

fn models() -> Vec<(String, Model)> {
    let named = making::small_models().into_iter().chain(making::odd_models());
    named.map(|(name, model)| (name.to_string(), model)).chain(making::operation_models()).collect()
}

/// The small models' requests: parcelled without pools, which follow.
fn request() -> Request {
    Request { pools: Vec::new(), ..making::request() }
}

fn models_and_artifacts(seeds: &Seeds) -> Done {
    for (name, model) in models() {
        let parcel = binder::to_bytes(&model)?;
        let (pools, knows) = if name == "pooled" { (1u8, pool(1)) } else { (0, Vec::new()) };
        seeds.write(
            "model",
            &name,
            &[&[u8::from(name == "extension"), pools][..], &knows, &parcel].concat(),
        )?;
        let Ok(checked) = nnhal::model::Model::new(&model) else { continue };
        let compiled = backend().compile(&checked, &CompileOptions::default(), &Control::default());
        let saved = |executable: Arc<dyn Executable>| executable.artifact(&Control::default()).ok()?;
        let Some(artifact) = compiled.ok().and_then(saved) else { continue };
        let length = artifact.data[0].last().map_or(0, |(start, part)| *start as usize + part.len());
        let start = (length as u32).to_le_bytes();
        seeds.write(
            "artifact",
            &name,
            &[&start[..], &artifact.models[0][artifact_start().len()..]].concat(),
        )?;
    }
    Ok(())
}

fn requests(seeds: &Seeds) -> Done {
    let parcel = binder::to_bytes(&request())?;
    let pools = [pool(0), pool(1)].concat();
    for kind in 0..24u8 {
        seeds.write("request", &format!("sum-{kind}"), &[&[kind, 2][..], &pools, &parcel].concat())?;
    }
    for (index, (name, model)) in making::small_models().iter().enumerate() {
        let mut request = request();
        let argument = request.inputs[0].clone();
        request.inputs = vec![argument.clone(); model.main.inputIndexes.len()];
        for (i, (input, index)) in request.inputs.iter_mut().zip(&model.main.inputIndexes).enumerate() {
            let operand = &model.main.operands[*index as usize];
            let elements: i64 = operand.dimensions.iter().map(|&dim| i64::from(dim.max(1))).product();
            (input.location.offset, input.location.length) = (64 * i as i64, 4 * elements);
            if operand.dimensions.contains(&0) {
                input.dimensions = operand.dimensions.iter().map(|&dim| dim.max(1)).collect();
            }
        }
        let mut output = request.outputs[0].clone();
        (output.location.poolIndex, output.location.length) = (1, 64);
        request.outputs = vec![output];
        let parcel = binder::to_bytes(&request)?;
        seeds.write("request", name, &[&[(index as u8) << 2, 2][..], &pools, &parcel].concat())?;
        request.inputs[0] = nnhal::aidl::RequestArgument { hasNoValue: true, ..Default::default() };
        let parcel = binder::to_bytes(&request)?;
        seeds.write(
            "request",
            &format!("{name}-omitted"),
            &[&[(index as u8) << 2 | 2, 2][..], &pools, &parcel].concat(),
        )?;
    }
    Ok(())
}

/// A queue's description without its file.
fn description(
    elements: usize,
    quantum: usize,
) -> Result<MQDescriptor<i8, SynchronizedReadWrite>, Box<dyn Error>> {
    let mut description = SharedQueue::create(elements, quantum)?.descriptor().to_aidl()?;
    description.handle.fds.clear();
    Ok(description)
}

fn queues(seeds: &Seeds) -> Done {
    // Each step twice, for this many elements or bytes.
    let steps =
        |count: u8| (0..32u8).flat_map(|step| [step & 15, count, 1, 0, 0, 0, 0, 0, 0, 0]).collect::<Vec<_>>();
    let seed = |files: u8, kind: u8, description: &MQDescriptor<i8, SynchronizedReadWrite>, steps: &[u8]| {
        let parcel = binder::to_bytes(description)?;
        let start = [files, kind, (parcel.len() / 4) as u8];
        Ok::<_, Box<dyn Error>>([&start[..], &parcel, &[0; 4], steps].concat())
    };
    let right = description(16, 24)?;
    for count in [0, 1, 2, 16, 17] {
        seeds.write("queue", &format!("steps-{count}"), &seed(1, 0, &right, &steps(count))?)?;
        for step in 0..16u8 {
            // What is written, and half of it read, goes around the ring.
            let round = [5, count, 3, count / 2, 2, 0, 4, 0, step, count, 0, 0, 5, count, 3, count];
            seeds.write("queue", &format!("round-{count}-{step}"), &seed(1, 0, &right, &round.repeat(4))?)?;
        }
    }
    let mut spread = description(16, 24)?;
    let spread_places = spread.grantors.iter_mut().enumerate();
    spread_places.for_each(|(i, grantor)| (grantor.fdIndex, grantor.offset) = (i as i32, 0));
    seeds.write("queue", "spread", &seed(4, 0, &spread, &steps(2))?)?;
    for kind in 0..16 {
        seeds.write("queue", &format!("file-{kind}"), &seed(2, kind, &right, &steps(1))?)?;
    }
    let mut odd = [description(128, 24)?, description(16, 8)?, description(16, 24)?, description(16, 24)?];
    odd[2].grantors.push(GrantorDescriptor { fdIndex: 0, offset: 1024, extent: 8 });
    odd[3].grantors[1].offset = 0;
    for (i, description) in odd.iter().enumerate() {
        seeds.write("queue", &format!("odd-{i}"), &seed(1, 0, description, &steps(1))?)?;
    }
    Ok(())
}

fn packets(seeds: &Seeds) -> Done {
    let argument = |dims: &[u32]| Argument { length: 12, dims: dims.into(), ..Default::default() };
    let request = |count: usize, slots: &[i32]| RequestPacket {
        inputs: vec![argument(&[1, 3]); count],
        outputs: vec![argument(&[]); count],
        slots: slots.to_vec(),
        measure: count == 1,
    };
    let requests = [request(0, &[]), request(1, &[0]), request(2, &[0, 1, 0, -5]), request(1, &[7; 9])]
        .map(|r| r.encode());
    for (i, packet) in requests.iter().enumerate() {
        seeds.write("packet", &format!("request-{i}"), packet)?;
        for kind in [0u8, 1, 2, 4, 8, 0xf4] {
            let datums = (packet.len() / 24) as u8;
            let twice = [&[kind, datums][..], packet, &[0, 7, datums], packet, &[0, 0], packet].concat();
            seeds.write("burst", &format!("{i}-{kind}"), &twice)?;
        }
    }
    let shape = |dims: &[u32]| OutputShape { sufficient: dims.len() == 1, dims: dims.into() };
    let result =
        ResultPacket { status: 4, shapes: vec![shape(&[2]), shape(&[3, 4]), shape(&[])], timing: (1, 2) };
    seeds.write("packet", "result", &result.encode())?;
    seeds.write("packet", "failure", &ResultPacket::failure().encode())
}

/// A call of the target of transactions.
struct Call(Vec<u8>);

impl Call {
    fn of(object: u8, code: u8) -> Self {
        Call(vec![object, code])
    }

    /// As words.
    fn value<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self, Box<dyn Error>> {
        for words in binder::to_bytes(value)?.chunks(31 * 4) {
            self.0.push((words.len().div_ceil(4) as u8) << 3 | 1);
            self.0.extend(words);
            self.0.resize(self.0.len() + words.len().next_multiple_of(4) - words.len(), 0);
        }
        Ok(self)
    }

    fn piece(mut self, kind: u8, count: u8) -> Self {
        self.0.push(count << 3 | kind);
        self
    }

    /// A parcelable with its pools.
    fn parcelable<T: Serialize>(
        self,
        kind: u8,
        value: &T,
        pools: &[Vec<u8>],
    ) -> Result<Self, Box<dyn Error>> {
        let mut call = self.piece(kind, 0);
        let parcel = binder::to_bytes(value)?;
        call.0.extend((parcel.len() as u16).to_le_bytes());
        call.0.push(pools.len() as u8);
        call.0.extend(pools.concat());
        call.0.extend(parcel);
        Ok(call)
    }

    fn end(self) -> Vec<u8> {
        self.piece(0, 0).0
    }
}

fn transactions(seeds: &Seeds) -> Done {
    let none: [i32; 0] = [];
    for object in 0..8u8 {
        for code in (0..12).chain(240..248) {
            seeds.write("transactions", &format!("bare-{object}-{code}"), &Call::of(object, code).end())?;
        }
    }
    for (name, model) in
        models().into_iter().filter(|(_, model)| binder::to_bytes(model).is_ok_and(|b| b.len() < 2000))
    {
        let pools = if name == "pooled" { vec![pool(1)] } else { Vec::new() };
        let asked = Call::of(0, 4).parcelable(4, &model, &pools)?.end();
        let refused = Call::of(4, 1).parcelable(4, &model, &pools)?.end();
        let (preference, priority) = (ExecutionPreference::FAST_SINGLE_ANSWER, Priority::MEDIUM);
        let prepared = Call::of(0, 7)
            .parcelable(4, &model, &pools)?
            .value(&preference)?
            .value(&priority)?
            .value(&-1i64)?;
        let cached = prepared.piece(7, 1).piece(7, 1).value(&[7u8; 32][..])?.piece(3, 0).end();
        let config = PrepareModelConfig {
            deadlineNs: -1,
            compilationHints: vec![TokenValuePair { token: 0x5_0001, value: vec![1] }],
            extensionNameToPrefix: vec![ExtensionNameAndPrefix { name: hints::EXTENSION.into(), prefix: 5 }],
            ..Default::default()
        };
        let configured = Call::of(0, 9).parcelable(4, &model, &pools)?.value(&config)?.piece(3, 0).end();
        seeds.write(
            "transactions",
            &format!("model-{name}"),
            &[asked, refused, cached, configured].concat(),
        )?;
    }
    let load = Call::of(0, 8).value(&-1i64)?.piece(7, 1).piece(7, 1).value(&[7u8; 32][..])?.piece(3, 0).end();
    seeds.write("transactions", "load", &load)?;
    let pools = [pool(0), pool(1)];
    let (config, request) = (ExecutionConfig::default(), request());
    let terms = |call: Call| call.value(&true)?.value(&-1i64)?.value(&-1i64);
    let run = |object, code| Call::of(object, code).parcelable(5, &request, &pools);
    let calls = [
        terms(run(1, 0)?)?.end(),
        run(1, 4)?.value(&config)?.value(&-1i64)?.end(),
        terms(run(1, 1)?.piece(7, 0))?.value(&-1i64)?.end(),
        run(1, 5)?.piece(7, 0).value(&config)?.value(&-1i64)?.value(&-1i64)?.end(),
        run(1, 3)?.value(&config)?.end(),
        terms(run(2, 0)?.value(&[1i64, 2][..])?)?.end(),
        run(2, 2)?.value(&[1i64, 2][..])?.value(&config)?.value(&-1i64)?.end(),
        Call::of(2, 1).value(&1i64)?.end(),
        Call::of(3, 0).value(&-1i64)?.end(),
        Call::of(3, 1).piece(7, 0).value(&-1i64)?.value(&-1i64)?.end(),
        Call::of(6, 0).piece(2, 0).end(),
        Call::of(6, 1).piece(2, 0).value(&none[..])?.end(),
    ];
    for (i, call) in calls.iter().enumerate() {
        seeds.write("transactions", &format!("run-{i}"), call)?;
        seeds.write(
            "transactions",
            &format!("runs-{i}"),
            &[call.clone(), call.clone(), call.clone()].concat(),
        )?;
    }
    for object in 0..12 {
        for (to, code) in [(4, 2), (4, 3), (0, 0)] {
            let call = Call::of(to, code).piece(3, object).end();
            seeds.write("transactions", &format!("object-{to}-{code}-{object}"), &call)?;
        }
    }
    let allocate = Call::of(0, 0).value(&BufferDesc::default())?.value(&1i32)?.end();
    seeds.write("transactions", "allocate", &allocate)?;
    let (words, dump) = (description(16, 24)?, Call::of(0, 241).piece(2, 0).value(&0i32)?.end());
    let parcel = binder::to_bytes(&words)?;
    let channel = |call: Call| {
        let mut call = call.piece(6, 0);
        call.0.push((parcel.len() / 4) as u8);
        call.0.extend(&parcel);
        call
    };
    seeds.write("transactions", "queues", &channel(channel(Call::of(5, 0).piece(3, 1))).end())?;
    seeds.write("transactions", "dump", &dump)
}

fn caches(seeds: &Seeds) -> Done {
    // A data file with other bytes at its end, and without them.
    let junk = |place| [&[23, 62 << 2 | 3, place][..], &[0xff; 62]].concat();
    let cut = |pages| vec![23, 1, pages];
    for (i, change) in [8, 4, 60].map(junk).into_iter().chain([0, 9].map(cut)).enumerate() {
        for kind in [9, 10] {
            seeds.write(
                "cache",
                &format!("data-{kind}-{i}"),
                &[&[2, 0, kind][..], &change, &[4]].concat(),
            )?;
        }
    }
    for shape in 0..32u8 {
        for other in [0, 0x80u8] {
            // Saved, changed, loaded; reserved and filled; in the store, and there after a start.
            let rounds = [
                vec![0, 9, 4, 0, 66, 4, 1, 8, 4 | other, 9, 1, 5],
                vec![2, 3, 9, 4, 2, 7, 0, 5, 3, 9, 4, 0, 3, 8 | other, 3, 9, 4],
                vec![
                    10,
                    9,
                    11,
                    15,
                    10,
                    6,
                    11,
                    13,
                    11,
                    14 | other,
                    11,
                    10,
                    9,
                    12,
                    0,
                    0,
                    3,
                    11,
                    12,
                    1,
                    2,
                    9,
                    1,
                    2,
                    14,
                    11,
                ],
                vec![10, 9, 0x2a, 7, 0x4a, 8, 12, 0x80, 11, 14, 0x2b, 13 | other, 0x4b, 0x8d, 11],
                // Not loaded for months, in use while it is saved again, and too large or too many.
                vec![10, 9, 12, 0x40, 12, 0x41, 15, 13 | other, 11, 10, 9, 12, 0x40, 10, 7, 15],
                vec![10, 9, 11 | other, 10, 9, 10, 200, 15, 0x2a, 180, 0x4a, 181, 0x6a, 182, 11, 15],
            ];
            for (i, steps) in rounds.iter().enumerate() {
                seeds.write(
                    "cache",
                    &format!("{shape}-{other}-{i}"),
                    &[&[shape][..], steps, steps].concat(),
                )?;
            }
        }
    }
    for kind in 0..=255u8 {
        if kind & 28 == 0 {
            for note in 3..8 {
                seeds.write("registry", &format!("left-{kind}-{note}"), &[kind, note])?;
            }
            for place in (0..64u8).step_by(4) {
                let change = [kind, 0, 0x09, place, 0, 1, 2, 0x21, place, 1, 255, 255];
                seeds.write("registry", &format!("change-{kind}-{place}"), &change)?;
            }
        }
    }
    Ok(())
}

fn files(seeds: &Seeds) -> Done {
    for name in ["digits_int8", "digits_f32"] {
        seeds.write("tflite", name, &fs::read(format!("../models/{name}.tflite"))?)?;
    }
    let headers = [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n",
        "{\"descr\": \"|i1\", 'fortran_order': False, 'shape': (8,), }",
        "{'descr': '<f8', 'fortran_order': True, 'shape': (), }",
        "{'descr': '<i99999999999999999999', 'fortran_order': False, 'shape': (4294967295, 4294967296)}",
        "{'descr': [('a', '<f4')], 'fortran_order' : False, 'shape': 1}",
    ];
    for (i, header) in headers.iter().enumerate() {
        for version in 1..=4u8 {
            let length = (header.len() as u32).to_le_bytes();
            let length = &length[..if version == 1 { 2 } else { 4 }];
            let bytes = [b"\x93NUMPY", &[version, 0][..], length, header.as_bytes(), &[0; 8]].concat();
            seeds.write("npy", &format!("{i}-{version}"), &bytes)?;
        }
    }
    Ok(())
}

fn main() -> Done {
    let directory = std::env::args_os().nth(1).ok_or("usage: seeds DIRECTORY")?;
    let seeds = Seeds { directory: directory.into() };
    let parts = [models_and_artifacts, requests, queues, packets, transactions, caches, files];
    parts.iter().try_for_each(|part| part(&seeds))?;
    Ok(())
}
