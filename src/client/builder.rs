//! Builds models as a client of the interface does: operands, operations, and constants with their places.
//!
//! Nothing here knows what the operations mean.

use super::shared::Shared;
use crate::aidl;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};
use binder::ParcelFileDescriptor;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// Index of an operand in its model.
pub type OperandIndex = i32;

/// Constants up to this size travel inside of the model, larger ones in shared memory.
const MAX_COPIED: usize = 128;
/// Constants up to this size that are equal are one.
const MAX_SHORT: usize = 16 << 10;
/// Bytes that constants of equal bytes may have: how many they have does not go by what the client has of a model.
const MOST_UNIFORM: usize = 1 << 29;
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
    file: Option<Mapped<'a>>,
    /// Constants whose bytes are the file's.
    in_file: Vec<OperandIndex>,
    /// Short constants, by their bytes: to compare a few of them takes less than to hash one, as most differ at their start.
    short: BTreeMap<Cow<'a, [u8]>, Vec<OperandIndex>>,
    /// By byte: large constants of nothing else, and the length of the longest, in which all of them are to lie.
    uniform: BTreeMap<u8, (usize, Vec<OperandIndex>)>,
}

/// A file, and all its bytes.
#[derive(Clone, Copy)]
pub struct Mapped<'a> {
    /// Open for reading. A driver maps it for as long as it needs.
    pub file: &'a File,
    /// What it holds from its start on.
    pub bytes: &'a [u8],
}

impl<'a> Builder<'a> {
    /// For a model whose large constants are read from `mapped` by the driver itself, as far as they are parts of it.
    pub fn over(mapped: Mapped<'a>) -> Self {
        Builder { file: Some(mapped), ..Default::default() }
    }

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

    /// A constant of these bytes, as many as its type and dimensions say; one that is there already, if it is short.
    pub fn constant(&mut self, info: TensorInfo, bytes: impl Into<Cow<'a, [u8]>>) -> OperandIndex {
        let bytes = bytes.into();
        if bytes.len() > MAX_SHORT {
            return self.new_constant(info, bytes);
        }
        if let Some(known) = self.known(&info, &bytes) {
            return known;
        }
        let operand = self.new_constant(info, bytes.clone());
        self.short.entry(bytes).or_default().push(operand);
        operand
    }

    /// The short constant of these bytes that is there already.
    fn known(&self, info: &TensorInfo, bytes: &[u8]) -> Option<OperandIndex> {
        self.short.get(bytes)?.iter().copied().find(|&known| self.info(known) == info)
    }

    /// A scalar, which a model has over and over: nothing is allocated to find it.
    fn scalar(&mut self, ty: OperandType, bytes: &[u8]) -> OperandIndex {
        let info = TensorInfo::new(ty, &[]);
        self.known(&info, bytes).unwrap_or_else(|| self.constant(info, bytes.to_vec()))
    }

    fn new_constant(&mut self, info: TensorInfo, bytes: Cow<'a, [u8]>) -> OperandIndex {
        let length = bytes.len() as i64;
        let in_file = self.file.and_then(|mapped| mapped.offset_of(&bytes));
        let is_small = bytes.len() <= MAX_COPIED;
        let (lifetime, offset) = if is_small {
            let start = self.operand_values.len().next_multiple_of(COPIED_ALIGNMENT);
            self.operand_values.resize(start, 0);
            self.operand_values.extend_from_slice(&bytes);
            (aidl::OperandLifeTime::CONSTANT_COPY, start as i64)
        } else if let Some(offset) = in_file {
            (aidl::OperandLifeTime::CONSTANT_POOL, offset)
        } else {
            (aidl::OperandLifeTime::CONSTANT_POOL, self.in_pool(bytes))
        };
        let index = self.operand(info, lifetime);
        if in_file.is_some() && !is_small {
            self.in_file.push(index);
        }
        // All other large constants share the one pool, number 0.
        let location = aidl::DataLocation { offset, length, ..Default::default() };
        self.locations[index as usize] = location;
        index
    }

    /// Where `bytes` lie in the one pool of what is not in the file.
    fn in_pool(&mut self, bytes: Cow<'a, [u8]>) -> i64 {
        let start = self.pool_size.next_multiple_of(POOL_ALIGNMENT);
        self.pool_size = start + bytes.len() as u64;
        self.pool.push((start, bytes));
        start as i64
    }

