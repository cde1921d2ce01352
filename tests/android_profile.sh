#!/bin/bash
# Tries the daemon as Android's build makes it (the profile `android`): no panic is caught there, and an integer that
# overflows is one. Runs what can be run against a daemon that is there already: suites of tests, the conformance tool's
# hostile suite and, where a directory is named, a corpus. At the end the daemon must live still, and end when it is told
# to; in its log there must be no panic.
#
#   cargo build --locked --profile android --workspace
#   tests/android_profile.sh [--target DIR] [CORPUS]
#   tests/android_profile.sh [--target DIR] --alone CORPUS      the corpus and nothing else
#
# DIR is where cargo builds, by default $CARGO_TARGET_DIR or target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "${1-}" = --target ]; then
  export CARGO_TARGET_DIR=${2:?"android_profile.sh: --target needs a directory"}
  shift 2
fi
suites=1
if [ "${1-}" = --alone ]; then
  suites=
  : "${2:?"android_profile.sh: --alone needs a corpus"}"
  shift
fi
corpus=${1-}
bin=${CARGO_TARGET_DIR:-target}/android
[ -x "$bin/nnhald" ] && [ -x "$bin/nnhal" ] || {
  echo "android_profile.sh: no programs in $bin: cargo build --locked --profile android --workspace" >&2
  exit 2
}

work=$(mktemp -d)
daemon=
trap 'if [ -n "$daemon" ]; then kill "$daemon" 2>/dev/null || true; fi; rm -rf "$work"' EXIT

fail() {
  echo "android_profile.sh: $*; the end of the daemon's log:" >&2
  tail -n 20 "$work/log" >&2
  exit 1
}

# against_it WHAT COMMAND...: runs the command, which finds the daemon, and looks at the daemon afterwards.
against_it() {
  local what=$1 start=$SECONDS
  shift
  NNHAL_SERVICE=$service NNHAL_SERVICE_PID=$daemon "$@" >"$work/out" 2>&1 || {
    tail -n 40 "$work/out" >&2
    fail "$what failed"
  }
  kill -0 "$daemon" 2>/dev/null || fail "the daemon did not survive: $what"
  ! grep -q 'panic at' "$work/log" || fail "a panic: $what"
  echo "$what: $((SECONDS - start)) s"
}

service=unix:$work/nn.sock
"$bin/nnhald" --service "$service" --data "$work/data" 2>"$work/log" &
daemon=$!
for _ in $(seq 100); do [ -S "$work/nn.sock" ] && break; sleep 0.1; done

if [ -n "$suites" ]; then
  # One client at a time: all are of one uid, and would share its limits.
  for suite in service client_deaths service_deaths; do
    against_it "tests of $suite" cargo test --locked --test "$suite" -- --test-threads=1
  done
  against_it "the hostile suite" "$bin/nnhal" --service "$service" conformance --suite hostile
fi
if [ -n "$corpus" ]; then
  against_it "the corpus" "$bin/nnhal" --service "$service" conformance "$corpus"
  tail -n 3 "$work/out"
fi

# The log has so many lines a second: the corpus ends with what the driver refuses, each time with one.
sleep 2
kill "$daemon"
wait "$daemon" || fail "the daemon ended with status $?"
daemon=
grep -q 'ended by SIGTERM' "$work/log" || fail "the daemon did not say that it ended"
echo "it lived through all of it"
