#!/bin/bash
# Instructions that LiteRT's own build for 64-bit Arm, with XNNPACK, takes for one inference on one thread, by the plugin that
# counts the driver's (tests/arm/run.sh count): its wheel, under Debian's Python for that architecture, under QEMU. On
# x86-64 with QEMU, the Python package manager and Debian 12's packages in reach.
#
#   tests/arm/peer.sh MODEL...     prints a line for each core and model
#
# NNHAL_ARM_CORES names some of the cores: cortex-a53, cortex-a76, max.
#
# XNNPACK goes by what cpuinfo reads, and cpuinfo reads /proc/cpuinfo, where an emulated process would see the host's
# processor and die. So the emulated process sees a file of its own there, which names the part that the core stands for.
# Features it has from the emulator. The last core stands for Neoverse V1, without SME: where there is SME, other kernels run.
set -euo pipefail
models=()
for model in "$@"; do models+=("$(realpath "$model")"); done
[ ${#models[@]} -gt 0 ] || { echo "usage: ${0##*/} MODEL..." >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

home=$(realpath -m "${CARGO_TARGET_DIR:-target}")/arm/peer
root=$home/root site=$home/site
# QEMU's core, and the part's number.
cores="cortex-a53:d03 cortex-a76:d0b max,sme=off:d40"
packages="libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib"

fetch() {
  rm -rf "$home"
  mkdir -p "$home"/{lists/partial,cache/archives/partial,packages,wheels} "$root/proc" "$site"
  local other=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$home/lists" -o Dir::Cache="$home/cache")
  timeout 300 apt-get "${other[@]}" update -qq
  # shellcheck disable=SC2086
  (cd "$home/packages" && timeout 600 apt-get "${other[@]}" download -qq $packages)
  local package wheel
  for package in "$home"/packages/*.deb; do dpkg -x "$package" "$root"; done
  python3 -m pip download -q --dest "$home/wheels" --only-binary=:all: --no-deps --python-version 3.11 \
    --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 ai-edge-litert==2.3.0 'numpy<2.3'
  for wheel in "$home"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$site"; done
  touch "$home/complete"
}

# see_processor PART: what the emulated process reads of two cores.
see_processor() {
  local i
  for i in 0 1; do
    printf 'processor\t: %s\nFeatures\t: fp asimd cpuid\nCPU implementer\t: 0x41\nCPU architecture: 8\n' "$i"
    printf 'CPU variant\t: 0x1\nCPU part\t: 0x%s\nCPU revision\t: 1\n\n' "$1"
  done >"$root/proc/cpuinfo"
}

# instructions CORE MODEL RUNS
instructions() {
  PYTHONHOME=$root/usr PYTHONHASHSEED=0 qemu-aarch64 -L "$root" -cpu "$1" -plugin "$home/count.so" -d plugin \
    -D "$home/counted" "$root/usr/bin/python3.11" -S tests/arm/peer.py "$site" "$2" "$3" 2>/dev/null
  # Some awks have whole numbers of 32 bits only.
  awk '{ all += $1 } END { printf "%.0f", all }' "$home/counted"
}

[ -e "$home/complete" ] || fetch
cc -O2 -fPIC -shared -o "$home/count.so" tests/arm/count.c
for core in $cores; do
  [[ -z ${NNHAL_ARM_CORES:-} || " $NNHAL_ARM_CORES " == *" ${core%%[,:]*} "* ]] || continue
  see_processor "${core#*:}"
  for model in "${models[@]}"; do
    # Two runs' worth: what there is once, and what the first run does besides, cancel out.
    one=$(instructions "${core%:*}" "$model" 1)
    three=$(instructions "${core%:*}" "$model" 3)
    echo "$(((three - one) / 2)) ${core%:*} ${model##*/}"
  done
done
