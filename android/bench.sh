#!/bin/bash
# Measures the driver on a connected device, beside XNNPACK where its benchmark tool is there, and prints tables in the form of
# BENCHMARKS.md.
#
#   android/build.sh --tool arm64
#   android/push.sh
#   android/bench.sh [--threads "1 2 4"] [--rounds N] [--seconds S] [MODEL.tflite...]
#
# Without models, those of ../shared/models, or NNHAL_MODELS. ADB names another adb, ANDROID_SERIAL one of several devices, and
# NNHAL_PREBUILT another directory than android/prebuilt. XNNPACK is measured by LiteRT's benchmark_model, if it lies in
# /data/local/tmp on the device. A figure is the median of the rounds' medians; of benchmark_model's means, where it tells no
# medians.
#
# How many threads a driver has no client can choose. So each table has two columns of nnhal: the device's driver over
# binder, which has as many threads in all tables as its .rc gives it (one for each core unless told), and a driver of the tool's
# own, by its socket, with as many threads as the table says. The latter is what the ratio is of.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
instance=android.hardware.neuralnetworks.IDevice/nnhal
there=/data/local/tmp/nnhal-bench
# The tool's own driver makes its socket here: in /data/local/tmp the platform's policy lets a shell make files only.
sockets=/data/local/tests/nnhal-bench
peer=/data/local/tmp/benchmark_model
adb=${ADB:-adb}
prebuilt=${NNHAL_PREBUILT:-$here/prebuilt}
threads="1 2 4" rounds=3 seconds=2 models=()

fail() { echo "bench.sh: $*" >&2; exit 1; }
on_device() { "$adb" shell "$@" </dev/null | tr -d '\r'; }

while [ $# -gt 0 ]; do
  case $1 in
    --threads) threads=${2:?} && shift 2 ;;
    --rounds) rounds=${2:?} && shift 2 ;;
    --seconds) seconds=${2:?} && shift 2 ;;
    -*) fail "$1 is not a flag of bench.sh: expected --threads, --rounds or --seconds" ;;
    *) models+=("$1") && shift ;;
  esac
done
[[ "$threads" =~ ^[1-9][0-9]*( [1-9][0-9]*)*$ ]] || fail "--threads: expected numbers with a space between, not \"$threads\""
[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds: expected a number, not $rounds"
[ ${#models[@]} -gt 0 ] || for model in "${NNHAL_MODELS:-$here/../../shared/models}"/*.tflite; do models+=("$model"); done
for model in "${models[@]}"; do
  [ -f "$model" ] || fail "no model at $model"
done

command -v "$adb" >/dev/null || fail "no $adb: install Android's platform tools, or name it by ADB"
listed=$("$adb" devices) || fail "$adb lists no devices"
ready=() other=()
while read -r serial state _; do
  [ -n "${ANDROID_SERIAL:-}" ] && [ "$serial" != "$ANDROID_SERIAL" ] && continue
  case $state in
    device) ready+=("$serial") ;;
    ?*) other+=("$serial is $state") ;;
  esac
done < <(tail -n +2 <<<"$listed" | tr -d '\r')
case ${#ready[@]} in
  1) ;;
  0)
    [ ${#other[@]} = 0 ] || fail "no device is ready: $(printf '%s; ' "${other[@]}")see its screen"
    fail "no device${ANDROID_SERIAL:+ $ANDROID_SERIAL} is connected"
    ;;
  *) fail "several devices are connected: name one of ${ready[*]} by ANDROID_SERIAL" ;;
esac

abi=$(on_device getprop ro.product.cpu.abi)
case $abi in
  arm64-v8a) arch=arm64 ;;
  armeabi-v7a) arch=arm ;;
  x86_64) arch=x86_64 ;;
  *) fail "nothing is built for $abi" ;;
esac
[ -f "$prebuilt/$arch/nnhal" ] || fail "no $prebuilt/$arch/nnhal: run android/build.sh --tool $arch"
on_device service check $instance | grep -q ': found' || fail "$instance is not registered: run android/push.sh"

