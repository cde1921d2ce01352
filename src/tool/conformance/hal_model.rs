//! Building the interface's model from a corpus model, as FORMAT.md section 3 says.

use super::corpus::{CorpusFile, Lifetime, Model, Operand, Operation, Subgraph};
use super::outcome::{Step, Stop};
use crate::aidl;
use crate::client::shared::Shared;
use crate::ops::OperationType;

/// A corpus model together with the file that holds its bytes.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub file: &'a CorpusFile,
    pub model: &'a Model,
}

impl<'a> Case<'a> {
    pub fn data(&self, operand: &Operand) -> Option<&'a [u8]> {
        self.file.data(operand)
    }

    pub fn inputs(&self) -> impl Iterator<Item = &'a Operand> {
        let main = &self.model.main;
        main.inputs.iter().map(|&i| &main.operands[i])
    }

    pub fn outputs(&self) -> impl Iterator<Item = &'a Operand> {
        let main = &self.model.main;
        main.outputs.iter().map(|&i| &main.operands[i])
    }
}

/// Constants start at multiples of this.
const ALIGNMENT: usize = 4;

/// The model for the driver. `dynamic_outputs` leaves the dimensions of all main outputs open, their rank kept.
pub fn build(case: &Case, dynamic_outputs: bool) -> Step<aidl::Model> {
    let mut constants = Constants::default();
    let mut main = constants.subgraph(case, &case.model.main)?;
    let referenced = case.model.referenced.iter().map(|graph| constants.subgraph(case, graph));
    let referenced = referenced.collect::<Step<Vec<_>>>()?;
    if dynamic_outputs {
        for &output in &case.model.main.outputs {
            main.operands[output].dimensions.fill(0);
        }
    }
    let mut pools = Vec::new();
    if !constants.pool.is_empty() {
        let shared = Shared::new(constants.pool.len() as u64)?;
        shared.write(0, &constants.pool)?;
        pools.push(shared.memory()?);
    }
    Ok(aidl::Model {
        main,
        referenced,
        operandValues: constants.values,
        pools,
        relaxComputationFloat32toFloat16: case.model.relaxed,
        extensionNameToPrefix: Vec::new(),
    })
}

/// The constants gathered so far: those in the model itself, and those in shared memory.
#[derive(Default)]
struct Constants {
    values: Vec<u8>,
    pool: Vec<u8>,
}

impl Constants {
    fn subgraph(&mut self, case: &Case, graph: &Subgraph) -> Step<aidl::Subgraph> {
        Ok(aidl::Subgraph {
            operands: graph
                .operands
                .iter()
                .map(|operand| self.operand(case, operand))
                .collect::<Step<_>>()?,
            operations: graph.operations.iter().map(operation).collect::<Step<_>>()?,
            inputIndexes: indices(&graph.inputs),
            outputIndexes: indices(&graph.outputs),
        })
    }

    fn operand(&mut self, case: &Case, operand: &Operand) -> Step<aidl::Operand> {
        let ty = operand.ty().ok_or_else(|| Stop::Fail(format!("no operand type {}", operand.type_name)))?;
        let data = case.data(operand).unwrap_or_default();
        let location = match operand.lifetime {
            Lifetime::ConstantCopy => place(&mut self.values, data),
            Lifetime::ConstantReference => place(&mut self.pool, data),
            Lifetime::Subgraph => aidl::DataLocation {
                offset: operand.subgraph.unwrap_or_default() as i64,
                ..Default::default()
            },
            _ => aidl::DataLocation::default(),
        };
        let channel_quant = |quant: &super::corpus::ChannelQuant| {
            aidl::OperandExtraParams::ChannelQuant(aidl::SymmPerChannelQuantParams {
                scales: quant.scales.iter().map(|&s| s as f32).collect(),
                channelDim: quant.dim as i32,
            })
        };
        Ok(aidl::Operand {
            r#type: aidl::OperandType(ty.code()),
            dimensions: operand.dims.iter().map(|&d| d as i32).collect(),
            scale: operand.scale as f32,
            zeroPoint: operand.zero_point,
            lifetime: lifetime(operand.lifetime),
            location,
            extraParams: operand.channel_quant.as_ref().map(channel_quant),
        })
    }
}

fn operation(operation: &Operation) -> Step<aidl::Operation> {
    let ty = OperationType::from_name(&operation.ty)
        .ok_or_else(|| Stop::Fail(format!("no operation {}", operation.ty)))?;
    Ok(aidl::Operation {
        r#type: aidl::OperationType(ty.code()),
        inputs: indices(&operation.inputs),
        outputs: indices(&operation.outputs),
    })
}

fn indices(indices: &[usize]) -> Vec<i32> {
    indices.iter().map(|&i| i as i32).collect()
}

fn place(all: &mut Vec<u8>, data: &[u8]) -> aidl::DataLocation {
    let offset = all.len().next_multiple_of(ALIGNMENT);
    all.resize(offset, 0);
    all.extend_from_slice(data);
    aidl::DataLocation { poolIndex: 0, offset: offset as i64, length: data.len() as i64, padding: 0 }
}

fn lifetime(lifetime: Lifetime) -> aidl::OperandLifeTime {
    match lifetime {
        Lifetime::TemporaryVariable => aidl::OperandLifeTime::TEMPORARY_VARIABLE,
        Lifetime::SubgraphInput => aidl::OperandLifeTime::SUBGRAPH_INPUT,
        Lifetime::SubgraphOutput => aidl::OperandLifeTime::SUBGRAPH_OUTPUT,
        Lifetime::ConstantCopy => aidl::OperandLifeTime::CONSTANT_COPY,
        Lifetime::ConstantReference => aidl::OperandLifeTime::CONSTANT_POOL,
        Lifetime::NoValue => aidl::OperandLifeTime::NO_VALUE,
        Lifetime::Subgraph => aidl::OperandLifeTime::SUBGRAPH,
    }
}
