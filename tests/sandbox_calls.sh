#!/bin/bash
# Says whether the sandbox's lists of system calls (src/daemon/sandbox/calls.rs) are what the daemon needs: runs the suite
# against a confined daemon under strace, and lists
#
# - what was refused: belongs on a list;
# - what was never called: may come off its list, unless another machine or platform needs it.
#
#   tests/sandbox_calls.sh [TEST...]     the suites, without names `service`, which runs against one daemon
#   tests/sandbox_calls.sh processes     daemons that tests start: their life, hostile clients, deaths, backends
#
# Needs strace and some minutes. Ends with 1 if something was refused.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v strace >/dev/null || { echo "sandbox_calls.sh: strace is missing: apt-get install strace" >&2; exit 2; }
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)
daemon=
trap 'if [ -n "$daemon" ]; then kill "$daemon" 2>/dev/null || true; fi; rm -rf "$work"' EXIT

# The program of a test suite.
program() {
  cargo test --no-run --test "$1" --message-format=json 2>/dev/null |
    sed -n "s/.*\"name\":\"$1\".*\"executable\":\"\([^\"]*\)\".*/\1/p" | tail -n 1
}

# Runs a suite against a daemon of its own, which alone is traced.
against_a_daemon() {
  local suite=$1 socket=$work/$1.sock
  shift
  # The tracer is the daemon's grandchild, so that $! is the daemon.
  strace -D -f -qq -s 0 -o "$work/$suite.trace" "$target/debug/nnhald" --service "unix:$socket" "$@" 2>"$work/$suite.log" &
  daemon=$!
  for _ in $(seq 100); do [ -S "$socket" ] && break; sleep 0.1; done
  NNHAL_SERVICE=unix:$socket NNHAL_SERVICE_PID=$daemon "$(program "$suite")" --test-threads=1 >"$work/$suite.out" 2>&1 ||
    grep -E '^test .*FAILED|^test result' "$work/$suite.out"
  kill "$daemon" && wait "$daemon" || true
  daemon=
  grep -h 'is refused' "$work/$suite.log" | sort | uniq -c || true
}

# Runs a suite that starts daemons; all of its processes are traced.
with_its_daemons() {
  # But for the test that makes forbidden calls.
  strace -f -qq -s 0 -e signal=SIGSYS -o "$work/$1.trace" "$(program "$1")" --skip what_is_forbidden >"$work/$1.out" 2>&1 ||
    grep -E '^test .*FAILED|^test result' "$work/$1.out"
}

# The calls of confined processes, "CALL" or "refused CALL" a line, in a trace of `strace -f`.
of_the_confined() {
  awk '
    function group(of) { return of in process ? process[of] : of }
    { pid = $1; line = $0; sub(/^[0-9]+ +/, "", line) }
    line ~ /^(clone|clone3|vfork|fork)\(/ { is_thread[pid] = line ~ /CLONE_THREAD/ }
    line ~ /^(<\.\.\. )?(clone|clone3|vfork|fork)[( ]/ && match(line, / = [0-9]+( |$)/) {
      child = substr(line, RSTART + 3) + 0
      if (is_thread[pid]) process[child] = group(pid)
      else if (confined[group(pid)]) confined[child] = 1
    }
    line ~ /--- SIGSYS .*SYS_SECCOMP/ {
      call = line; sub(/.*si_syscall=__NR_/, "", call); sub(/[,}].*/, "", call); print "refused " call
    }
    confined[group(pid)] && match(line, /^[a-z_0-9]+\(/) { print substr(line, 1, RLENGTH - 1) }
    line ~ /^seccomp\(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC/ { confined[group(pid)] = 1 }
  ' "$1"
}

cargo build --quiet --bin nnhald
suites=("$@")
[ $# -gt 0 ] || suites=(service)
for suite in "${suites[@]}"; do
  case $suite in
  processes) for each in daemon hostile service_deaths backend_process backend_process_kit; do with_its_daemons $each; done ;;
  *) against_a_daemon "$suite" --data "$work/data" ;;
  esac
done
for trace in "$work"/*.trace; do of_the_confined "$trace"; done | sort | uniq -c | sort -rn >"$work/calls"

echo "called:"
grep -v refused "$work/calls" | awk '{ printf "  %s %s\n", $2, $1 }'
echo "on a list, and not called:"
grep -rhoE 'SYS_[a-z_0-9]+' src/daemon/sandbox/ | sed 's/SYS_//' | sort -u |
  grep -vxFf <(awk '{ print $2 }' "$work/calls") | sed 's/^/  /'
if grep refused "$work/calls"; then
  exit 1
fi
echo "nothing was refused"
