package android.hardware.common;

import android.os.ParcelFileDescriptor;

/** A region of anonymous shared memory. */
@VintfStability
parcelable Ashmem {
    /** An ashmem file, or a memfd from a client off the device. */
    ParcelFileDescriptor fd;
    /** Bytes the client says the file holds; the file itself may be shorter. */
    long size;
}
