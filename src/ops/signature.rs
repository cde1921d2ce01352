//! Signatures of operations as data: which operand types, ranks and counts an operation accepts.
//!
//! Validator, backends, `nnhal info` and the documentation all read these; rules that go beyond types, ranks and counts
//! are an operation's `check`.

use super::Arg;
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
    pub signature_index: usize,
    /// First feature level that accepts this call.
    pub feature_level: u8,
}

/// All rows of `signatures`, each with the place of its signature.
fn rows(signatures: &[Signature]) -> impl Iterator<Item = (usize, &Row)> {
    signatures.iter().enumerate().flat_map(|(i, signature)| signature.rows.iter().map(move |row| (i, row)))
}

/// The one of an operation's `signatures` that a call with these operands follows, if there is one.
pub fn followed(signatures: &[Signature], inputs: &[Operand], outputs: &[Operand]) -> Option<Match> {
    let follows = |i: usize, row| {
        match_side(&signatures[i].inputs_side(), row, inputs).is_ok()
            && match_side(&signatures[i].outputs_side(), row, outputs).is_ok()
    };
    let (signature_index, row) = rows(signatures).find(|&(i, row)| follows(i, row))?;
    Some(Match { signature_index, feature_level: row.0 })
}

/// The same, or why there is none: of all mismatches the one furthest along is reported.
pub fn find(signatures: &[Signature], inputs: &[Operand], outputs: &[Operand]) -> Result<Match, String> {
    // Most calls follow some row, though not the first: messages are for those that follow none.
    if let Some(found) = followed(signatures, inputs, outputs) {
        return Ok(found);
    }
    let mut closest: Option<Miss> = None;
    for (i, row) in rows(signatures) {
        let sides = [(signatures[i].inputs_side(), inputs), (signatures[i].outputs_side(), outputs)];
        let [of_inputs, of_outputs] = sides.map(|(side, operands)| side.miss(row, operands));
        let of_outputs = of_outputs.map(|miss| Miss { place: miss.place + inputs.len(), ..miss });
        if let Some(miss) = of_inputs.or(of_outputs) {
            Miss::keep(&mut closest, miss);
        }
    }
    Err(closest.map_or_else(|| "the operation has no signature".into(), |miss| miss.to_string()))
}

/// Why a call does not follow a row of a signature.
#[derive(Debug)]
struct Miss {
    /// 0 for a wrong number of operands, else that of the operand at fault, from 1.
    place: usize,
    /// The operand is of the right type; it is something else that is wrong with it.
    right_type: bool,
    /// What there is.
    found: String,
    /// What could be in its place.
    accepted: Vec<String>,
}

impl Miss {
    /// Keeps of two misses the one where more was right; of two alike, what either accepts. A row of the operand's own
    /// type knows better than others what is wrong with it.
    fn keep(closest: &mut Option<Miss>, miss: Miss) {
        let progress = |miss: &Miss| (miss.place, miss.right_type);
        match closest {
            Some(best) if progress(best) > progress(&miss) => {}
            Some(best) if progress(best) == progress(&miss) => {
                let new = miss.accepted.into_iter().filter(|accepted| !best.accepted.contains(accepted));
                let new: Vec<_> = new.collect();
                best.accepted.extend(new);
            }
            _ => *closest = Some(miss),
        }
    }
}

impl std::fmt::Display for Miss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.found)?;
        match self.accepted.is_empty() {
            true => Ok(()),
            false => write!(f, ", expected {}", self.accepted.join(" or ")),
        }
    }
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

    fn accepts(&self, n: usize) -> bool {
        match self.count {
            Count::All => n == self.slots.len(),
            Count::OneOf(counts) => counts.contains(&n),
            Count::Repeat(_) => n >= self.slots.len(),
        }
    }

    /// How many operands there may be, for people.
    fn counts(&self) -> Vec<String> {
        match self.count {
            Count::All => vec![self.slots.len().to_string()],
            Count::OneOf(counts) => counts.iter().map(usize::to_string).collect(),
            Count::Repeat(_) => vec![format!("{} or more", self.slots.len())],
        }
    }

    /// What is wrong with these operands, if anything is.
    fn miss(&self, row: &Row, operands: &[Operand]) -> Option<Miss> {
        let n = operands.len();
        let Some((i, fault)) = match_side(self, row, operands).err()? else {
            let found = format!("{n} {}s", self.what);
            return Some(Miss { place: 0, right_type: false, found, accepted: self.counts() });
        };
        let slot = self.slot(i, n);
        let (found, accepted) = match fault {
            Fault::Omitted => ("must not be omitted".into(), vec![]),
            Fault::Type(ty) => (ty.to_string(), slot.types(row).iter().map(OperandType::to_string).collect()),
            Fault::Rank(rank) => {
                let accepted = match slot.rank {
                    (least, u8::MAX) => format!("{least} or more"),
                    (least, most) if least == most => least.to_string(),
                    (least, most) => format!("{least} to {most}"),
                };
                (format!("rank {rank}"), vec![accepted])
            }
        };
        let found = format!("{} {i} ({}): {found}", self.what, slot.name);
        Some(Miss { place: i + 1, right_type: !matches!(fault, Fault::Type(_)), found, accepted })
    }
}

