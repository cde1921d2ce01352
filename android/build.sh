#!/bin/bash
# Builds the daemon for Android with Cargo and the NDK, into android/prebuilt, where Android.bp packages it.
#
#   ANDROID_NDK_HOME=... android/build.sh [--tool] [arm64] [arm] [x86_64]     without names, all three
#   android/build.sh --generated                                              what Soong needs to build from source
#
# With --tool, the tool nnhal as well, which android/bench.sh takes from there. No product needs it.
#
# Needs NDK r26 or newer, and the Rust targets: rustup target add aarch64-linux-android armv7-linux-androideabi
# x86_64-linux-android. NNHAL_PREBUILT names another directory than android/prebuilt. NNHAL_MANIFEST and NNHAL_BIN name the
# Cargo.toml and the program of a daemon with a backend of your own, which takes the place of nnhald (docs/BACKEND.md). With a
# nightly toolchain and its rust-src, NNHAL_BRANCH_PROTECTION=1 builds arm64 with BTI and PAC, the standard library included.
set -euo pipefail
manifest=${NNHAL_MANIFEST:+$(realpath "$NNHAL_MANIFEST")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=android.hardware.neuralnetworks-service.nnhal
# statx, which the driver asks about files with, is there since this one.
api=${NNHAL_ANDROID_API:-30}
target_dir=${CARGO_TARGET_DIR:-target}
prebuilt=${NNHAL_PREBUILT:-android/prebuilt}

fail() { echo "build.sh: $*" >&2; exit 1; }

if [ "${1:-}" = --generated ]; then
  cargo check --locked --no-default-features --lib
  # A build that was interrupted leaves a directory without them.
  newest=$(dirname "$(ls -t "$target_dir"/debug/build/nnhal-*/out/nnapi.rs | head -1)")
  mkdir -p android/generated
  cp "$newest/nnapi.rs" "$newest/source_id.rs" android/generated/
  echo "build.sh: android/generated has nnapi.rs and source_id.rs"
  exit
fi

# The vendor's features are the vendor's.
program=nnhald of=(--no-default-features)
if [ -n "$manifest" ]; then
  [ -f "$manifest" ] || fail "no manifest at $manifest"
  program=${NNHAL_BIN:-} of=(--manifest-path "$manifest")
  [ -n "$program" ] || fail "NNHAL_BIN names no program of $manifest"
fi

has_tool=
if [ "${1:-}" = --tool ]; then has_tool=1 && shift; fi
[ -n "${ANDROID_NDK_HOME:-}" ] || fail "ANDROID_NDK_HOME names no NDK"
tools=$(echo "$ANDROID_NDK_HOME"/toolchains/llvm/prebuilt/*/bin)
[ -x "$tools/llvm-strip" ] || fail "no tools in $tools"

targets=() std=()

# choose ARCH TARGET CLANG: to be built, too.
choose() {
  local linker=$tools/$3$api-clang variable flags
  [ -x "$linker" ] || fail "no $linker"
  variable=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$2")
  # Kernels with pages of 16 KiB load nothing that is aligned to less.
  flags=(-C link-arg=-Wl,-z,max-page-size=16384)
  if [ "$1" = arm64 ] && [ "${NNHAL_BRANCH_PROTECTION:-0}" = 1 ]; then
    flags+=(-Z branch-protection=bti,pac-ret -C link-arg=-Wl,-z,force-bti)
    std=(-Z build-std=std,panic_unwind)
  fi
  # All devices that shipped with Android 5 or newer have NEON, and the NDK builds for it. Rust's target dates from before. The compiler
  # says that the feature is not stable: that is about functions which have it alone.
  [ "$1" != arm ] || flags+=(-C target-feature=+neon)
  export "${variable}_LINKER=$linker" "${variable}_RUSTFLAGS=${flags[*]}"
  targets+=("$1 $2")
}

[ $# -gt 0 ] || set -- arm64 arm x86_64
for arch in "$@"; do
  case $arch in
    arm64) choose arm64 aarch64-linux-android aarch64-linux-android ;;
    arm) choose arm armv7-linux-androideabi armv7a-linux-androideabi ;;
    x86_64) choose x86_64 x86_64-linux-android x86_64-linux-android ;;
    *) fail "$arch is not one of arm64, arm and x86_64" ;;
  esac
done
# build ARGUMENT...: in one go, so that no core waits for the last file of each target.
build() { cargo build --locked --release --target-dir "$target_dir" "$@" "${targets[@]/#* /--target=}" ${std[@]+"${std[@]}"}; }
build "${of[@]}" --bin "$program"
[ -z "$has_tool" ] || build --bin nnhal
for chosen in "${targets[@]}"; do
  read -r arch target <<<"$chosen"
  mkdir -p "$prebuilt/$arch"
  "$tools/llvm-strip" -o "$prebuilt/$arch/$name" "$target_dir/$target/release/$program"
  echo "build.sh: $prebuilt/$arch/$name"
  [ -z "$has_tool" ] || "$tools/llvm-strip" -o "$prebuilt/$arch/nnhal" "$target_dir/$target/release/nnhal"
done
