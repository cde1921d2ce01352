#!/bin/bash
# Runs tests of the library under Miri, which interprets them and finds undefined behaviour: accesses outside of what was
# allocated, references that overlap, data races, values that a type cannot have.
#
#   tests/miri.sh [FILTER...]
#
# Needs a nightly toolchain with Miri: rustup component add miri rust-src --toolchain nightly
# Took seven minutes beside much other work, most of it for the compiler, which starts from the whole library.
#
# Covered: packets of queues, the memories of a burst by name, the plan of the arena and frames, which arguments are in place, the
# thread pool, and models that are compiled for portable loops, written as bytes, read and checked again; frames of sockets, views
# of memory, arguments that are images, what subgraphs are handed, and buffers that are kept from task to task. With them private
# memory and its accounts.
# Not tried: all else that could run, as most of what decodes models and requests, turns and executions. To fill some MiB, or to
# decode models of many operations, takes minutes.
# Not possible, as Miri has no such thing: memory of files that others change, and the guard (mmap of files, signals); memfd_create,
# ioctl, epoll, pidfd, and futexes between processes; binder and descriptors over sockets; vectors beyond SSE2, which the machine
# that it pretends to be does not have.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ $# -gt 0 ] || set -- fmq::codec fmq::slots \
  backend::cpu::arguments backend::cpu::frame backend::cpu::plan backend::cpu::pool:: \
  artifact::tests::a_loaded artifact::tests::data_of_another artifact::tests::programs_for \
  daemon::frames gemm::kept memory::arena memory::budget memory::image memory::view memory::weights \
  model::hints model::tests::an_image model::tests::control_flow \
  --skip memory_that_vanished # of a memfd
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" PROPTEST_CASES=${PROPTEST_CASES:-4}
exec cargo +nightly miri test --locked --lib --no-default-features -- "$@"
