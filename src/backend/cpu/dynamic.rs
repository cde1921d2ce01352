//! Weights that were bytes before they were dequantised, of products of floats: with the client's leave rows of inputs become bytes, too.
//!
//! TensorFlow Lite's converter makes weights bytes where nothing is known of the ranges between ("dynamic range quantisation"), and
//! its interpreter rounds each row of inputs to bytes as it runs. NNAPI has no such operation: in its terms weights are
//! dequantised, and multiplied as floats. Whether they may be multiplied as the former says a [hint](crate::model::hints::DYNAMIC_RANGE).

use super::constant::Constant;
use super::graph::{Graph, Node};
use super::kernels::was_bytes::{self, was_bytes};
use super::kernels::{self, Source};
use super::passes;
use super::routine::STEPS;
use crate::backend::BackendError;
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::{Arg, Args, Few, OperationType};
use crate::tensor::{OperandType, TensorInfo};

/// Which input weights are.
const WEIGHTS: usize = 1;

/// Stamps the weights that all who use them multiply as bytes.
pub fn stamp(graph: &mut Graph, pace: &mut Pace) -> Result<(), BackendError> {
    let mut fit = filled(pace.interrupt(), false, graph.values.len())?;
    for (v, fits) in fit.iter_mut().enumerate() {
        *fits = stamped(graph, v).is_some();
        pace.spend(1)?;
    }
    graph.outputs.iter().for_each(|&v| fit[v] = false);
    for node in &graph.nodes {
        pace.spend(STEPS.saturating_add(node.inputs.len()))?;
        for (i, v) in node.inputs.iter().enumerate().filter_map(|(i, v)| v.map(|v| (i, v))) {
            fit[v] = fit[v] && i == WEIGHTS && multiplies_bytes(graph, node, v, pace);
        }
    }
    for v in (0..graph.values.len()).filter(|&v| fit[v]) {
        pace.spend(STEPS)?;
        let info = stamped(graph, v);
        let value = &mut graph.values[v];
        value.declared = info.clone().unwrap_or_else(|| value.declared.clone());
        value.resolved = info.or(value.resolved.take());
    }
    Ok(())
}

/// The type of a value with its [stamp](was_bytes), if it is made of signed bytes without a zero point, and each of its rows has one scale.
fn stamped(graph: &Graph, v: usize) -> Option<TensorInfo> {
    let value = &graph.values[v];
    let (from, _) = value.constant.as_ref().and_then(Constant::narrow)?;
    let to =
        value.resolved.as_ref().filter(|to| to.ty == OperandType::TENSOR_FLOAT32 && to.dims == from.dims)?;
    let has_one_for_rows = match from.ty {
        OperandType::TENSOR_QUANT8_SYMM => true,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => from.zero_point == 0,
        OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL => from.channel_quant.as_ref()?.dim == 0,
        _ => false,
    };
    let info = was_bytes::stamped(to, from);
    Some(info).filter(|info| has_one_for_rows && was_bytes(info))
}

/// Whether a call has a kernel that multiplies its weights `v` as bytes.
fn multiplies_bytes(graph: &Graph, node: &Node, v: usize, pace: &Pace) -> bool {
    if !matches!(node.operation.ty, OperationType::FULLY_CONNECTED | OperationType::CONV_2D) {
        return false;
    }
    let (Some(info), Some(mut inputs)) = (stamped(graph, v), passes::arguments(graph, node)) else {
        return false;
    };
    if node.outputs.iter().any(|&o| graph.values[o].resolved.is_none()) {
        return false;
    }
    inputs[WEIGHTS] = Some(Arg { info: &info, data: None });
    let outputs: Few<_> = passes::output_infos(graph, node);
    let (signature_index, interrupt) = (node.signature_index, pace.interrupt());
    let args = Args { signature_index, inputs: &inputs, outputs: &outputs, interrupt };
    let kernel = kernels::select(node.operation, &args, &mut Source::later());
    kernel.is_some_and(|kernel| kernel.packs_narrow())
}

#[cfg(test)]
mod tests {
    use super::super::samples::{compile_as, f32_info, floats, loaded, made_up, run, Build};
    use super::*;
    use crate::backend::cpu::kernels::isa::Isa;
    use crate::model::Subgraph;
    use crate::ops::signature::{find, Operand};
    use crate::tensor::ChannelQuant;
    use OperandType::*;

    const UNITS: u32 = 24;
    const DEPTH: u32 = 48;

    fn bytes() -> Vec<i8> {
        (0..UNITS * DEPTH).map(|i| (i * 37 % 251) as u8 as i8).collect()
    }

    fn per_channel(dims: &[u32], dim: u32) -> TensorInfo {
        let scales = (0..dims[dim as usize]).map(|i| 0.01 + i as f32 / 1000.0).collect();
        let channel_quant = Some(ChannelQuant { scales, dim });
        TensorInfo { channel_quant, ..TensorInfo::new(TENSOR_QUANT8_SYMM_PER_CHANNEL, dims) }
    }

    /// What DEQUANTIZE makes of these weights, which lie in a client's memory if `is_clients`.
    fn dequantised(b: &mut Build, info: &TensorInfo, is_clients: bool) -> usize {
        let narrow = match is_clients {
            false => b.constant(info.clone(), &bytes()),
            true => b.clients(info.clone(), &bytes()),
        };
        let wide = f32_info(&info.dims);
        let signatures = OperationType::DEQUANTIZE.operation().unwrap().signatures;
        let found = find(signatures, &[Operand::Present(info)], &[Operand::Present(&wide)]);
        b.call(OperationType::DEQUANTIZE, found.unwrap().signature_index, &[narrow], wide)
    }

