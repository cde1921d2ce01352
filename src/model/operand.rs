//! Rules for one operand: type, dimensions, quantisation, lifetime and location.

use super::context::Context;
use super::copies::{copied, private};
use super::{Constant, ExtensionOperand, ExtensionOperandType, Lifetime, ModelError, Operand, SMALL};
use crate::aidl;
use crate::ops::evaluate::check_rank;
use crate::scheduler::Copier;
use crate::tensor::{byte_size, ChannelQuant, Dims, OperandType, TensorInfo};
use std::sync::Arc;

/// Checks an operand and decodes it. The error says what is wrong, not where: the caller adds that.
pub(super) fn decode(operand: &aidl::Operand, context: &mut Context) -> Result<Operand, ModelError> {
    let (info, extension) = type_info(operand, context)?;
    let decoded = Operand { info, lifetime: Lifetime::Temporary, extension };
    let info = &decoded.info;
    if operand.location.padding != 0 {
        return Err(ModelError::invalid("padding must be 0 in a model"));
    }
    let is_subgraph = info.ty == OperandType::SUBGRAPH;
    if is_subgraph != (operand.lifetime == aidl::OperandLifeTime::SUBGRAPH) {
        return Err(ModelError::invalid("type SUBGRAPH and lifetime SUBGRAPH belong together"));
    }
    let lifetime = match operand.lifetime {
        aidl::OperandLifeTime::TEMPORARY_VARIABLE => Lifetime::Temporary,
        aidl::OperandLifeTime::SUBGRAPH_INPUT => Lifetime::Input,
        aidl::OperandLifeTime::SUBGRAPH_OUTPUT => Lifetime::Output,
        aidl::OperandLifeTime::NO_VALUE => Lifetime::NoValue,
        aidl::OperandLifeTime::CONSTANT_COPY | aidl::OperandLifeTime::CONSTANT_POOL => {
            let lifetime = Lifetime::Constant(constant(operand, &decoded, context)?);
            return Ok(Operand { lifetime, ..decoded });
        }
        aidl::OperandLifeTime::SUBGRAPH => {
            return Ok(Operand { lifetime: subgraph(operand, context)?, ..decoded });
        }
        other => return Err(ModelError::invalid(format!("lifetime {} does not exist", other.0))),
    };
    let location = &operand.location;
    if (location.poolIndex, location.offset, location.length) != (0, 0, 0) {
        return Err(ModelError::invalid("only constants and subgraphs have a location"));
    }
    Ok(Operand { lifetime, ..decoded })
}

/// An operand's type, and what else there is to say if it is an extension's.
type TypeInfo = (TensorInfo, Option<Arc<ExtensionOperand>>);

/// Type, dimensions and quantisation.
fn type_info(operand: &aidl::Operand, context: &Context) -> Result<TypeInfo, ModelError> {
    let code = operand.r#type.0;
    // Before anything copies or prints them.
    check_rank(operand.dimensions.len()).map_err(|why| ModelError::TooLarge(why.to_string()))?;
    let dims = operand
        .dimensions
        .iter()
        .map(|&d| u32::try_from(d).map_err(|_| ModelError::invalid(format!("dimension {d} is negative"))))
        .collect::<Result<Dims, _>>()?;
    let Some(ty) = OperandType::from_code(code) else {
        return extension_info(operand, dims, context);
    };
    let channel_quant = match &operand.extraParams {
        None => None,
        Some(aidl::OperandExtraParams::ChannelQuant(quant)) => Some(ChannelQuant {
            scales: quant.scales[..].into(),
            // One that is negative is out of range as any other.
            dim: u32::try_from(quant.channelDim).unwrap_or(u32::MAX),
        }),
        Some(_) => {
            return Err(ModelError::invalid(format!("{ty} must not have extra parameters of this kind")));
        }
    };
    let (scale, zero_point) = (operand.scale, operand.zeroPoint);
    let info = TensorInfo { ty, dims, scale, zero_point, channel_quant };
    check_info(&info)?;
    Ok((info, None))
}

