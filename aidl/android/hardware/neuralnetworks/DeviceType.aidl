package android.hardware.neuralnetworks;

/** What the driver runs on. 0 is not a value. */
@VintfStability
@Backing(type="int")
enum DeviceType {
    OTHER = 1,
    CPU = 2,
    GPU = 3,
    ACCELERATOR = 4,
}
