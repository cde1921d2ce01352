//! Generates Rust from the interface descriptions in `aidl/`, and an id of the sources. Must not read anything outside the package.

use std::path::{Path, PathBuf};

/// Where the interface descriptions lie, each at the path its package names.
const AIDL_ROOT: &str = "aidl";
/// The frozen interfaces, each with its version and hash: NNAPI's, which is the platform's, and our own extensions, which
/// count their versions by themselves. `tests/interface_pins` holds ours, and tells the hash of one that has changed.
const FROZEN: [(&str, i32, &str); 3] = [
    ("aidl/android/hardware/neuralnetworks", 4, "53178f8de9b8861df391cf0593f6f3e08adad33d"),
    ("aidl/vendor/nnhal/burst", 1, "574ff1921c44160e7ee37a85fc99e1e6abcda0ff"),
    ("aidl/vendor/nnhal/diagnostics", 2, "b62f35376ff569faa34b6971da9b483cb23fa543"),
];

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

/// Writes `source_id.rs` into OUT_DIR: SOURCE_ID, a digest of what the driver is built from, as clients' caches must not
/// outlive a change of it; and VERSION, the package's, which other build systems than Cargo do not tell the compiler.
fn source_id() {
    let mut files = vec![PathBuf::from("Cargo.toml"), PathBuf::from("Cargo.lock")];
    files.iter().for_each(|file| println!("cargo:rerun-if-changed={}", file.display()));
    for dir in ["src", AIDL_ROOT] {
        println!("cargo:rerun-if-changed={dir}");
        collect(Path::new(dir), &["rs", "aidl"], &mut files);
    }
    // The driver builds without.
    files.retain(|file| !["src/client", "src/tflite", "src/tool"].iter().any(|dir| file.starts_with(dir)));
    let (version, id) = (env!("CARGO_PKG_VERSION"), digest(files));
    let text = format!("const VERSION: &str = \"{version}\";\nconst SOURCE_ID: &str = \"{id:016x}\";\n");
    write("source_id.rs", &text);
}

fn digest(mut files: Vec<PathBuf>) -> u64 {
    use std::hash::Hasher;
    files.sort();
    // The keys are fixed, so the same sources give the same digest.
    let mut digest = std::hash::DefaultHasher::new();
    for file in &files {
        let text = std::fs::read(file).unwrap_or_else(|e| panic!("cannot read {}: {e}", file.display()));
        digest.write(&text);
    }
    digest.finish()
}

/// Writes a file into OUT_DIR.
fn write(name: &str, text: &str) {
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let path = Path::new(&out).join(name);
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
        if let Some((_, version, hash)) = FROZEN.iter().find(|(package, ..)| file.starts_with(package)) {
            builder = builder.version(*version).hash(*hash);
        }
    }
    if let Err(error) = builder.generate() {
        panic!("cannot compile the interfaces in {AIDL_ROOT}/: {error:?}");
    }
    pass_points();
}

/// Has the generated code pass a point of `src/points.rs` with each parcelable that it reads: of itself the binder crate reads a message
/// in one go, however long that takes.
fn pass_points() {
    const READS: &str = "_parcel.sized_read(";
    const PASSES: &str = "crate::points::passed();";
    let generated = Path::new(&std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("nnapi.rs");
    let text = std::fs::read_to_string(&generated).unwrap_or_else(|e| panic!("cannot read nnapi.rs: {e}"));
    assert!(text.contains(READS), "the generated code reads no parcelable by {READS}: see pass_points");
    write("nnapi.rs", &text.replace(READS, &format!("{PASSES} {READS}")));
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

/// Writes `tflite.rs` into OUT_DIR, which `src/tflite/schema.rs` includes; and `importer_id.rs` with IMPORTER_ID, a digest of
/// what makes models of files, as the tool's caches must not outlive a change of it.
#[cfg(feature = "tflite")]
fn tflite() {
    const SCHEMA: &str = "src/tflite/schema.fbs";
    println!("cargo:rerun-if-changed={SCHEMA}");
    let declarations = planus_translation::translate_files(&[SCHEMA])
        .unwrap_or_else(|| panic!("cannot translate {SCHEMA}: see above"));
    let text = planus_codegen::generate_rust(&declarations, false)
        .unwrap_or_else(|e| panic!("cannot generate code for {SCHEMA}: {e}"));
    write("tflite.rs", &text);
    let mut files = Vec::new();
    // What in there does not matter costs a compilation; a list of what does would be forgotten.
    for dir in ["src/tflite", "src/client", "src/ops", "src/model", "src/tensor"] {
        collect(Path::new(dir), &["rs", "fbs"], &mut files);
    }
    write("importer_id.rs", &format!("const IMPORTER_ID: &str = \"{:016x}\";\n", digest(files)));
}
