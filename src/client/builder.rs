//! Builds models as a client of the interface does: operands, operations, and constants with their places.
//!
//! Nothing here knows what the operations mean.

use super::shared::Shared;
use crate::aidl;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};
use std::borrow::Cow;
use std::io;

/// Index of an operand in its model.
pub type OperandIndex = i32;

/// Constants up to this size travel inside of the model, larger ones in shared memory.
const MAX_COPIED: usize = 128;
const COPIED_ALIGNMENT: usize = 4;
const POOL_ALIGNMENT: u64 = 64;

/// An operation of the model being built.
pub struct BuiltOperation {
    /// What it does.
    pub ty: OperationType,
    /// Its operands, in the interface's order.
    pub inputs: Vec<OperandIndex>,
    /// What it writes, in the interface's order.
    pub outputs: Vec<OperandIndex>,
}

/// A model being built; large constants are borrowed until it is finished.
#[derive(Default)]
pub struct Builder<'a> {
    infos: Vec<TensorInfo>,
    lifetimes: Vec<aidl::OperandLifeTime>,
    locations: Vec<aidl::DataLocation>,
    operations: Vec<BuiltOperation>,
    operand_values: Vec<u8>,
    pool: Vec<(u64, Cow<'a, [u8]>)>,
    pool_size: u64,
}

impl<'a> Builder<'a> {
    fn operand(&mut self, info: TensorInfo, lifetime: aidl::OperandLifeTime) -> OperandIndex {
        self.infos.push(info);
        self.lifetimes.push(lifetime);
        self.locations.push(aidl::DataLocation::default());
        (self.infos.len() - 1) as OperandIndex
    }

    /// An input of the model.
    pub fn input(&mut self, info: TensorInfo) -> OperandIndex {
        self.operand(info, aidl::OperandLifeTime::SUBGRAPH_INPUT)
    }

    /// An output of the model.
    pub fn output(&mut self, info: TensorInfo) -> OperandIndex {
        self.operand(info, aidl::OperandLifeTime::SUBGRAPH_OUTPUT)
    }

    /// A value between two operations.
    pub fn temporary(&mut self, info: TensorInfo) -> OperandIndex {
        self.operand(info, aidl::OperandLifeTime::TEMPORARY_VARIABLE)
    }

    /// An optional operand that is left out.
    pub fn omitted(&mut self, info: TensorInfo) -> OperandIndex {
        self.operand(info, aidl::OperandLifeTime::NO_VALUE)
    }

    /// A constant of these bytes, as many as its type and dimensions say.
    pub fn constant(&mut self, info: TensorInfo, bytes: impl Into<Cow<'a, [u8]>>) -> OperandIndex {
        let bytes = bytes.into();
        let length = bytes.len() as i64;
        let (lifetime, offset) = if bytes.len() <= MAX_COPIED {
            let start = self.operand_values.len().next_multiple_of(COPIED_ALIGNMENT);
            self.operand_values.resize(start, 0);
            self.operand_values.extend_from_slice(&bytes);
            (aidl::OperandLifeTime::CONSTANT_COPY, start as i64)
        } else {
            let start = self.pool_size.next_multiple_of(POOL_ALIGNMENT);
            self.pool_size = start + bytes.len() as u64;
            self.pool.push((start, bytes));
            (aidl::OperandLifeTime::CONSTANT_POOL, start as i64)
        };
        let index = self.operand(info, lifetime);
        // All large constants share the one pool, number 0.
        let location = aidl::DataLocation { offset, length, ..Default::default() };
        self.locations[index as usize] = location;
        index
    }

    /// A scalar INT32.
    pub fn int(&mut self, value: i32) -> OperandIndex {
        self.constant(TensorInfo::new(OperandType::INT32, &[]), value.to_le_bytes().to_vec())
    }

    /// A scalar BOOL.
    pub fn boolean(&mut self, value: bool) -> OperandIndex {
        self.constant(TensorInfo::new(OperandType::BOOL, &[]), vec![u8::from(value)])
    }

    /// A scalar FLOAT32.
    pub fn float(&mut self, value: f32) -> OperandIndex {
        self.constant(TensorInfo::new(OperandType::FLOAT32, &[]), value.to_le_bytes().to_vec())
    }

