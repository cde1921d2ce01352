//! References among subgraphs: none may lead back to itself, and none too deep.

use super::{ModelError, LOOK};
use crate::aidl;
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, reserved, Scratch};

/// Deepest nesting of IF and WHILE that is accepted: each level costs stack when it runs.
pub const MAX_DEPTH: usize = 32;

/// Checks that the references have no cycle and nest no deeper than the driver goes.
pub(super) fn check(model: &aidl::Model, pace: &mut Pace) -> Result<(), ModelError> {
    // depth[i]: how deep subgraph i nests, once known. The walk keeps its own stack: the nesting is a client's.
    let count = model.referenced.len();
    let mut depth = filled(pace.interrupt(), None::<usize>, count)?;
    let mut on_path = filled(pace.interrupt(), false, count)?;
    // No subgraph is on it twice.
    let mut stack = reserved(count)?;
    for root in 0..count {
        stack.clear();
        stack.push((root, targets(&model.referenced[root], pace)?, 0usize));
        on_path[root] = true;
        while let Some((index, edges, deepest)) = stack.last_mut() {
            let Some(next) = edges.pop() else {
                let (index, own) = (*index, *deepest + 1);
                depth[index] = Some(own);
                on_path[index] = false;
                stack.pop();
                if let Some((_, _, parent)) = stack.last_mut() {
                    *parent = own.max(*parent);
                }
                if own > MAX_DEPTH {
                    return Err(ModelError::TooLarge(format!("subgraphs nest deeper than {MAX_DEPTH}")));
                }
                continue;
            };
            match depth.get(next) {
                None => {} // out of range: the operand's own check says so
                Some(Some(known)) => *deepest = (*deepest).max(*known),
                Some(None) if on_path[next] => {
                    return Err(ModelError::invalid(format!(
                        "subgraph {next} refers to itself, directly or through others"
                    )));
                }
                Some(None) => {
                    on_path[next] = true;
                    stack.push((next, targets(&model.referenced[next], pace)?, 0));
                }
            }
        }
    }
    Ok(())
}

/// The subgraphs that `subgraph` refers to.
fn targets(subgraph: &aidl::Subgraph, pace: &mut Pace) -> Result<Scratch<usize>, ModelError> {
    let refers = |operand: &aidl::Operand| operand.lifetime == aidl::OperandLifeTime::SUBGRAPH;
    let mut count = 0;
    pace.each(&subgraph.operands, LOOK, |operand| count += usize::from(refers(operand)))?;
    let mut targets = reserved(count)?;
    pace.each(&subgraph.operands, LOOK, |operand| {
        targets.extend(usize::try_from(operand.location.offset).ok().filter(|_| refers(operand)));
    })?;
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Budget, Counted};
    use crate::ops::{NeverInterrupted, OpError};

    #[test]
    fn a_check_that_a_client_has_no_memory_for_is_an_error() {
        const SUBGRAPHS: usize = 1 << 16;
        let referenced = vec![aidl::Subgraph::default(); SUBGRAPHS];
        let model = aidl::Model { referenced, ..Default::default() };
        let budget = Budget::new(16 << 20);
        let _account = budget.on_account_of(1);
        check(&model, &mut Pace::of(&NeverInterrupted)).unwrap();
        let _most = Counted::take((8 << 20) - SUBGRAPHS).expect("nearly all that it may have");
        let refused = check(&model, &mut Pace::of(&NeverInterrupted));
        assert!(matches!(refused, Err(ModelError::Interrupted(OpError::OutOfMemory(_)))), "{refused:?}");
    }
}
