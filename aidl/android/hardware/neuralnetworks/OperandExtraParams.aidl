package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.SymmPerChannelQuantParams;

/** What some operand types need beside scale and zero point. The order of the members is their tag on the wire. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
union OperandExtraParams {
    /** With TENSOR_QUANT8_SYMM_PER_CHANNEL, and only there. */
    SymmPerChannelQuantParams channelQuant;
    /** With extension types only; the extension says what it means. */
    byte[] extension;
}
