package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.IPreparedModel;

/** Lets a list of prepared models pass. A parcelable, whatever its name says. */
@VintfStability
@RustDerive(Clone=true)
parcelable IPreparedModelParcel {
    /**
     * The frozen text has no @nullable. It stands here because clients do send null, and a driver has
     * to answer that with INVALID_ARGUMENT itself; without it the call fails before the driver sees
     * it. The bytes on the wire are the same.
     */
    @nullable IPreparedModel preparedModel;
}
