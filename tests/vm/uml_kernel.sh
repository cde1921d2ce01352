# Sourced by vm.sh for -a uml: builds a User-Mode Linux kernel with the binder driver, once, and sets uml_kernel to it.
#
# The sources are those of Debian's newest linux-source package that the host's package lists have, or of VM_KERNEL;
# they are configured by uml.config over an otherwise empty configuration. Kernels from 6.16 on catch system calls in a
# faster way: conformance takes little more than half the time that it takes on 6.12. Building takes about 8 minutes of
# one processor's time and 2.5 GB under VM_CACHE, of which only the kernel stays. It is built anew when package or
# configuration change. The compiler and what else is needed are installed when missing.

uml_tools() {
  local tool missing=
  for tool in cc:gcc make:make flex:flex bison:bison bc:bc xz:xz-utils perl:perl; do
    command -v "${tool%:*}" >/dev/null || missing="$missing ${tool#*:}"
  done
  [ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
  [ -n "$missing" ] || return 0
  apt_install $missing
}

find_source() { apt-cache pkgnames linux-source- 2>/dev/null | grep -E '^linux-source-[0-9.]+$' | sort -V | tail -n 1; }

prepare_uml() {
  [ "$(uname -m)" = x86_64 ] || die "User-Mode Linux needs an x86-64 machine"
  local source=${VM_KERNEL:-$(cat "$cache/uml/source" 2>/dev/null || find_source)} config=$here/uml.config built tree line
  [ -n "$source" ] || { apt_update; source=$(find_source); }
  [ -n "$source" ] || die "no package of kernel sources found; name one with VM_KERNEL"
  built="$source $(sha256sum <"$config")"
  uml_kernel=$cache/uml/linux
  [ "$(cat "$cache/uml/built" 2>/dev/null)" != "$built" ] || return 0

  uml_tools
  fetch "$source"
  echo "vm.sh: building User-Mode Linux from $source" >&2
  rm -rf "$cache/uml"; mkdir -p "$cache/uml/tree"
  tree=$cache/uml/tree
  tar -xf "$cache/$source/usr/src/$source".tar.* -C "$tree" --strip-components=1 || die "cannot unpack $source"
  { KCONFIG_ALLCONFIG=$config make -s -C "$tree" ARCH=um allnoconfig && make -s -C "$tree" ARCH=um -j"$(nproc)" linux; } \
    >"$cache/uml/log" 2>&1 || { tail -n 20 "$cache/uml/log" >&2; die "the kernel does not build; see $cache/uml/log"; }
  # A wish that another option's absence overrides is dropped without a word.
  while read -r line; do
    case $line in CONFIG_*) grep -qxF "$line" "$tree/.config" || die "$source does not have $line" ;; esac
  done <"$config"
  cp "$tree/linux" "$uml_kernel"
  rm -rf "$tree" "${cache:?}/$source"
  [ -n "${VM_KERNEL:-}" ] || echo "$source" >"$cache/uml/source"
  echo "$built" >"$cache/uml/built"
}
