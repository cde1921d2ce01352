package android.hardware.neuralnetworks;

/** A hint of a vendor extension (since version 4). */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable TokenValuePair {
    /** (extension prefix << 16) | the extension's own number. */
    int token;
    byte[] value;
}
