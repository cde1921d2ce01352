//! `nnhal info`: what a driver says of itself, and the operations that this build knows.

use super::driver::{self, ServiceName, ServiceOptions};
use super::error::ToolError;
use super::{operations, print};
use crate::aidl::{DeviceType, PerformanceInfo};
use crate::client::{ConnectOptions, Driver};
use crate::tensor::OperandType;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Print what a driver says of itself, and the operations with the types they accept.
#[derive(Debug, clap::Args)]
pub struct InfoArgs {
    /// Print the operations alone, as docs/OPERATIONS.md has them.
    #[arg(long)]
    markdown: bool,
}

pub fn run(service: &ServiceName, args: &InfoArgs) -> Result<(), ToolError> {
    if args.markdown {
        return print::line(operations::markdown().trim_end());
    }
    let options = ServiceOptions {
        client: ConnectOptions { timeout: Some(TIMEOUT), ..Default::default() },
        ..Default::default()
    };
    describe(&driver::connect(service, &options)?)?;
    print::line("\noperations of this build:")?;
    print::line(operations::plain().trim_end())
}

fn describe(driver: &Driver) -> Result<(), ToolError> {
    let device = driver.device();
    let version = driver.answer("getVersionString", device.getVersionString())?;
    print::line(format!("version: {version}"))?;
    print::line(format!(
        "interface: {} ({})",
        driver.answer("getInterfaceVersion", device.getInterfaceVersion())?,
        driver.answer("getInterfaceHash", device.getInterfaceHash())?
    ))?;
    let ty = driver.answer("getType", device.getType())?;
    print::line(format!("type: {}", type_name(ty)))?;
    let files = driver.answer("getNumberOfCacheFilesNeeded", device.getNumberOfCacheFilesNeeded())?;
    print::line(match (files.numModelCache, files.numDataCache) {
        (0, 0) => "cache files: none, compilations are not cached".into(),
        (model, data) => format!("cache files: {model} for the model, {data} for data"),
    })?;
    let extensions = driver.answer("getSupportedExtensions", device.getSupportedExtensions())?;
    let names: Vec<&str> = extensions.iter().map(|extension| extension.name.as_str()).collect();
    let names = if names.is_empty() { "none".into() } else { names.join(", ") };
    print::line(format!("extensions: {names}"))?;
    let capabilities = driver.answer("getCapabilities", device.getCapabilities())?;
    print::line("performance, relative to the processor (time, power; less is better):")?;
    let line = |name: &str, info: &PerformanceInfo| {
        print::line(format!("  {name}: {}, {}", info.execTime, info.powerUsage))
    };
    line("relaxed scalars", &capabilities.relaxedFloat32toFloat16PerformanceScalar)?;
    line("relaxed tensors", &capabilities.relaxedFloat32toFloat16PerformanceTensor)?;
    line("IF", &capabilities.ifPerformance)?;
    line("WHILE", &capabilities.whilePerformance)?;
    for performance in &capabilities.operandPerformance {
        let code = performance.r#type.0;
        let name = OperandType::from_code(code).map_or(format!("type {code}"), |ty| ty.name().into());
        line(&name, &performance.info)?;
    }
    Ok(())
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