# The part's number of each core and its highest clock, as many as there are of each.
cores() {
  on_device 'for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
    echo "$(cat "$cpu/regs/identification/midr_el1" 2>/dev/null || echo unknown) $(cat "$cpu/cpufreq/cpuinfo_max_freq" 2>/dev/null || echo 0)"
  done' | sort | uniq -c | while read -r count midr clock; do
    [ "$midr" = unknown ] || midr=0x$(printf %03x $((midr >> 4 & 0xfff)))
    echo "$count x $midr at $((clock / 1000)) MHz"
  done | paste -sd ';' | sed 's/;/, /g'
}

properties() { for name in "$@"; do on_device getprop "$name"; done | grep . | paste -sd ' ' || true; }
echo "device: $(properties ro.product.manufacturer ro.product.model), $(properties ro.soc.manufacturer ro.soc.model)"
echo "cores, by part: $(cores)"
echo "system: Android $(properties ro.build.version.release ro.build.type), Linux $(on_device uname -r), $abi"
echo "date: $(date +%Y-%m-%d)"

trap 'on_device rm -rf $there $sockets || true' EXIT
on_device mkdir -p $there $sockets
"$adb" push "$prebuilt/$arch/nnhal" $there/nnhal >/dev/null
on_device chmod 0755 $there/nnhal
has_peer=$(on_device "[ -f $peer ] && echo yes || true")

# Each prints one round's median, in milliseconds.
of_nnhal() { # ARGUMENT... of the tool
  local out median
  out=$(on_device "TMPDIR=$sockets $there/nnhal $* --mode burst --json --seconds $seconds" 2>&1) || true
  median=$(sed -n 's/.*"median_ms":\([0-9.e-]*\).*/\1/p' <<<"$out")
  [ -n "$median" ] || fail "nnhal $*: $(tail -n 3 <<<"$out")"
  echo "$median"
}
of_peer() { # MODEL THREADS
  local out micros
  out=$(on_device "$peer --graph=$1 --num_threads=$2 --use_xnnpack=true --min_secs=$seconds" 2>&1) || true
  micros=$(sed -n 's/.*count=.* median=\([0-9.e+]*\).*/\1/p' <<<"$out" | tail -n 1)
  [ -n "$micros" ] || micros=$(sed -n 's/.*Inference (avg): \([0-9.e+]*\).*/\1/p' <<<"$out" | tail -n 1)
  [ -n "$micros" ] || fail "benchmark_model: $(tail -n 3 <<<"$out")"
  awk -v us="$micros" 'BEGIN { print us / 1000 }'
}
median() { sort -g | awk '{ v[NR] = $1 } END { printf "%.3f", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

online=$(on_device nproc)
for count in $threads; do
  if [ "$count" -gt "$online" ]; then
    echo "bench.sh: no table for $count threads: the device has $online cores" >&2
    continue
  fi
  printf '\nOn %s thread%s, milliseconds:\n\n' "$count" "$([ "$count" = 1 ] || echo s)"
  echo "| model | nnhal by binder, its own threads | nnhal | LiteRT | ratio |"
  echo "|---|---|---|---|---|"
  for model in "${models[@]}"; do
    name=$(basename "$model" .tflite) binder=() own=() theirs=()
    "$adb" push "$model" $there/model.tflite >/dev/null
    for ((round = 0; round < rounds; round++)); do
      binder+=("$(of_nnhal --service binder:nnhal bench $there/model.tflite)")
      own+=("$(of_nnhal bench $there/model.tflite --threads "$count")")
      [ -z "$has_peer" ] || theirs+=("$(of_peer $there/model.tflite "$count")")
    done
    ours=$(printf '%s\n' "${own[@]}" | median)
    row="| $name | $(printf '%s\n' "${binder[@]}" | median) | $ours |"
    if [ -n "$has_peer" ]; then
      litert=$(printf '%s\n' "${theirs[@]}" | median)
      row+=" $litert | $(awk -v a="$ours" -v b="$litert" 'BEGIN { printf "%.2f", a / b }') |"
    else
      row+=" | |"
    fi
    echo "$row"
  done
done
[ -n "$has_peer" ] || echo "bench.sh: no $peer on the device: LiteRT's columns are empty" >&2
