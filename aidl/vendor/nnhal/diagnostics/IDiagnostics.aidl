package vendor.nnhal.diagnostics;

import android.hardware.neuralnetworks.IPreparedModel;
import android.hardware.neuralnetworks.Model;
import vendor.nnhal.diagnostics.IRecorder;
import vendor.nnhal.diagnostics.ModelDescription;

/**
 * What the driver tells of itself. It is the extension object of the device's binder; a client that does not ask for
 * it loses nothing.
 */
@VintfStability
interface IDiagnostics {
    /**
     * The driver's state, as one JSON object: docs/DIAGNOSTICS.md says what is in it. Who administers the device (root,
     * system, shell, and the driver's own user) is told all; any other caller what concerns itself. There is nothing in
     * it of what clients compute: no values, no models, no tokens, no names of files.
     */
    @utf8InCpp String status();

    /**
     * For each operation of the model's main subgraph why the driver does not take it; empty where it does. It is what
     * IDevice.getSupportedOperations would answer, with reasons. Reasons are cut where all of them together are long.
     *
     * @throws ServiceSpecificException with an ErrorStatus, as IDevice.getSupportedOperations: INVALID_ARGUMENT for a
     *         model that is not valid
     */
    @utf8InCpp String[] refusals(in Model model);

    /**
     * What runs a prepared model's operations, and where its values lie. Null where the driver does not know: its device
     * does not tell, or the first execution is yet to compile the model. Since version 2.
     *
     * @throws ServiceSpecificException with an ErrorStatus: INVALID_ARGUMENT for a model that is not of this device, or
     *         that another client has prepared; GENERAL_FAILURE where the answer would be too long
     */
    @nullable ModelDescription describe(in IPreparedModel model);

    /**
     * Records all executions of a prepared model that begin from here on, whichever way they come, until the recorder is
     * released. A model has one recorder at a time: the one that was asked for last. Since version 2.
     *
     * @throws ServiceSpecificException with an ErrorStatus: INVALID_ARGUMENT as describe;
     *         RESOURCE_EXHAUSTED_TRANSIENT where the client has too much private memory of the driver's already
     */
    IRecorder record(in IPreparedModel model);
}
