package android.hardware.neuralnetworks;

import android.hardware.neuralnetworks.BufferDesc;
import android.hardware.neuralnetworks.BufferRole;
import android.hardware.neuralnetworks.Capabilities;
import android.hardware.neuralnetworks.DeviceBuffer;
import android.hardware.neuralnetworks.DeviceType;
import android.hardware.neuralnetworks.ExecutionPreference;
import android.hardware.neuralnetworks.Extension;
import android.hardware.neuralnetworks.IPreparedModelCallback;
import android.hardware.neuralnetworks.IPreparedModelParcel;
import android.hardware.neuralnetworks.Model;
import android.hardware.neuralnetworks.NumberOfCacheFiles;
import android.hardware.neuralnetworks.PrepareModelConfig;
import android.hardware.neuralnetworks.Priority;
import android.os.ParcelFileDescriptor;

/** A driver. Every method may be called from any number of threads at once. */
@VintfStability
interface IDevice {
    const int BYTE_SIZE_OF_CACHE_TOKEN = 32;
    /** For each of the two kinds. */
    const int MAX_NUMBER_OF_CACHE_FILES = 32;
    /** The sign bit of a type is 0, then come the prefix of its extension and its number there. */
    const int EXTENSION_TYPE_HIGH_BITS_PREFIX = 15;
    const int EXTENSION_TYPE_LOW_BITS_TYPE = 16;
    const int OPERAND_TYPE_BASE_MAX = 0xffff;
    const int OPERATION_TYPE_BASE_MAX = 0xffff;
    /** Every prepared model must be of this device, and every role one of its inputs or outputs. */
    DeviceBuffer allocate(in BufferDesc desc, in IPreparedModelParcel[] preparedModels,
            in BufferRole[] inputRoles, in BufferRole[] outputRoles);
    Capabilities getCapabilities();
    NumberOfCacheFiles getNumberOfCacheFilesNeeded();
    Extension[] getSupportedExtensions();
    /** One answer per operation of the main subgraph; true promises that it compiles. */
    boolean[] getSupportedOperations(in Model model);
    DeviceType getType();
    /** Part of what a client names its caches by: unique to a build of the driver. */
    String getVersionString();
    /**
     * Validates, then compiles in the background and reports to the callback. A call that fails has
     * told the callback the same.
     *
     * @param deadlineNs on CLOCK_BOOTTIME; -1 is none.
     * @param modelCache to be written, as dataCache is; bad ones only mean that nothing is cached.
     * @param token BYTE_SIZE_OF_CACHE_TOKEN bytes; meaningless without files.
     */
    void prepareModel(in Model model, in ExecutionPreference preference, in Priority priority,
            in long deadlineNs, in ParcelFileDescriptor[] modelCache,
            in ParcelFileDescriptor[] dataCache, in byte[] token, in IPreparedModelCallback callback);
    /** From the files prepareModel wrote. Anything amiss with them is an error here. */
    void prepareModelFromCache(in long deadlineNs, in ParcelFileDescriptor[] modelCache,
            in ParcelFileDescriptor[] dataCache, in byte[] token, in IPreparedModelCallback callback);
    /** Since version 4. */
    void prepareModelWithConfig(in Model model, in PrepareModelConfig config,
            in IPreparedModelCallback callback);
}
