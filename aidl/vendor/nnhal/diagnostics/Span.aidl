package vendor.nnhal.diagnostics;

import vendor.nnhal.diagnostics.Activity;

/** A stretch of a thread's time. */
@VintfStability
parcelable Span {
    Activity activity = Activity.RUN;
    /** Of the operation: 0 for the main subgraph, one more than its index for a referenced one. */
    int subgraph;
    /** The operation's index there; of several that run as one, the first one's. */
    int operation;
    /** By the system's number. */
    int thread;
    /** Nanoseconds since the recorder was asked for. */
    long startNs;
    /** The same; not before the start. */
    long endNs;
}
