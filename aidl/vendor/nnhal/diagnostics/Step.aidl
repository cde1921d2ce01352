package vendor.nnhal.diagnostics;

import vendor.nnhal.diagnostics.KernelKind;

/** One or more operations that run as one. */
@VintfStability
parcelable Step {
    /** Their indices in the subgraph: a recorder knows the step by the first. */
    int[] operations;
    KernelKind kind = KernelKind.FAST;
    /** The fast kernel's name; of other kinds empty. */
    @utf8InCpp String kernel;
    /** Of an execution; -1 for what is made of something else, or not known ahead. */
    long multiplyAdds = -1;
    /** Of all operands, each counted once; -1 where not known ahead. */
    long bytes = -1;
}
