#!/bin/bash
# Tries the driver on a connected device whose vendor partition can be written (userdebug, verity off): puts the daemon
# and its files in place, has init start it, and waits until it is registered.
#
#   android/push.sh [BINARY]     without one, that of android/prebuilt for the device
#   android/push.sh --undo       takes all of it away again
#
# ADB names another adb, ANDROID_SERIAL another device, NNHAL_PREBUILT another directory than android/prebuilt. Policy and user
# cannot be pushed: the device's image has to be built with android/nnhal_board.mk. The first time it ends with status 3: the
# device has to be restarted then, and this run again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

name=android.hardware.neuralnetworks-service.nnhal
service=vendor.neuralnetworks-nnhal
instance=android.hardware.neuralnetworks.IDevice/nnhal
user=vendor_nnhal
binary=/vendor/bin/hw/$name
rc=/vendor/etc/init/$name.rc
manifest=/vendor/etc/vintf/manifest/$name.xml
data=/data/vendor/nnhal
adb=${ADB:-adb}
prebuilt=${NNHAL_PREBUILT:-$here/prebuilt}
patience=${NNHAL_PATIENCE:-20}

say() { echo "push.sh: $*"; }
fail() { echo "push.sh: $*" >&2; exit 1; }
on_device() { "$adb" shell "$@" </dev/null | tr -d '\r'; }

# init stops its own service only: what somebody started by hand would serve on, and hold the instance.
stop_daemon() {
  local pids
  on_device stop $service || true
  for ((i = 0; i < patience * 5; i++)); do
    pids=$(on_device pidof $name || true)
    [ -n "$pids" ] || return 0
    on_device kill $pids || true
    sleep 0.2
  done
  fail "process $pids does not end"
}

# place FILE WHERE: true if the device had another file there, or none.
place() {
  [ "$(on_device cat "$2" 2>/dev/null || true)" != "$(cat "$1")" ] || return 1
  "$adb" push "$1" "$2" || fail "cannot push $1"
  on_device restorecon "$2"
}

"$adb" wait-for-device
"$adb" root >/dev/null || true
"$adb" wait-for-device
[ "$(on_device id -u)" = 0 ] || fail "adb is not root on the device: a userdebug or eng build is needed"
"$adb" remount >/dev/null || fail "the vendor partition cannot be written: adb disable-verity, then reboot"

if [ "${1:-}" = --undo ]; then
  stop_daemon
  on_device rm -f $binary $rc $manifest
  on_device rm -rf $data
  say "gone; reboot, so that nothing expects $instance any more"
  exit
fi

built=${1:-}
if [ -z "$built" ]; then
  abi=$(on_device getprop ro.product.cpu.abi)
  case $abi in
    arm64-v8a) built=$prebuilt/arm64/$name ;;
    armeabi-v7a) built=$prebuilt/arm/$name ;;
    x86_64) built=$prebuilt/x86_64/$name ;;
    *) fail "nothing is built for $abi" ;;
  esac
fi
[ -f "$built" ] || fail "no $built: run android/build.sh"
# Without these init never starts the daemon, SELinux permissive or not. They are looked at before the manifest is there: what
# it declares and the daemon does not register hangs every app that uses NNAPI.
on_device id $user >/dev/null 2>&1 || fail "the image has no user $user: build it with android/nnhal_board.mk"
stop_daemon
"$adb" push "$built" $binary
on_device chmod 0755 $binary
on_device restorecon $binary
label=$(on_device ls -Z $binary)
case $label in
  *hal_neuralnetworks_nnhal_exec*) ;;
  *)
    on_device rm -f $binary
    fail "the image lacks android/sepolicy ($label): build it with android/nnhal_board.mk"
    ;;
esac
is_new=
if place "$here/$name.rc" $rc; then is_new=1; fi
if place "$here/$name.xml" $manifest; then is_new=1; fi
if [ -n "$is_new" ]; then
  say "init and servicemanager read what is new when the device starts: adb reboot, then run this again"
  exit 3
fi
on_device start $service || fail "init does not know $service yet: adb reboot, then run this again"
for ((i = 0; i < patience * 5; i++)); do
  if on_device service check $instance | grep -q ': found'; then
    say "$instance is registered"
    exit
  fi
  sleep 0.2
done
on_device logcat -d -s nnhal:V >&2 || true
fail "$instance is not registered after $patience s; above is what the daemon said"