    fn layer(info: &TensorInfo, is_clients: bool) -> Subgraph {
        let mut b = Build::new();
        let input = b.input(f32_info(&[5, DEPTH]));
        let weights = dequantised(&mut b, info, is_clients);
        let bias = b.constant(f32_info(&[UNITS]), &floats(UNITS as usize, 2.0));
        let none = b.ints(&[0])[0];
        let made = f32_info(&[5, UNITS]);
        let out = b.call(OperationType::FULLY_CONNECTED, 0, &[input, weights, bias, none], made);
        b.finish(out)
    }

    fn floats_of(bytes: Vec<u8>) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&bytes)
    }

    /// The kernels of a model's steps.
    fn kernels(model: &Subgraph, may_round: bool) -> Vec<String> {
        let program = compile_as(model, 1, (None, may_round));
        let steps = program.routines()[0].steps.iter();
        steps.map(|step| step.kernel.as_ref().map_or("plain".into(), |kernel| kernel.name())).collect()
    }

    fn is_dynamic(model: &Subgraph, may_round: bool) -> bool {
        kernels(model, may_round).iter().any(|name| name.contains("dynamic"))
    }

    /// Whether this machine multiplies so at all.
    fn is_here() -> bool {
        !["neon", "neon32"].contains(&Isa::detect().name())
    }

    #[test]
    fn inputs_are_rounded_with_leave_alone_and_a_loaded_model_does_the_same() {
        let symmetric = TensorInfo::quantised(TENSOR_QUANT8_SYMM, &[UNITS, DEPTH], 0.02, 0);
        let signed = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[UNITS, DEPTH], 0.02, 0);
        for info in [symmetric, signed, per_channel(&[UNITS, DEPTH], 0)] {
            for is_clients in [false, true] {
                let model = layer(&info, is_clients);
                assert_eq!(
                    (is_dynamic(&model, true), is_dynamic(&model, false)),
                    (is_here(), false),
                    "{info:?}"
                );
                let [exact, program] =
                    [false, true].map(|may_round| compile_as(&model, 2, (None, may_round)));
                let rounded = floats_of(run(&program));
                assert_eq!(floats_of(run(&loaded(&program, 1))), rounded);
                let input = floats_of(made_up(&f32_info(&[5, DEPTH])));
                for ((row, made), exact) in input
                    .chunks(DEPTH as usize)
                    .zip(rounded.chunks(UNITS as usize))
                    .zip(floats_of(run(&exact)).chunks(UNITS as usize))
                {
                    let [low, high] = [f32::min, f32::max].map(|end| row.iter().copied().fold(0.0, end));
                    // Half of a step for each input, times the largest weight.
                    let most = (high - low) / 255.0 / 2.0 * DEPTH as f32 * 128.0 * 0.034 + 1e-4;
                    assert!(made.iter().zip(exact).all(|(made, exact)| (made - exact).abs() <= most));
                }
            }
        }
    }

    #[test]
    fn convolutions_round_what_is_under_the_filter() {
        let mut b = Build::new();
        let input = b.input(f32_info(&[1, 6, 7, 16]));
        let info = per_channel(&[24, 1, 3, 16], 0);
        let filter = dequantised(&mut b, &info, false);
        let bias = b.constant(f32_info(&[24]), &floats(24, 2.0));
        let ints = b.ints(&[1, 1, 1, 0]);
        let operands = [&[input, filter, bias][..], &ints].concat();
        let out = b.call(OperationType::CONV_2D, 0, &operands, f32_info(&[1, 6, 7, 24]));
        let model = b.finish(out);
        assert_eq!(is_dynamic(&model, true), is_here());
        let [exact, program] = [false, true].map(|may_round| compile_as(&model, 2, (None, may_round)));
        let rounded = floats_of(run(&program));
        assert_eq!(floats_of(run(&loaded(&program, 1))), rounded);
        let far = rounded.iter().zip(floats_of(run(&exact))).map(|(made, exact)| (made - exact).abs());
        assert!(far.fold(0.0, f32::max) <= 48.0 * 128.0 * 0.034 / 255.0 + 1e-4);
    }

    #[test]
    fn weights_that_others_read_or_that_have_another_form_stay_floats() {
        let zero = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[UNITS, DEPTH], 0.02, 3);
        let unsigned = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[UNITS, DEPTH], 0.02, 0);
        for info in [zero, unsigned, per_channel(&[UNITS, DEPTH], 1)] {
            assert!(!is_dynamic(&layer(&info, false), true), "{info:?}");
        }
        let symmetric = TensorInfo::quantised(TENSOR_QUANT8_SYMM, &[UNITS, DEPTH], 0.02, 0);
        let mut b = Build::new();
        let input = b.input(f32_info(&[UNITS, DEPTH]));
        let weights = dequantised(&mut b, &symmetric, false);
        let bias = b.constant(f32_info(&[UNITS]), &floats(UNITS as usize, 2.0));
        let none = b.ints(&[0])[0];
        let sum = b.call(OperationType::ADD, 0, &[input, weights, none], f32_info(&[UNITS, DEPTH]));
        let made = f32_info(&[UNITS, UNITS]);
        let out = b.call(OperationType::FULLY_CONNECTED, 0, &[sum, weights, bias, none], made);
        assert!(!is_dynamic(&b.finish(out), true));
    }
}
