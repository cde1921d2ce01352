#!/bin/bash
# Tries the driver on a connected device whose vendor partition can be written (userdebug, verity off): puts the daemon
# and its files in place, starts it, and waits until it is registered.
#
#   android/push.sh [BINARY]     without one, that of android/prebuilt for the device
#   android/push.sh --undo       takes all of it away again
#
# ADB names another adb, ANDROID_SERIAL another device. The policy cannot be pushed: on an image without
# android/sepolicy this works with SELinux permissive only, and says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

name=android.hardware.neuralnetworks-service.nnhal
service=vendor.neuralnetworks-nnhal
instance=android.hardware.neuralnetworks.IDevice/nnhal
binary=/vendor/bin/hw/$name
rc=/vendor/etc/init/$name.rc
manifest=/vendor/etc/vintf/manifest/$name.xml
data=/data/vendor/nnhal
adb=${ADB:-adb}
patience=${NNHAL_PATIENCE:-20}

say() { echo "push.sh: $*"; }
fail() { echo "push.sh: $*" >&2; exit 1; }
on_device() { "$adb" shell "$@" </dev/null; }

"$adb" wait-for-device
"$adb" root >/dev/null
"$adb" wait-for-device
"$adb" remount >/dev/null || fail "the vendor partition cannot be written: adb disable-verity, then reboot"

if [ "${1:-}" = --undo ]; then
  on_device stop $service || true
  on_device rm -f $binary $rc $manifest
  on_device rm -rf $data
  say "gone; reboot, so that nothing expects $instance any more"
  exit
fi

built=${1:-}
if [ -z "$built" ]; then
  abi=$(on_device getprop ro.product.cpu.abi | tr -d '\r')
  case $abi in
    arm64-v8a) built=prebuilt/arm64/$name ;;
    armeabi-v7a) built=prebuilt/arm/$name ;;
    x86_64) built=prebuilt/x86_64/$name ;;
    *) fail "nothing is built for $abi" ;;
  esac
fi
[ -f "$built" ] || fail "no $built: run android/build.sh"

on_device stop $service || true
"$adb" push "$built" $binary
on_device chmod 0755 $binary
"$adb" push $name.rc $rc
"$adb" push $name.xml $manifest
on_device restorecon $binary $rc $manifest
label=$(on_device ls -Z $binary | tr -d '\r')
case $label in
  *hal_neuralnetworks_nnhal_exec*) ;;
  *) say "the image lacks android/sepolicy ($label): SELinux must be permissive (adb shell setenforce 0)" ;;
esac
# init reads new files at the next start of the device only; until then the daemon is started as init would.
if on_device start $service 2>/dev/null; then
  say "started by init"
else
  on_device mkdir -p $data
  on_device "nohup $binary --service binder:nnhal --data $data >/dev/null 2>&1 &"
  say "started by hand; reboot, and init starts it"
fi
for ((i = 0; i < patience * 5; i++)); do
  if on_device service check $instance | grep -q ': found'; then
    say "$instance is registered"
    exit
  fi
  sleep 0.2
done
on_device logcat -d -s nnhal:V >&2 || true
fail "$instance is not registered after $patience s; above is what the daemon said"
