//! A partition of the graph, compiled by the driver: what a kernel runs.

use crate::link::Link;
use crate::map::Map;
use crate::options::Options;
use crate::runtime::Partition;
use nnhal::aidl::{self, ExecutionPreference};
use nnhal::client::{cache_files, without_polling, CacheFiles, ClientError, Driver, PrepareOptions, Session};
use nnhal::tflite::graph::Graph;
use nnhal::tflite::{import_graph, Imported, Port};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Why a partition was not prepared.
pub enum NotPrepared {
    /// The driver is not there, or does not answer.
    NoDriver(String),
    /// Operator `index` of the graph, or all where it is `None`, cannot be had.
    Refused { index: Option<usize>, why: String },
}

/// A partition that the driver has compiled, with memory for its inputs and outputs.
pub struct Work {
    /// What it is a compilation of.
    pub key: [u8; 32],
    model: aidl::Model,
    /// How a driver is to prepare it.
    prepare: PrepareOptions,
    /// What it gives.
    pub outputs: Vec<Port>,
    session: Session,
    /// The session's memory.
    pub map: Map,
    /// Whether the session's driver has gone: it is prepared anew before the next run.
    lost: bool,
}

/// The tensors that a partition takes and gives, in the order of its ports: states come last on both sides.
#[derive(Default)]
pub struct Ends {
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

/// The part of `graph` that `operators` (by their places in it) are, between these tensors.
pub fn part<'a>(
    graph: &Graph<'a>,
    operators: &[usize],
    (inputs, outputs): (&[usize], &[usize]),
) -> (Graph<'a>, Ends) {
    let is_state = |i: &usize| graph.tensors[*i].variable && graph.tensors[*i].data.is_none();
    let states: Vec<usize> = inputs.iter().copied().filter(is_state).collect();
    let is_input = |i: &usize| graph.tensors[*i].data.is_none() && !is_state(i);
    let inputs: Vec<usize> = inputs.iter().copied().filter(is_input).collect();
    let ends = Ends { inputs: [&inputs[..], &states].concat(), outputs: [outputs, &states].concat() };
    let part = Graph {
        tensors: graph.tensors.clone(),
        operators: operators.iter().map(|&i| graph.operators[i].clone()).collect(),
        inputs,
        outputs: outputs.to_vec(),
        states,
    };
    (part, ends)
}

impl Work {
    /// Has the driver compile a partition, unless `kept` finds that compiled already.
    pub fn prepare(
        graph: &Graph,
        operators: &[usize],
        partition: &Partition,
        (link, options): (&Link, &Options),
        kept: impl FnOnce(&[u8; 32]) -> Option<Work>,
    ) -> Result<(Self, Ends), NotPrepared> {
        let (part, ends) = part(graph, operators, (&partition.inputs, &partition.outputs));
        let imported = import_graph(&part).map_err(|why| match why {
            nnhal::tflite::ImportError::Operator { index, why, .. } => {
                NotPrepared::Refused { index: operators.get(index).copied(), why }
            }
            why => NotPrepared::Refused { index: None, why: why.to_string() },
        })?;
        let prepare = PrepareOptions {
            preference: options.preference,
            priority: options.priority,
            dynamic_range: imported.dynamic_range && !options.exact_inputs,
            ..Default::default()
        };
        let Imported { mut model, inputs, outputs, .. } = imported;
        model.relaxComputationFloat32toFloat16 = options.allow_fp16;
        let refused = |why: String| NotPrepared::Refused { index: None, why };
        let key =
            key(&model, &prepare).map_err(|why| refused(format!("its constants cannot be read: {why}")))?;
        if let Some(work) = kept(&key) {
            return Ok((work, ends));
        }
        let sizes =
            |ports: &[Port]| ports.iter().map(|port| port.info.byte_size()).collect::<Option<Vec<_>>>();
        let sizes = sizes(&inputs).zip(sizes(&outputs)).ok_or_else(|| refused("it is too large".into()))?;
        let driver = link.driver().map_err(NotPrepared::NoDriver)?;
        let session = compile(&driver, &model, &key, (&prepare, options))
            .and_then(|prepared| Session::new(driver, prepared, (&sizes.0, &sizes.1), options.mode))
            .map_err(|why| match why.is_fatal() {
                true => NotPrepared::NoDriver(why.to_string()),
                false => refused(why.to_string()),
            })?;
        let map = Map::new(session.memory())
            .map_err(|why| refused(format!("its memory cannot be mapped: {why}")))?;
        Ok((Work { key, model, prepare, outputs, session, map, lost: false }, ends))
    }

