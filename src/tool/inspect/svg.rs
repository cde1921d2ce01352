//! The arena as a drawing: steps from left to right, bytes from bottom to top, a box for each tensor that lives there.

use super::tensors::{words, Tensor};
use crate::backend::{SubgraphDescription, ValuePlace};
use crate::tflite::Imported;
use crate::tool::naming;
use std::fmt::Write;

/// Sizes in pixels.
const LEFT: f64 = 90.0;
const TOP: f64 = 40.0;
const HEIGHT: f64 = 420.0;
const FOOT: f64 = 50.0;
/// Of all steps together, as far as each keeps its least width.
const WIDTH: f64 = 1000.0;
const LEAST_WIDTH: f64 = 8.0;
const MOST_WIDTH: f64 = 80.0;

/// Fills that are told apart side by side.
const FILLS: [&str; 6] = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#edc948"];

/// The drawing as a file's content. `title` may be any text.
pub fn draw(title: &str, imported: &Imported, compiled: &SubgraphDescription, tensors: &[Tensor]) -> String {
    let steps = compiled.steps.len().max(1);
    let step = (WIDTH / steps as f64).clamp(LEAST_WIDTH, MOST_WIDTH);
    let arena = compiled.arena.max(1) as f64;
    let (width, height) = (LEFT + step * steps as f64 + 20.0, TOP + HEIGHT + FOOT);
    let y = |byte: u64| TOP + HEIGHT * (1.0 - byte as f64 / arena);
    let mut svg = String::new();
    let mut line = |text: std::fmt::Arguments| {
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "{text}");
    };
    line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">"
    ));
    line(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"));
    line(format_args!(
        "<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{}: arena of {} bytes, {} steps</text>",
        escape(title),
        compiled.arena,
        compiled.steps.len()
    ));
    for quarter in 0..=4 {
        // Any number may come from a driver, the largest included.
        let byte = (u128::from(compiled.arena) * quarter / 4) as u64;
        let (at, end) = (y(byte), width - 20.0);
        line(format_args!(
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"
        ));
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{byte}</text>",
            LEFT - 6.0,
            at + 4.0
        ));
    }
    for (i, tensor) in tensors.iter().filter(|tensor| !tensor.is_view).enumerate() {
        let (part, dashes) = match &tensor.place {
            ValuePlace::Arena(part) => (part, ""),
            ValuePlace::Client(part) => (part, " stroke-dasharray=\"4 3\" fill-opacity=\"0.3\""),
            _ => continue,
        };
        let (x, wide) = (LEFT + step * tensor.steps.start as f64, step * tensor.steps.len().max(1) as f64);
        let (top, high) = (y(part.end), (y(part.start) - y(part.end)).max(0.5));
        let fill = FILLS[i % FILLS.len()];
        line(format_args!(
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\" fill=\"{fill}\" \
             stroke=\"#333\" stroke-width=\"0.6\"{dashes}><title>{}</title></rect>",
            escape(&format!("operand {}, {}: {}", tensor.operand, tensor.what, words(&tensor.place)))
        ));
        if wide >= 24.0 && high >= 12.0 {
            let (x, y) = (x + 3.0, top + 11.0);
            line(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#111\">{}</text>", tensor.operand));
        }
    }
    // As many marks as there is room for.
    let every = (40.0 / step).ceil().max(1.0) as usize;
    for (at, one) in compiled.steps.iter().enumerate().step_by(every) {
        let index = one.operations.first().copied().unwrap_or(0);
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\"><title>{}</title>{index}</text>",
            LEFT + step * at as f64 + 2.0,
            TOP + HEIGHT + 16.0,
            escape(&format!("{index} {} ({})", naming::operation_type(imported, index), one.kernel))
        ));
    }
    line(format_args!(
        "<text x=\"{LEFT}\" y=\"{:.1}\">operations in the order of execution; dashed: where the client has it, \
         should its memory allow that</text>",
        TOP + HEIGHT + 36.0
    ));
    line(format_args!("</svg>"));
    svg
}

/// Any text as XML has it; characters that XML does not have are left out.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_may_be_of_any_size() {
        for arena in [0, 1, 1 << 62, u64::MAX] {
            let compiled = SubgraphDescription { steps: Vec::new(), places: Vec::new(), arena };
            let model = crate::aidl::Model::default();
            let imported = Imported {
                model,
                inputs: Vec::new(),
                outputs: Vec::new(),
                operators: 0,
                operations: Vec::new(),
                dynamic_range: false,
            };
            let drawing = draw("a model", &imported, &compiled, &[]);
            assert!(drawing.contains(&format!(">{arena}</text>")) && drawing.contains(">0</text>"));
        }
    }

    #[test]
    fn any_text_is_xml() {
        assert_eq!(escape("a<b>&\"c\"\n\u{1}d"), "a&lt;b&gt;&amp;&quot;c&quot; d");
    }
}
