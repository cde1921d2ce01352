//! Private copies of constants, made part by part: how large they are is the client's choice.

use super::error::ModelError;
use crate::memory::{AlignedBuf, ClientSlice, MemoryError};
use crate::ops::{by_parts, Interrupt};
use crate::scheduler::{Copier, CopyError};
use std::ops::Range;
use std::sync::Arc;

/// A copy of what is a client's.
pub(super) fn private(slice: &ClientSlice, copier: &mut Copier) -> Result<Arc<AlignedBuf>, ModelError> {
    match copier.to_private(slice) {
        Ok(copy) => Ok(Arc::new(copy)),
        Err(CopyError::Memory(source)) => Err(failed(source)),
        Err(CopyError::Stopped(why)) => Err(why.into()),
    }
}

/// A copy of so many bytes, into which `read` puts a part at a time.
pub(super) fn copied(
    length: usize,
    interrupt: &dyn Interrupt,
    mut read: impl FnMut(&mut [u8], Range<usize>) -> Result<(), MemoryError>,
) -> Result<Arc<AlignedBuf>, ModelError> {
    let copy = AlignedBuf::zeroed(length);
    let mut copy = copy.ok_or_else(|| failed(MemoryError::OutOfMemory(length)))?;
    by_parts(interrupt, length, |part| read(&mut copy[part.clone()], part).map_err(failed))?;
    Ok(Arc::new(copy))
}

fn failed(source: MemoryError) -> ModelError {
    ModelError::Memory { what: "a constant".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{memory_of_a_device, Mapping};
    use crate::model::{Constant, CountedModel, Lifetime, Model, Operand, Subgraph};
    use crate::ops::{NeverInterrupted, OpError};
    use crate::tensor::{OperandType, TensorInfo};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often its turn is lent.
    #[derive(Default)]
    struct Lending(AtomicUsize);

    impl Interrupt for Lending {
        fn check(&self) -> Result<(), OpError> {
            Ok(())
        }

        fn before_waiting(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn slice(memory: Mapping) -> ClientSlice {
        ClientSlice::whole(Arc::new(memory))
    }

    fn graph(constants: &[&ClientSlice]) -> Subgraph {
        let operand = |slice: &&ClientSlice| Operand {
            extension: None,
            info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[slice.len() as u32]),
            lifetime: Lifetime::Constant(Constant::Client((*slice).clone())),
        };
        let operands = constants.iter().map(operand).collect();
        Subgraph { operands, operations: vec![], inputs: vec![], outputs: vec![] }
    }

    fn private_of(graph: &Subgraph) -> Vec<Option<&Arc<AlignedBuf>>> {
        fn bytes(operand: &Operand) -> Option<&Arc<AlignedBuf>> {
            match &operand.lifetime {
                Lifetime::Constant(Constant::Private(bytes)) => Some(bytes),
                _ => None,
            }
        }
        graph.operands.iter().map(bytes).collect()
    }

    #[test]
    fn what_a_device_may_be_busy_with_is_copied_once_and_without_a_turn() {
        let (busy, plain) = (slice(memory_of_a_device()), slice(Mapping::anonymous(5000).unwrap()));
        busy.write(&vec![7; busy.len()]).unwrap();
        let part = busy.part(100, 2000).unwrap();
        let (main, referenced) = (graph(&[&busy, &plain, &busy]), vec![graph(&[&part, &busy])]);
        let (model, lending) = (Model { main, referenced, relaxed: false }, Lending::default());
        let mut model = CountedModel::new(model, &NeverInterrupted).unwrap();
        assert!(model.copy_busy(&lending).unwrap());
        assert_eq!(lending.0.load(Ordering::Relaxed), 2);
        let (main, other) = (private_of(&model.main), private_of(&model.referenced[0]));
        let whole = main[0].unwrap();
        assert!(whole.len() == busy.len() && whole.iter().all(|&byte| byte == 7));
        assert!(main[1].is_none(), "no device uses it");
        assert!(Arc::ptr_eq(main[2].unwrap(), whole) && Arc::ptr_eq(other[1].unwrap(), whole));
        assert_eq!(other[0].unwrap()[..], whole[100..2100]);
        assert!(!model.copy_busy(&lending).unwrap());
        assert_eq!(lending.0.load(Ordering::Relaxed), 2);
        // As it is decoded, too.
        for (slice, lent) in [(&busy, 1), (&plain, 0)] {
            let lending = Lending::default();
            private(slice, &mut Copier::new(&lending)).unwrap();
            assert_eq!(lending.0.into_inner(), lent);
        }
    }
}
