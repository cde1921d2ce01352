//! SOFTMAX and the normalisations.

use super::call::{options, Call, Domain, Mapped};
use super::schema::Options;
use crate::ops::OperationType;

pub fn softmax(call: &mut Call) -> Mapped {
    let beta = options!(call, Softmax(o) => o.beta);
    let beta = call.builder().float(beta);
    call.emit_in(Domain::Own, OperationType::SOFTMAX, 1, &[beta])
}

pub fn log_softmax(call: &mut Call) -> Mapped {
    let operands = [call.builder().float(1.0), call.builder().int(-1)];
    call.emit_in(Domain::Float, OperationType::LOG_SOFTMAX, 1, &operands)
}

pub fn l2_normalization(call: &mut Call) -> Mapped {
    if options!(call, L2Norm(o) => o.activation, or 0) != 0 {
        return Err("NNAPI's L2_NORMALIZATION has no activation".into());
    }
    call.emit_in(Domain::Own, OperationType::L2_NORMALIZATION, 1, &[])
}

pub fn local_response(call: &mut Call) -> Mapped {
    let (radius, floats) = options!(call, LocalResponse(o) =>
        (o.radius, [o.bias, o.alpha, o.beta]));
    let mut operands = vec![call.builder().int(radius)];
    operands.extend(floats.map(|value| call.builder().float(value)));
    call.emit_in(Domain::Own, OperationType::LOCAL_RESPONSE_NORMALIZATION, 1, &operands)
}