/// What is wrong with an operand.
#[derive(Clone, Copy)]
enum Fault {
    Omitted,
    Type(OperandType),
    Rank(usize),
}

/// Matches one side; where it does not match, which operand is at fault, and why: none where their number is wrong.
fn match_side(side: &Side, row: &Row, operands: &[Operand]) -> Result<(), Option<(usize, Fault)>> {
    let n = operands.len();
    if !side.accepts(n) {
        return Err(None);
    }
    let mut placed = operands.iter().enumerate();
    placed.try_for_each(|(i, operand)| side.slot(i, n).check(row, operand).map_err(|fault| Some((i, fault))))
}

impl Slot {
    /// The types that it takes.
    fn types<'s>(&'s self, row: &'s Row) -> &'s [OperandType] {
        match &self.ty {
            Ty::Var(column) => row.1.get(*column).map_or(&[][..], std::slice::from_ref),
            Ty::Is(expected) => std::slice::from_ref(expected),
            Ty::Any(types) => types,
        }
    }

    /// Whether an operand may be here.
    fn check(&self, row: &Row, operand: &Operand) -> Result<(), Fault> {
        let omission = || if self.optional { Ok(()) } else { Err(Fault::Omitted) };
        let (info, omitted) = match *operand {
            Operand::Present(info) => (info, false),
            Operand::Omitted(Some(info)) => (info, true),
            Operand::Omitted(None) => return omission(),
        };
        if !self.types(row).contains(&info.ty) {
            return Err(Fault::Type(info.ty));
        }
        if omitted {
            return omission();
        }
        let ranks = usize::from(self.rank.0)..=usize::from(self.rank.1);
        match (Arg { info, data: None }).rank() {
            Some(rank) if info.ty.is_tensor() && !ranks.contains(&rank) => Err(Fault::Rank(rank)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::OperationType::{self, *};
    use OperandType::*;

    /// Why a call is refused whose operands, all of these dimensions if they are tensors, have these types.
    fn refusal(ty: OperationType, dims: &[u32], inputs: &[OperandType], outputs: &[OperandType]) -> String {
        let infos = |types: &[OperandType]| -> Vec<TensorInfo> {
            let info = |&ty: &OperandType| TensorInfo::new(ty, if ty.is_tensor() { dims } else { &[] });
            types.iter().map(info).collect()
        };
        let (inputs, outputs) = (infos(inputs), infos(outputs));
        let inputs: Vec<_> = inputs.iter().map(Operand::Present).collect();
        let outputs: Vec<_> = outputs.iter().map(Operand::Present).collect();
        find(ty.operation().expect("in the table").signatures, &inputs, &outputs).expect_err("refused")
    }

    #[test]
    fn a_wrong_rank_is_told_as_such_whatever_the_type() {
        for ty in [TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED] {
            let why = refusal(RELU, &[1; 5], &[ty], &[ty]);
            assert_eq!(why, "input 0 (input): rank 5, expected 1 to 4");
            let beta = if ty == TENSOR_FLOAT16 { FLOAT16 } else { FLOAT32 };
            let why = refusal(SOFTMAX, &[1; 5], &[ty, beta], &[ty]);
            assert_eq!(why, "input 0 (input): rank 5, expected 4 or 2 or 1 to 4", "in each of its forms");
        }
    }

    #[test]
    fn a_wrong_type_is_told_with_all_that_are_right() {
        let why = refusal(FLOOR, &[1; 5], &[TENSOR_INT32], &[TENSOR_INT32]);
        assert_eq!(why, "input 0 (input): TENSOR_INT32, expected TENSOR_FLOAT32 or TENSOR_FLOAT16");
        let why = refusal(FLOOR, &[1], &[TENSOR_FLOAT16], &[TENSOR_FLOAT32]);
        assert_eq!(why, "output 0 (output): TENSOR_FLOAT32, expected TENSOR_FLOAT16");
    }

    #[test]
    fn a_wrong_number_is_told_with_all_that_are_right() {
        assert_eq!(refusal(RELU, &[1], &[], &[TENSOR_FLOAT32]), "0 inputs, expected 1");
        assert_eq!(refusal(SOFTMAX, &[1], &[TENSOR_FLOAT32], &[]), "1 inputs, expected 2 or 3");
    }
}
