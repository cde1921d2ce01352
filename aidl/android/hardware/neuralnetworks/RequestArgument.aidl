package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.DataLocation;

@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable RequestArgument {
    /** An optional argument left out: location all 0, dimensions empty. */
    boolean hasNoValue;
    /** All 0 but the pool index when the pool is a driver-side buffer. */
    DataLocation location;
    /** Empty to take the model's; else it fills in what the model leaves unknown. */
    int[] dimensions;
}
