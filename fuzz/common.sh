# What the scripts beside it have in common; they source it. Leaves the shell in this directory.
cd "$(dirname "${BASH_SOURCE[0]}")"
all=(model request transactions artifact cache registry queue packet burst tflite npy)
export CARGO_TARGET_DIR
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# Of cargo: with `dev` the dependencies are those of the tests' build, which is there where those have run.
profile=${NNHAL_FUZZ_PROFILE:-release}
export bin="$CARGO_TARGET_DIR/${profile/#dev/debug}"

# Directories that targets make are in memory where that can be: some make one for each input.
scratch=$(mktemp -d -p /dev/shm nnhal-fuzz.XXXXXX 2>/dev/null || mktemp -d)
export scratch
trap 'rm -rf "$scratch"' EXIT

# unpack TARGET: the kept corpus, into state/TARGET.
unpack() {
  mkdir -p "state/$1"
  [ ! -e "corpus/$1.tar.gz" ] || tar -xzf "corpus/$1.tar.gz" -C "state/$1"
}
