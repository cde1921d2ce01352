package vendor.nnhal.diagnostics;

import vendor.nnhal.diagnostics.SubgraphDescription;

/** A compiled model. */
@VintfStability
parcelable ModelDescription {
    /** The main one first, then those that IF and WHILE refer to, in the model's order. */
    SubgraphDescription[] subgraphs;
}
