//! The driver's interfaces in the shape that AIDL's Rust backend gives them: types, traits and classes that compile against
//! libbinder_rs's signatures. No call does anything.

/// Packages as modules, each type in a module of its own name.
#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals, unused_variables)]
pub mod aidl {
    include!(concat!(env!("OUT_DIR"), "/interfaces.rs"));
}