/// Checks type, dimensions and quantisation against each other.
pub fn check_info(info: &TensorInfo) -> Result<(), ModelError> {
    let (ty, dims) = (info.ty, &info.dims);
    if ty.is_scalar() && !dims.is_empty() {
        return Err(ModelError::invalid(format!("{ty} is a scalar, but has dimensions {dims:?}")));
    }
    let size = match dims.contains(&0) {
        false => byte_size(ty, dims),
        true => byte_size(ty, &dims.iter().map(|&d| d.max(1)).collect::<Dims>()),
    };
    if ty.is_tensor() && size.is_none() {
        return Err(ModelError::invalid(format!("dimensions {dims:?} of {ty} are too large")));
    }
    check_quantisation(ty, info.scale, info.zero_point)?;
    check_channel_quant(info)
}

/// An operand of an extension's type: marked as such, so that no operation of the table accepts it. A type that the backend
/// does not know has a size that only the extension knows, and nobody reads its name or parameters.
fn extension_info(operand: &aidl::Operand, dims: Dims, context: &Context) -> Result<TypeInfo, ModelError> {
    let code = operand.r#type.0;
    if context.extensions.of_type(code).is_none() {
        return Err(ModelError::invalid(format!("operand type {code} does not exist")));
    }
    if operand.scale != 0.0 || operand.zeroPoint != 0 {
        return Err(ModelError::invalid("scale and zero point of an extension's type must be 0"));
    }
    let parameters = match &operand.extraParams {
        Some(aidl::OperandExtraParams::ChannelQuant(_)) => {
            return Err(ModelError::invalid("an extension's type has no per-channel quantisation"));
        }
        Some(aidl::OperandExtraParams::Extension(bytes)) => bytes.clone(),
        None => Vec::new(),
    };
    let Some((extension, ty)) = context.extensions.operand_type(code) else {
        let ty = ExtensionOperandType { code: (code & 0xffff) as u16, is_tensor: false, byte_size: 0 };
        let unknown = ExtensionOperand { extension: String::new(), ty, parameters: Vec::new() };
        return Ok((TensorInfo::new(OperandType::UINT32, &[]), Some(Arc::new(unknown))));
    };
    if !ty.is_tensor && !dims.is_empty() {
        return Err(ModelError::invalid(format!("a scalar of {extension} with dimensions {dims:?}")));
    }
    let plain = match (ty.byte_size, ty.is_tensor) {
        (1, true) => TensorInfo::new(OperandType::TENSOR_BOOL8, &dims),
        (2, true) => TensorInfo::new(OperandType::TENSOR_FLOAT16, &dims),
        (4, true) => TensorInfo::new(OperandType::TENSOR_INT32, &dims),
        (size, false) => TensorInfo::new(OperandType::TENSOR_BOOL8, &[size]),
        (size, true) => {
            return Err(ModelError::TooLarge(format!(
                "elements of {size} bytes, of {extension}; the driver has them of 1, 2 and 4"
            )));
        }
    };
    check_info(&plain)?;
    let extension = ExtensionOperand { extension: extension.into(), ty, parameters };
    Ok((plain, Some(Arc::new(extension))))
}

fn check_quantisation(ty: OperandType, scale: f32, zero_point: i32) -> Result<(), ModelError> {
    use OperandType::*;
    let scale_fits = match ty {
        TENSOR_INT32 => scale >= 0.0,
        TENSOR_QUANT8_ASYMM
        | TENSOR_QUANT8_ASYMM_SIGNED
        | TENSOR_QUANT8_SYMM
        | TENSOR_QUANT16_SYMM
        | TENSOR_QUANT16_ASYMM => scale > 0.0,
        _ => scale == 0.0,
    };
    if !scale_fits || !scale.is_finite() {
        return Err(ModelError::invalid(format!("scale {scale} does not fit {ty}")));
    }
    let range = match ty {
        TENSOR_QUANT8_ASYMM => 0..=255,
        TENSOR_QUANT8_ASYMM_SIGNED => -128..=127,
        TENSOR_QUANT16_ASYMM => 0..=65535,
        _ => 0..=0,
    };
    if !range.contains(&zero_point) {
        return Err(ModelError::invalid(format!("zero point {zero_point} of {ty} is not in {range:?}")));
    }
    Ok(())
}

