//! What a driver says of itself, asked once: for `nnhal info`, and for the head of a report.

use super::error::ToolError;
use crate::aidl::{DeviceType, PerformanceInfo};
use crate::client::Driver;
use crate::tensor::OperandType;
use serde::Serialize;

/// A driver's own words.
#[derive(Clone, Serialize)]
pub struct Facts {
    pub version: String,
    pub interface: i32,
    pub interface_hash: String,
    /// The kind of device.
    #[serde(rename = "type")]
    pub ty: String,
    pub model_cache_files: i32,
    pub data_cache_files: i32,
    pub extensions: Vec<String>,
    /// What is said of speed and power, relative to the processor: less is better.
    pub performance: Vec<Performance>,
}

/// How fast and how thirsty a kind of work is.
#[derive(Clone, Serialize)]
pub struct Performance {
    pub what: String,
    pub time: f32,
    pub power: f32,
}

impl Facts {
    /// Asks a driver.
    pub fn ask(driver: &Driver) -> Result<Facts, ToolError> {
        let device = driver.device();
        let files = driver.answer("getNumberOfCacheFilesNeeded", device.getNumberOfCacheFilesNeeded())?;
        let extensions = driver.answer("getSupportedExtensions", device.getSupportedExtensions())?;
        let capabilities = driver.answer("getCapabilities", device.getCapabilities())?;
        let performance = |what: &str, info: &PerformanceInfo| Performance {
            what: what.into(),
            time: info.execTime,
            power: info.powerUsage,
        };
        let mut all = vec![
            performance("relaxed scalars", &capabilities.relaxedFloat32toFloat16PerformanceScalar),
            performance("relaxed tensors", &capabilities.relaxedFloat32toFloat16PerformanceTensor),
            performance("IF", &capabilities.ifPerformance),
            performance("WHILE", &capabilities.whilePerformance),
        ];
        all.extend(capabilities.operandPerformance.iter().map(|operand| {
            let code = operand.r#type.0;
            let name = OperandType::from_code(code).map_or(format!("type {code}"), |ty| ty.name().into());
            performance(&name, &operand.info)
        }));
        Ok(Facts {
            version: driver.answer("getVersionString", device.getVersionString())?,
            interface: driver.answer("getInterfaceVersion", device.getInterfaceVersion())?,
            interface_hash: driver.answer("getInterfaceHash", device.getInterfaceHash())?,
            ty: type_name(driver.answer("getType", device.getType())?),
            model_cache_files: files.numModelCache,
            data_cache_files: files.numDataCache,
            extensions: extensions.into_iter().map(|extension| extension.name).collect(),
            performance: all,
        })
    }

    /// What it says of caching, in words.
    pub fn cache_files(&self) -> String {
        match (self.model_cache_files, self.data_cache_files) {
            (0, 0) => "none, compilations are not cached".into(),
            (model, data) => format!("{model} for the model, {data} for data"),
        }
    }

    /// The extensions' names, in words.
    pub fn extensions(&self) -> String {
        match self.extensions.is_empty() {
            true => "none".into(),
            false => self.extensions.join(", "),
        }
    }
}

fn type_name(ty: DeviceType) -> String {
    match ty {
        DeviceType::OTHER => "OTHER".into(),
        DeviceType::CPU => "CPU".into(),
        DeviceType::GPU => "GPU".into(),
        DeviceType::ACCELERATOR => "ACCELERATOR".into(),
        DeviceType(code) => format!("unknown ({code})"),
    }
}
