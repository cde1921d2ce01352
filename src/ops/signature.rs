//! Signatures of operations as data: which operand types, ranks and counts an operation accepts.
//!
//! Validator, backends, `nnhal info` and the documentation all read these; rules that go beyond types, ranks and counts
//! are an operation's `check`.

use super::{Arg, Operation};
use crate::tensor::{OperandType, TensorInfo};

/// Type of a slot.
#[derive(Clone, Copy, Debug)]
pub enum Ty {
    /// The type in this column of the matched [`Row`]: slots of one column vary together.
    Var(usize),
    /// Always this type.
    Is(OperandType),
    /// Any of these, whatever the row.
    Any(&'static [OperandType]),
}

/// One input or output of a signature.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub name: &'static str,
    pub ty: Ty,
    /// Smallest and largest rank of a tensor; a tensor of unknown rank passes.
    pub rank: (u8, u8),
    /// The slot must be listed, but may be without a value.
    pub optional: bool,
}

/// A slot whose type is column `column` of the matched row.
pub const fn var(name: &'static str, column: usize) -> Slot {
    Slot { name, ty: Ty::Var(column), rank: (1, u8::MAX), optional: false }
}

/// A slot of one type only.
pub const fn is(name: &'static str, ty: OperandType) -> Slot {
    Slot { name, ty: Ty::Is(ty), rank: (1, u8::MAX), optional: false }
}

/// An INT32 scalar.
pub const fn int(name: &'static str) -> Slot {
    is(name, OperandType::INT32)
}

/// A BOOL scalar.
pub const fn boolean(name: &'static str) -> Slot {
    is(name, OperandType::BOOL)
}

impl Slot {
    /// This slot with ranks from `min` to `max`.
    pub const fn rank(self, min: u8, max: u8) -> Slot {
        Slot { rank: (min, max), ..self }
    }

    /// This slot, which may be without a value.
    pub const fn optional(self) -> Slot {
        Slot { optional: true, ..self }
    }
}

/// Concatenates parts of a list of slots; `N` must be their total number.
pub const fn join<const N: usize>(parts: &[&[Slot]]) -> [Slot; N] {
    let mut slots = [parts[0][0]; N];
    let (mut part, mut at) = (0, 0);
    while part < parts.len() {
        let mut i = 0;
        while i < parts[part].len() {
            slots[at] = parts[part][i];
            at += 1;
            i += 1;
        }
        part += 1;
    }
    assert!(at == N);
    slots
}

/// The types that the columns take together, and the first feature level that accepts them.
#[derive(Clone, Copy, Debug)]
pub struct Row(pub u8, pub &'static [OperandType]);

/// How many operands a side of a signature takes.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// All listed slots.
    All,
    /// Any of these numbers; trailing slots are left off.
    OneOf(&'static [usize]),
    /// Slot `slot` stands for one or more operands, so the count is at least the number of slots.
    Repeat(usize),
}

/// One way to call an operation.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    pub rows: &'static [Row],
    pub inputs: &'static [Slot],
    pub input_count: Count,
    pub outputs: &'static [Slot],
    pub output_count: Count,
}

impl Signature {
    /// A signature that takes all its inputs and gives all its outputs.
    pub const fn new(rows: &'static [Row], inputs: &'static [Slot], outputs: &'static [Slot]) -> Self {
        Signature { rows, inputs, input_count: Count::All, outputs, output_count: Count::All }
    }

    /// This signature with trailing inputs that may be left off: `counts` are the numbers of inputs allowed.
    pub const fn input_counts(self, counts: &'static [usize]) -> Self {
        Signature { input_count: Count::OneOf(counts), ..self }
    }

    pub const fn output_counts(self, counts: &'static [usize]) -> Self {
        Signature { output_count: Count::OneOf(counts), ..self }
    }

    /// This signature with input `slot` standing for one or more operands.
    pub const fn repeat_input(self, slot: usize) -> Self {
        Signature { input_count: Count::Repeat(slot), ..self }
    }

    pub const fn repeat_output(self, slot: usize) -> Self {
        Signature { output_count: Count::Repeat(slot), ..self }
    }
}

/// An operand of a call, as the matcher sees it.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// It has (or will have) a value.
    Present(&'a TensorInfo),
    /// Listed, but without value; a model still declares a type for it.
    Omitted(Option<&'a TensorInfo>),
}

/// The signature and row that a call matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub form: usize,
    /// First feature level that accepts this call.
    pub feature_level: u8,
}