    /// A constant of so many equal bytes, as many as its type and dimensions say. All such share their memory.
    pub fn uniform(&mut self, info: TensorInfo, byte: u8, len: usize) -> OperandIndex {
        if len <= MAX_COPIED {
            return self.constant(info, vec![byte; len]);
        }
        let known = self
            .uniform
            .get(&byte)
            .and_then(|(_, operands)| operands.iter().copied().find(|&known| *self.info(known) == info));
        if let Some(known) = known {
            return known;
        }
        let index = self.operand(info, aidl::OperandLifeTime::CONSTANT_POOL);
        self.locations[index as usize].length = i64::try_from(len).unwrap_or(i64::MAX);
        let (longest, operands) = self.uniform.entry(byte).or_default();
        *longest = len.max(*longest);
        operands.push(index);
        index
    }

    /// A scalar INT32.
    pub fn int(&mut self, value: i32) -> OperandIndex {
        self.scalar(OperandType::INT32, &value.to_le_bytes())
    }

    /// A scalar BOOL.
    pub fn boolean(&mut self, value: bool) -> OperandIndex {
        self.scalar(OperandType::BOOL, &[u8::from(value)])
    }

    /// A scalar FLOAT32.
    pub fn float(&mut self, value: f32) -> OperandIndex {
        self.scalar(OperandType::FLOAT32, &value.to_le_bytes())
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

    /// Whether the operand is a constant of more equal bytes than a model may have, which could not be finished.
    pub fn is_too_long(&self, operand: OperandIndex) -> bool {
        let is_uniform = || self.uniform.values().any(|(_, operands)| operands.contains(&operand));
        let length = self.locations.get(operand as usize).map_or(0, |location| location.length);
        usize::try_from(length).is_ok_and(|length| length > MOST_UNIFORM) && is_uniform()
    }

    /// The bytes of a constant that has its place.
    pub fn bytes(&self, operand: OperandIndex) -> Option<&[u8]> {
        if self.uniform.values().any(|(_, operands)| operands.contains(&operand)) {
            return None;
        }
        let location = self.locations.get(operand as usize)?;
        let (start, length) = (location.offset as usize, location.length as usize);
        match self.lifetimes[operand as usize] {
            aidl::OperandLifeTime::CONSTANT_COPY => self.operand_values.get(start..start + length),
            aidl::OperandLifeTime::CONSTANT_POOL if self.in_file.contains(&operand) => {
                self.file?.bytes.get(start..start + length)
            }
            aidl::OperandLifeTime::CONSTANT_POOL => {
                self.pool.iter().find(|(at, _)| *at == start as u64).map(|(_, bytes)| &bytes[..])
            }
            _ => None,
        }
    }

    /// Whether the operand was left out.
    pub fn is_omitted(&self, operand: OperandIndex) -> bool {
        self.lifetimes[operand as usize] == aidl::OperandLifeTime::NO_VALUE
    }

    /// Whether the operand is an output of the model.
    pub fn is_output(&self, operand: OperandIndex) -> bool {
        self.lifetimes[operand as usize] == aidl::OperandLifeTime::SUBGRAPH_OUTPUT
    }

    /// The model, with its inputs and outputs in this order. Fails only where memory cannot be had, or too much would be
    /// needed for constants of equal bytes.
    pub fn finish(
        mut self,
        inputs: Vec<OperandIndex>,
        outputs: Vec<OperandIndex>,
    ) -> io::Result<aidl::Model> {
        for (byte, (longest, operands)) in std::mem::take(&mut self.uniform) {
            if longest > MOST_UNIFORM {
                let why = format!("{longest} equal bytes of a constant, at most {MOST_UNIFORM} may be");
                return Err(io::Error::other(why));
            }
            let offset = self.in_pool(vec![byte; longest].into());
            operands.into_iter().for_each(|operand| self.locations[operand as usize].offset = offset);
        }
        let mut pools = Vec::new();
        if self.pool_size > 0 {
            let shared = Shared::new(self.pool_size)?;
            for (offset, bytes) in &self.pool {
                shared.write(*offset, bytes)?;
            }
            pools.push(shared.memory()?);
        }
        if let Some(mapped) = self.file.filter(|_| !self.in_file.is_empty()) {
            for &operand in &self.in_file {
                self.locations[operand as usize].poolIndex = pools.len() as i32;
            }
            pools.push(mapped.memory()?);
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

impl Mapped<'_> {
    /// Where in the file `bytes` lie, if they are part of it.
    fn offset_of(&self, bytes: &[u8]) -> Option<i64> {
        let (start, all) = (bytes.as_ptr() as usize, self.bytes.as_ptr_range());
        let offset = start.checked_sub(all.start as usize)?;
        (start + bytes.len() <= all.end as usize).then_some(offset as i64)
    }

    fn memory(&self) -> io::Result<aidl::Memory> {
        let fd = Some(ParcelFileDescriptor::new(self.file.try_clone()?));
        let length = i64::try_from(self.bytes.len()).map_err(io::Error::other)?;
        Ok(aidl::Memory::MappableFile(aidl::MappableFile { length, prot: libc::PROT_READ, fd, offset: 0 }))
    }
}

fn operand(info: TensorInfo, lifetime: aidl::OperandLifeTime, location: aidl::DataLocation) -> aidl::Operand {
    let extra = info.channel_quant.map(|quant| {
        let params =
            aidl::SymmPerChannelQuantParams { scales: quant.scales.to_vec(), channelDim: quant.dim as i32 };
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
    use std::io::Write;

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
        assert_eq!(constant(&model, small), [1]);
        assert_eq!(constant(&model, large), [7; 400]);
        assert_eq!(constant(&model, larger), [9; 400]);
    }

    #[test]
    fn constants_of_one_byte_share_their_memory() {
        let mut builder = Builder::default();
        let info = |len| TensorInfo::new(OperandType::TENSOR_BOOL8, &[len]);
        let sizes = [(0, 300), (1, 100), (1, 200), (1, 5000), (0, 301)];
        let operands = sizes.map(|(byte, len)| builder.uniform(info(len), byte, len as usize));
        let (input, output) = (builder.input(info(300)), builder.output(info(300)));
        builder.operation(OperationType::LOGICAL_AND, &[input, operands[0]], &[output]);
        let built = builder.finish(vec![input], vec![output]).unwrap();
        let aidl::Memory::Ashmem(pool) = &built.pools[0] else { panic!("made as shared memory") };
        assert!((5301..6000).contains(&pool.size), "{}", pool.size);
        let model = Model::new(&built).unwrap();
        for ((byte, len), operand) in sizes.into_iter().zip(operands) {
            assert_eq!(constant(&model, operand), vec![byte; len as usize], "{len}");
        }
    }

    fn constant(model: &Model, i: OperandIndex) -> Vec<u8> {
        match &model.main.operands[i as usize].lifetime {
            Lifetime::Constant(constant) => constant.bytes().unwrap().to_vec(),
            other => panic!("operand {i} is {other:?}"),
        }
    }

    #[test]
    fn large_constants_of_a_file_stay_there() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[100]);
        let mut builder = Builder::over(Mapped { file: &file, bytes: &bytes });
        let of_file = builder.constant(info.clone(), &bytes[3..403]);
        let own = builder.constant(info.clone(), vec![9u8; 400]);
        let last = builder.constant(info.clone(), &bytes[600..]);
        let small = builder.int(5);
        let (input, output) = (builder.input(info.clone()), builder.output(info));
        builder.operation(OperationType::FLOOR, &[input], &[output]);
        let built = builder.finish(vec![input], vec![output]).unwrap();
        assert_eq!(built.pools.len(), 2);
        let aidl::Memory::MappableFile(pool) = &built.pools[1] else { panic!("{:?}", built.pools) };
        assert_eq!((pool.length, pool.offset), (1000, 0));
        let model = Model::new(&built).unwrap();
        assert_eq!(constant(&model, of_file), bytes[3..403]);
        assert_eq!(constant(&model, own), [9; 400]);
        assert_eq!(constant(&model, last), bytes[600..]);
        assert_eq!(constant(&model, small), 5i32.to_le_bytes());
    }
}
