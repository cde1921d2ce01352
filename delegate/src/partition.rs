//! Which nodes the driver takes, and in which groups.

use crate::describe::Described;
use crate::link::Link;
use crate::options::Options;
use crate::runtime::{Partition, Runtime};
use crate::work::{part, Ends, NotPrepared, Work};
use nnhal::tflite::{import_graph, refusal, ImportError};
use std::collections::BTreeMap;

/// A partition that the driver has compiled, and whose nodes it is.
pub struct Ready {
    pub nodes: Vec<usize>,
    pub work: Work,
    pub ends: Ends,
}

/// What becomes of the graph's nodes.
pub struct Outcome {
    pub ready: Vec<Ready>,
    /// Of each operator of the graph, why it stays behind.
    pub left: Vec<Option<String>>,
}

/// How often the groups may be drawn anew because something in them could not be had.
const ROUNDS: usize = 8;

/// Has the driver compile all that it takes of a graph.
pub fn partition(
    runtime: &Runtime,
    described: &Described,
    (link, options): (&Link, &Options),
    kept: &mut dyn FnMut(&[u8; 32]) -> Option<Work>,
) -> Result<Outcome, String> {
    let mut left = refused_by_importer(described);
    ask(described, link, options, &mut left)?;
    for _ in 0..ROUNDS {
        let nodes: Vec<usize> = taken(&left).map(|i| described.nodes[i]).collect();
        if nodes.is_empty() {
            return Ok(Outcome { ready: Vec::new(), left });
        }
        let groups = runtime.partitions(&nodes)?;
        let count = nodes_left(&left);
        leave_small_ones(&groups, described, options, &mut left);
        if nodes_left(&left) != count {
            continue;
        }
        let mut ready = Vec::new();
        for group in &groups {
            match prepare(group, described, (link, options), kept) {
                Ok(done) => ready.push(done),
                Err(NotPrepared::NoDriver(why)) => return Err(why),
                Err(NotPrepared::Refused { index: Some(i), why }) => left[i] = Some(why),
                Err(NotPrepared::Refused { index: None, why }) => {
                    operators(group, described).for_each(|i| left[i] = Some(why.clone()));
                }
            }
        }
        if ready.len() == groups.len() {
            return Ok(Outcome { ready, left });
        }
    }
    let why = "the groups around it could not be compiled";
    left.iter_mut().for_each(|left| {
        left.get_or_insert_with(|| why.into());
    });
    Ok(Outcome { ready: Vec::new(), left })
}

/// The operators that nothing speaks against.
fn taken(left: &[Option<String>]) -> impl Iterator<Item = usize> + '_ {
    (0..left.len()).filter(|&i| left[i].is_none())
}

fn nodes_left(left: &[Option<String>]) -> usize {
    left.iter().flatten().count()
}

/// The places in the graph of a group's nodes.
fn operators<'g>(group: &'g Partition, described: &'g Described) -> impl Iterator<Item = usize> + 'g {
    (0..described.nodes.len()).filter(|&i| group.nodes.contains(&described.nodes[i]))
}

fn refused_by_importer(described: &Described) -> Vec<Option<String>> {
    let graph = with_states(described);
    let mut readers = vec![0; graph.tensors.len()];
    for &i in graph.operators.iter().flat_map(|operator| operator.inputs.iter().flatten()) {
        readers[i] += 1;
    }
    let judge = |i: usize| {
        let operator = &graph.operators[i];
        // One partition would not see what another, or LiteRT, has written there.
        if operator.inputs.iter().flatten().any(|&i| graph.states.contains(&i) && readers[i] > 1) {
            return Some("it shares a variable with another operator".into());
        }
        let mut tensors = operator.inputs.iter().flatten().chain(&operator.outputs);
        if tensors.any(|&tensor| described.dynamic[tensor]) {
            return Some("the size of one of its tensors is known only when it runs".into());
        }
        refusal(&graph, i)
    };
    (0..graph.operators.len()).map(judge).collect()
}

/// The graph with all its variable tensors kept, as every partition keeps its own.
fn with_states<'a>(described: &'a Described) -> nnhal::tflite::graph::Graph<'a> {
    let all: Vec<usize> = (0..described.nodes.len()).collect();
    let inputs: Vec<usize> = (0..described.graph.tensors.len()).collect();
    part(&described.graph, &all, (&inputs, &[])).0
}