/// Finds the signature of `operation` that a call with these operands follows, or says why none does: of all
/// mismatches the one furthest along is reported.
pub fn find(operation: &Operation, inputs: &[Operand], outputs: &[Operand]) -> Result<Match, String> {
    let mut closest: Option<(usize, String)> = None;
    for (form, signature) in operation.signatures.iter().enumerate() {
        for row in signature.rows {
            let sides = match_side(&signature.inputs_side(), row, inputs).and_then(|()| {
                match_side(&signature.outputs_side(), row, outputs).map_err(|(n, e)| (n + inputs.len(), e))
            });
            match sides {
                Ok(()) => return Ok(Match { form, feature_level: row.0 }),
                Err(miss) if closest.as_ref().is_none_or(|best| miss.0 > best.0) => closest = Some(miss),
                Err(_) => {}
            }
        }
    }
    Err(closest.map_or_else(|| "the operation has no signature".into(), |(_, why)| why))
}

/// One side (inputs or outputs) of a signature.
struct Side<'s> {
    what: &'static str,
    slots: &'s [Slot],
    count: Count,
}

impl Signature {
    fn inputs_side(&self) -> Side<'_> {
        Side { what: "input", slots: self.inputs, count: self.input_count }
    }

    fn outputs_side(&self) -> Side<'_> {
        Side { what: "output", slots: self.outputs, count: self.output_count }
    }
}

impl Side<'_> {
    /// The slot that operand `i` of `n` fills, with repeats unrolled; an error if `n` operands cannot be.
    fn slot(&self, i: usize, n: usize) -> &Slot {
        match self.count {
            Count::Repeat(at) if i > at => {
                let extra = n - self.slots.len();
                &self.slots[if i <= at + extra { at } else { i - extra }]
            }
            _ => &self.slots[i],
        }
    }

    fn accepts(&self, n: usize) -> Result<(), String> {
        let expected = match self.count {
            Count::All if n == self.slots.len() => return Ok(()),
            Count::OneOf(counts) if counts.contains(&n) => return Ok(()),
            Count::Repeat(_) if n >= self.slots.len() => return Ok(()),
            Count::All => self.slots.len().to_string(),
            Count::OneOf(counts) => counts.iter().map(usize::to_string).collect::<Vec<_>>().join(" or "),
            Count::Repeat(_) => format!("{} or more", self.slots.len()),
        };
        Err(format!("{n} {}s, expected {expected}", self.what))
    }
}

/// Matches one side; an error carries how many operands had matched before.
fn match_side(side: &Side, row: &Row, operands: &[Operand]) -> Result<(), (usize, String)> {
    side.accepts(operands.len()).map_err(|e| (0, e))?;
    for (i, operand) in operands.iter().enumerate() {
        let slot = side.slot(i, operands.len());
        check_slot(slot, row, operand)
            .map_err(|why| (i + 1, format!("{} {i} ({}): {why}", side.what, slot.name)))?;
    }
    Ok(())
}

fn check_slot(slot: &Slot, row: &Row, operand: &Operand) -> Result<(), String> {
    let (info, omitted) = match *operand {
        Operand::Present(info) => (info, false),
        Operand::Omitted(Some(info)) => (info, true),
        Operand::Omitted(None) if slot.optional => return Ok(()),
        Operand::Omitted(None) => return Err("must not be omitted".into()),
    };
    let ty = info.ty;
    let fits = match slot.ty {
        Ty::Var(column) => row.1.get(column) == Some(&ty),
        Ty::Is(expected) => expected == ty,
        Ty::Any(types) => types.contains(&ty),
    };
    if !fits {
        return Err(format!("{ty} is not accepted here"));
    }
    if omitted {
        return if slot.optional { Ok(()) } else { Err("must not be omitted".into()) };
    }
    match (Arg { info, data: None }).rank() {
        Some(rank)
            if ty.is_tensor() && !(usize::from(slot.rank.0)..=usize::from(slot.rank.1)).contains(&rank) =>
        {
            Err(format!("rank {rank}, expected {} to {}", slot.rank.0, slot.rank.1))
        }
        _ => Ok(()),
    }
}
