package android.hardware.neuralnetworks;

/** Where the bytes of an operand lie. All zero for an operand that has none. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable DataLocation {
    /** Into the pools of the model or request; 0 for CONSTANT_COPY. */
    int poolIndex;
    /** In bytes; for an operand of lifetime SUBGRAPH the index of the referenced subgraph. */
    long offset;
    /** In bytes, without the padding. */
    long length;
    /** Bytes after the data that a driver may read, or write for an output; 0 in a model. */
    long padding;
}
