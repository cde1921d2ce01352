#!/bin/bash
# Says how much of what reads a client's bytes the corpora reach: regions of src/model, src/fmq, src/cache and of the
# CPU backend's artifacts, by llvm-cov. Wants `rustup component add llvm-tools`.
#
#   fuzz/coverage.sh
#
# It runs what fuzz/run.sh has left in fuzz/state, the kept corpora included.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools=$(dirname "$(find "$(rustc --print sysroot)" -name llvm-cov)")
# Cargo cannot tell the two instrumentations apart by itself: another number of units makes another build of nnhal.
NNHAL_FUZZ_COVERAGE=1 RUSTC_WRAPPER="$PWD/instrument.sh" cargo build --locked --profile "$profile" --bins \
  --config "profile.$profile.package.nnhal.codegen-units=15"
found=state/coverage
rm -rf "$found"
mkdir -p "$found"
objects=()
for target in "${all[@]}"; do
  unpack "$target"
  cp "$bin/$target" "$found/"
  objects+=(--object "$found/$target")
  # One by one, where one may end the process.
  inputs=2000
  [ "$target" != registry ] || inputs=1
  find "state/$target" -type f -print0 |
    TMPDIR="$scratch" LLVM_PROFILE_FILE="$found/$target-%4m.profraw" xargs -0 -r -n "$inputs" "$found/$target" \
      -rss_limit_mb=4096 >"$found/$target.log" 2>&1 || echo "fuzz: $target ends early" >&2
done
"$tools/llvm-profdata" merge -sparse "$found"/*.profraw -o "$found/all.profdata"
"$tools/llvm-cov" report "${objects[@]}" --instr-profile "$found/all.profdata" \
  --show-branch-summary=false --show-functions=false \
  --sources ../src/model ../src/fmq ../src/cache ../src/backend/cpu/artifact
