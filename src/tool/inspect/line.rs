//! What is told of an operation: a line of print, an object of JSON.

use super::tensors::Place;
use serde::Serialize;

/// An operation of the model.
#[derive(Serialize)]
pub struct Line {
    pub operation: usize,
    /// The file's operator that it comes from.
    pub operator: usize,
    #[serde(rename = "type")]
    pub ty: String,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub taken: bool,
    /// Why not, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What runs it, where the driver tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiply_adds: Option<u64>,
    /// Of its operands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Where its operands lie, where the driver tells.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_places: Vec<Place>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_places: Vec<Place>,
    /// If --profile asked for it: the median of its times, and its percents of the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}
