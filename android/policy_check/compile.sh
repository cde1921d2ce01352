#!/bin/bash
# Compiles android/sepolicy within a small policy of our own that has the structure of a device's, and what that forbids.
#
#   compile.sh [-g] [-b] [-c] [-w TEXT] [-a RULE] OUT
#
#   -g  for the machine of tests/vm: with what starts everything there, which may do what is forbidden to others
#   -b  with android/sepolicy_backend_process as well
#   -c  as for a build that measures native coverage, in which every domain may write traces
#   -w  without the one rule of android/sepolicy that has TEXT in it
#   -a  with one more rule
#
# Needs a Debian-like host: checkpolicy and m4 are installed when they are missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "compile.sh: $*" >&2; exit 1; }

last=$here/never.te ours=("$here"/../sepolicy/*.te) without= rule= coverage=false
while getopts gbcw:a: option; do
  case $option in
    g) last=$here/guest.te ;;
    b) ours+=("$here"/../sepolicy_backend_process/*.te) ;;
    c) coverage=true ;;
    w) without=$OPTARG ;;
    a) rule=$OPTARG ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# = 1 ] || fail "expected where to write the policy"

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
if ! command -v checkpolicy >/dev/null || ! command -v m4 >/dev/null; then
  as_root timeout 300 apt-get update -qq
  DEBIAN_FRONTEND=noninteractive as_root timeout 600 apt-get install -y -qq -o DPkg::Lock::Timeout=300 \
    --no-install-recommends checkpolicy m4 >/dev/null
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "${ours[@]}" >"$work/ours.te"
if [ -n "$without" ]; then
  [ "$(grep -cF -- "$without" "$work/ours.te")" = 1 ] || fail "not one rule has \"$without\""
  sed -i "$(grep -nF -- "$without" "$work/ours.te" | cut -d: -f1)d" "$work/ours.te"
fi
echo "$rule" >"$work/more.te"
m4 -s -D native_coverage=$coverage "$here"/{macros.m4,classes.te,levels.te,types.te,base.te} "$work"/{ours,more}.te \
  "$last" "$here/tail.te" >"$work/policy.conf"
checkpolicy -M -c 30 -o "$1" "$work/policy.conf" >"$work/log" 2>&1 || { head -n 20 "$work/log" >&2; exit 1; }
