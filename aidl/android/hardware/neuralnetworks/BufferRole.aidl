package android.hardware.neuralnetworks;

/** One place a driver-side buffer will be used: an input or an output of a prepared model. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable BufferRole {
    /** Into the prepared models of the same allocate call. */
    int modelIndex;
    /** Into the model's inputs or outputs. */
    int ioIndex;
    /** How likely this use is, in (0, 1]; a hint for the layout. */
    float probability;
}
