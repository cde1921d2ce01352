package vendor.nnhal.diagnostics;

/** What kind of place a value has. */
@VintfStability
@Backing(type="int")
enum PlaceKind {
    /** Nowhere: no execution needs it. */
    NOWHERE = 0,
    /** With the model. */
    CONSTANT = 1,
    /** The same, in a form of its kernel's own. */
    PACKED = 2,
    ARENA = 3,
    /** Where its client has it; in that part of the arena, should the client's memory not allow it. */
    CLIENT = 4,
    /** In memory of its own, as only an execution knows its size. */
    OWN = 5,
}
