package vendor.nnhal.burst;

/**
 * One element of a result channel: 24 bytes, those of HAL 1.2's FmqResultDatum. The tag is the first byte, the value
 * begins at byte 8, and numbers have the order of the machine.
 *
 * A result is a packet of such elements, written at once, in this order:
 * 1. packetInformation
 * 2. for each output of the model: operandInformation, then one operandDimensionValue per dimension. There are none
 *    where the execution failed in any other way than by outputs that were too small.
 * 3. executionTiming
 */
@VintfStability
@FixedSize
union FmqResultDatum {
    @VintfStability
    @FixedSize
    parcelable PacketInformation {
        /** Elements of the packet, this one included. */
        int packetSize;
        /** 0 to 4 of ErrorStatus. Whatever HAL 1.2 had no name for is GENERAL_FAILURE. */
        int errorStatus;
        int numberOfOperands;
    }

    @VintfStability
    @FixedSize
    parcelable OperandInformation {
        /** 1 if the output's memory was large enough, else 0. */
        boolean isSufficient;
        int numberOfDimensions;
    }

    @VintfStability
    @FixedSize
    parcelable Timing {
        /** Microseconds; all bits set where nothing was measured. */
        long timeOnDevice;
        long timeInDriver;
    }

    PacketInformation packetInformation;
    OperandInformation operandInformation;
    int operandDimensionValue;
    Timing executionTiming;
}
