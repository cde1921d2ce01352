//! How values of the lower floors go from one process to the other.

use super::codec::{wire_enum, wire_struct, Reader, Wire};
use crate::backend::{
    Argument, BackendError, CacheFileCounts, Capabilities, ClientMemoryKind, CompileOptions, Description,
    DeviceType, Extension, ExtensionOperand, ExtensionOperandType, Info, Interface, KernelName, Outcome,
    OutputShape, Performance, Preference, Priority, Request, StepDescription, SubgraphDescription,
    ValuePlace,
};
use crate::memory::{Access, MemoryError};
use crate::scheduler::{Activity, Noted, OperationId, Span};
use crate::tensor::{ChannelQuant, OperandType, TensorInfo};
use std::io;

wire_struct!(ChannelQuant { scales, dim });
wire_struct!(TensorInfo { ty, dims, scale, zero_point, channel_quant });
wire_struct!(ExtensionOperandType { code, is_tensor, byte_size });
wire_struct!(ExtensionOperand { extension, ty, parameters });
wire_struct!(Extension { name, operand_types });
wire_struct!(Performance { exec_time, power_usage });
wire_struct!(Capabilities { relaxed_scalar, relaxed_tensor, operands, if_performance, while_performance });
wire_struct!(CacheFileCounts { models, data });
wire_struct!(Info { version, device_type, extensions, capabilities, cache_files, depth, waits_for_fences });
wire_struct!(Interface { inputs, outputs, may_loop });
wire_struct!(CompileOptions { preference, priority, just_in_time, dynamic_range });
wire_struct!(Argument { pool, offset, length, dims });
wire_struct!(Request { inputs, outputs });
wire_struct!(OutputShape { dims, sufficient });
wire_struct!(Outcome { outputs, on_device });
wire_struct!(Description { subgraphs });
wire_struct!(SubgraphDescription { steps, places, arena });
wire_struct!(StepDescription { operations, kernel, multiply_adds, bytes });
wire_struct!(OperationId { subgraph, index });
wire_struct!(Span { activity, thread, start, end });
wire_struct!(Noted { spans, missed, threads });

wire_enum!(DeviceType { 0u8 Other {}, 1u8 Cpu {}, 2u8 Gpu {}, 3u8 Accelerator {} });
wire_enum!(Preference { 0u8 LowPower {}, 1u8 FastSingleAnswer {}, 2u8 SustainedSpeed {} });
wire_enum!(Priority { 0u8 Low {}, 1u8 Medium {}, 2u8 High {} });
wire_enum!(Access { 0u8 Read {}, 1u8 Write {}, 2u8 ReadWrite {} });
wire_enum!(ClientMemoryKind { 0u8 Ashmem {}, 1u8 MappableFile {}, 2u8 HardwareBuffer {} });
wire_enum!(KernelName { 0u8 Fast { 0: name }, 1u8 Plain {}, 2u8 Nothing {}, 3u8 Subgraphs {} });
wire_enum!(ValuePlace {
    0u8 Constant { 0: bytes },
    1u8 Packed { 0: bytes },
    2u8 Arena { 0: part },
    3u8 Client { 0: part },
    4u8 Own {},
    5u8 Nowhere {}
});
wire_enum!(Activity { 0u8 Run {}, 1u8 Operation { 0: id }, 2u8 Part { 0: id } });
wire_enum!(BackendError {
    0u8 Unsupported { 0: why },
    1u8 Failed { 0: why },
    2u8 OutOfMemory { 0: bytes },
    3u8 OutOfDeviceMemory { 0: bytes },
    4u8 TooLarge { size: size, limit: limit },
    5u8 Memory { what: what, source: source },
    6u8 DeviceLost { 0: why },
    7u8 DeviceBusy { 0: why },
    8u8 DeadlinePassed {},
    9u8 LoopTimeout { 0: limit },
    10u8 Cancelled {}
});

impl Interface {
    /// The interface as bytes, for a backend to save with a compiled model.
    pub fn to_bytes(&self) -> Vec<u8> {
        super::codec::to_bytes(self)
    }

    /// The interface that `bytes` begin with, as [`to_bytes`](Self::to_bytes) wrote it, and the bytes after it; `None` if
    /// they begin with none.
    pub fn from_start(bytes: &[u8]) -> Option<(Self, &[u8])> {
        super::codec::from_start(bytes)
    }
}

impl Wire for OperandType {
    fn put(&self, out: &mut Vec<u8>) {
        self.code().put(out);
    }

    fn take(from: &mut Reader) -> Option<Self> {
        OperandType::from_code(i32::take(from)?)
    }
}

/// What stands for a sentence that is part of the program, which cannot be sent.
const ELSEWHERE: &str = "it cannot be used so in the backend's process";

impl Wire for MemoryError {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            MemoryError::Invalid(why) => (0u8, why.clone()).put(out),
            MemoryError::Access(_) => 1u8.put(out),
            MemoryError::Unsupported(_) => 2u8.put(out),
            MemoryError::Map(error) => (3u8, error.raw_os_error()).put(out),
            MemoryError::OutOfMemory(bytes) => (4u8, *bytes).put(out),
            MemoryError::Vanished => 5u8.put(out),
            MemoryError::Exhausted(_) => 6u8.put(out),
        }
    }

    fn take(from: &mut Reader) -> Option<Self> {
        Some(match u8::take(from)? {
            0 => MemoryError::Invalid(Wire::take(from)?),
            1 => MemoryError::Access(ELSEWHERE),
            2 => MemoryError::Unsupported(ELSEWHERE),
            3 => {
                let code: Option<i32> = Wire::take(from)?;
                let other = || io::Error::other(ELSEWHERE);
                MemoryError::Map(code.map_or_else(other, io::Error::from_raw_os_error))
            }
            4 => MemoryError::OutOfMemory(Wire::take(from)?),
            5 => MemoryError::Vanished,
            6 => MemoryError::Exhausted(ELSEWHERE),
            _ => return None,
        })
    }
}
