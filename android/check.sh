#!/bin/bash
# Checks that the daemon compiles for Android, on a Debian 12 machine without the NDK, and that what is in android/ is
# well-formed.
#
#   android/check.sh files               what is in android/
#   android/check.sh check [TARGET...]   compiles, without names for all three targets
#   android/check.sh platform            compiles against what stands in for the platform's own binder library
#   android/check.sh link                builds by android/build.sh, and links with stubs of the platform's libraries
#   android/check.sh                     files, platform and link
#
# What is linked cannot run (android/stub_ndk). A new name in android/symbols must be one that vendors may use (bionic's
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

# elf ARCH MACHINE: what android/build.sh made for ARCH is what a device's loader takes, and needs no other library.
elf() {
  local program=$prebuilt/$1/android.hardware.neuralnetworks-service.nnhal others
  readelf -hW "$program" | grep -q "Machine: *$2" || fail "$program is not for $2"
  readelf -lW "$program" | awk '$1 == "LOAD" { count++; wrong += $NF != "0x4000" } END { exit wrong || !count }' ||
    fail "a segment of $program is not aligned to 16 KiB"
  # The NDK has libunwind as an archive.
  others=$(readelf -dW "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vxE 'lib(c|dl|log|m|unwind)\.so' || true)
  [ -z "$others" ] || fail "$program needs $others"
}

link() {
  local ndk=$target_dir/android-stubs
  prebuilt=$target_dir/android-prebuilt
  rm -rf "$ndk" "$prebuilt"
  android/stub_ndk/make.sh "$ndk"
  debian_rustc "$target_dir"
  (
    # What is not optimised is compiled in a fraction of the time, and refers to all that the same code refers to when optimised:
    # less of it is found to be of no use. What an optimiser may call by itself (memcpy and its like) is there anyway.
    export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target_dir/android CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_OPT_LEVEL=0
    # Debian has the standard library as sources.
    export CARGO_UNSTABLE_BUILD_STD=std,panic_unwind
    ANDROID_NDK_HOME=$ndk NNHAL_BRANCH_PROTECTION=1 NNHAL_PREBUILT=$prebuilt android/build.sh
  )
  elf arm64 AArch64
  elf arm ARM
  elf x86_64 'Advanced Micro Devices X86-64'
  readelf -nW "$prebuilt"/arm64/* | grep -q 'BTI, PAC' || fail "arm64 is not marked as having BTI and PAC throughout"
  say "arm64, arm, x86_64: link with what android/symbols lists, for pages of 16 KiB; arm64 with BTI and PAC"
}

# docs/ANDROID.md lists the crates that the daemon is made of.
crates() {
  local listed made
  listed=$(sed -n 's/^| \([a-z0-9_-]*\) | \([0-9][0-9.]*\) | .*/\1 \2/p' docs/ANDROID.md | sort -u)
  made=$(cargo tree --locked --no-default-features --edges normal --target aarch64-linux-android --prefix none --format '{p}' |
    awk '$1 != "" && $1 != "nnhal" { sub("v", "", $2); print $1, $2 }' | sort -u)
  diff <(echo "$listed") <(echo "$made") || fail "docs/ANDROID.md lists other crates (<) than the daemon has (>)"
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
  for file in Android.bp nnhal_source.bp nnhal_platform.bp nnhal_apex.bp; do
    unformatted=$(bpfmt -l "$file") || fail "bpfmt cannot read $file"
    [ -z "$unformatted" ] || fail "$file is not formatted: bpfmt -d $file"
  done
  crates
  xmllint --noout android/*.xml android/apex/*.xml
  python3 -m json.tool android/apex/apex_manifest.json >/dev/null
  # Against a small policy of our own that has the types, macros and neverallow rules that ours meets on a device. A kernel
  # enforces the same in tests/vm.
  policy=$(mktemp)
  local compile=android/policy_check/compile.sh
  "$compile" "$policy" || fail "android/sepolicy does not compile"
  "$compile" -b "$policy" || fail "android/sepolicy_backend_process does not compile"
  "$compile" -b -c "$policy" || fail "the policy does not compile for a build that measures native coverage"
  # Nor would it notice anything otherwise.
  local rule
  for rule in "app_data_file:file lock" "app_data_file:file open" "shell_data_file:dir search" \
    "tombstone_data_file:file open" "dumpstate:unix_stream_socket connectto" \
    "hal_neuralnetworks_nnhal_exec:file execute_no_trans" "self:tcp_socket create" "self:capability ipc_lock"; do
    if "$compile" -a "allow hal_neuralnetworks_nnhal $rule;" "$policy" 2>/dev/null; then
      fail "a forbidden rule compiles: $rule"
    fi
  done
  # What the daemon needs, said by what then contradicts it.
  if "$compile" -a "neverallow hal_neuralnetworks_nnhal hal_graphics_allocator_service:service_manager find;" "$policy" 2>/dev/null; then
    fail "the daemon may not ask for the graphics allocator: a client's hardware buffer ends it"
  fi
  rm -f "$policy"
  say "Android.bp, manifests and policy: well-formed; the list of crates is current"
}

targets="aarch64-linux-android armv7-linux-androideabi x86_64-linux-android"
case ${1:-} in
  '') files && platform && link ;;
  link) link ;;
  files) files ;;
  platform) platform ;;
  check) shift && if [ $# -gt 0 ]; then check "$@"; else check $targets; fi ;;
  *) fail "$1 is not a step: expected files, platform, check or link" ;;
esac