/// Asks the driver about everything that could be mapped, as one model.
fn ask(
    described: &Described,
    link: &Link,
    options: &Options,
    left: &mut [Option<String>],
) -> Result<(), String> {
    let driver = link.driver()?;
    loop {
        let wanted: Vec<usize> = taken(left).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (inputs, outputs) = boundary(described, &wanted);
        let (graph, _) = part(&described.graph, &wanted, (&inputs, &outputs));
        let mut imported = match import_graph(&graph) {
            Ok(imported) => imported,
            Err(ImportError::Operator { index, why, .. }) => {
                left[wanted[index]] = Some(why);
                continue;
            }
            Err(why) => return Err(why.to_string()),
        };
        imported.model.relaxComputationFloat32toFloat16 = options.allow_fp16;
        let answer = driver.device().getSupportedOperations(&imported.model);
        let supported = driver.answer("getSupportedOperations", answer).map_err(|why| why.to_string())?;
        for (&i, operations) in wanted.iter().zip(&imported.operations) {
            if !operations.clone().all(|operation| supported.get(operation) == Some(&true)) {
                left[i] = Some("the driver does not take this use of it".into());
            }
        }
        return Ok(());
    }
}

/// What some operators read that they do not write, and what they write that others read, or nobody.
fn boundary(described: &Described, wanted: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let graph = &described.graph;
    let count = graph.tensors.len();
    let (mut written, mut read, mut read_by_others) =
        (vec![false; count], vec![false; count], vec![false; count]);
    for (i, operator) in graph.operators.iter().enumerate() {
        let is_wanted = wanted.binary_search(&i).is_ok();
        for &tensor in operator.inputs.iter().flatten() {
            if is_wanted {
                read[tensor] = true;
            } else {
                read_by_others[tensor] = true;
            }
        }
        if is_wanted {
            operator.outputs.iter().for_each(|&tensor| written[tensor] = true);
        }
    }
    let inputs = (0..count).filter(|&i| read[i] && !written[i]).collect();
    let outputs = (0..count).filter(|&i| written[i] && (read_by_others[i] || !read[i])).collect();
    (inputs, outputs)
}

/// Leaves groups that have too few nodes, and the smallest of too many groups.
fn leave_small_ones(
    groups: &[Partition],
    described: &Described,
    options: &Options,
    left: &mut [Option<String>],
) {
    let mut by_size: Vec<&Partition> = groups.iter().collect();
    by_size.sort_by_key(|group| std::cmp::Reverse(group.nodes.len()));
    for (rank, group) in by_size.into_iter().enumerate() {
        let why = if group.nodes.len() < options.min_nodes_per_partition {
            "its partition has fewer nodes than min_nodes_per_partition"
        } else if rank >= options.max_partitions {
            "there are max_partitions larger ones"
        } else {
            continue;
        };
        operators(group, described).for_each(|i| left[i] = Some(why.into()));
    }
}

fn prepare(
    group: &Partition,
    described: &Described,
    to: (&Link, &Options),
    kept: &mut dyn FnMut(&[u8; 32]) -> Option<Work>,
) -> Result<Ready, NotPrepared> {
    let operators: Vec<usize> = operators(group, described).collect();
    let (work, ends) = Work::prepare(&described.graph, &operators, group, to, |key| kept(key))?;
    Ok(Ready { nodes: group.nodes.clone(), work, ends })
}

/// One line on what stays behind and why; `None` where nothing does.
pub fn told(outcome: &Outcome, described: &Described) -> Option<String> {
    let mut reasons: BTreeMap<&str, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for (i, why) in outcome.left.iter().enumerate() {
        if let Some(why) = why {
            let nodes =
                reasons.entry(why).or_default().entry(&described.graph.operators[i].name).or_default();
            nodes.push(described.nodes[i].to_string());
        }
    }
    let all = described.nodes.len();
    let taken = all - nodes_left(&outcome.left);
    let named = |names: &BTreeMap<&str, Vec<String>>| {
        let names: Vec<String> =
            names.iter().map(|(name, nodes)| format!("{name} (node {})", nodes.join(", "))).collect();
        names.join(", ")
    };
    let reasons: Vec<String> =
        reasons.iter().map(|(why, names)| format!("{}: {why}", named(names))).collect();
    let partitions = outcome.ready.len();
    (!reasons.is_empty()).then(|| {
        let (reasons, plural) = (reasons.join("; "), if partitions == 1 { "" } else { "s" });
        format!("{taken} of {all} nodes run on the driver, in {partitions} partition{plural}; LiteRT keeps {reasons}")
    })
}
