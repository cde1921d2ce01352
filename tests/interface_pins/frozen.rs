//! Our own interfaces are frozen: what they say, apart from comments, has the hash that they answer. A change needs a new
//! version, which only adds, with the hash that the test prints.

use nnhal::aidl::{BURST_HASH, BURST_VERSION, DIAGNOSTICS_HASH, DIAGNOSTICS_VERSION};
use sha2::{Digest, Sha256};
use std::path::Path;

/// The text without comments, and one space between words.
fn said(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        kept.push_str(before);
        rest = comment.split_once("*/").expect("comments end").1;
    }
    kept.push_str(rest);
    let lines = kept.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// The hash of a version of what is described in `package`: of names and contents in order.
fn hash(package: &str, version: i32) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("aidl").join(package);
    let entries = std::fs::read_dir(&directory).expect("a package");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut digest = Sha256::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
        digest.update(format!("{name}: {}\n", said(&text)));
    }
    digest.update(version.to_string());
    let digest = digest.finalize();
    // As long as AIDL's.
    digest[..20].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn our_own_interfaces_are_frozen() {
    assert_eq!(BURST_HASH, hash("vendor/nnhal/burst", BURST_VERSION));
    assert_eq!(DIAGNOSTICS_HASH, hash("vendor/nnhal/diagnostics", DIAGNOSTICS_VERSION));
}

#[test]
fn comments_say_nothing_and_all_else_does() {
    assert_eq!(said("/** A. */ int\n  a; // b\n/* c */"), "int a;");
    assert_ne!(said("int a;"), said("long a;"));
}
