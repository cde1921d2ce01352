package vendor.nnhal.diagnostics;

import vendor.nnhal.diagnostics.Span;

/** A part of what was recorded. */
@VintfStability
parcelable Recorded {
    Span[] spans;
    /** How many spans were missed since the last time, for want of room. */
    long missed;
    /** Threads that the spans name, by the system's number, and what each is called; empty where it has no name. */
    int[] threads;
    @utf8InCpp String[] names;
}
