//! What the examples' members mean: a model of the corpus made of one.

use super::source::{Found, Value};
use crate::tensor::OperandType;
use crate::tool::conformance::corpus::{Blob, ChannelQuant, Lifetime, Model, Operand, Operation, Subgraph};
use half::f16;

type Read<T> = Result<T, String>;

/// The model that was found, as far as the source states it.
pub fn model(found: &Found, folder: &str, spec: &str, blob: &mut Blob) -> Read<Model> {
    let whole = Members::of(&found.value, "a model")?;
    let referenced = list(whole.get("referenced")?)?;
    let main = subgraph(whole.get("main")?, blob, referenced.len())?;
    let count = referenced.len();
    let referenced = referenced.iter().map(|graph| subgraph(graph, blob, count)).collect::<Read<Vec<_>>>()?;
    Ok(Model {
        name: found.name.clone(),
        folder: folder.into(),
        spec: spec.into(),
        variant: String::new(),
        min_version: scoped(whole.get("minSupportedVersion")?, "TestHalVersion")?.into(),
        feature_level: 0,
        aidl_version: 0,
        relaxed: boolean(whole.get("isRelaxed")?)?,
        expect_failure: boolean(whole.get("expectFailure")?)?,
        multinomial_tolerance: float(whole.get("expectedMultinomialDistributionTolerance")?)?.into(),
        f32_tolerance: String::new(),
        quant8_atol: 0,
        kinds: Vec::new(),
        ops: Vec::new(),
        auto: Vec::new(),
        base: None,
        moved: None,
        main,
        referenced,
    })
}

fn subgraph(value: &Value, blob: &mut Blob, referenced: usize) -> Read<Subgraph> {
    let graph = Members::of(value, "a subgraph")?;
    let operands = list(graph.get("operands")?)?.iter();
    let operands: Vec<_> = operands.map(|value| operand(value, blob, referenced)).collect::<Read<_>>()?;
    let indices = |value: &Value| -> Read<Vec<usize>> {
        let known = |index: &usize| match *index < operands.len() {
            true => Ok(()),
            false => Err(format!("line {}: there is no operand {index}", graph.line)),
        };
        let indices = list(value)?.iter().map(number::<usize>).collect::<Read<Vec<_>>>()?;
        indices.iter().try_for_each(known)?;
        Ok(indices)
    };
    let operation = |value: &Value| -> Read<Operation> {
        let operation = Members::of(value, "an operation")?;
        Ok(Operation {
            ty: scoped(operation.get("type")?, "TestOperationType")?.into(),
            inputs: indices(operation.get("inputs")?)?,
            outputs: indices(operation.get("outputs")?)?,
        })
    };
    let operations = list(graph.get("operations")?)?.iter().map(operation).collect::<Read<_>>()?;
    let (inputs, outputs) = (indices(graph.get("inputIndexes")?)?, indices(graph.get("outputIndexes")?)?);
    let name = (!graph.label.is_empty()).then(|| graph.label.to_string());
    Ok(Subgraph { name, inputs, outputs, operands, operations })
}

fn operand(value: &Value, blob: &mut Blob, referenced: usize) -> Read<Operand> {
    let members = Members::of(value, "an operand")?;
    let at = |why: String| format!("line {}: {why}", members.line);
    let type_name = scoped(members.get("type")?, "TestOperandType")?;
    let ty = OperandType::from_name(type_name);
    let dims = list(members.get("dimensions")?)?.iter().map(number::<u32>).collect::<Read<Vec<_>>>()?;
    let bytes = data(members.get("data")?).map_err(at)?;
    let (mut subgraph, mut place) = (None, None);
    if type_name == "SUBGRAPH" {
        let index = bytes.get(..4).and_then(|index| index.try_into().ok()).map(u32::from_le_bytes);
        let index = index.map(|index| index as usize).filter(|&index| index < referenced);
        subgraph = Some(index.ok_or_else(|| at("it names no subgraph".into()))?);
    } else if !bytes.is_empty() {
        let size = ty.and_then(|ty| crate::tensor::TensorInfo::new(ty, &dims).byte_size());
        if size != Some(bytes.len()) {
            return Err(at(format!("{} bytes for {type_name} of {dims:?}", bytes.len())));
        }
        place = Some(blob.add(&bytes));
    }
    Ok(Operand {
        name: members.label.into(),
        type_name: type_name.into(),
        dims,
        lifetime: lifetime(scoped(members.get("lifetime")?, "TestOperandLifeTime")?).map_err(at)?,
        scale: float(members.get("scale")?)?.into(),
        zero_point: number(members.get("zeroPoint")?)?,
        channel_quant: channel_quant(members.get("channelQuant")?)?,
        ignored: boolean(members.get("isIgnored")?)?,
        consumers: number(members.get("numberOfConsumers")?)?,
        data: place,
        subgraph,
    })
}

