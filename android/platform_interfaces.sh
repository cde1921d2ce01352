#!/bin/bash
# Has the platform's AIDL compiler make Rust of the driver's interfaces, as one library: nnhal_platform.bp calls it.
#
#   platform_interfaces.sh AIDL GLUE OUT WORK FILE.aidl...
#
# AIDL and GLUE are the platform's aidl and aidl_rust_glue, OUT is the library's source, WORK a directory to work in. Each
# FILE lies where its package says, those of android.hardware.common.fmq, which the platform has, as well. Versions and
# hashes are those of build.rs.
set -euo pipefail

aidl=$1 glue=$2 out=$3 work=$4
shift 4

declare -A flags=(
  [android/hardware/neuralnetworks]="--version=4 --hash=53178f8de9b8861df391cf0593f6f3e08adad33d"
  [vendor/nnhal/burst]="--version=1 --hash=574ff1921c44160e7ee37a85fc99e1e6abcda0ff"
  [vendor/nnhal/diagnostics]="--version=2 --hash=b62f35376ff569faa34b6971da9b483cb23fa543"
)

# The directories that packages begin in.
includes=()
for file in "$@"; do
  package=$(sed -n 's/^package \(.*\);.*/\1/p' "$file" | tr . /)
  root=${file%"/$package/${file##*/}"}
  case " ${includes[*]-} " in *" -I$root "*) ;; *) includes+=("-I$root") ;; esac
done
for file in "$@"; do
  package=$(sed -n 's/^package \(.*\);.*/\1/p' "$file" | tr . /)
  "$aidl" --lang=rust --structured --stability=vintf ${flags[$package]-} "${includes[@]}" -o "$work/aidl" "$file"
done
find "$work/aidl" -name '*.rs' -print0 | sort -z | xargs -0 "$glue" "$out" "$work/aidl"
