//! References among subgraphs: none may lead back to itself, and none too deep.

use super::{ModelError, LOOK};
use crate::aidl;
use crate::ops::pace::Pace;

/// Deepest nesting of IF and WHILE that is accepted: each level costs stack when it runs.
pub const MAX_DEPTH: usize = 32;

/// Checks that the references have no cycle and nest no deeper than the driver goes.
pub(super) fn check(model: &aidl::Model, pace: &mut Pace) -> Result<(), ModelError> {
    // depth[i]: how deep subgraph i nests, once known. The walk keeps its own stack: the nesting is a client's.
    let mut depth: Vec<Option<usize>> = vec![None; model.referenced.len()];
    let mut on_path = vec![false; model.referenced.len()];
    for root in 0..model.referenced.len() {
        let mut stack = vec![(root, targets(&model.referenced[root], pace)?, 0usize)];
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
fn targets(subgraph: &aidl::Subgraph, pace: &mut Pace) -> Result<Vec<usize>, ModelError> {
    let mut targets = Vec::new();
    pace.each(&subgraph.operands, LOOK, |operand| {
        if operand.lifetime == aidl::OperandLifeTime::SUBGRAPH {
            targets.extend(usize::try_from(operand.location.offset));
        }
    })?;
    Ok(targets)
}
