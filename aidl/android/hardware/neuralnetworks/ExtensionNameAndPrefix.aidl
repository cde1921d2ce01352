package android.hardware.neuralnetworks;

/** Binds an extension to the high bits of the types it defines, for one model or one call. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable ExtensionNameAndPrefix {
    String name;
    /** 15 bits; a type is (prefix << 16) | the extension's own number. */
    char prefix;
}
