#!/bin/bash
# Has lld link what the NDK's clang is told to link: its own flags go, and those for the linker come out of -Wl. What it
# does not know lld sees, and refuses. android/stub_ndk/make.sh adds the line that calls lld.
set -euo pipefail
arguments=()
for argument in "$@"; do
  case $argument in
    -Wl,*) IFS=, read -ra parts <<<"${argument#-Wl,}" && arguments+=("${parts[@]}") ;;
    -m[0-9]* | -march=* | -nodefaultlibs | -nostartfiles) ;;
    *) arguments+=("$argument") ;;
  esac
done
