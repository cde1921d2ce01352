package vendor.nnhal.diagnostics;

import vendor.nnhal.diagnostics.PlaceKind;

/** Where a value lies during an execution. */
@VintfStability
parcelable ValuePlace {
    PlaceKind kind = PlaceKind.NOWHERE;
    /** Within the arena; 0 for what is in none. */
    long offset;
    /** 0 where only an execution knows. */
    long bytes;
}
