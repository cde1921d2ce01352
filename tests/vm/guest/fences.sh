# Fences of the kernel's own.
step "sync files"
if [ ! -e /dev/dri/card0 ]; then
  skip "this kernel has no vgem driver"
else
  start_daemon fences
  run_tests service --ignored sync_files::sync_files_are_waited_for sync_files::a_device_that_is_busy_with_memory
  stop_daemon
fi

step "sync files in their error state"
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
if [ ! -e /sys/kernel/debug/sync/sw_sync ]; then
  skip "this kernel has no sw_sync to make them"
else
  start_daemon errors
  run_tests service --ignored sync_files::sync_files_in_their_error_state_fail_executions
  stop_daemon
fi
