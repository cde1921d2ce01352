package vendor.nnhal.diagnostics;

import android.hardware.neuralnetworks.Model;

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
}
