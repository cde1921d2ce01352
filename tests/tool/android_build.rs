//! android/build.sh with a cargo and an NDK that are none: what is built, and where it comes to lie.

use crate::android_scripts::{ours, NAME};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Stands in for cargo: notes what it is asked, and makes the program.
const CARGO: &str = r#"#!/bin/bash
echo "$*" >>"$(dirname "$0")/asked"
while [ $# -gt 0 ]; do
  case $1 in
    --target-dir) directory=$2 ;;
    --bin) program=$2 ;;
    --target=*) target=${1#*=} ;;
  esac
  shift
done
mkdir -p "$directory/$target/release"
echo "$program" >"$directory/$target/release/$program"
"#;

#[test]
fn a_vendors_own_daemon_is_built_in_place_of_ours() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let tools = path("ndk/toolchains/llvm/prebuilt/linux/bin");
    fs::create_dir_all(&tools).expect("directories");
    let programs = [
        (tools.join("llvm-strip"), "#!/bin/sh\ncp \"$3\" \"$2\"\n"),
        (tools.join("aarch64-linux-android30-clang"), "#!/bin/sh\n"),
        (path("cargo"), CARGO),
    ];
    for (program, text) in programs {
        fs::write(&program, text).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("made executable");
    }
    fs::write(path("Cargo.toml"), "").expect("written");
    let build = |variables: &[(&str, &str)]| {
        let mut command = Command::new(ours("build.sh"));
        command.arg("arm64").current_dir(&directory).envs(variables.iter().copied());
        let programs = std::env::var("PATH").expect("a path");
        command.env("PATH", format!("{}:{programs}", directory.path().display()));
        command.env("ANDROID_NDK_HOME", path("ndk")).env("CARGO_TARGET_DIR", path("made"));
        let output = command.env("NNHAL_PREBUILT", path("built")).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let built = || fs::read_to_string(path("built/arm64").join(NAME)).expect("a program");
    let (done, said) = build(&[]);
    assert!(done && built() == "nnhald\n", "{said}");
    let (done, said) = build(&[("NNHAL_MANIFEST", "Cargo.toml"), ("NNHAL_BIN", "our_npud")]);
    assert!(done && built() == "our_npud\n", "{said}");
    let asked = fs::read_to_string(path("asked")).expect("calls");
    let manifest = fs::canonicalize(path("Cargo.toml")).expect("a path").display().to_string();
    let [first, second] = asked.lines().collect::<Vec<_>>()[..] else { panic!("{asked}") };
    assert!(first.contains("--no-default-features --bin nnhald"), "{first}");
    assert!(second.contains(&format!("--manifest-path {manifest} --bin our_npud")), "{second}");
    let (done, said) = build(&[("NNHAL_MANIFEST", "Cargo.toml")]);
    assert!(!done && said.contains("NNHAL_BIN names no program"), "{said}");
}