fn lifetime(name: &str) -> Read<Lifetime> {
    Ok(match name {
        "TEMPORARY_VARIABLE" => Lifetime::TemporaryVariable,
        "SUBGRAPH_INPUT" => Lifetime::SubgraphInput,
        "SUBGRAPH_OUTPUT" => Lifetime::SubgraphOutput,
        "CONSTANT_COPY" => Lifetime::ConstantCopy,
        "CONSTANT_REFERENCE" => Lifetime::ConstantReference,
        "NO_VALUE" => Lifetime::NoValue,
        "SUBGRAPH" => Lifetime::Subgraph,
        other => return Err(format!("no lifetime {other}")),
    })
}

fn channel_quant(value: &Value) -> Read<Option<ChannelQuant>> {
    if matches!(value, Value::List(values) if values.is_empty()) {
        return Ok(None);
    }
    let quant = Members::of(value, "quantisation by channel")?;
    let scales = list(quant.get("scales")?)?.iter().map(|scale| float(scale).map(f64::from));
    Ok(Some(ChannelQuant { dim: number(quant.get("channelDim")?)?, scales: scales.collect::<Read<_>>()? }))
}

/// The bytes of a buffer: elements of the type that its call names.
fn data(value: &Value) -> Read<Vec<u8>> {
    let Value::Call(call, values) = value else { return Err("expected TestBuffer::createFromVector".into()) };
    let element = call.strip_prefix("TestBuffer::createFromVector<").and_then(|rest| rest.strip_suffix('>'));
    fn all<const N: usize>(values: &[Value], bytes: impl Fn(&Value) -> Read<[u8; N]>) -> Read<Vec<u8>> {
        Ok(values.iter().map(bytes).collect::<Read<Vec<_>>>()?.concat())
    }
    match element {
        Some("float") => all(values, |value| Ok(float(value)?.to_le_bytes())),
        // A decimal is a binary32 first, and then rounded once more.
        Some("_Float16") => all(values, |value| Ok(f16::from_f32(float(value)?).to_le_bytes())),
        Some("int32_t") => all(values, |value| Ok(number::<i32>(value)?.to_le_bytes())),
        Some("uint32_t") => all(values, |value| Ok(number::<u32>(value)?.to_le_bytes())),
        Some("int16_t") => all(values, |value| Ok(number::<i16>(value)?.to_le_bytes())),
        Some("uint16_t") => all(values, |value| Ok(number::<u16>(value)?.to_le_bytes())),
        Some("int8_t") => all(values, |value| Ok(number::<i8>(value)?.to_le_bytes())),
        Some("uint8_t") => all(values, |value| Ok(number::<u8>(value)?.to_le_bytes())),
        Some("bool8") => all(values, |value| Ok([u8::from(boolean(value)?)])),
        _ => Err(format!("{call} is not a buffer of a known type")),
    }
}

/// The members of an aggregate.
struct Members<'v> {
    what: &'static str,
    label: &'v str,
    line: usize,
    members: &'v [(String, Value)],
}

impl<'v> Members<'v> {
    fn of(value: &'v Value, what: &'static str) -> Read<Self> {
        match value {
            Value::Record { label, line, members } => Ok(Members { what, label, line: *line, members }),
            _ => Err(format!("expected {what}")),
        }
    }

    fn get(&self, name: &str) -> Read<&'v Value> {
        let member = self.members.iter().find(|(member, _)| member == name);
        member
            .map(|(_, value)| value)
            .ok_or_else(|| format!("line {}: {} without .{name}", self.line, self.what))
    }
}

fn list(value: &Value) -> Read<&[Value]> {
    match value {
        Value::List(values) => Ok(values),
        _ => Err("expected a list".into()),
    }
}

fn word(value: &Value) -> Read<&str> {
    match value {
        Value::Word(word) => Ok(word),
        _ => Err("expected a number or a name".into()),
    }
}

fn number<T: std::str::FromStr>(value: &Value) -> Read<T> {
    let word = word(value)?;
    word.parse().map_err(|_| format!("{word} is not a number of the type that is needed"))
}

fn float(value: &Value) -> Read<f32> {
    let word = word(value)?;
    word.trim_end_matches('f').parse().map_err(|_| format!("{word} is not a number"))
}

fn boolean(value: &Value) -> Read<bool> {
    match word(value)? {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("{other} is neither true nor false")),
    }
}

/// The name after `scope::`.
fn scoped<'v>(value: &'v Value, scope: &str) -> Read<&'v str> {
    let word = word(value)?;
    let name = word.strip_prefix(scope).and_then(|rest| rest.strip_prefix("::"));
    name.ok_or_else(|| format!("expected a {scope}, found {word}"))
}
