//! `nnhal info`: what a driver says of itself, and the operations that this build knows.

use super::client::{ConnectOptions, Driver, ServiceName};
use super::error::ToolError;
use super::operations;
use crate::aidl::{DeviceType, PerformanceInfo};
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
        print!("{}", operations::markdown());
        return Ok(());
    }
    let options = ConnectOptions { timeout: Some(TIMEOUT), ..Default::default() };
    driver(&Driver::connect(service, &options)?)?;
    println!("\noperations of this build:");
    print!("{}", operations::plain());
    Ok(())
}

fn driver(driver: &Driver) -> Result<(), ToolError> {
    let device = driver.device();
    println!("version: {}", driver.answer("getVersionString", device.getVersionString())?);
    println!(
        "interface: {} ({})",
        driver.answer("getInterfaceVersion", device.getInterfaceVersion())?,
        driver.answer("getInterfaceHash", device.getInterfaceHash())?
    );
    let ty = driver.answer("getType", device.getType())?;
    println!("type: {}", type_name(ty));
    let files = driver.answer("getNumberOfCacheFilesNeeded", device.getNumberOfCacheFilesNeeded())?;
    match (files.numModelCache, files.numDataCache) {
        (0, 0) => println!("cache files: none, compilations are not cached"),
        (model, data) => println!("cache files: {model} for the model, {data} for data"),
    }
    let extensions = driver.answer("getSupportedExtensions", device.getSupportedExtensions())?;
    let names: Vec<&str> = extensions.iter().map(|extension| extension.name.as_str()).collect();
    println!("extensions: {}", if names.is_empty() { "none".into() } else { names.join(", ") });
    let capabilities = driver.answer("getCapabilities", device.getCapabilities())?;
    println!("performance, relative to the processor (time, power; less is better):");
    let line = |name: &str, info: &PerformanceInfo| {
        println!("  {name}: {}, {}", info.execTime, info.powerUsage);
    };
    line("relaxed scalars", &capabilities.relaxedFloat32toFloat16PerformanceScalar);
    line("relaxed tensors", &capabilities.relaxedFloat32toFloat16PerformanceTensor);
    line("IF", &capabilities.ifPerformance);
    line("WHILE", &capabilities.whilePerformance);
    for performance in &capabilities.operandPerformance {
        let code = performance.r#type.0;
        let name = OperandType::from_code(code).map_or(format!("type {code}"), |ty| ty.name().into());
        line(&name, &performance.info);
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
