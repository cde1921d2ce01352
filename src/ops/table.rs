//! The table of operations: what the driver knows of each.

use super::operation_type::for_each_operation;
use super::{
    control_flow, conv, detection, elementwise, lookup, matmul, movement, norm, pool, random, recurrent,
    reduce, resize, search, Operation, OperationType,
};

macro_rules! table {
    ($($code:literal $name:ident in $module:ident;)*) => {
        impl OperationType {
            /// What the driver knows of this operation; `None` if it does not support it.
            pub fn operation(self) -> Option<&'static Operation> {
                match self { $(OperationType::$name => Some(&$module::$name),)* }
            }
        }
    };
}

for_each_operation!(table);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_names_and_operations_agree() {
        assert_eq!(OperationType::ALL.len(), 106);
        for (i, &ty) in OperationType::ALL.iter().enumerate() {
            assert_eq!(ty.code(), i as i32);
            assert_eq!(OperationType::from_code(ty.code()), Some(ty));
            assert_eq!(OperationType::from_name(ty.name()), Some(ty));
            if let Some(operation) = ty.operation() {
                assert_eq!(operation.ty, ty, "{ty} has another operation's entry");
            }
        }
        assert_eq!(OperationType::from_code(106), None);
    }
}
