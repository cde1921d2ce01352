#!/bin/bash
# Runs a corpus of conformance models over every backend that there is, each behind a driver: the CPU's (cpu), the same
# with every execution pending (asynchronous), the same in a process of its own (process), and the sample NPU
# (sample_npu), which takes few operations: what it does not take is skipped, by name. Prints each account as the tool
# does, and fails if a model failed over any.
#
#   tests/every_backend.sh CORPUS [BACKEND...]
#
# Builds what it runs, where cargo builds. NNHAL_VTS is what the tests call CORPUS.
set -euo pipefail
corpus=$(realpath "${1:?"every_backend.sh: name the directory of the corpus"}")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- cpu asynchronous process sample_npu
export NNHAL_VTS=$corpus CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}

work=$(mktemp -d)
daemon=
trap 'if [ -n "$daemon" ]; then kill "$daemon" 2>/dev/null || true; fi; rm -rf "$work"' EXIT

run() { cargo test --quiet --locked --test conformance -- --ignored --nocapture; }

# The daemon that a vendor ships, as its clients reach it.
run_over_the_sample() {
  local status=0
  cargo build --quiet --locked --manifest-path examples/sample_npu/Cargo.toml || return 1
  "$CARGO_TARGET_DIR/debug/sample_npud" --service "unix:$work/nn.sock" --data none 2>"$work/log" &
  daemon=$!
  for _ in $(seq 100); do [ -S "$work/nn.sock" ] && break; sleep 0.1; done
  NNHAL_SERVICE=unix:$work/nn.sock run || status=1
  kill "$daemon" && wait "$daemon" || status=1
  daemon=
  [ $status = 0 ] || tail -n 20 "$work/log" >&2
  return $status
}

failed=()
for backend in "$@"; do
  echo "=== $backend"
  case $backend in
    cpu | asynchronous | process) NNHAL_TEST_BACKEND=$backend run || failed+=("$backend") ;;
    sample_npu) run_over_the_sample || failed+=("$backend") ;;
    *) echo "every_backend.sh: there is no backend $backend" >&2; exit 2 ;;
  esac
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
