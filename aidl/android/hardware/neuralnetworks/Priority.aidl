package android.hardware.neuralnetworks;

/** Among the models of one client only. */
@VintfStability
@Backing(type="int")
enum Priority {
    LOW = 0,
    MEDIUM = 1,
    HIGH = 2,
}
