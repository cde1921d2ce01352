package vendor.nnhal.diagnostics;

/** What a thread did. */
@VintfStability
@Backing(type="int")
enum Activity {
    /** A whole execution on the device, from when it had its turn; it has no operation. */
    RUN = 0,
    /** An operation, on the thread that runs. Those of an IF's or WHILE's subgraphs lie within it. */
    OPERATION = 1,
    /** What another thread did of one. */
    PART = 2,
}
