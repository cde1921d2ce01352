package android.hardware.neuralnetworks;

@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable SymmPerChannelQuantParams {
    /** As many as dimensions[channelDim], all above 0. */
    float[] scales;
    int channelDim;
}
