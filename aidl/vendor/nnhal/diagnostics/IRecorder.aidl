package vendor.nnhal.diagnostics;

import vendor.nnhal.diagnostics.Recorded;

/** Notes what the executions of one prepared model do when, as long as its client holds it. */
@VintfStability
interface IRecorder {
    /**
     * What was recorded since the last time, in the order in which it ended; some of it, where it is much: then the rest
     * comes next time. An answer without spans says that there is no more. What is not taken does not grow beyond 65536
     * spans: those that come then are missed.
     */
    Recorded take();
}
