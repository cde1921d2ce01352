//! `nnhal inspect`: what a .tflite model is made of as a driver sees it, what the driver takes of it, and what becomes of
//! it there: which kernel runs each operation, and where each tensor lives.
//!
//! - `line`: what is told of an operation; `tensors`: places and lives of tensors; `svg`: the arena as a drawing
//! - `explorer`: the model as a graph for Model Explorer

mod explorer;
mod line;
mod svg;
mod tensors;

use super::driver::{self, ServiceName, ServiceOptions};
use super::error::ToolError;
use super::model_file;
use super::naming;
use super::print;
use super::profile::{self, Profile};
use super::run::{session::Session, values};
use crate::aidl;
use crate::backend::{Description, KernelName, StepDescription};
use crate::client::{ConnectOptions, Driver};
use crate::model::{Model, OperationKind};
use crate::tflite::Imported;
use line::Line;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Seconds of watched runs, and how many there are at least.
const SECONDS: f64 = 1.0;
const FEWEST: usize = 5;
/// The flag that asks for them.
const PROFILE: &str = "--profile";

/// Print a .tflite model's operations with their shapes, which of them the driver takes, which kernel runs each, and where
/// each tensor lives.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  nnhal inspect models/digits_int8.tflite --svg /tmp/arena.svg\n  \
    nnhal inspect models/digits_int8.tflite --profile --model-explorer /tmp/digits.json\n  \
    nnhal --service unix:/tmp/nnhal.sock inspect models/digits_int8.tflite")]