fn check_channel_quant(info: &TensorInfo) -> Result<(), ModelError> {
    let (ty, dims) = (info.ty, &info.dims);
    let Some(quant) = &info.channel_quant else {
        return match ty {
            OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL => {
                Err(ModelError::invalid(format!("{ty} needs per-channel scales")))
            }
            _ => Ok(()),
        };
    };
    if ty != OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL {
        return Err(ModelError::invalid(format!("{ty} must not have extra parameters of this kind")));
    }
    let Some(&size) = dims.get(quant.dim as usize) else {
        return Err(ModelError::invalid(format!(
            "channelDim {} is out of range for {dims:?}",
            quant.dim as i32
        )));
    };
    if size == 0 || quant.scales.len() != size as usize {
        return Err(ModelError::invalid(format!("{} scales for {size} channels", quant.scales.len())));
    }
    if !quant.scales.iter().all(|&s| s > 0.0 && s.is_finite()) {
        return Err(ModelError::invalid("a per-channel scale is not above 0"));
    }
    Ok(())
}

fn constant(
    operand: &aidl::Operand,
    decoded: &Operand,
    context: &mut Context,
) -> Result<Constant, ModelError> {
    let info = &decoded.info;
    if info.ty.is_tensor() && !info.is_fully_specified() {
        return Err(ModelError::invalid(format!(
            "a constant's dimensions {:?} must be known and above 0",
            info.dims
        )));
    }
    let location = &operand.location;
    let number = |value: i64, what| {
        usize::try_from(value)
            .map_err(|_| ModelError::invalid(format!("{what} {value} of the location is negative")))
    };
    let (offset, length) = (number(location.offset, "offset")?, number(location.length, "length")?);
    let code = operand.r#type.0;
    let unknown_size =
        OperandType::from_code(code).is_none() && context.extensions.operand_type(code).is_none();
    if !unknown_size && info.byte_size() != Some(length) {
        return Err(ModelError::invalid(format!(
            "{length} bytes for a constant {} of {:?}",
            info.ty, info.dims
        )));
    }
    let steers = !info.ty.is_plain_data();
    let value = if operand.lifetime == aidl::OperandLifeTime::CONSTANT_COPY {
        if location.poolIndex != 0 {
            return Err(ModelError::invalid("the pool index of a CONSTANT_COPY must be 0"));
        }
        let values = context.operand_values;
        let bytes = offset.checked_add(length).and_then(|end| values.get(offset..end));
        let bytes = bytes.ok_or_else(|| {
            ModelError::invalid(format!(
                "bytes {offset}+{length} lie outside of the {} operand values",
                values.len()
            ))
        })?;
        context.count_private(length)?;
        Constant::Private(copied(length, context.pace.interrupt(), |to, part| {
            to.copy_from_slice(&bytes[part]);
            Ok(())
        })?)
    } else {
        let slice = context.slice(location.poolIndex, offset, length)?;
        if steers || length <= SMALL {
            context.count_private(length)?;
            Constant::Private(private(&slice, &mut Copier::new(context.pace.interrupt()))?)
        } else {
            Constant::Client(slice)
        }
    };
    Ok(value)
}

fn subgraph(operand: &aidl::Operand, context: &Context) -> Result<Lifetime, ModelError> {
    let location = &operand.location;
    if (location.poolIndex, location.length) != (0, 0) {
        return Err(ModelError::invalid("pool index and length of a subgraph must be 0"));
    }
    let index = usize::try_from(location.offset).ok().filter(|&i| i < context.referenced);
    let index = index.ok_or_else(|| {
        ModelError::invalid(format!(
            "subgraph {} does not exist; the model has {}",
            location.offset, context.referenced
        ))
    })?;
    Ok(Lifetime::Subgraph(index))
}
