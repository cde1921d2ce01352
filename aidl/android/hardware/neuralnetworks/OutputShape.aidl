package android.hardware.neuralnetworks;

/** The shape an output turned out to have. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable OutputShape {
    int[] dimensions;
    /** False when the client's buffer was too small for it. */
    boolean isSufficient;
}
