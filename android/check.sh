#!/bin/bash
# Checks that the daemon compiles for Android, on a Debian 12 machine without the NDK, and that what is in android/ is
# well-formed.
#
#   android/check.sh files               what is in android/
#   android/check.sh check [TARGET...]   compiles, without names for all three targets
#   android/check.sh platform            compiles against what stands in for the platform's own binder library
#   android/check.sh link                links for arm64, against stubs of the platform's libraries
#   android/check.sh                     all of these
#
# What is linked cannot run: it has the functions that android/symbols lists, which is what the daemon may need of the
# platform, and no start code, which is the NDK's. A new name there must be one that vendors may use (bionic's
# libc.map.txt and its like) since API level 30.
#
# Debian has a rustc with the sources of its standard library, which cargo builds for any target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. android/debian_rustc.sh
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export DEBIAN_FRONTEND=noninteractive

say() { echo "check.sh: $*"; }
fail() { echo "check.sh: $*" >&2; exit 1; }
check() { # TARGET...
  debian_rustc "$target_dir"
  export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target_dir/android CARGO_PROFILE_DEV_DEBUG=0
  # All at once: each takes one core, mostly.
  cargo check --locked -Z build-std=std,panic_unwind "${@/#/--target=}" --no-default-features --bin nnhald
  say "$*: type-check"
}

# The driver over libbinder_rs, for this machine: no more than types, as the library's signatures are all that is here.
platform() {
  local package=android/platform_binder
  # In a process of its own: the other steps' compiler is none of its.
  (
    android/build.sh --generated
    # The versions that everything else is built with; cargo drops from its copy what this package does without.
    cp Cargo.lock "$package/Cargo.lock"
    export CARGO_TARGET_DIR=$target_dir/platform CARGO_PROFILE_DEV_DEBUG=0 RUSTFLAGS="-D warnings"
    cargo check --manifest-path "$package/Cargo.toml"
  )
  say "libbinder_rs: type-check"
}

link() {
  local arm64=aarch64-linux-android stubs=$target_dir/android-stubs lld list library
  lld=$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld
  debian_rustc "$target_dir"
  # What is linked does not run: how well it is optimised makes no difference.
  export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target_dir/android CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
  mkdir -p "$stubs"
  echo 'INPUT()' >"$stubs/empty.ld"
  for list in android/symbols/*.txt; do
    library=$(basename "$list" .txt)
    "$lld" -flavor gnu -m aarch64linux -shared -soname "$library.so" -o "$stubs/$library.so" \
      $(sed 's/.*/--defsym=&=0/' "$list") "$stubs/empty.ld"
  done
  # As android/build.sh does, the standard library with BTI and PAC as well.
  local flags=(-Z branch-protection=bti,pac-ret -C linker-flavor=ld.lld -C "linker=$lld" -L "$stubs"
    -C link-arg=-zmax-page-size=16384 -C link-arg=-zforce-bti -C link-arg=--entry=main
    -C link-arg=--dynamic-linker=/system/bin/linker64)
  CARGO_TARGET_AARCH64_LINUX_ANDROID_RUSTFLAGS="${flags[*]}" \
    cargo build --locked --release -Z build-std=std,panic_unwind --target "$arm64" --no-default-features --bin nnhald
  local program=$CARGO_TARGET_DIR/$arm64/release/nnhald
  readelf -lW "$program" | awk '$1 == "LOAD" { count++; if ($NF != "0x4000") exit 1 } END { exit !count }' ||
    fail "a segment of $program is not aligned to 16 KiB"
  readelf -nW "$program" | grep -q 'BTI, PAC' || fail "$program is not marked as having BTI and PAC throughout"
  say "$arm64: links with what android/symbols lists, for pages of 16 KiB, with BTI and PAC"
}

# Checkers for what is in android/, as far as Debian has them.
files() {
  local missing=() policy
  command -v bpfmt >/dev/null || missing+=(blueprint-tools)
  command -v xmllint >/dev/null || missing+=(libxml2-utils)
  if [ ${#missing[@]} -gt 0 ]; then
    as_root timeout 300 apt-get update -qq
    as_root timeout 600 apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends "${missing[@]}" >/dev/null
  fi
  local file unformatted
  for file in Android.bp nnhal_source.bp nnhal_platform.bp android/apex/Android.bp; do
    unformatted=$(bpfmt -l "$file") || fail "bpfmt cannot read $file"
    [ -z "$unformatted" ] || fail "$file is not formatted: bpfmt -d $file"
  done
  xmllint --noout android/*.xml android/apex/*.xml
  python3 -m json.tool android/apex/apex_manifest.json >/dev/null
  # Against a small policy of our own that has the types, macros and neverallow rules that ours meets on a device. A kernel
  # enforces the same in tests/vm.
  policy=$(mktemp)
  local compile=android/policy_check/compile.sh
  "$compile" "$policy" || fail "android/sepolicy does not compile"
  "$compile" -b "$policy" || fail "android/sepolicy_backend_process does not compile"
  # Nor would it notice anything otherwise.
  local rule
  for rule in "app_data_file:file lock" "app_data_file:file open" "shell_data_file:dir search" \
    "tombstone_data_file:file open" "dumpstate:unix_stream_socket connectto" \
    "hal_neuralnetworks_nnhal_exec:file execute_no_trans" "self:tcp_socket create" "self:capability ipc_lock"; do
    if "$compile" -a "allow hal_neuralnetworks_nnhal $rule;" "$policy" 2>/dev/null; then
      fail "a forbidden rule compiles: $rule"
    fi
  done
  rm -f "$policy"
  say "Android.bp, manifests and policy: well-formed"
}

targets="aarch64-linux-android armv7-linux-androideabi x86_64-linux-android"
case ${1:-} in
  '') files && platform && check $targets && link ;;
  link) link ;;
  files) files ;;
  platform) platform ;;
  check) shift && if [ $# -gt 0 ]; then check "$@"; else check $targets; fi ;;
  *) fail "$1 is not a step: expected files, platform, check or link" ;;
esac
