# Real dma-bufs, with proof that the daemon announces its accesses to them.
step "dma-bufs"
for device in /dev/udmabuf /dev/dma_heap/system; do [ -e "$device" ] || missing="${missing:-} $device"; done
start_daemon memory
tracing=/sys/kernel/tracing
if [ -n "${missing:-}" ]; then
  skip "this kernel has no$missing"
elif ! mount -t tracefs tracefs $tracing 2>/dev/null || ! [ -e $tracing/kprobe_events ]; then
  run_tests service::dma_bufs --include-ignored --nocapture
  skip "this kernel has no kprobes: whether accesses were announced was not seen"
else
  # What the devices themselves do at the beginning and the end of an access.
  probes="begin_cpu_udmabuf end_cpu_udmabuf system_heap_dma_buf_begin_cpu_access system_heap_dma_buf_end_cpu_access"
  for probe in $probes; do
    echo "p:nnhal_$probe $probe" >>$tracing/kprobe_events || fail "no probe of $probe"
  done
  echo 1 >$tracing/events/kprobes/enable
  run_tests service::dma_bufs --include-ignored --nocapture
  echo 0 >$tracing/events/kprobes/enable
  grep -o '/dev/.*the same bytes.*' /tmp/dma_bufs.log | sed 's/^/  /'
  counts=
  for probe in $probes; do
    count=0
    for thread in $(sed -n "s/^ *.*-\([0-9]*\) *\[.*nnhal_$probe:.*/\1/p" $tracing/trace); do
      [ ! -e "/proc/$daemon/task/$thread" ] || count=$((count + 1))
    done
    echo "  $probe for the daemon: $count times"
    [ "$count" -gt 0 ] || fail "the daemon does not announce its accesses"
    counts="$counts $count"
  done
  set -- $counts
  [ "$1 $3" = "$2 $4" ] || fail "not every access was ended"
fi
stop_daemon
