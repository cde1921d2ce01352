//! `nnhal inspect`: what a .tflite model is made of as a driver sees it, and what the driver takes of it.

use super::driver::{self, ServiceName, ServiceOptions};
use super::error::ToolError;
use super::print;
use crate::aidl;
use crate::client::ConnectOptions;
use crate::model::{Model, OperationKind};
use crate::ops::OperationType;
use crate::tensor::OperandType;
use crate::tflite::{self, Imported};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Print a .tflite model's operations with their shapes, and which of them the driver takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nnhal --service unix:/tmp/nnhal.sock inspect models/digits_int8.tflite")]
pub struct InspectArgs {
    /// The model.
    model: PathBuf,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

/// An operation of the model.
#[derive(Serialize)]
struct Line {
    operation: usize,
    /// The file's operator that it comes from.
    operator: usize,
    #[serde(rename = "type")]
    ty: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    taken: bool,
    /// Why not, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Tells of the model. An error where the driver does not take all of it.
pub fn run(service: &ServiceName, args: &InspectArgs) -> Result<(), ToolError> {
    let bytes =
        std::fs::read(&args.model).map_err(|why| ToolError::File { path: args.model.clone(), why })?;
    let imported =
        tflite::import(&bytes).map_err(|why| ToolError::Model { path: args.model.clone(), why })?;
    let client = ConnectOptions { timeout: Some(TIMEOUT), ..Default::default() };
    let driver = driver::connect(service, &ServiceOptions { client, ..Default::default() })?;
    let taken = driver.device().getSupportedOperations(&imported.model);
    let taken = driver.answer("getSupportedOperations", taken)?;
    let lines = lines(&imported, &taken);
    let missing = lines.iter().filter(|line| !line.taken).count();
    if args.json {
        let line = serde_json::to_string(&lines).map_err(|why| ToolError::Failed(why.to_string()))?;
        print::line(line)?;
    } else {
        tell(&imported, &lines)?;
    }
    match missing {
        0 => Ok(()),
        count => {
            Err(ToolError::Failed(format!("the driver does not take {count} of {} operations", lines.len())))
        }
    }
}

fn lines(imported: &Imported, taken: &[bool]) -> Vec<Line> {
    let main = &imported.model.main;
    // What this build's own rules say of it; a driver does not tell its reasons over the interface.
    let checked = Model::new(&imported.model);
    let why = |i: usize| match checked.as_ref().map(|model| &model.main.operations[i].kind) {
        Ok(OperationKind::Unsupported(why)) => why.clone(),
        Ok(_) => "the driver does not say why".into(),
        Err(why) => why.to_string(),
    };
    let operator = |i: usize| imported.operations.iter().position(|range| range.contains(&i)).unwrap_or(0);
    let describe = |list: &[i32]| -> Vec<String> {
        list.iter().filter_map(|&i| main.operands.get(usize::try_from(i).ok()?)).map(operand).collect()
    };
    let line = |(i, operation): (usize, &aidl::Operation)| {
        let taken = taken.get(i).copied().unwrap_or(false);
        let code = operation.r#type.0;
        Line {
            operation: i,
            operator: operator(i),
            ty: OperationType::from_code(code).map_or(format!("operation {code}"), |ty| ty.name().into()),
            inputs: describe(&operation.inputs),
            outputs: describe(&operation.outputs),
            taken,
            why: (!taken).then(|| why(i)),
        }
    };
    main.operations.iter().enumerate().map(line).collect()
}

/// An operand's type and dimensions; a constant is called one.
fn operand(operand: &aidl::Operand) -> String {
    use aidl::OperandLifeTime as Life;
    let code = operand.r#type.0;
    let ty = OperandType::from_code(code).map_or(format!("type {code}"), |ty| ty.name().into());
    let constant = match operand.lifetime {
        Life::CONSTANT_COPY | Life::CONSTANT_POOL => " constant",
        Life::NO_VALUE => " left out",
        _ => "",
    };
    match operand.dimensions.is_empty() {
        true => format!("{ty}{constant}"),
        false => {
            let dims: Vec<String> = operand.dimensions.iter().map(i32::to_string).collect();
            format!("{ty}[{}]{constant}", dims.join("x"))
        }
    }
}

fn tell(imported: &Imported, lines: &[Line]) -> Result<(), ToolError> {
    for (what, ports) in [("input", &imported.inputs), ("output", &imported.outputs)] {
        for port in ports {
            print::line(format_args!("{what} {:?}: {} {:?}", port.name, port.info.ty, port.dims))?;
        }
    }
    for line in lines {
        let (inputs, outputs) = (line.inputs.join(", "), line.outputs.join(", "));
        let refused = line.why.as_ref().map_or(String::new(), |why| format!("  NOT TAKEN: {why}"));
        let Line { operation, operator, ty, .. } = line;
        print::line(format_args!(
            "{operation:>4} {ty} (operator {operator}): {inputs} -> {outputs}{refused}"
        ))?;
    }
    let taken = lines.iter().filter(|line| line.taken).count();
    print::line(format_args!(
        "{taken} of {} operations taken, of {} operators in the file",
        lines.len(),
        imported.operators
    ))
}
