#!/bin/bash
# Makes the kept corpora anew, of what fuzz/run.sh has left in fuzz/state: as few inputs as have the same coverage.
#
#   fuzz/keep.sh [TARGET...]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
mkdir -p corpus
for target in "${targets[@]}"; do
  unpack "$target"
  kept="$scratch/$target"
  mkdir "$kept"
  TMPDIR="$scratch" "$bin/$target" -merge=1 -rss_limit_mb=4096 "$kept" "state/$target" \
    2>"state/$target.merge.log"
  # Large ones are mutants of this repository's models, weights and all. Those are seeds anyway.
  find "$kept" -type f -size +16k -delete
  # The same bytes for the same inputs.
  tar -C "$kept" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | gzip -9n >"corpus/$target.tar.gz"
  echo "fuzz: $target: $(find "$kept" -type f | wc -l) inputs, $(stat -c %s "corpus/$target.tar.gz") bytes"
done
