#!/bin/bash
# The driver's arithmetic on 64-bit Arm and on 32-bit Arm, by QEMU's emulation of one process, on a Debian 12 machine on
# x86-64.
#
#   tests/arm/run.sh [kernels|kernels32|conformance|conformance32|corpus|plugin|count MODEL|count32 MODEL|cycles]...
#                                                                                  without names, kernels
#
# kernels: the tests of the CPU backend on a core with NEON alone, those of products, depthwise convolutions and whole kernels on
# one with dot products, which are what differs there, and those of all kernels on one with products of small matrices
# (NNHAL_ARM_TESTS names others for all). An instruction that a core lacks ends the tests, so each is a test of what the driver
# chooses, too. Left out is the one test that goes by time, which an emulated core takes ten times as much of.
# kernels32: the same on 32-bit Arm, with NEON, as Android's build for it is compiled. It is a build of its own.
# conformance: a sample of the corpus at ../shared/vts, or NNHAL_VTS, on the same cores.
# conformance32: the same on 32-bit Arm.
# corpus: all of it, each model by one way of execution in each suite; an hour or more. The driver is optimised. Pieces
# that passed with the same program are not run again, so it may be stopped and started. Results are in target/arm/corpus.
# plugin: whether the plugin that counts instructions builds, and counts those of the tool, as conformance has built it.
# count: instructions of one inference of a .tflite model on each core, and the functions that have the most of them.
# count32: the same on 32-bit Arm.
# cycles: what the kernels' inner loops take by llvm-mca's models of processors (tests/arm/cycles.py).
# NNHAL_ARM_CORES names some of the cores: cortex-a53, cortex-a76, max.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. android/debian_rustc.sh
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
vts=${NNHAL_VTS:-../shared/vts}
triple=aarch64-unknown-linux-gnu
cores=${NNHAL_ARM_CORES:-cortex-a53 cortex-a76 max}
built=$target_dir/arm/$triple/debug
sample='^(add|softmax_float_1|(conv|depthwise_conv2d|fully_connected)_(quant8|float)(_large|_2)?)$'
export DEBIAN_FRONTEND=noninteractive

say() { echo "arm: $*"; }
fail() { echo "arm: FAILED: $*" >&2; exit 1; }

# needs COMMAND COMPILER PACKAGE...: installs the packages, and the emulators, where one of the commands is missing.
needs() {
  command -v "$1" >/dev/null && command -v "$2" >/dev/null && return
  as_root timeout 300 apt-get update -qq
  as_root timeout 600 apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends qemu-user "${@:3}" >/dev/null
}

tools() {
  needs qemu-aarch64 aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu libc6-dev-arm64-cross
  # Debian's compiler takes longer, and serves where rustup cannot fetch the standard library for this target.
  timeout 300 rustup target add $triple >/dev/null 2>&1 || debian_rustc "$target_dir"
  # Either is to know nothing of how the host's programs are compiled.
  unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
  export CARGO_TARGET_DIR=$target_dir/arm CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
}

# on32 STEP...: a step on 32-bit Arm, compiled with the flags of android/build.sh, by Debian's compiler, which has the
# standard library as sources. In a process of its own: that compiler is none of the other steps'.
on32() (
  needs qemu-arm arm-linux-gnueabihf-gcc gcc-arm-linux-gnueabihf libc6-dev-armhf-cross
  debian_rustc "$target_dir"
  local triple=armv7-unknown-linux-gnueabihf cores=cortex-a7
  local built=$target_dir/arm/$triple/debug plain=("${plain[@]}" -Z build-std=std,panic_unwind,test)
  local -x RUSTC_BOOTSTRAP=1 CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_LINKER=arm-linux-gnueabihf-gcc
  local -x CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUSTFLAGS="-C target-feature=+neon"
  "$@"
)

# emulator CORE OPTION...: sets the command that runs programs on it.
emulator() {
  case $1 in
    cortex-a7) emulator=(qemu-arm -L /usr/arm-linux-gnueabihf) ;;
    *) emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu) ;;
  esac
  emulator+=(-cpu "$@")
}

# emulate CORE PROGRAM ARGUMENT...
emulate() { emulator "$1" && "${emulator[@]}" "${@:2}"; }

# What the driver chooses on a core, so that a run that tried something else does not pass.
level_of() {
  case $1 in cortex-a53) echo neon ;; cortex-a76) echo neon-dotprod ;; max) echo neon-i8mm ;; cortex-a7) echo neon32 ;; *) fail "no core $1" ;; esac
}

# What checks itself all the time takes twice as long to build, and several times as long under emulation.
plain=(--config profile.dev.package.nnhal.debug-assertions=false --config profile.dev.package.nnhal.overflow-checks=false)

