#!/bin/bash
# Checks that the daemon compiles for Android, on a Debian 12 machine without the NDK, and that what is in android/ is
# well-formed. Nothing is linked: that takes the NDK, or stubs of its libraries.
#
#   android/check.sh [files] [check [TARGET...]]     without names, the files and all three targets
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
  local target
  for target in "$@"; do
    cargo check --locked -Z build-std=std,panic_unwind --target "$target" --no-default-features --bin nnhald
    say "$target: type-checks"
  done
}

# Checkers for what is in android/, as far as Debian has them.
files() {
  local missing=() policy
  command -v bpfmt >/dev/null || missing+=(blueprint-tools)
  command -v checkpolicy >/dev/null || missing+=(checkpolicy)
  command -v m4 >/dev/null || missing+=(m4)
  command -v xmllint >/dev/null || missing+=(libxml2-utils)
  if [ ${#missing[@]} -gt 0 ]; then
    as_root timeout 300 apt-get update -qq
    as_root timeout 600 apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends "${missing[@]}" >/dev/null
  fi
  local file unformatted
  for file in Android.bp nnhal_source.bp android/apex/Android.bp; do
    unformatted=$(bpfmt -l "$file") || fail "bpfmt cannot read $file"
    [ -z "$unformatted" ] || fail "$file is not formatted: bpfmt -d $file"
  done
  xmllint --noout android/*.xml android/apex/*.xml
  python3 -m json.tool android/apex/apex_manifest.json >/dev/null
  # Against a small policy of our own that has the types, macros and neverallow rules that ours meets on a device.
  policy=$(mktemp -d)
  compiles() { # RULE, beyond android/sepolicy
    cat android/policy_check/base.te android/sepolicy/*.te - <<<"$1" >"$policy/rules.te"
    m4 -s android/policy_check/{macros.m4,head.te} "$policy/rules.te" android/policy_check/tail.te >"$policy/policy.conf"
    checkpolicy -c 30 -o "$policy/policy" "$policy/policy.conf" >"$policy/log" 2>&1
  }
  compiles '' || { cat "$policy/log"; fail "android/sepolicy does not compile"; }
  # Nor would it notice anything otherwise.
  if compiles 'allow hal_neuralnetworks_nnhal app_data_file:file lock;'; then fail "a forbidden rule compiles"; fi
  rm -rf "$policy"
  say "Android.bp, manifests and policy: well-formed"
}

targets="aarch64-linux-android armv7-linux-androideabi x86_64-linux-android"
case ${1:-} in
  '') files && check $targets ;;
  files) files ;;
  check) shift && if [ $# -gt 0 ]; then check "$@"; else check $targets; fi ;;
  *) fail "$1 is not a step: expected files or check" ;;
esac
