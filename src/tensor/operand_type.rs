//! The operand types of NNAPI, with the codes and names of the interface.

/// Type of an operand. Names and codes are those of the AIDL enum.
#[allow(non_camel_case_types)] // the interface's own spelling
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperandType {
    FLOAT32 = 0,
    INT32 = 1,
    UINT32 = 2,
    TENSOR_FLOAT32 = 3,
    TENSOR_INT32 = 4,
    TENSOR_QUANT8_ASYMM = 5,
    BOOL = 6,
    TENSOR_QUANT16_SYMM = 7,
    TENSOR_FLOAT16 = 8,
    TENSOR_BOOL8 = 9,
    FLOAT16 = 10,
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11,
    TENSOR_QUANT16_ASYMM = 12,
    TENSOR_QUANT8_SYMM = 13,
    TENSOR_QUANT8_ASYMM_SIGNED = 14,
    SUBGRAPH = 15,
}

use OperandType::*;

impl OperandType {
    /// All operand types, in order of their codes.
    pub const ALL: [OperandType; 16] = [
        FLOAT32,
        INT32,
        UINT32,
        TENSOR_FLOAT32,
        TENSOR_INT32,
        TENSOR_QUANT8_ASYMM,
        BOOL,
        TENSOR_QUANT16_SYMM,
        TENSOR_FLOAT16,
        TENSOR_BOOL8,
        FLOAT16,
        TENSOR_QUANT8_SYMM_PER_CHANNEL,
        TENSOR_QUANT16_ASYMM,
        TENSOR_QUANT8_SYMM,
        TENSOR_QUANT8_ASYMM_SIGNED,
        SUBGRAPH,
    ];

    /// The type with this interface code, if there is one.
    pub fn from_code(code: i32) -> Option<Self> {
        usize::try_from(code).ok().and_then(|i| Self::ALL.get(i).copied())
    }

    pub fn code(self) -> i32 {
        self as i32
    }

    /// The type with this interface name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// The interface's name, for messages and documentation.
    pub fn name(self) -> &'static str {
        match self {
            FLOAT32 => "FLOAT32",
            INT32 => "INT32",
            UINT32 => "UINT32",
            TENSOR_FLOAT32 => "TENSOR_FLOAT32",
            TENSOR_INT32 => "TENSOR_INT32",
            TENSOR_QUANT8_ASYMM => "TENSOR_QUANT8_ASYMM",
            BOOL => "BOOL",
            TENSOR_QUANT16_SYMM => "TENSOR_QUANT16_SYMM",
            TENSOR_FLOAT16 => "TENSOR_FLOAT16",
            TENSOR_BOOL8 => "TENSOR_BOOL8",
            FLOAT16 => "FLOAT16",
            TENSOR_QUANT8_SYMM_PER_CHANNEL => "TENSOR_QUANT8_SYMM_PER_CHANNEL",
            TENSOR_QUANT16_ASYMM => "TENSOR_QUANT16_ASYMM",
            TENSOR_QUANT8_SYMM => "TENSOR_QUANT8_SYMM",
            TENSOR_QUANT8_ASYMM_SIGNED => "TENSOR_QUANT8_ASYMM_SIGNED",
            SUBGRAPH => "SUBGRAPH",
        }
    }

    /// Bytes of one element; `None` for SUBGRAPH, which has no value.
    pub fn element_size(self) -> Option<usize> {
        match self {
            FLOAT32 | INT32 | UINT32 | TENSOR_FLOAT32 | TENSOR_INT32 => Some(4),
            FLOAT16 | TENSOR_FLOAT16 | TENSOR_QUANT16_SYMM | TENSOR_QUANT16_ASYMM => Some(2),
            BOOL
            | TENSOR_BOOL8
            | TENSOR_QUANT8_ASYMM
            | TENSOR_QUANT8_SYMM
            | TENSOR_QUANT8_SYMM_PER_CHANNEL
            | TENSOR_QUANT8_ASYMM_SIGNED => Some(1),
            SUBGRAPH => None,
        }
    }

    /// Whether operands of this type have no dimensions.
    pub fn is_scalar(self) -> bool {
        matches!(self, FLOAT32 | INT32 | UINT32 | BOOL | FLOAT16 | SUBGRAPH)
    }

    pub fn is_tensor(self) -> bool {
        !self.is_scalar()
    }

    /// TENSOR_FLOAT32, TENSOR_FLOAT16 or their scalars.
    pub fn is_float(self) -> bool {
        matches!(self, FLOAT32 | FLOAT16 | TENSOR_FLOAT32 | TENSOR_FLOAT16)
    }

    /// Whether values of this type never steer an execution: no shape, axis, index or choice is of it. (A FLOAT32
    /// scalar may be a scale that shapes follow from, but no large value is.)
    pub fn is_plain_data(self) -> bool {
        self.is_float() || self.is_quant8_asymm() || self == TENSOR_QUANT8_SYMM_PER_CHANNEL
    }

    /// The two 8-bit types with a zero point, on which most quantised operations work.
    pub fn is_quant8_asymm(self) -> bool {
        matches!(self, TENSOR_QUANT8_ASYMM | TENSOR_QUANT8_ASYMM_SIGNED)
    }

    /// Smallest and largest integer that a quantised or integer element holds; `None` for floats, booleans, SUBGRAPH.
    pub fn integer_range(self) -> Option<(i32, i32)> {
        match self {
            TENSOR_QUANT8_ASYMM => Some((0, 255)),
            TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM | TENSOR_QUANT8_SYMM_PER_CHANNEL => {
                Some((-128, 127))
            }
            TENSOR_QUANT16_SYMM => Some((-32768, 32767)),
            TENSOR_QUANT16_ASYMM => Some((0, 65535)),
            INT32 | TENSOR_INT32 => Some((i32::MIN, i32::MAX)),
            _ => None,
        }
    }
}

impl std::fmt::Display for OperandType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for ty in OperandType::ALL {
            assert_eq!(OperandType::from_code(ty.code()), Some(ty));
            assert_eq!(OperandType::from_name(ty.name()), Some(ty));
        }
        assert_eq!(OperandType::from_code(-1), None);
        assert_eq!(OperandType::from_code(16), None);
    }
}
