#!/bin/bash
# The driver over a real kernel binder: service manager, daemon and tool as separate processes in a virtual machine.
#
#   tests/vm/run.sh
#
# Builds the release binaries (or takes nnhald and nnhal from NNHAL_BIN_DIR), installs the service manager once, boots
# the machine and runs guest.sh in it. Ends with a line that says whether it passed, and a status that does too.
# The environment of vm.sh (VM_CACHE, VM_KERNEL) holds; VM_ACCEL=kvm uses KVM. Needs network only for the first run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
export VM_CACHE=${VM_CACHE:-$repo/target/vm}
tools_version=0.12.0

fail() { echo "vm test: FAILED: $*" >&2; exit 1; }

# A service manager for Linux. It is a test fixture, so build time counts and its speed does not.
install_hub() {
  local hub=$VM_CACHE/tools/bin/rsb_hub
  [ "$("$hub" --version 2>/dev/null)" != "rsb_hub $tools_version" ] || return 0
  CARGO_TARGET_DIR=$VM_CACHE/tools-build CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 timeout 900 \
    cargo install --quiet --debug --locked --force --root "$VM_CACHE/tools" --bin rsb_hub --bin rsb_service \
    "rsbinder-tools@=$tools_version" || fail "cannot install rsbinder-tools $tools_version"
  rm -rf "$VM_CACHE/tools-build"
}

bin=${NNHAL_BIN_DIR:-}
if [ -z "$bin" ]; then
  (cd "$repo" && cargo build --locked --release --bins) || fail "the release build failed"
  bin=${CARGO_TARGET_DIR:-$repo/target}/release
fi
timeout 1200 "$here/vm.sh" -s || fail "cannot prepare the virtual machine"
install_hub

"$here/vm.sh" -a "${VM_ACCEL:-tcg}" -t 300 -d "$repo:/repo" -f "$bin/nnhald" -f "$bin/nnhal" \
  -f "$VM_CACHE/tools/bin/rsb_hub" -f "$VM_CACHE/tools/bin/rsb_service" -f "$here/guest.sh" -- sh /bin/guest.sh ||
  fail "status $? (124: time limit, 125: the machine crashed, 126: it could not be set up, else see above)"
echo "vm test: passed"
