package android.hardware.neuralnetworks;

/** How many cache files the driver wants for each compilation; both 0 says it does not cache. */
@VintfStability
@RustDerive(Clone=true, PartialEq=true)
parcelable NumberOfCacheFiles {
    /** For what must not be tampered with; at most MAX_NUMBER_OF_CACHE_FILES. */
    int numModelCache;
    /** For what may be, at the price of wrong values; at most MAX_NUMBER_OF_CACHE_FILES. */
    int numDataCache;
}
