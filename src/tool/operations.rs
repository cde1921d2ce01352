//! The table of operations in words: what `nnhal info` prints and what docs/OPERATIONS.md is made of.

use crate::ops::signature::{Count, Row, Signature, Slot, Ty};
use crate::ops::{Operation, OperationType};
use std::fmt::Write;

const HEAD: &str = "# Operations

What the driver accepts, operation by operation. This file is written by `nnhal info --markdown`; a test fails when it is
not what the code says.

A type in a column of its own goes with the feature level that first takes it: 1 is Android 8.1, 2 Android 9, 3 Android
10, 4 Android 11, 5 to 8 the versions 1 to 4 of the AIDL interface. Ranks are those of tensors; an input in brackets may
be without a value.
";

/// The whole table as Markdown.
pub fn markdown() -> String {
    let mut text = HEAD.to_string();
    for operation in operations() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {}\n\n{}\n", operation.ty, sentence(operation.doc));
        for signature in operation.signatures {
            let _ = write!(text, "\n{}", form(signature));
        }
    }
    text
}

/// Each operation with the feature levels of its types, a line or a few each.
pub fn plain() -> String {
    let mut text = String::new();
    for operation in operations() {
        let _ = writeln!(text, "{}: {}", operation.ty, operation.doc);
        let rows: Vec<&Row> = operation.signatures.iter().flat_map(|signature| signature.rows).collect();
        let mut levels: Vec<u8> = rows.iter().map(|row| row.0).collect();
        levels.sort();
        levels.dedup();
        for level in levels {
            let mut types: Vec<String> =
                rows.iter().filter(|row| row.0 == level).map(|row| variants(row)).collect();
            types.retain(|types| !types.is_empty());
            types.sort();
            types.dedup();
            let types = if types.is_empty() { "accepted".into() } else { types.join(", ") };
            let _ = writeln!(text, "  since level {level}: {types}");
        }
    }
    text
}

fn operations() -> impl Iterator<Item = &'static Operation> {
    OperationType::ALL.iter().filter_map(|ty| ty.operation())
}

fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    format!("{first}{}.", characters.as_str())
}

/// The types that vary together, each once.
fn variants(row: &Row) -> String {
    let mut names: Vec<&str> = row.1.iter().map(|ty| ty.name()).collect();
    names.dedup();
    names.join(" with ")
}

/// One way to call an operation: its operands, then the types that vary by feature level.
fn form(signature: &Signature) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "- in: {}", side(signature.inputs, signature.input_count));
    let _ = writeln!(text, "- out: {}", side(signature.outputs, signature.output_count));
    let columns = signature.rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
    let heads: Vec<String> = (0..columns).map(|column| head(signature, column)).collect();
    if columns == 0 {
        let level = signature.rows.iter().map(|row| row.0).min().unwrap_or(1);
        let _ = writeln!(text, "- since level {level}");
        return text;
    }
    let _ = writeln!(text, "\n| level | {} |\n|---|{}", heads.join(" | "), "---|".repeat(columns));
    for row in signature.rows {
        let types: Vec<&str> = row.1.iter().map(|ty| ty.name()).collect();
        let _ = writeln!(text, "| {} | {} |", row.0, types.join(" | "));
    }
    text
}

/// The operands whose type is in a column.
fn head(signature: &Signature, column: usize) -> String {
    let slots = signature.inputs.iter().chain(signature.outputs);
    let names: Vec<&str> =
        slots.filter(|slot| matches!(slot.ty, Ty::Var(c) if c == column)).map(|slot| slot.name).collect();
    names.join(", ")
}

fn side(slots: &[Slot], count: Count) -> String {
    let repeated = match count {
        Count::Repeat(slot) => Some(slot),
        _ => None,
    };
    let mut words: Vec<String> = Vec::new();
    for (i, slot) in slots.iter().enumerate() {
        let more = if repeated == Some(i) { ", ..." } else { "" };
        words.push(format!("{}{more}", operand(slot)));
    }
    let counts = match count {
        Count::OneOf(counts) => {
            let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
            format!("; {} of them", counts.join(" or "))
        }
        _ => String::new(),
    };
    words.join(", ") + &counts
}

fn operand(slot: &Slot) -> String {
    let ty = match slot.ty {
        Ty::Var(_) => String::new(),
        Ty::Is(ty) => format!(" {ty}"),
        Ty::Any(types) => {
            format!(" any of {}", types.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(" "))
        }
    };
    let tensor = match slot.ty {
        Ty::Var(_) => true,
        Ty::Is(ty) => ty.is_tensor(),
        Ty::Any(types) => types.iter().any(|ty| ty.is_tensor()),
    };
    let rank = match slot.rank {
        _ if !tensor => String::new(),
        (1, u8::MAX) => String::new(),
        (min, max) if min == max => format!(" of rank {min}"),
        (min, u8::MAX) => format!(" of rank {min} or more"),
        (min, max) => format!(" of rank {min} to {max}"),
    };
    match slot.optional {
        true => format!("[`{}`{ty}{rank}]", slot.name),
        false => format!("`{}`{ty}{rank}", slot.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_table_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/OPERATIONS.md");
        let committed = std::fs::read_to_string(path).expect(path);
        assert!(committed == markdown(), "run `nnhal info --markdown > docs/OPERATIONS.md`");
    }

    #[test]
    fn every_operation_is_in_both_tables() {
        let (markdown, plain) = (markdown(), plain());
        for operation in operations() {
            assert!(markdown.contains(&format!("\n## {}\n", operation.ty)), "{}", operation.ty);
            assert!(plain.contains(&format!("{}: ", operation.ty)), "{}", operation.ty);
        }
    }

    #[test]
    fn a_form_shows_what_the_matcher_checks() {
        let floor = OperationType::FLOOR.operation().expect("it is supported");
        let text = form(&floor.signatures[0]);
        assert!(text.starts_with("- in: `input` of rank 1 to 4\n- out: `output` of rank 1 to 4\n"), "{text}");
        assert!(text.contains("\n| 3 | TENSOR_FLOAT16 |"), "{text}");
    }
}
