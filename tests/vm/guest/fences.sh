# Fences of the kernel's own.
step "sync files"
if [ ! -e /dev/dri/card0 ]; then
  skip "this kernel has no vgem driver"
else
  start_daemon fences
  run_tests sync_files --include-ignored
  stop_daemon
fi
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
[ -e /sys/kernel/debug/sync/sw_sync ] || skip "sync files in their error state: this kernel has no sw_sync to make them"