kernels() {
  local listed program core start tests
  listed=$(cargo "${plain[@]}" test --locked --target $triple --lib --no-run 2>&1) || { echo "$listed" >&2; fail "the tests do not build"; }
  program=$(sed -n 's|^ *Executable unittests src/lib.rs (\(.*\))$|\1|p' <<<"$listed")
  [ -x "$program" ] || fail "cargo names no program for the library's tests"
  for core in $cores; do
    start=$SECONDS
    case $core in
      cortex-a76) tests="kernels::gemm kernels::depthwise kernels::tests kernels::isa" ;;
      max) tests=backend::cpu::kernels ;;
      *) tests=backend::cpu:: ;;
    esac
    NNHAL_EXPECTED_ISA=$(level_of $core) emulate $core "$program" ${NNHAL_ARM_TESTS:-$tests} --skip run_in_short_stretches
    say "kernels on $core, which has $(level_of $core): ok, $((SECONDS - start)) s"
  done
}

conformance() {
  [ -d "$vts" ] || { say "conformance: SKIPPED, no corpus at $vts"; return 0; }
  cargo "${plain[@]}" build --locked --target $triple --bin nnhal
  local core start
  for core in $cores; do
    start=$SECONDS
    emulate $core "$built/nnhal" conformance "$vts" --suite general --filter "$sample"
    say "conformance on $core: ok, $((SECONDS - start)) s"
  done
}

corpus() {
  [ -d "$vts" ] || { say "corpus: SKIPPED, no corpus at $vts"; return 0; }
  optimised
  local core folder results
  results=$target_dir/arm/corpus/$(sha256sum "$built/nnhal" | cut -c 1-16)
  mkdir -p "$results"
  for core in $cores; do
    for folder in "$vts"/*/; do piece "$(basename "$folder")" "$folder" --paths sync; done
    piece burst "$vts" --suite burst --paths burst
    piece fenced "$vts" --suite fenced --paths fenced
  done
}

# piece NAME ARGUMENT...: a part of the corpus on $core, unless it passed before.
piece() {
  local result=$results/$core.$1 start=$SECONDS
  if [ ! -e "$result.passed" ]; then
    # An answer may take long where every instruction takes several.
    emulate "$core" "$built/nnhal" conformance "${@:2}" --timeout 3600 >"$result" 2>&1 ||
      { tail -20 "$result" >&2; fail "corpus, $1 on $core: see $result"; }
    echo "$(tail -1 "$result"), $((SECONDS - start)) s" >"$result.passed"
  fi
  say "corpus, $1 on $core: $(cat "$result.passed")"
}

# The driver alone is optimised for speed: the rest takes long to build and does not compute.
optimised() {
  # Releases have a second pass over the parts of a crate, as well, which tests do without: only then is all inlined.
  cargo --config profile.dev.package.nnhal.opt-level=3 --config profile.dev.lto=false "${plain[@]}" build --locked --target $triple --bin nnhal
}

build_plugin() {
  cc -O2 -Wall -Werror -fPIC -shared -o "$target_dir/arm/count.so" tests/arm/count.c
}

# counted CORE FILE COMMAND...: runs it on one processor, as the driver has as many threads as it sees of them.
counted() {
  emulator "$1" -plugin "$target_dir/arm/count.so" -d plugin -D "$2"
  taskset --cpu-list 0 "${emulator[@]}" "${@:3}"
}

plugin() {
  [ -x "$built/nnhal" ] || cargo "${plain[@]}" build --locked --target $triple --bin nnhal
  build_plugin
  local out=$target_dir/arm/count.tool count
  counted "${cores%% *}" "$out" "$built/nnhal" --version
  count=$(awk '{ all += $1 } END { printf "%.0f", all }' "$out")
  [ "$count" -gt 10000 ] || fail "the plugin counts $count instructions"
  say "the plugin counts $count instructions in $(wc -l <"$out") functions: ok"
}

count() { # MODEL
  local core runs plugin=$target_dir/arm/count.so
  optimised
  build_plugin
  for core in $cores; do
    say "$1 on $core:"
    for runs in 1 3; do
      counted "$core" "$plugin.$runs" "$built/nnhal" run "$1" --runs $runs >/dev/null
    done
    # Two runs' worth: what there is once, and what the first run does besides, cancel out.
    join -j 2 -a 1 <(sort -k2 "$plugin.3") <(sort -k2 "$plugin.1") |
      awk '{ n = ($2 - $3) / 2; if (n > 0) { printf "%.0f %s\n", n, $1; all += n } } END { printf "%.0f all\n", all }' | sort -rn | sed -n 1,8p
  done
}

cycles() {
  if ! command -v llvm-mca-19 >/dev/null; then
    as_root timeout 300 apt-get update -qq
    as_root timeout 600 apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends llvm-19 >/dev/null
  fi
  optimised
  python3 tests/arm/cycles.py "$built/nnhal" llvm-mca-19
}

tools
[ $# -gt 0 ] || set -- kernels
while [ $# -gt 0 ]; do
  case $1 in
    kernels | conformance | corpus | plugin | cycles) "$1" ;;
    kernels32 | conformance32) on32 "${1%32}" ;;
    count | count32) [ $# -gt 1 ] || fail "$1 wants a model"; if [ "$1" = count ]; then count "$2"; else on32 count "$2"; fi; shift ;;
    *) fail "$1 is not a step: expected kernels, conformance, count MODEL, each with 32 behind it or not, corpus, plugin or cycles" ;;
  esac
  shift
done
