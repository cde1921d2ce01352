//! What watched runs come to: medians by operation, shares, and rates beside the machine's peaks.

use super::record::{Recording, Run};
use crate::backend::{Activity, KernelName, Peaks, StepDescription};
use crate::tensor::OperandType;
use crate::tflite::Imported;
use crate::tool::naming;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Where the time of a model's runs goes. All times are medians over the runs, in milliseconds: they need not add up.
#[derive(Debug, Serialize)]
pub struct Profile {
    pub runs: usize,
    /// From the call to its answer, as the client sees it.
    pub call_ms: f64,
    /// All operations together.
    pub operations_ms: f64,
    /// In the driver's execution, but in no operation.
    pub between_ms: f64,
    /// In the call, but not in the execution: transport, checks, waiting for a turn.
    pub around_ms: f64,
    /// In the order of execution.
    pub operations: Vec<OperationFigures>,
    /// By kernel, the heaviest first.
    pub kernels: Vec<KernelFigures>,
    /// Operations that no run needs: their results were computed by the compilation, or nobody reads them.
    pub not_run: Vec<usize>,
    pub peaks: Option<PeakFigures>,
    /// Spans that were too many to be kept; figures are too small where there are any.
    pub missed: u64,
}

/// An operation, or several that run as one.
#[derive(Clone, Debug, Serialize)]
pub struct OperationFigures {
    /// Its index in the model.
    pub operation: usize,
    /// Those that run with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fused: Vec<usize>,
    /// The file's operator that it comes from.
    pub operator: usize,
    #[serde(rename = "type")]
    pub ty: String,
    pub kernel: String,
    pub median_ms: f64,
    /// Of the call's time, in percent.
    pub share: f64,
    pub multiply_adds: Option<u64>,
    pub bytes: Option<u64>,
    /// Billions of operations in a second: two a multiply-add.
    pub gops: Option<f64>,
    /// The same as percents of the peak.
    pub of_peak: Option<f64>,
    /// Billions of bytes of operands in a second.
    pub gbytes: Option<f64>,
}

/// All operations that one kind of kernel runs.
#[derive(Debug, Serialize)]
pub struct KernelFigures {
    pub kernel: String,
    pub operations: usize,
    pub ms: f64,
    pub share: f64,
}

/// The machine's peaks.
#[derive(Debug, Serialize)]
pub struct PeakFigures {
    pub threads: usize,
    pub float_gops: f64,
    pub byte_gops: f64,
    pub cached_gbytes: f64,
    pub memory_gbytes: f64,
}

impl Profile {
    /// What `recording` comes to, beside the peaks of the machine where those are known.
    pub fn new(recording: &Recording, imported: &Imported, peaks: Option<Peaks>) -> Self {
        let runs: Vec<_> = recording.runs.iter().map(RunTimes::new).collect();
        let median_of = |time: &dyn Fn(&RunTimes) -> f64| median(runs.iter().map(time).collect());
        let call_ms = median_of(&|run| run.call);
        let main = recording.description.subgraphs.first();
        let steps = main.map_or(&[][..], |main| &main.steps);
        let operations: Vec<_> = steps
            .iter()
            .map(|step| {
                let index = step.operations.first().copied().unwrap_or(0);
                // Operations that go together are noted as the first of them, or one by one.
                let ms = median_of(&|run| step.operations.iter().filter_map(|i| run.operations.get(i)).sum());
                figures(step, (index, ms), call_ms, imported, peaks.as_ref())
            })
            .collect();
        let run = |index: usize| steps.iter().any(|step| step.operations.contains(&index));
        Profile {
            runs: runs.len(),
            call_ms,
            operations_ms: median_of(&RunTimes::all),
            between_ms: median_of(&|run| run.execution - run.all()),
            around_ms: median_of(&|run| run.call - run.execution),
            kernels: kernels(&operations, call_ms),
            operations,
            not_run: (0..imported.model.main.operations.len()).filter(|&index| !run(index)).collect(),
            peaks: peaks.map(|peaks| PeakFigures {
                threads: peaks.threads,
                float_gops: 2e-9 * peaks.float_multiply_adds,
                byte_gops: 2e-9 * peaks.byte_multiply_adds,
                cached_gbytes: 1e-9 * peaks.cached_bytes,
                memory_gbytes: 1e-9 * peaks.memory_bytes,
            }),
            missed: recording.missed,
        }
    }
}

/// The times of one run, in milliseconds.
struct RunTimes {
    call: f64,
    execution: f64,
    /// Of the main subgraph, by index.
    operations: HashMap<usize, f64>,
}

impl RunTimes {
    fn new(run: &Run) -> Self {
        let mut times =
            RunTimes { call: 1e3 * run.call.as_secs_f64(), execution: 0.0, operations: HashMap::new() };
        for span in &run.noted.spans {
            let ms = span.end.saturating_sub(span.start) as f64 / 1e6;
            match span.activity {
                Activity::Run => times.execution += ms,
                // Those of other subgraphs lie within these.
                Activity::Operation(id) if id.subgraph == 0 => {
                    *times.operations.entry(id.index as usize).or_default() += ms;
                }
                _ => {}
            }
        }
        times
    }

    fn all(&self) -> f64 {
        self.operations.values().sum()
    }
}

fn figures(
    step: &StepDescription,
    (index, ms): (usize, f64),
    call_ms: f64,
    imported: &Imported,
    peaks: Option<&Peaks>,
) -> OperationFigures {
    let rate = |amount: f64| Some(amount / (ms * 1e6)).filter(|rate| rate.is_finite());
    let gops = step.multiply_adds.and_then(|count| rate(2.0 * count as f64));
    let peak = peaks.and_then(|peaks| match first_input(imported, index)? {
        ty if ty.is_float() => Some(2e-9 * peaks.float_multiply_adds),
        ty if ty.is_quant8_asymm() => Some(2e-9 * peaks.byte_multiply_adds),
        _ => None,
    });
    let moved = step.bytes.filter(|_| step.kernel != KernelName::Nothing);
    OperationFigures {
        operation: index,
        fused: step.operations.iter().copied().skip(1).collect(),
        operator: naming::operator(imported, index),
        ty: naming::operation_type(imported, index),
        kernel: step.kernel.to_string(),
        median_ms: ms,
        share: share(ms, call_ms),
        multiply_adds: step.multiply_adds,
        bytes: step.bytes,
        gops,
        of_peak: gops.zip(peak).map(|(gops, peak)| 100.0 * gops / peak),
        gbytes: moved.and_then(|bytes| rate(bytes as f64)),
    }
}

fn first_input(imported: &Imported, index: usize) -> Option<OperandType> {
    let main = &imported.model.main;
    let operand = *main.operations.get(index)?.inputs.first()?;
    OperandType::from_code(main.operands.get(usize::try_from(operand).ok()?)?.r#type.0)
}

fn kernels(operations: &[OperationFigures], call_ms: f64) -> Vec<KernelFigures> {
    let mut sums: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
    for operation in operations {
        let (count, ms) = sums.entry(&operation.kernel).or_default();
        (*count, *ms) = (*count + 1, *ms + operation.median_ms);
    }
    let figures = |(kernel, (operations, ms)): (&str, (usize, f64))| KernelFigures {
        kernel: kernel.into(),
        operations,
        ms,
        share: share(ms, call_ms),
    };
    let mut kernels: Vec<_> = sums.into_iter().map(figures).collect();
    kernels.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    kernels
}

fn share(ms: f64, all: f64) -> f64 {
    if all > 0.0 {
        100.0 * ms / all
    } else {
        0.0
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => (values[len / 2 - 1] + values[len / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
