#!/bin/bash
# The driver over a real kernel binder: service manager, daemon and clients as separate processes in a virtual machine.
#
#   tests/vm/run.sh [whole|sample [STEPS...]]
#
# Builds the release binaries (or takes nnhald and nnhal from NNHAL_BIN_DIR) and the test programs, installs the service
# manager once, boots the machine and runs guest/main.sh in it: all STEPS, files of guest/, or those that are named.
# Ends with a line that says whether it passed, and a status that does too. The conformance corpus is at ../shared/vts,
# or NNHAL_VTS; models are at ../shared/models, or NNHAL_MODELS.
#
# A sample of the conformance models, and short forms of the long tests, take a few minutes under emulation; it is the
# default there. The whole is the default under KVM, which is used where it runs a stock kernel, and under User-Mode
# Linux, which runs on any x86-64 machine, with one processor; VM_ACCEL=tcg, kvm or uml chooses. The environment of vm.sh
# (VM_CACHE, VM_KERNEL) holds. Needs network only for the first run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
vts=${NNHAL_VTS:-$repo/../shared/vts}
models=${NNHAL_MODELS:-$repo/../shared/models}
export VM_CACHE=${VM_CACHE:-$repo/target/vm}
tools_version=0.12.0
programs=(service other_processes client_deaths)

fail() { echo "vm test: FAILED: $*" >&2; exit 1; }

case ${1:-} in '' | whole | sample) scope=${1:-} ;; *) fail "$1 is neither whole nor sample" ;; esac
steps=("${@:2}")
for name in ${steps[@]+"${steps[@]}"}; do [ -e "$here/guest/$name.sh" ] || fail "no steps $name"; done

# A service manager for Linux. It is a test fixture, so build time counts and its speed does not.
install_hub() {
  local hub=$VM_CACHE/tools/bin/rsb_hub
  [ "$("$hub" --version 2>/dev/null)" != "rsb_hub $tools_version" ] || return 0
  CARGO_TARGET_DIR=$VM_CACHE/tools-build CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 timeout 900 \
    cargo install --quiet --debug --locked --force --root "$VM_CACHE/tools" --bin rsb_hub --bin rsb_service \
    "rsbinder-tools@=$tools_version" || fail "cannot install rsbinder-tools $tools_version"
  rm -rf "$VM_CACHE/tools-build"
}

# Builds the test programs and puts them, by their plain names, into $VM_CACHE/tests.
build_programs() {
  local listed name program
  listed=$(cd "$repo" && cargo test --locked --no-run "${programs[@]/#/--test=}" 2>&1) ||
    { echo "$listed" >&2; fail "the test programs do not build"; }
  rm -rf "$VM_CACHE/tests"; mkdir -p "$VM_CACHE/tests"
  for name in "${programs[@]}"; do
    program=$(sed -n "s|^ *Executable tests/$name\(/main\)\?.rs (\(.*\))\$|\2|p" <<<"$listed")
    [ -n "$program" ] || fail "cargo names no test program $name"
    (cd "$repo" && cp "$program" "$VM_CACHE/tests/$name")
  done
}

# Compiles the policies that the guest's kernel enforces into $VM_CACHE/policies: the whole, and what tells that its rules
# are needed.
build_policies() {
  local compile=$repo/android/policy_check/compile.sh to=$VM_CACHE/policies
  mkdir -p "$to"
  "$compile" -g "$to/policy" && "$compile" -g -b "$to/backend_process" &&
    "$compile" -g -w hal_neuralnetworks_nnhal:unix_stream_socket "$to/no_fences" &&
    "$compile" -g -w appdomain_tmpfs "$to/no_memory" &&
    "$compile" -g -w shell:fifo_file "$to/no_dumps" || fail "the policies do not compile"
}

# Whether a stock kernel boots under KVM here. It does not where the processor lends no virtualisation of its own.
kvm_works() {
  [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo && "$here/vm.sh" -a kvm -t 30 -- true >/dev/null 2>&1
}

bin=${NNHAL_BIN_DIR:-}
if [ -z "$bin" ]; then
  (cd "$repo" && cargo build --locked --release --bins) || fail "the release build failed"
  bin=${CARGO_TARGET_DIR:-$repo/target}/release
fi
build_programs
timeout 2400 "$here/vm.sh" -a "${VM_ACCEL:-tcg}" -s || fail "cannot prepare the virtual machine"
install_hub
build_policies

accel=${VM_ACCEL:-$(kvm_works && echo kvm || echo tcg)}
[ -n "$scope" ] || case $accel in kvm | uml) scope=whole ;; *) scope=sample ;; esac
case $scope in whole) seconds=14400 ;; *) seconds=1200 ;; esac
echo "vm test: the $scope under $accel"
corpora=()
if [ -d "$vts" ]; then corpora=(-d "$vts:/vts"); else echo "vm test: SKIPPED conformance: no corpus at $vts"; fi
if [ -d "$models" ]; then corpora+=(-d "$models:/models"); else echo "vm test: SKIPPED networks: no models at $models"; fi

"$here/vm.sh" -a "$accel" -m 2048 -k vgem -t "$seconds" -d "$repo:/repo" -d "$VM_CACHE/tests:/tests" \
  ${corpora[@]+"${corpora[@]}"} -f "$bin/nnhald" -f "$bin/nnhal" -f "$VM_CACHE/tools/bin/rsb_hub" \
  -f "$VM_CACHE/tools/bin/rsb_service" -f "$(command -v chcon)" -d "$VM_CACHE/policies:/policies" \
  -- sh /repo/tests/vm/guest/main.sh "$scope" ${steps[@]+"${steps[@]}"} ||
  fail "status $? (124: time limit, 125: the machine crashed, 126: it could not be set up, else see above)"
[ "$scope" = whole ] || echo "vm test: left out: the conformance models beyond a sample; long forms: tests/vm/run.sh whole"
echo "vm test: passed"
