#!/bin/bash
# Runs tests of the library under Miri, which interprets them and finds undefined behaviour: accesses outside of what was
# allocated, references that overlap, data races, values that a type cannot have.
#
#   tests/miri.sh [FILTER...]
#
# Needs a nightly toolchain with Miri: rustup component add miri rust-src --toolchain nightly
#
# Covered, as far as these tests go: the decoders of models, requests, packets and compiled models; a compilation, its bytes,
# and a run with portable loops on two threads; the arena, the plan and frames; views, private memory and its accounts; turns
# and the wake-ups of who waits.
# Not covered, as Miri has no such thing: memory of files that others change, and the guard (mmap of files, signals);
# ioctl, memfd_create, epoll, pidfd and futexes between processes; binder and sockets with descriptors; vector instructions
# above SSE2, which the machine that it pretends to be does not have.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(
  quota:: tensor:: statistics:: model:: fmq::codec fmq::slots
  memory::aligned memory::arena memory::budget memory::checksum memory::image memory::view memory::weights memory::word
  cache::content cache::entry
  backend::cpu::arguments backend::cpu::frame backend::cpu::plan backend::cpu::pool
  scheduler::control scheduler::quotas scheduler::stop scheduler::waiting
)
[ $# -gt 0 ] || set -- "${all[@]}"
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" PROPTEST_CASES=${PROPTEST_CASES:-4}
exec cargo +nightly miri test --locked --lib --no-default-features -- "$@"
