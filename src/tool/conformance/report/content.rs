//! What a report holds, and its form as JSON.

use super::super::account::{Account, Counts, Line, Lost};
use super::super::paths::Executions;
use super::super::probe::Available;
use crate::tool::error::ToolError;
use crate::tool::facts::Facts;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// How models that test an operation on a type fared.
#[derive(Serialize)]
pub struct ByOperation<'a> {
    pub operation: &'a str,
    #[serde(rename = "type")]
    pub ty: &'a str,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// Of all its models, one after the other.
    pub seconds: f64,
}

/// All of it. Fields are only ever added: `--diff` reads reports of older builds.
#[derive(Serialize)]
pub struct Report<'a> {
    pub tool: String,
    /// Where the driver was.
    pub service: String,
    /// Seconds since 1970.
    pub when: u64,
    pub driver: Option<&'a Facts>,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    pub seconds: f64,
    pub executions: &'a Executions,
    pub client_threads: usize,
    pub suites: BTreeMap<&'static str, &'a Counts>,
    pub operations: Vec<ByOperation<'a>>,
    pub interface_version: i32,
    pub paths: Vec<&'static str>,
    pub left_out: &'a [String],
    pub missing_operations: &'a BTreeMap<String, usize>,
    pub skips: &'a BTreeMap<String, usize>,
    /// Times that the driver died or hung.
    pub losses: &'a [Lost],
    /// Models that were to be run and were not, as the driver was lost for good.
    pub not_run: usize,
    pub results: &'a [Line],
}

impl<'a> Report<'a> {
    pub fn new(
        account: &'a Account,
        available: &'a Available,
        facts: Option<&'a Facts>,
        service: String,
        tasks: usize,
    ) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let operations = account.operations.iter().map(|((operation, ty), counts)| ByOperation {
            operation,
            ty,
            passed: counts.passed,
            failed: counts.failed,
            skipped: counts.skipped,
            seconds: counts.seconds,
        });
        Report {
            tool: format!("nnhal {}", env!("CARGO_PKG_VERSION")),
            service,
            when: now.as_secs(),
            driver: facts,
            passed: account.total.passed,
            failed: account.total.failed,
            skipped: account.total.skipped,
            seconds: account.total.seconds,
            executions: &account.total.executions,
            client_threads: account.jobs,
            suites: account.suites.iter().map(|(suite, counts)| (suite.name(), counts)).collect(),
            operations: operations.collect(),
            interface_version: available.interface_version,
            paths: available.paths.iter().map(|path| path.name()).collect(),
            left_out: &available.left_out,
            missing_operations: &account.missing,
            skips: &account.skips,
            losses: &account.losses,
            not_run: tasks.saturating_sub(account.lines.len()),
            results: &account.lines,
        }
    }

    /// Writes the whole report as one JSON object.
    pub fn write_json(&self, path: &Path) -> Result<(), ToolError> {
        let json = serde_json::to_vec(self).map_err(|why| ToolError::Failed(why.to_string()))?;
        std::fs::write(path, json).map_err(|why| ToolError::File { path: path.into(), why })
    }
}
