package vendor.nnhal.burst;

/**
 * One element of a request channel: 24 bytes, those of HAL 1.2's FmqRequestDatum. The tag is the first byte, the value
 * begins at byte 4, and numbers have the order of the machine.
 *
 * A request is a packet of such elements, written at once, in this order:
 * 1. packetInformation
 * 2. for each input of the model: inputOperandInformation, then one inputOperandDimensionValue per dimension
 * 3. for each output of the model: outputOperandInformation, then one outputOperandDimensionValue per dimension
 * 4. one poolIdentifier per memory pool
 * 5. measureTiming
 */
@VintfStability
@FixedSize
union FmqRequestDatum {
    @VintfStability
    @FixedSize
    parcelable PacketInformation {
        /** Elements of the packet, this one included. */
        int packetSize;
        int numberOfInputOperands;
        int numberOfOutputOperands;
        int numberOfPools;
    }

    @VintfStability
    @FixedSize
    parcelable OperandInformation {
        /** 0 or 1. With 1 all the rest must be 0. */
        boolean hasNoValue;
        /** Index into the packet's pools. */
        int poolIndex;
        /** Where in the pool the operand begins, in bytes. */
        int offset;
        int length;
        /** How many dimensions follow; 0 leaves them to the model. */
        int numberOfDimensions;
    }

    PacketInformation packetInformation;
    OperandInformation inputOperandInformation;
    int inputOperandDimensionValue;
    OperandInformation outputOperandInformation;
    int outputOperandDimensionValue;
    /** The client's name for a memory: the driver asks the burst's callback for names it does not know. */
    int poolIdentifier;
    /** 1 to measure, 0 not to. */
    int measureTiming;
}
