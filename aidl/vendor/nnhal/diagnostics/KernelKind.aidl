package vendor.nnhal.diagnostics;

/** What runs a step. */
@VintfStability
@Backing(type="int")
enum KernelKind {
    FAST = 0,
    /** The operation's plain evaluation, which is slow. */
    PLAIN = 1,
    /** Nobody: its output is its input, where it lies. */
    NOTHING = 2,
    /** Its subgraphs, whose operations have kernels of their own. */
    SUBGRAPHS = 3,
}
