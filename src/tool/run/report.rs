//! What `nnhal run` prints.

use super::values;
use crate::client::cache_files::Found;
use crate::tensor::OperandType;
use crate::tflite::Port;
use std::io::{self, Write};
use std::time::Duration;

/// How many values of an output are shown, and how many classes.
const VALUES: usize = 8;
const CLASSES: usize = 5;

/// A class and its score.
pub type Prediction = (usize, f32);

/// The classes in an output that looks like one score for each, best first; `None` for other outputs.
pub fn predictions(port: &Port, bytes: &[u8]) -> Option<Vec<Prediction>> {
    let real = port.info.ty.is_float() || port.info.ty.is_quant8_asymm();
    let count = *port.info.dims.last()?;
    let others_are_one = port.info.dims.iter().rev().skip(1).all(|&d| d == 1);
    if !real || count < 2 || !others_are_one {
        return None;
    }
    let mut scores: Vec<Prediction> = values::decode(&port.info, bytes).into_iter().enumerate().collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    Some(scores)
}

/// Whether scores are probabilities: shares of a whole, as SOFTMAX gives them, rounded for quantised outputs.
pub fn are_probabilities(scores: &[Prediction]) -> bool {
    let sum: f32 = scores.iter().map(|score| score.1).sum();
    scores.iter().all(|score| (0.0..=1.0).contains(&score.1)) && (0.9..=1.1).contains(&sum)
}

pub fn score(value: f32, probability: bool) -> String {
    if probability {
        format!("{:.1} %", 100.0 * value)
    } else {
        format!("{value:.4}")
    }
}

/// Type, shape and first values of an output, and its best classes where it is a classifier's.
pub fn output(to: &mut dyn Write, index: usize, port: &Port, bytes: &[u8]) -> io::Result<()> {
    // Quoted with escapes: the file has it, and may have put there what a terminal obeys.
    let name = if port.name.is_empty() { String::new() } else { format!(" {:?}", port.name) };
    writeln!(to, "output {index}{name}: {} {:?}", port.info.ty, port.dims)?;
    let values = values::decode(&port.info, bytes);
    let plain = matches!(port.info.ty, OperandType::TENSOR_INT32 | OperandType::TENSOR_BOOL8);
    let shown: Vec<String> =
        values.iter().take(VALUES).map(|v| if plain { v.to_string() } else { format!("{v:.6}") }).collect();
    writeln!(to, "  {}{}", shown.join(" "), if values.len() > VALUES { " ..." } else { "" })?;
    if let Some(scores) = predictions(port, bytes) {
        let probable = are_probabilities(&scores);
        for (class, value) in scores.iter().take(CLASSES) {
            writeln!(to, "  class {class}: {}", score(*value, probable))?;
        }
    }
    Ok(())
}

/// How long it took to compile and to run.
pub fn times(
    to: &mut dyn Write,
    compile: Duration,
    found: Option<Found>,
    runs: &mut [Duration],
) -> io::Result<()> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    match found {
        Some(Found::Hit) => writeln!(to, "cache hit: loaded in {:.2} ms", ms(compile))?,
        Some(Found::Miss) => writeln!(to, "cache miss: compiled and saved in {:.1} ms", ms(compile))?,
        Some(Found::Unsaved) => writeln!(
            to,
            "cache miss: compiled in {:.1} ms; nothing was saved, the driver's log may say why",
            ms(compile)
        )?,
        None => writeln!(to, "compiled in {:.1} ms", ms(compile))?,
    }
    runs.sort();
    match &*runs {
        [] => Ok(()),
        [only] => writeln!(to, "ran in {:.3} ms", ms(*only)),
        [first, .., last] => writeln!(
            to,
            "ran {} times: median {:.3} ms, fastest {:.3} ms, slowest {:.3} ms",
            runs.len(),
            ms(runs[runs.len() / 2]),
            ms(*first),
            ms(*last)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::TensorInfo;

    fn port(dims: &[u32], ty: OperandType) -> Port {
        Port {
            name: "out".into(),
            dims: dims.into(),
            info: TensorInfo::quantised(ty, dims, 1.0 / 256.0, -128),
        }
    }

    #[test]
    fn classes_come_best_first() {
        let bytes = [-128i8 as u8, 64, -64i8 as u8];
        let scores = predictions(&port(&[1, 3], OperandType::TENSOR_QUANT8_ASYMM_SIGNED), &bytes).unwrap();
        assert_eq!(scores, [(1, 0.75), (2, 0.25), (0, 0.0)]);
        assert!(are_probabilities(&scores));
        assert!(!are_probabilities(&[(0, 3.0), (1, -2.0)]));
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        let mut port = port(&[1], OperandType::TENSOR_QUANT8_ASYMM);
        port.name = "a\x1b[2J\n\"b".into();
        let mut told = Vec::new();
        output(&mut told, 0, &port, &[0]).unwrap();
        let told = String::from_utf8(told).unwrap();
        assert!(told.starts_with(r#"output 0 "a\u{1b}[2J\n\"b": "#), "{told}");
    }

    #[test]
    fn what_was_not_saved_is_not_said_to_be() {
        let told = |found| {
            let mut told = Vec::new();
            times(&mut told, Duration::from_millis(2), Some(found), &mut []).unwrap();
            String::from_utf8(told).unwrap()
        };
        assert!(told(Found::Miss).contains("compiled and saved"));
        assert!(told(Found::Unsaved).contains("nothing was saved"));
    }

    #[test]
    fn other_outputs_have_no_classes() {
        assert_eq!(predictions(&port(&[2, 3], OperandType::TENSOR_QUANT8_ASYMM), &[0; 6]), None);
        assert_eq!(predictions(&port(&[1, 1], OperandType::TENSOR_QUANT8_ASYMM), &[0]), None);
        assert_eq!(predictions(&port(&[1, 3], OperandType::TENSOR_BOOL8), &[0; 3]), None);
    }
}
