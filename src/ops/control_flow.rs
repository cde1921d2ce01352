//! IF and WHILE: their signatures. What they hand to subgraphs is checked with the model, and backends run them.

use super::signature::{is, Row, Slot, Ty};
use super::{no_check, Operation, OperationType, Run, Signature};
use crate::tensor::OperandType::*;

/// Anything that can be handed to a subgraph.
const fn any(name: &'static str) -> Slot {
    Slot {
        name,
        ty: Ty::Any(&[
            FLOAT32,
            INT32,
            UINT32,
            TENSOR_FLOAT32,
            TENSOR_INT32,
            TENSOR_QUANT8_ASYMM,
            BOOL,
            TENSOR_QUANT16_SYMM,
            TENSOR_FLOAT16,
            TENSOR_BOOL8,
            FLOAT16,
            TENSOR_QUANT8_SYMM_PER_CHANNEL,
            TENSOR_QUANT16_ASYMM,
            TENSOR_QUANT8_SYMM,
            TENSOR_QUANT8_ASYMM_SIGNED,
        ]),
        rank: (0, u8::MAX),
        optional: true,
    }
}

const ROWS: &[Row] = &[Row(4, &[])];

pub static IF: Operation = Operation {
    ty: OperationType::IF,
    doc: "runs one of two subgraphs",
    signatures: &[
        Signature::new(
            ROWS,
            &[
                is("condition", TENSOR_BOOL8).optional(),
                is("then", SUBGRAPH),
                is("else", SUBGRAPH),
                any("inputs"),
            ],
            &[any("outputs")],
        )
        .repeat_input(3)
        .repeat_output(0),
        Signature::new(
            ROWS,
            &[is("condition", TENSOR_BOOL8).optional(), is("then", SUBGRAPH), is("else", SUBGRAPH)],
            &[any("outputs")],
        )
        .repeat_output(0),
    ],
    check: no_check,
    run: Run::ControlFlow,
};

pub static WHILE: Operation = Operation {
    ty: OperationType::WHILE,
    doc: "runs a subgraph for as long as another says so",
    signatures: &[Signature::new(
        ROWS,
        &[is("condition", SUBGRAPH), is("body", SUBGRAPH), any("inputs")],
        &[any("outputs")],
    )
    .repeat_input(2)
    .repeat_output(0)],
    check: no_check,
    run: Run::ControlFlow,
};
