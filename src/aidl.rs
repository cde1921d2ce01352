//! The generated stubs of the NNAPI AIDL interface, version 4.
