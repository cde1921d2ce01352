package vendor.nnhal.diagnostics;

import vendor.nnhal.diagnostics.Step;
import vendor.nnhal.diagnostics.ValuePlace;

/** A compiled subgraph. */
@VintfStability
parcelable SubgraphDescription {
    /**
     * What is left to run, in order. Operations that are in none of the steps were computed by the compilation, or nobody
     * needs what they give.
     */
    Step[] steps;
    /** Where values lie during an execution, by the model's operand indices. */
    ValuePlace[] places;
    /** Bytes of the memory that an execution's values share. */
    long arenaBytes;
}
