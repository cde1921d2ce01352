package android.hardware.neuralnetworks;

/** The size of an operand type that an extension defines. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable ExtensionOperandTypeInformation {
    /** The low 16 bits of the type. */
    char type;
    boolean isTensor;
    /** Of the scalar, or of one element of the tensor. */
    int byteSize;
}
