package vendor.nnhal.burst;

import android.hardware.common.fmq.MQDescriptor;
import android.hardware.common.fmq.SynchronizedReadWrite;
import vendor.nnhal.burst.FmqRequestDatum;
import vendor.nnhal.burst.FmqResultDatum;
import vendor.nnhal.burst.IFmqBurstCallback;
import vendor.nnhal.burst.IFmqBurstContext;

/**
 * Bursts over fast message queues, as HAL 1.2 had them: requests and results go through shared memory, with no binder
 * transaction on the way. It is the extension object of every prepared model's binder; a client that does not ask for
 * it loses nothing.
 *
 * Executions along this way have no deadline and the default limit on loops, and cannot use memory that the driver
 * allocated.
 */
@VintfStability
interface IFmqBurst {
    /**
     * Begins a burst. The client has made both channels: synchronized queues of at most 16384 elements, with an event
     * flag, in shared memory (ashmem or memfd). It writes one request at a time, and reads its result before the next.
     *
     * A request names at most 128 memories. A packet that is ill-formed, and a result that does not fit its channel, are answered with GENERAL_FAILURE
     * alone. The burst ends when the context object is released, when the client dies, when it breaks the protocol of
     * the queues, or when it lets results lie for too long.
     *
     * @throws ServiceSpecificException with an ErrorStatus: INVALID_ARGUMENT for a channel that is not as above,
     *         RESOURCE_EXHAUSTED_TRANSIENT where the client has too many bursts, or all clients have
     */
    IFmqBurstContext configureExecutionBurst(in IFmqBurstCallback callback,
            in MQDescriptor<FmqRequestDatum, SynchronizedReadWrite> requestChannel,
            in MQDescriptor<FmqResultDatum, SynchronizedReadWrite> resultChannel);
}
