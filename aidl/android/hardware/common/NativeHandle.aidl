package android.hardware.common;

import android.os.ParcelFileDescriptor;

/** A native_handle_t: the file descriptors first, then plain integers. */
@VintfStability
parcelable NativeHandle {
    ParcelFileDescriptor[] fds;
    int[] ints;
}
