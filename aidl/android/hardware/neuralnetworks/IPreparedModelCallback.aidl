package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.ErrorStatus;
import android.hardware.neuralnetworks.IPreparedModel;

/** The client's ear for a compilation. */
@VintfStability
interface IPreparedModelCallback {
    /**
     * To be called once for each compilation. Null goes with every status but NONE.
     *
     * The frozen text has no @nullable. It stands here because null is what clients expect on
     * failure, and stubs without it cannot send it. The bytes on the wire are the same.
     */
    void notify(in ErrorStatus status, in @nullable IPreparedModel preparedModel);
}
