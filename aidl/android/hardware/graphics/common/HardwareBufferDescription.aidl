package android.hardware.graphics.common;

import android.hardware.graphics.common.BufferUsage;
import android.hardware.graphics.common.PixelFormat;

/** What an AHardwareBuffer was allocated as. */
@VintfStability
parcelable HardwareBufferDescription {
    /** Of a BLOB: its size in bytes. */
    int width;
    /** Of a BLOB: 1. */
    int height;
    /** Of a BLOB: 1. */
    int layers;
    PixelFormat format = PixelFormat.UNSPECIFIED;
    /** A set of BufferUsage bits. */
    BufferUsage usage = BufferUsage.CPU_READ_NEVER;
    /** Pixels in a row, or 0 when it is not known. */
    int stride;
}
