#!/bin/sh
# RUSTC_WRAPPER: compiles nnhal, and the one target that has a file of nnhal's in itself, with libFuzzer's instrumentation,
# and all else without it. These are flags of code generation, which a stable compiler has, too.
#
# With NNHAL_FUZZ_COVERAGE set it is the instrumentation that llvm-cov reads instead. All targets have it then: a program
# that has not writes no profile.
rustc=$1
shift
case "${NNHAL_FUZZ_COVERAGE:+coverage} ${CARGO_PKG_NAME:-} ${CARGO_CRATE_NAME:-}" in
*build_script*) ;;
"coverage nnhal nnhal" | "coverage nnhal-fuzz "*) exec "$rustc" "$@" -Cinstrument-coverage ;;
" nnhal nnhal" | " nnhal-fuzz npy")
  exec "$rustc" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
  ;;
esac
exec "$rustc" "$@"
