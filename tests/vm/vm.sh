#!/bin/bash
# Runs a command in a throw-away virtual machine whose kernel has the binder driver.
#
#   vm.sh [-a tcg|kvm|uml] [-m MB] [-c CPUS] [-t SECONDS] [-f FILE[:DEST]]... [-d DIR[:MOUNT]]... [-w DIR[:MOUNT]]...
#         [-k MODULE]... -- COMMAND...
#
#   -a  accelerator: tcg (default) works everywhere; kvm is faster where the host may run stock kernels under it; uml is
#       User-Mode Linux: a kernel that uml_kernel.sh builds and that runs as a process, its programs at full speed
#   -m, -c, -t  guest memory (512), processors (2; one under uml), and the hard limit on the machine's life (120)
#   -f  a file the guest gets at DEST (default /bin/NAME), with the shared libraries that it needs
#   -d  a host directory the guest sees at MOUNT (default /host), read-only; -w the same, writable
#   -k  a kernel module to load besides that of binder; under uml nothing is a module
#   vm.sh -s  only fetches and prepares what the machine needs
#
# COMMAND runs as root under a busybox user land, with /dev/binder, /dev/hwbinder and /dev/vndbinder; its output and
# errors come out on our standard output, its exit status is ours. Ours are 124 (time limit), 125 (the guest ended
# without a status: a crash or too little memory) and 126 (the machine could not be set up).
#
# Needs a Debian-like host: QEMU is installed when missing; kernel and busybox are only unpacked, under VM_CACHE
# (default target/vm). VM_KERNEL names another kernel package, of sources under uml. Times under tcg and uml say nothing
# about a device.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${VM_CACHE:-$here/../../target/vm}

die() { echo "vm.sh: $*" >&2; exit 126; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
apt_update() { [ -n "${updated:-}" ] || as_root timeout 300 apt-get update -qq >&2 || die "apt-get update failed"; updated=1; }

apt_install() {
  apt_update
  DEBIAN_FRONTEND=noninteractive as_root timeout 600 apt-get install -y -qq -o DPkg::Lock::Timeout=300 \
    --no-install-recommends "$@" >/dev/null || die "cannot install $*"
}

# Unpacks a Debian package at $cache/NAME, without installing it.
fetch() {
  [ ! -e "$cache/$1/.complete" ] || return 0
  local new=$cache/$1.new
  rm -rf "$new"; mkdir -p "$new"
  # Package lists that are out of date name files that are gone: then once more with fresh lists.
  (cd "$new" && timeout 600 apt-get download -qq "$1" 2>/dev/null) || { apt_update
    (cd "$new" && timeout 600 apt-get download -qq "$1" >&2) || die "cannot download the package $1"; }
  dpkg -x "$new"/*.deb "$new" || die "cannot unpack the package $1"
  rm -f "$new"/*.deb; touch "$new/.complete"; rm -rf "${cache:?}/$1"; mv "$new" "$cache/$1"
}

# The kernel package behind Debian's newest meta package: 6.12 where the release has it.
find_kernel() {
  local meta
  for meta in linux-image-6.12-amd64 linux-image-amd64; do
    apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | sed -n 1p
  done | sed -n 1p
}

# Sets kernel and vmlinuz.
prepare_qemu() {
  command -v qemu-system-x86_64 >/dev/null || apt_install qemu-system-x86
  kernel=${VM_KERNEL:-$(cat "$cache/kernel" 2>/dev/null || find_kernel)}
  [ -n "$kernel" ] || { apt_update; kernel=$(find_kernel); }
  [ -n "$kernel" ] || die "no kernel package found; name one with VM_KERNEL"
  fetch "$kernel"
  [ -n "${VM_KERNEL:-}" ] || echo "$kernel" >"$cache/kernel"
  vmlinuz=$(echo "$cache/$kernel"/boot/vmlinuz-*)
  [ -e "$vmlinuz" ] || die "$kernel has no kernel image"
}

. "$here/uml_kernel.sh"

# Sets busybox and what the kernel's function sets; one caller at a time.
prepare() {
  command -v apt-get >/dev/null || die "needs a Debian-like host (apt-get)"
  mkdir -p "$cache" || die "cannot write $cache"
  cache=$(cd "$cache" && pwd)
  exec 9>"$cache/lock"; flock -w 1800 9 || die "another vm.sh has been setting up for 30 minutes"
  case $accel in uml) prepare_uml ;; *) prepare_qemu ;; esac
  fetch busybox-static
  busybox=$(echo "$cache"/busybox-static/*bin/busybox)
  exec 9>&-
}

# Adds a kernel module to the guest, after the modules it depends on; what is built in needs no file.
add_module() {
  local name=${1//-/_} file dep
  [ "$accel" != uml ] || return 0
  [ ! -e "$root/vm/modules/$name.ko" ] || return 0
  file=$(find "$cache/$kernel" -name "$name.ko*" -o -name "${name//_/-}.ko*" | sed -n 1p)
  if [ -z "$file" ]; then
    grep -qE "/(${name}|${name//_/-})\.ko" "$cache/$kernel"/{,usr/}lib/modules/*/modules.builtin 2>/dev/null ||
      die "$kernel has no module $name"
    return 0
  fi
  case $file in
    *.xz) "$busybox" xzcat "$file" ;;
    *.zst) zstd -qdc "$file" ;;
    *) cat "$file" ;;
  esac >"$root/vm/modules/$name.ko" || die "cannot unpack $file"
  for dep in $(grep -aoE '^depends=[A-Za-z0-9_,-]+' <(tr '\0' '\n' <"$root/vm/modules/$name.ko") | cut -d= -f2 | tr , ' '); do
    add_module "$dep"
  done
  echo "$name" >>"$root/vm/modules/order"
}

