//! Whether the result of an execution is what VTS accepts.

use super::compare;
use super::evidence;
use super::hal_model::Case;
use super::outcome::{fail, Step};
use super::paths::Ran;
use super::request::TestRequest;
use crate::aidl::{ErrorStatus, OutputShape, Timing};

/// Which shapes must come with a success.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shapes {
    /// All or none.
    Optional,
    /// All.
    Required,
}

/// A success with the expected outputs, whose bytes `output` reads.
pub fn success(
    case: &Case,
    ran: &Ran,
    measure: bool,
    shapes: Shapes,
    output: &mut dyn FnMut(usize) -> Step<Vec<u8>>,
) -> Step {
    created(ran)?;
    if ran.status != ErrorStatus::NONE {
        return fail(format!("the execution ended in {}", ran.tell()));
    }
    timing(&ran.timing, measure)?;
    if shapes == Shapes::Required || !ran.shapes.is_empty() {
        complete_shapes(case, &ran.shapes)?;
    }
    outputs(case, output)
}

/// A success whose outputs lie in the request's own memory.
pub fn shared_success(case: &Case, ran: &Ran, measure: bool, shapes: Shapes, request: &TestRequest) -> Step {
    success(case, ran, measure, shapes, &mut |i| Ok(request.output(i)?))
}

/// The object to execute on must never be refused for a valid request.
pub fn created(ran: &Ran) -> Step {
    match ran.at_creation {
        true => fail(format!("the object to execute on was refused: {}", ran.tell())),
        false => Ok(()),
    }
}

pub fn timing(timing: &Timing, measure: bool) -> Step {
    let &Timing { timeOnDeviceNs: device, timeInDriverNs: driver } = timing;
    if !measure && (device, driver) != (-1, -1) {
        return fail(format!("timing {device} and {driver} ns was not asked for"));
    }
    if device != -1 && driver != -1 && device > driver {
        return fail(format!("{device} ns on the device, but {driver} ns in the driver"));
    }
    Ok(())
}

/// One shape for each output, all sufficient, with the dimensions of the operand.
pub fn complete_shapes(case: &Case, shapes: &[OutputShape]) -> Step {
    count_shapes(case, shapes)?;
    for (i, (operand, shape)) in case.outputs().zip(shapes).enumerate() {
        let expected: Vec<i32> = operand.dims.iter().map(|&d| d as i32).collect();
        if !shape.isSufficient {
            return fail(format!("output {i} is called too small"));
        }
        if shape.dimensions != expected {
            return fail(format!("output {i} has dimensions {:?}, expected {expected:?}", shape.dimensions));
        }
    }
    Ok(())
}

/// Shapes after the first output was a byte too small.
pub fn insufficient_shapes(case: &Case, shapes: &[OutputShape]) -> Step {
    count_shapes(case, shapes)?;
    for (i, (operand, shape)) in case.outputs().zip(shapes).enumerate() {
        if shape.isSufficient == (i == 0) {
            return fail(format!("output {i} is called sufficient: {}", shape.isSufficient));
        }
        let fits = |(&actual, &expected): (&i32, &u32)| actual == 0 || actual == expected as i32;
        let same_rank = shape.dimensions.len() == operand.dims.len();
        if !same_rank || !shape.dimensions.iter().zip(&operand.dims).all(fits) {
            return fail(format!(
                "output {i} has dimensions {:?}, expected {:?}",
                shape.dimensions, operand.dims
            ));
        }
    }
    Ok(())
}

fn count_shapes(case: &Case, shapes: &[OutputShape]) -> Step {
    let expected = case.model.main.outputs.len();
    match shapes.len() == expected {
        true => Ok(()),
        false => fail(format!("{} output shapes, expected {expected}", shapes.len())),
    }
}

/// Whether the outputs are right. The first that is not is kept.
fn outputs(case: &Case, output: &mut dyn FnMut(usize) -> Step<Vec<u8>>) -> Step {
    for (i, operand) in case.outputs().enumerate() {
        let expected = case.data(operand).unwrap_or_default();
        if operand.ignored || expected.is_empty() {
            continue;
        }
        let mut actual = output(i)?;
        // A place may be larger than the value in it.
        actual.truncate(expected.len());
        let verdict = match case.inputs().next() {
            Some(logits) if case.model.multinomial_tolerance > 0.0 => {
                let input = case.data(logits).unwrap_or_default();
                compare::multinomial(case.model, logits, input, &actual)
            }
            _ => compare::output(case.model, operand, expected, &actual),
        };
        if let Err(why) = verdict {
            evidence::keep(i, &actual);
            return fail(format!("output {i} ({}): {why}", operand.name));
        }
    }
    Ok(())
}
