#!/bin/bash
# Runs AOSP's VTS for NNAPI against this driver on a connected device, and sums up what failed.
#
#   android/vts.sh [--filter GTEST_FILTER] [--out DIR] TEST
#
# TEST is VtsHalNeuralnetworksTargetTest as a VTS build has it for the device. ADB names another adb.
set -euo pipefail

instance=nnhal
adb=${ADB:-adb}
filter='' out=vts-results test=''
fail() { echo "vts.sh: $*" >&2; exit 2; }

while [ $# -gt 0 ]; do
  case $1 in
    --filter) filter=${2:?} && shift 2 ;;
    --out) out=${2:?} && shift 2 ;;
    -*) fail "$1 is not a flag of vts.sh: expected --filter or --out" ;;
    *) test=$1 && shift ;;
  esac
done
[ -f "$test" ] || fail "no test binary: build VtsHalNeuralnetworksTargetTest and name it"

there=/data/local/tmp/nnhal-vts
on_device() { "$adb" shell "$@" </dev/null; }
"$adb" wait-for-device
"$adb" root >/dev/null || true
"$adb" wait-for-device
on_device service check android.hardware.neuralnetworks.IDevice/$instance | grep -q ': found' ||
  fail "IDevice/$instance is not registered: run android/push.sh"

mkdir -p "$out"
on_device mkdir -p $there
"$adb" push "$test" $there/test >/dev/null
on_device chmod 0755 $there/test
before=$(on_device pidof android.hardware.neuralnetworks-service.nnhal | tr -d '\r' || true)
# The names of its tests end in the instance that they are for.
filter=${filter:-*${instance}*}
status=0
on_device "cd $there && ./test --gtest_filter='$filter' --gtest_output=xml:$there/results.xml" >"$out/log.txt" || status=$?
"$adb" pull $there/results.xml "$out/results.xml" >/dev/null || true
on_device logcat -d -s nnhal:V >"$out/logcat.txt" || true
after=$(on_device pidof android.hardware.neuralnetworks-service.nnhal | tr -d '\r' || true)
on_device rm -rf $there

count() { grep -c -- "$1" "$out/log.txt" || true; }
passed=$(count '^\[       OK \]') skipped=$(count '^\[  SKIPPED \] .*(')
grep '^\[  FAILED  \] .*(' "$out/log.txt" | sed 's/^\[  FAILED  \] //; s/ (.*//' | tr -d '\r' | sort -u >"$out/failed.txt" || true
failed=$(wc -l <"$out/failed.txt")
# By suite and test, without what each is given.
sed 's|/[^/]*$||' "$out/failed.txt" | sort | uniq -c | sort -rn | sed 's/^ */vts.sh:   failed /'
[ "$before" = "$after" ] || echo "vts.sh: the daemon died meanwhile: it was process ${before:-none}, and is ${after:-none}"
echo "vts.sh: $passed passed, $failed failed, $skipped skipped; details in $out"
[ "$((passed + failed + skipped))" -gt 0 ] || fail "no test ran (status $status): see $out/log.txt"
[ "$failed" = 0 ] && [ "$status" = 0 ] && [ "$before" = "$after" ]
