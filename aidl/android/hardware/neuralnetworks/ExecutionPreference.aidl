package android.hardware.neuralnetworks;

/** What the client would trade for what. */
@VintfStability
@Backing(type="int")
enum ExecutionPreference {
    LOW_POWER = 0,
    FAST_SINGLE_ANSWER = 1,
    SUSTAINED_SPEED = 2,
}