pub struct InspectArgs {
    /// The model.
    model: PathBuf,
    /// Run it for a moment, and tell how long each operation takes.
    #[arg(long)]
    profile: bool,
    /// Draw the arena there, where tensors lie between operations.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the graph there as Model Explorer reads it, with times if there are any.
    #[arg(long, value_name = "FILE")]
    model_explorer: Option<PathBuf>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

/// What became of the model in the driver.
struct Compiled {
    description: Description,
    profile: Option<Profile>,
}

/// Tells of the model. An error where the driver does not take all of it.
pub fn run(service: &ServiceName, args: &InspectArgs) -> Result<(), ToolError> {
    let imported = model_file::read(&args.model)?.imported;
    let client = ConnectOptions { timeout: Some(TIMEOUT), ..Default::default() };
    let driver = driver::connect(service, &ServiceOptions { client, ..Default::default() })?;
    let tells = tells(&driver, args)?;
    let does_not_tell = profile::does_not_tell(&driver);
    let taken = driver.device().getSupportedOperations(&imported.model);
    let taken = driver.answer("getSupportedOperations", taken)?;
    let reasons = reasons(&driver, &imported.model, taken.len())?;
    let mut lines = lines(&imported, &taken, reasons.as_deref());
    let missing = lines.iter().filter(|line| !line.taken).count();
    // What is not taken whole cannot be compiled.
    let compiled = match tells && missing == 0 {
        true => compile(&imported, driver, args)?,
        false => None,
    };
    if let Some(compiled) = &compiled {
        complete(&mut lines, &imported, compiled);
    }
    if args.json {
        print::json(&lines)?;
    } else {
        tell(&imported, &lines)?;
        match &compiled {
            Some(compiled) => tell_compiled(&imported, compiled)?,
            None if !tells => print::line(does_not_tell)?,
            None if missing == 0 => print::line(profile::KNOWS_NOTHING)?,
            None => {}
        }
    }
    write_files(args, &imported, &lines, compiled.as_ref())?;
    match missing {
        0 => Ok(()),
        count => {
            Err(ToolError::Failed(format!("the driver does not take {count} of {} operations", lines.len())))
        }
    }
}

/// Whether the driver tells what becomes of a model; an error where it does not, and that was asked for.
fn tells(driver: &Driver, args: &InspectArgs) -> Result<bool, ToolError> {
    if args.profile {
        profile::check(driver, PROFILE)?;
    }
    if args.svg.is_some() {
        profile::check(driver, "--svg")?;
    }
    profile::tells(driver)
}

/// Has the driver compile the model, and run it if that is wanted. `None` where the driver knows nothing of what became
/// of it, and nothing was asked for that needs that.
fn compile(imported: &Imported, driver: Driver, args: &InspectArgs) -> Result<Option<Compiled>, ToolError> {
    let mut session = Session::on(imported, driver, &imported.prepare_options())?;
    if !args.profile {
        let (driver, model) = (session.driver(), session.prepared());
        let description = match &args.svg {
            Some(_) => Some(profile::described(driver, model, "--svg")?),
            None => profile::describe(driver, model)?,
        };
        return Ok(description.map(|description| Compiled { description, profile: None }));
    }
    let inputs: Vec<_> = imported.inputs.iter().map(|port| values::arbitrary(&port.info)).collect();
    session.run(&inputs)?;
    let recording = profile::watched(&mut session, &inputs, (SECONDS, FEWEST), PROFILE)?;
    let is_of_processor = profile::is_of_processor(session.driver())?;
    // What is measured from here on has the machine to itself.
    drop(session);
    let peaks = is_of_processor.then(|| profile::peaks(None)).flatten();
    let profile = Some(Profile::new(&recording, imported, peaks));
    Ok(Some(Compiled { description: recording.description, profile }))
}

/// Adds to `lines` what is known of a compiled model.
fn complete(lines: &mut [Line], imported: &Imported, compiled: &Compiled) {
    let Some(main) = compiled.description.subgraphs.first() else { return };
    let places = |list: &[i32]| -> Vec<tensors::Place> {
        let place = |&v: &i32| {
            let v = usize::try_from(v).ok()?;
            Some(tensors::Place::new(v, main.places.get(v)?))
        };
        list.iter().filter_map(place).collect()
    };
    for line in lines {
        if let Some(operation) = imported.model.main.operations.get(line.operation) {
            (line.input_places, line.output_places) = (places(&operation.inputs), places(&operation.outputs));
        }
        let is_it = |step: &&StepDescription| step.operations.contains(&line.operation);
        let Some(step) = main.steps.iter().find(is_it) else {
            line.kernel = Some("not run".into());
            continue;
        };
        line.kernel = Some(step.kernel.to_string());
        // What runs as one is counted once.
        if step.operations.first() == Some(&line.operation) {
            (line.multiply_adds, line.bytes) = (step.multiply_adds, step.bytes);
        }
        let figures = compiled.profile.as_ref().map_or(&[][..], |profile| &profile.operations);
        if let Some(figures) = figures.iter().find(|figures| figures.operation == line.operation) {
            (line.median_ms, line.share) = (Some(figures.median_ms), Some(figures.share));
        }
    }
}

fn write_files(
    args: &InspectArgs,
    imported: &Imported,
    lines: &[Line],
    compiled: Option<&Compiled>,
) -> Result<(), ToolError> {
    let write = |path: &Path, content: &[u8]| {
        std::fs::write(path, content).map_err(|why| ToolError::File { path: path.into(), why })
    };
    let name = args.model.file_name().unwrap_or_default().to_string_lossy();
    let main = compiled.and_then(|compiled| compiled.description.subgraphs.first());
    if let Some((path, (main, compiled))) = args.svg.as_ref().zip(main.zip(compiled)) {
        let tensors = tensors::tensors(imported, &compiled.description);
        write(path, svg::draw(&name, imported, main, &tensors).as_bytes())?;
    }
    if let Some(path) = &args.model_explorer {
        let description = compiled.map(|compiled| &compiled.description);
        let graph = explorer::collection(&name, imported, lines, description);
        let graph = serde_json::to_vec(&graph).map_err(|why| ToolError::Failed(why.to_string()))?;
        write(path, &graph)?;
    }
    Ok(())
}

/// Why the driver does not take operations; `None` for a driver that does not say.
fn reasons(
    driver: &Driver,
    model: &aidl::Model,
    count: usize,
) -> Result<Option<Vec<Option<String>>>, ToolError> {
    let Some(diagnostics) = driver.diagnostics()? else { return Ok(None) };
    Ok(Some(diagnostics.refusals(model)?).filter(|reasons| reasons.len() == count))
}

/// `reasons` are the driver's; where it does not say, what this build's own rules say has to do.
fn lines(imported: &Imported, taken: &[bool], reasons: Option<&[Option<String>]>) -> Vec<Line> {
    let main = &imported.model.main;
    let checked = Model::new(&imported.model);
    let told = |i: usize| reasons.and_then(|reasons| reasons.get(i)?.clone());
    let guessed = |i: usize| match checked.as_ref().map(|model| &model.main.operations[i].kind) {
        Ok(OperationKind::Unsupported(why)) => why.clone(),
        Ok(_) => "the driver does not say why".into(),
        Err(why) => why.to_string(),
    };
    let describe = |list: &[i32]| -> Vec<String> {
        list.iter().filter_map(|&i| main.operands.get(usize::try_from(i).ok()?)).map(operand).collect()
    };
    let line = |(i, operation): (usize, &aidl::Operation)| {
        let taken = taken.get(i).copied().unwrap_or(false);
        Line {
            operation: i,
            operator: naming::operator(imported, i),
            ty: naming::operation_type(imported, i),
            inputs: describe(&operation.inputs),
            outputs: describe(&operation.outputs),
            taken,
            why: (!taken).then(|| told(i).unwrap_or_else(|| guessed(i))),
            kernel: None,
            multiply_adds: None,
            bytes: None,
            input_places: Vec::new(),
            output_places: Vec::new(),
            median_ms: None,
            share: None,
        }
    };
    main.operations.iter().enumerate().map(line).collect()
}

/// An operand's type and dimensions; a constant is called one.
fn operand(operand: &aidl::Operand) -> String {
    use aidl::OperandLifeTime as Life;
    let constant = match operand.lifetime {
        Life::CONSTANT_COPY | Life::CONSTANT_POOL => " constant",
        Life::NO_VALUE => " left out",
        _ => "",
    };
    tensors::shape(operand) + constant
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
        let kernel = line.kernel.as_ref().map_or(String::new(), |kernel| format!("  [{kernel}]"));
        let Line { operation, operator, ty, .. } = line;
        print::line(format_args!(
            "{operation:>4} {ty} (operator {operator}): {inputs} -> {outputs}{kernel}{refused}"
        ))?;
    }
    let taken = lines.iter().filter(|line| line.taken).count();
    print::line(format_args!(
        "{taken} of {} operations taken, of {} operators in the file",
        lines.len(),
        imported.operators
    ))
}

/// Prints where tensors live, and how long operations take if that was measured.
fn tell_compiled(imported: &Imported, compiled: &Compiled) -> Result<(), ToolError> {
    print::line("")?;
    for tensor in tensors::tensors(imported, &compiled.description) {
        let view = if tensor.is_view { ", in another's place" } else { "" };
        let tensors::Tensor { operand, what, place, .. } = &tensor;
        print::line(format_args!("operand {operand} {what}: {}{view}", tensors::words(place)))?;
    }
    let main = compiled.description.subgraphs.first();
    let plain =
        main.map_or(0, |main| main.steps.iter().filter(|step| step.kernel == KernelName::Plain).count());
    print::line(format_args!(
        "the arena has {} bytes; {} steps are run, {plain} of them by plain evaluations",
        main.map_or(0, |main| main.arena),
        main.map_or(0, |main| main.steps.len())
    ))?;
    compiled.profile.as_ref().map_or(Ok(()), profile::tell)
}
