package android.hardware.neuralnetworks;

/** What a client wants of a driver-side buffer beyond the roles it will play. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable BufferDesc {
    /** 0 is an unknown dimension, an empty list an unknown rank: the roles have to tell. */
    int[] dimensions;
}
