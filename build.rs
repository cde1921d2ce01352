//! Generates Rust from the interface descriptions in `aidl/`, and an id of the sources. Must not read anything outside the package.

use std::path::{Path, PathBuf};

/// Where the interface descriptions lie, each at the path its package names.
const AIDL_ROOT: &str = "aidl";
/// The frozen interface that every object of this package answers to.
const NN_PACKAGE: &str = "aidl/android/hardware/neuralnetworks";
const NN_VERSION: i32 = 4;
const NN_HASH: &str = "53178f8de9b8861df391cf0593f6f3e08adad33d";
/// Our own extension of the device, which counts its versions by itself. What AIDL calls an interface without a hash.
const DIAGNOSTICS_PACKAGE: &str = "aidl/vendor/nnhal/diagnostics";
const DIAGNOSTICS_VERSION: i32 = 2;
const DIAGNOSTICS_HASH: &str = "notfrozen";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_PLATFORM_BINDER").is_some() {
        panic!("platform_binder needs libbinder_rs, which the platform's tree has and Cargo has not: see docs/ANDROID.md");
    }
    aidl();
    source_id();
    #[cfg(feature = "tflite")]
    tflite();
}

/// Writes `source_id.rs` into OUT_DIR: SOURCE_ID, a digest of what the driver is built from: clients' caches must not outlive a change of it.
fn source_id() {
    use std::hash::Hasher;
    let mut files = vec![PathBuf::from("Cargo.toml"), PathBuf::from("Cargo.lock")];
    for dir in ["src", AIDL_ROOT] {
        println!("cargo:rerun-if-changed={dir}");
        collect(Path::new(dir), &["rs", "aidl"], &mut files);
    }
    // The driver builds without.
    files.retain(|file| !["src/client", "src/tflite", "src/tool"].iter().any(|dir| file.starts_with(dir)));
    files.sort();
    // The keys are fixed, so the same sources give the same digest.
    let mut digest = std::hash::DefaultHasher::new();
    for file in &files {
        let text = std::fs::read(file).unwrap_or_else(|e| panic!("cannot read {}: {e}", file.display()));
        digest.write(&text);
    }
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = Path::new(&out).join("source_id.rs");
    let text = format!("const SOURCE_ID: &str = \"{:016x}\";\n", digest.finish());
    std::fs::write(&path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}

/// Writes `nnapi.rs` into OUT_DIR; `src/aidl.rs` includes it.
fn aidl() {
    println!("cargo:rerun-if-changed={AIDL_ROOT}");
    let mut files = Vec::new();
    collect(Path::new(AIDL_ROOT), &["aidl"], &mut files);
    // read_dir has no order; a sorted list keeps the generated file the same on every machine.
    files.sort();
    let mut builder = rsbinder_aidl::Builder::new().include_dir(AIDL_ROOT).output("nnapi.rs");
    for file in &files {
        builder = builder.source(file);
        if file.starts_with(NN_PACKAGE) {
            builder = builder.version(NN_VERSION).hash(NN_HASH);
        }
        if file.starts_with(DIAGNOSTICS_PACKAGE) {
            builder = builder.version(DIAGNOSTICS_VERSION).hash(DIAGNOSTICS_HASH);
        }
    }
    if let Err(error) = builder.generate() {
        panic!("cannot compile the interfaces in {AIDL_ROOT}/: {error:?}");
    }
}

fn collect(dir: &Path, extensions: &[&str], files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("cannot list {}: {e}", dir.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|e| panic!("cannot list {}: {e}", dir.display())).path();
        if path.is_dir() {
            collect(&path, extensions, files);
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e)) {
            files.push(path);
        }
    }
}

/// Writes `tflite.rs` into OUT_DIR; `src/tflite/schema.rs` includes it.
#[cfg(feature = "tflite")]
fn tflite() {
    const SCHEMA: &str = "src/tflite/schema.fbs";
    println!("cargo:rerun-if-changed={SCHEMA}");
    let declarations = planus_translation::translate_files(&[SCHEMA])
        .unwrap_or_else(|| panic!("cannot translate {SCHEMA}: see above"));
    let text = planus_codegen::generate_rust(&declarations, false)
        .unwrap_or_else(|e| panic!("cannot generate code for {SCHEMA}: {e}"));
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = Path::new(&out).join("tflite.rs");
    std::fs::write(&path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}
