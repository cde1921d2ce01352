//! A profile as tables, for people.

use super::figures::{OperationFigures, Profile};
use crate::tool::error::ToolError;
use crate::tool::print;

/// Operations in the table of the heaviest.
const HEAVIEST: usize = 8;

/// Prints a profile.
pub fn tell(profile: &Profile) -> Result<(), ToolError> {
    let Profile { runs, call_ms, operations_ms, between_ms, around_ms, .. } = profile;
    print::line("")?;
    print::line(format_args!(
        "profile of {runs} runs of their own: median {call_ms:.3} ms a call with the recorder on"
    ))?;
    let widths = Widths::of(&profile.operations);
    widths.head()?;
    profile.operations.iter().try_for_each(|operation| widths.row(operation))?;
    print::line("")?;
    print::line("the heaviest:")?;
    let mut heaviest: Vec<&OperationFigures> = profile.operations.iter().collect();
    heaviest.sort_by(|a, b| b.median_ms.total_cmp(&a.median_ms));
    widths.head()?;
    heaviest.into_iter().take(HEAVIEST).try_for_each(|operation| widths.row(operation))?;
    print::line("")?;
    print::line("by kernel:")?;
    for kernel in &profile.kernels {
        let plain = if kernel.kernel == "plain" { ", for want of a fast kernel" } else { "" };
        print::line(format_args!(
            "  {:<width$}  {:>4} operations  {:>9.3} ms  {:>5.1} %{plain}",
            kernel.kernel,
            kernel.operations,
            kernel.ms,
            kernel.share,
            width = widths.kernel
        ))?;
    }
    print::line(format_args!(
        "in operations {operations_ms:.3} ms; outside of them {between_ms:.3} ms of the execution, \
         {around_ms:.3} ms of the call around it"
    ))?;
    if !profile.not_run.is_empty() {
        let list: Vec<_> = profile.not_run.iter().map(usize::to_string).collect();
        print::line(format_args!("not run, as the compilation has their results: {}", list.join(", ")))?;
    }
    if let Some(peaks) = &profile.peaks {
        let threads = if peaks.threads == 1 { "thread" } else { "threads" };
        print::line(format_args!(
            "peaks of this machine on {} {threads}, the best of several times 10 ms: {:.0} Gop/s of floats and {:.0} \
             of bytes (the products' micro-kernels on operands in near caches), copies of {:.0} GB/s in a near cache \
             and {:.1} in memory",
            peaks.threads, peaks.float_gops, peaks.byte_gops, peaks.cached_gbytes, peaks.memory_gbytes
        ))?;
    }
    if profile.missed > 0 {
        print::line(format_args!(
            "{} spans were too many to be kept: the times are too small",
            profile.missed
        ))?;
    }
    print::line(
        "Gop/s counts a multiply-add as two; GB/s counts each operand once; times are medians and need not add up",
    )
}

/// How wide the columns of names are.
struct Widths {
    ty: usize,
    kernel: usize,
}

impl Widths {
    fn of(operations: &[OperationFigures]) -> Self {
        let longest = |name: fn(&OperationFigures) -> usize, least: usize| {
            operations.iter().map(name).max().unwrap_or(0).max(least)
        };
        Widths { ty: longest(|o| o.ty.len(), 4), kernel: longest(|o| o.kernel.len(), 6) }
    }

    fn head(&self) -> Result<(), ToolError> {
        print::line(format_args!(
            "{:>5} {:>8}  {:<ty$}  {:<kernel$} {:>9} {:>6} {:>8} {:>5} {:>7}",
            "index",
            "operator",
            "type",
            "kernel",
            "ms",
            "%",
            "Gop/s",
            "peak",
            "GB/s",
            ty = self.ty,
            kernel = self.kernel
        ))
    }

    fn row(&self, operation: &OperationFigures) -> Result<(), ToolError> {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
        let percent = operation.of_peak.map_or(String::new(), |value| format!("{value:.0} %"));
        let row = format!(
            "{:>5} {:>8}  {:<ty$}  {:<kernel$} {:>9.4} {:>6.1} {:>8} {:>5} {:>7}",
            operation.operation,
            operation.operator,
            operation.ty,
            operation.kernel,
            operation.median_ms,
            operation.share,
            number(operation.gops),
            percent,
            number(operation.gbytes),
            ty = self.ty,
            kernel = self.kernel
        );
        print::line(row.trim_end())
    }
}
