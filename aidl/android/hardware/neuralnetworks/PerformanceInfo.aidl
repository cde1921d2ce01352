package android.hardware.neuralnetworks;

/** Relative to the CPU: 0.5 is half the time or half the power. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable PerformanceInfo {
    float execTime;
    float powerUsage;
}
