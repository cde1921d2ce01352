package android.hardware.neuralnetworks;

import android.hardware.common.Ashmem;
import android.hardware.common.MappableFile;
import android.hardware.graphics.common.HardwareBuffer;

/** Memory that the client shares. The order of the members is their tag on the wire. */
@VintfStability
union Memory {
    Ashmem ashmem;
    MappableFile mappableFile;
    HardwareBuffer hardwareBuffer;
}