    /// Where input `i` lies in the map.
    pub fn input(&self, i: usize) -> std::ops::Range<usize> {
        range(&self.session.inputs()[i])
    }

    /// Where output `i` lies in the map.
    pub fn output(&self, i: usize) -> std::ops::Range<usize> {
        range(&self.session.outputs()[i])
    }

    /// Runs the partition on what the map's inputs hold. Where the driver has gone since the last run, this is an error or
    /// goes on with the one that is there instead.
    pub fn run(&mut self, link: &Link, options: &Options) -> Result<(), String> {
        link.check_process()?;
        if self.lost {
            let driver = link.driver()?;
            compile(&driver, &self.model, &self.key, (&self.prepare, options))
                .and_then(|prepared| self.session.move_to(driver, prepared, options.mode))
                .map_err(|why| why.to_string())?;
            self.lost = false;
        }
        let ran = match options.preference {
            ExecutionPreference::LOW_POWER => without_polling(|| self.session.run()),
            _ => self.session.run(),
        };
        ran.map_err(|why| {
            self.lost = why.is_fatal() || self.session.driver().is_dead();
            match self.lost {
                true => format!("{why}; the next invoke tries to connect and prepare anew"),
                false => why.to_string(),
            }
        })
    }
}

fn range(range: &std::ops::Range<u64>) -> std::ops::Range<usize> {
    range.start as usize..range.end as usize
}

type Prepared = nnhal::client::PreparedModel;

/// Compiles the model, or loads it from the cache directory.
fn compile(
    driver: &Arc<Driver>,
    model: &aidl::Model,
    key: &[u8],
    (prepare, options): (&PrepareOptions, &Options),
) -> Result<Prepared, ClientError> {
    let Some(directory) = &options.cache else { return driver.prepare(model, prepare) };
    let files: CacheFiles = cache_files::open(directory, &[key], driver)?;
    let (prepared, found, time) = cache_files::prepare(driver, model, &files, prepare)?;
    log::info!("{found:?} in the cache, {time:?}");
    Ok(prepared)
}

/// A name for all that a model is, and for how it is to be compiled: what a cache holds was asked for in one way.
fn key(model: &aidl::Model, prepare: &PrepareOptions) -> std::io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let main = &model.main;
    let mut number = |n: i64| hasher.update(n.to_le_bytes());
    number(i64::from(model.relaxComputationFloat32toFloat16));
    number(i64::from(prepare.dynamic_range));
    number(prepare.preference.0.into());
    number(prepare.priority.0.into());
    for operand in &main.operands {
        number(operand.r#type.0.into());
        number(operand.dimensions.len() as i64);
        operand.dimensions.iter().for_each(|&d| number(d.into()));
        number(operand.scale.to_bits().into());
        number(operand.zeroPoint.into());
        number(operand.lifetime.0.into());
        number(operand.location.poolIndex.into());
        number(operand.location.offset);
        number(operand.location.length);
        if let Some(aidl::OperandExtraParams::ChannelQuant(quant)) = &operand.extraParams {
            number(quant.channelDim.into());
            number(quant.scales.len() as i64);
            quant.scales.iter().for_each(|scale| number(scale.to_bits().into()));
        }
    }
    let lists = main.operations.iter().flat_map(|op| [&op.inputs, &op.outputs]);
    for list in lists.chain([&main.inputIndexes, &main.outputIndexes]) {
        number(list.len() as i64);
        list.iter().for_each(|&i| number(i.into()));
    }
    main.operations.iter().for_each(|op| number(op.r#type.0.into()));
    hasher.update(&model.operandValues);
    for pool in &model.pools {
        let aidl::Memory::Ashmem(aidl::Ashmem { fd: Some(fd), size }) = pool else {
            return Err(std::io::ErrorKind::Unsupported.into());
        };
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        let (mut chunk, mut place) = (vec![0; 1 << 20], 0);
        while place < *size as u64 {
            let count = file.read_at(&mut chunk, place)?;
            if count == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            hasher.update(&chunk[..count]);
            place += count as u64;
        }
    }
    Ok(hasher.finalize().into())
}
