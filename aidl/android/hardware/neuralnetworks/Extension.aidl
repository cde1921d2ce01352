package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ExtensionOperandTypeInformation;

/** A vendor extension the driver knows. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable Extension {
    /** Lower-case latin letters, digits, '.' and '_', with one '.' at least. */
    String name;
    ExtensionOperandTypeInformation[] operandTypes;
}