    /// A TENSOR_INT32 of these dimensions.
    pub fn ints(&mut self, dims: &[u32], values: &[i32]) -> OperandIndex {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(TensorInfo::new(OperandType::TENSOR_INT32, dims), bytes)
    }

    /// Adds an operation; operations run in the order in which they are added.
    pub fn operation(&mut self, ty: OperationType, inputs: &[OperandIndex], outputs: &[OperandIndex]) {
        self.operations.push(BuiltOperation { ty, inputs: inputs.to_vec(), outputs: outputs.to_vec() });
    }

    /// The operations so far.
    pub fn operations(&self) -> &[BuiltOperation] {
        &self.operations
    }

    /// What an operand of this model was declared to be.
    pub fn info(&self, operand: OperandIndex) -> &TensorInfo {
        &self.infos[operand as usize]
    }

    /// Whether the operand was left out.
    pub fn is_omitted(&self, operand: OperandIndex) -> bool {
        self.lifetimes[operand as usize] == aidl::OperandLifeTime::NO_VALUE
    }

    /// Whether the operand is an output of the model.
    pub fn is_output(&self, operand: OperandIndex) -> bool {
        self.lifetimes[operand as usize] == aidl::OperandLifeTime::SUBGRAPH_OUTPUT
    }

    /// The model, with its inputs and outputs in this order. Fails only where shared memory cannot be had.
    pub fn finish(self, inputs: Vec<OperandIndex>, outputs: Vec<OperandIndex>) -> io::Result<aidl::Model> {
        let mut pools = Vec::new();
        if self.pool_size > 0 {
            let shared = Shared::new(self.pool_size)?;
            for (offset, bytes) in &self.pool {
                shared.write(*offset, bytes)?;
            }
            pools.push(shared.memory()?);
        }
        let described = self.infos.into_iter().zip(self.lifetimes).zip(self.locations);
        let main = aidl::Subgraph {
            operands: described
                .map(|((info, lifetime), location)| operand(info, lifetime, location))
                .collect(),
            operations: self.operations.into_iter().map(operation).collect(),
            inputIndexes: inputs,
            outputIndexes: outputs,
        };
        Ok(aidl::Model { main, operandValues: self.operand_values, pools, ..Default::default() })
    }
}

fn operand(info: TensorInfo, lifetime: aidl::OperandLifeTime, location: aidl::DataLocation) -> aidl::Operand {
    let extra = info.channel_quant.map(|quant| {
        let params = aidl::SymmPerChannelQuantParams { scales: quant.scales, channelDim: quant.dim as i32 };
        aidl::OperandExtraParams::ChannelQuant(params)
    });
    aidl::Operand {
        r#type: aidl::OperandType(info.ty.code()),
        dimensions: info.dims.iter().map(|&d| d as i32).collect(),
        scale: info.scale,
        zeroPoint: info.zero_point,
        lifetime,
        location,
        extraParams: extra,
    }
}

fn operation(built: BuiltOperation) -> aidl::Operation {
    aidl::Operation {
        r#type: aidl::OperationType(built.ty.code()),
        inputs: built.inputs,
        outputs: built.outputs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Lifetime, Model};

    #[test]
    fn a_built_model_decodes_with_its_constants() {
        let mut builder = Builder::default();
        let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[100]);
        let small = builder.boolean(true);
        let large = builder.constant(info.clone(), vec![7u8; 400]);
        let larger = builder.constant(info.clone(), vec![9u8; 400]);
        let (input, output) = (builder.input(info.clone()), builder.output(info));
        builder.operation(OperationType::FLOOR, &[input], &[output]);
        let model = Model::new(&builder.finish(vec![input], vec![output]).unwrap()).unwrap();
        let constant = |i: OperandIndex| match &model.main.operands[i as usize].lifetime {
            Lifetime::Constant(constant) => constant.bytes().unwrap().to_vec(),
            other => panic!("operand {i} is {other:?}"),
        };
        assert_eq!(constant(small), [1]);
        assert_eq!(constant(large), [7; 400]);
        assert_eq!(constant(larger), [9; 400]);
    }
}