# Adds FILE[:DEST] with its shared libraries.
add_file() {
  local file=${1%%:*} dest lib
  [ -f "$file" ] || die "no file $file"
  case $1 in *:*) dest=${1#*:} ;; *) dest=/bin/$(basename "$file") ;; esac
  mkdir -p "$root/$(dirname "$dest")"
  cp -L "$file" "$root/$dest"
  for lib in $(ldd "$file" 2>/dev/null | grep -o '/[^ )]*'); do
    [ -e "$root$lib" ] || { mkdir -p "$root$(dirname "$lib")"; cp -L "$lib" "$root$lib"; }
  done
}

# Adds DIR[:MOUNT] as a share, $2 being ro or rw: a line with its file system, source, mount point and options.
add_share() {
  local dir=${1%%:*} mount=/host tag=share${#qemu_shares[@]}
  case $1 in *:*) mount=${1#*:} ;; esac
  dir=$(cd "$dir" 2>/dev/null && pwd -P) || die "no directory ${1%%:*}"
  mkdir -p "$root$mount"
  if [ "$accel" = uml ]; then
    case $dir in *,*) die "cannot share $dir, which has a comma" ;; esac
    echo "hostfs none $mount $2,$dir" >>"$root/vm/shares"
    return
  fi
  echo "9p $tag $mount $2,trans=virtio,version=9p2000.L,msize=262144,cache=loose" >>"$root/vm/shares"
  qemu_shares+=(-fsdev "local,id=$tag,path=${dir//,/,,},security_model=none$([ "$2" = rw ] || echo ,readonly=on)"
    -device "virtio-9p-pci,fsdev=$tag,mount_tag=$tag")
}

accel=tcg memory=512 cpus=2 seconds=120 only_setup= files=() shares=() modules=() qemu_shares=()
while getopts a:m:c:t:f:d:w:k:s option; do
  case $option in
    a) accel=$OPTARG ;; m) memory=$OPTARG ;; c) cpus=$OPTARG ;; t) seconds=$OPTARG ;; s) only_setup=1 ;;
    f) files+=("$OPTARG") ;; d) shares+=("ro $OPTARG") ;; w) shares+=("rw $OPTARG") ;;
    k) modules+=("$OPTARG") ;;
    *) exit 126 ;;
  esac
