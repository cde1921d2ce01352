//! The line of JSON of `nnhal run`; its fields are stable.

use super::report::{predictions, Prediction};
use super::values;
use crate::client::cache_files::Found;
use crate::tflite::Port;
use crate::tool::error::ToolError;
use crate::tool::print;
use serde::Serialize;
use std::time::Duration;

/// Values and classes of an output that are told; --output-dir has all.
const VALUES: usize = 8;
const CLASSES: usize = 5;

/// What is told of runs: the outputs of one input, or a line for each of several.
#[derive(Default)]
pub struct Told {
    pub outputs: Vec<Output>,
    pub inputs: Vec<Input>,
    pub accuracy: Option<Accuracy>,
}

/// The whole line.
#[derive(Serialize)]
struct Line<'t> {
    compile_ms: f64,
    /// Whether the model came from the cache; null without one.
    cache_hit: Option<bool>,
    runs: usize,
    median_ms: f64,
    fastest_ms: f64,
    slowest_ms: f64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    outputs: &'t [Output],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    inputs: &'t [Input],
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<&'t Accuracy>,
}

#[derive(Serialize)]
pub struct Output {
    name: String,
    #[serde(rename = "type")]
    ty: &'static str,
    dims: Vec<u32>,
    /// The first of them; null for what is no number.
    values: Vec<f32>,
    /// The best, where the output looks like scores of classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<Class>,
}

#[derive(Serialize)]
pub struct Class {
    class: usize,
    score: f32,
}

/// One of several inputs.
#[derive(Serialize)]
pub struct Input {
    pub file: String,
    /// Null where the output is no scores of classes.
    pub best: Option<Class>,
    /// What the file's name says that it is.
    pub label: Option<usize>,
}

/// How many of the inputs with labels were predicted right.
#[derive(Serialize)]
pub struct Accuracy {
    pub right: usize,
    pub labelled: usize,
}

impl From<Prediction> for Class {
    fn from((class, score): Prediction) -> Self {
        Class { class, score }
    }
}

/// What is told of an output.
pub fn output(port: &Port, bytes: &[u8]) -> Output {
    let classes = predictions(port, bytes).unwrap_or_default();
    Output {
        name: port.name.clone(),
        ty: port.info.ty.name(),
        dims: port.dims.to_vec(),
        values: values::decode(&port.info, bytes).into_iter().take(VALUES).collect(),
        classes: classes.into_iter().take(CLASSES).map(Class::from).collect(),
    }
}

impl Told {
    /// Prints the line; `times` are sorted.
    pub fn print(
        &self,
        compile: Duration,
        found: Option<Found>,
        times: &[Duration],
    ) -> Result<(), ToolError> {
        let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        let line = Line {
            compile_ms: ms(Some(&compile)),
            cache_hit: found.map(|found| matches!(found, Found::Hit)),
            runs: times.len(),
            median_ms: ms(times.get(times.len() / 2)),
            fastest_ms: ms(times.first()),
            slowest_ms: ms(times.last()),
            outputs: &self.outputs,
            inputs: &self.inputs,
            accuracy: self.accuracy.as_ref(),
        };
        print::json(&line)
    }
}
