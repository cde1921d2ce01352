package android.hardware.graphics.common;

import android.hardware.common.NativeHandle;
import android.hardware.graphics.common.HardwareBufferDescription;

/** An AHardwareBuffer on the wire. */
@VintfStability
parcelable HardwareBuffer {
    HardwareBufferDescription description;
    /** Allocator-defined, but for BLOB buffers the first descriptor is what gets mapped. */
    NativeHandle handle;
}
