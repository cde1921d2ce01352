#!/bin/bash
# Runs tests that `cargo test` shows as ignored, because they need what not every machine has:
#
#   tests/ignored.sh corpus|models|mounts|cgroups...
#
# corpus: the conformance corpus, at NNHAL_VTS or ../shared/vts.
# models: MobileNets and other .tflite models, at NNHAL_MODELS or ../shared/models.
# mounts: root, and /dev/fuse.
# cgroups: root, and cgroups that limit memory.
# Fails if a test fails, or if no test has such a name any more. tests/vm runs those that need its devices.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || { echo "ignored.sh: name what this machine has: corpus, models, mounts or cgroups" >&2; exit 2; }

# run TARGET TEST...: ignored tests of one program, by parts of their names.
run() {
  local target=$1 name out
  shift
  for name in "$@"; do
    out=$(cargo test --quiet --locked $target -- --ignored "$name" 2>&1) || { echo "$out"; exit 1; }
    [[ $out =~ "test result: ok. "[1-9][0-9]*" passed" ]] || { echo "ignored.sh: no test is named $name" >&2; exit 1; }
    echo "${name%::}: ${BASH_REMATCH[0]#test result: ok. }"
  done
}

for what in "$@"; do
  case $what in
    corpus) run "--test service" ops_corpus:: ;;
    models) run "--test service" cache_models:: && run --lib the_shared_models_import ;;
    mounts) run --lib files_that_a_process_serves a_file_of_an_overlay_elsewhere ;;
    cgroups) run "--test hostile" limits::a_cgroup ;;
    *) echo "ignored.sh: $what is neither corpus, models, mounts nor cgroups" >&2; exit 2 ;;
  esac
done
