#!/bin/bash
# Builds the targets and runs each for SECONDS (30), four side by side, beginning with the kept corpus and with seeds that
# are made in code.
#
#   fuzz/run.sh [SECONDS [TARGET...]]
#
# What they learn stays in fuzz/state/TARGET. What they find is in fuzz/state/found, and the script fails.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

export seconds=${1:-30}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
RUSTC_WRAPPER="$PWD/instrument.sh" cargo build --locked --profile "$profile" --bins
mkdir -p state/found
for target in "${targets[@]}"; do
  unpack "$target"
done
"$bin/seeds" state

fuzz_one() {
  local log="state/$1.log" again=()
  # A process of its own for some inputs at a time: src/registry.rs says why.
  [ "$1" != registry ] || again=(-fork=1)
  # Memory is the driver's to limit. A model may take its time, but no input takes this long.
  if ! TMPDIR="$scratch" "$bin/$1" "state/$1" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="state/found/$1-" "${again[@]}" >"$log" 2>&1; then
    tail -60 "$log" >&2
    echo "fuzz: FAILED: $1" >&2
    return 1
  fi
  echo "fuzz: $1: $(grep -o '^#[0-9][0-9]*' "$log" | tail -1 | tr -d '#') inputs, $(grep -o 'cov: [0-9]*' "$log" | tail -1)"
}
export -f fuzz_one
printf '%s\n' "${targets[@]}" | xargs -P 4 -I{} bash -c 'fuzz_one {}'
