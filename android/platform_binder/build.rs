//! Gives the driver the id of its sources, which `android/build.sh --generated` has made. Must not make another.

use std::path::Path;

const SOURCE_ID: &str = "../generated/source_id.rs";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE_ID}");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::copy(SOURCE_ID, Path::new(&out).join("source_id.rs"))
        .unwrap_or_else(|why| panic!("{SOURCE_ID}: {why}: run android/build.sh --generated"));
}
