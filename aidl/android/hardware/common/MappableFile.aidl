package android.hardware.common;

import android.os.ParcelFileDescriptor;

/** A window of a file to be mapped. */
@VintfStability
parcelable MappableFile {
    /** Bytes in the window. */
    long length;
    /** PROT_READ and PROT_WRITE bits; PROT_NONE is 0. */
    int prot;
    ParcelFileDescriptor fd;
    /** Where the window starts in the file, in bytes: a multiple of the page size. */
    long offset;
}
