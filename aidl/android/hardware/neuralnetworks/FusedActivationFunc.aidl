package android.hardware.neuralnetworks;

/** The activation an operation applies to its result. LSTM numbers its own differently. */
@VintfStability
@Backing(type="int")
enum FusedActivationFunc {
    NONE = 0,
    RELU = 1,
    /** Clamps to [-1, 1]. */
    RELU1 = 2,
    /** Clamps to [0, 6]. */
    RELU6 = 3,
}