done
shift $((OPTIND - 1))
case $accel in tcg | kvm | uml) ;; *) die "no accelerator $accel" ;; esac
prepare
[ -z "$only_setup" ] || exit 0
[ $# -gt 0 ] || die "no command; see the head of this file"

work=$(mktemp -d) || die "cannot make a temporary directory"
machine=
trap '[ -z "$machine" ] || kill "$machine" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 126' INT TERM HUP
root=$work/root
mkdir -p "$root"/{bin,vm/modules,proc,sys,dev,tmp,run,var,data,etc}
cp "$busybox" "$root/bin/busybox"; cp "$here/init" "$root/init"; chmod 755 "$root/init"
: >"$root/vm/modules/order"; : >"$root/vm/shares"
add_module binder_linux
for share in ${shares[@]+"${shares[@]}"}; do add_share "${share#* }" "${share%% *}"; done
[ -z "${shares[*]-}" ] || for module in virtio_pci 9pnet_virtio 9p; do add_module "$module"; done
for module in ${modules[@]+"${modules[@]}"}; do add_module "$module"; done
for file in ${files[@]+"${files[@]}"}; do add_file "$file"; done
printf '%s ' "${@@Q}" >"$root/vm/command"
(cd "$root" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$work/initrd" || die "cannot pack the guest"

began=$SECONDS
# The first serial port is the guest's console, the second carries the exit status and nothing else.
case $accel in
  uml)
    # Its memory is a file, which wants to be in memory itself. Asked to end, it may panic first: it is not asked.
    files_at=/dev/shm
    free=$(df --output=avail -k "$files_at" 2>/dev/null | tail -n 1) || true
    [ "$((${free:-0} / 1024))" -ge "$memory" ] || files_at=$work
    # Kernel and programs take turns: on one processor they do so twice as fast as across two.
    processor=$(sed -n 's/^Cpus_allowed_list:.*[^0-9]//p' /proc/self/status)
    TMPDIR=$files_at timeout -s KILL "$seconds" taskset -c "$processor" "$uml_kernel" mem="${memory}M" initrd="$work/initrd" \
      console=ttyS0 con=null ssl=null ssl0=null,fd:1 ssl1=null,fd:8 uml_dir="$work" \
      seccomp=auto loglevel=4 quiet panic=-1 </dev/null 8>"$work/status" &
    ;;
  *)
    cpu=max
    if [ "$accel" = kvm ]; then
      [ -w /dev/kvm ] || die "no access to /dev/kvm; use -a tcg"
      cpu=host
    fi
    # SELinux is there in place of what the distribution has, and permits everything until a policy is loaded.
    timeout -k 5 "$seconds" qemu-system-x86_64 -M q35 -accel "$accel" -cpu "$cpu" -smp "$cpus" -m "$memory" \
      -nodefaults -no-user-config -display none -nic none -no-reboot -monitor none \
      -kernel "$vmlinuz" -initrd "$work/initrd" \
      -append "console=ttyS0 security=selinux quiet loglevel=4 panic=-1 oops=panic random.trust_cpu=on tsc=reliable mitigations=off" \
      ${qemu_shares[@]+"${qemu_shares[@]}"} \
      -chardev stdio,id=console,signal=off -serial chardev:console -serial "file:$work/status" </dev/null &
    ;;
esac
machine=$!
# The shell would tell that it was killed.
ended=0; wait "$machine" 2>/dev/null || ended=$?
machine=
status=$(tr -d '\r' <"$work/status" 2>/dev/null | sed -n 's/^status=//p' || true)
[ -n "$status" ] && exit "$status"
# A machine that is killed before its time was not killed by us.
[ "$ended" != 137 ] || [ $((SECONDS - began)) -lt "$seconds" ] || ended=124
case $ended in
  124) echo "vm.sh: the command was still running after $seconds s" >&2; exit 124 ;;
  *) echo "vm.sh: the guest ended without a status (the machine's is $ended)" >&2; exit 125 ;;
esac
