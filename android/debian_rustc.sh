#!/bin/bash
# Debian's rustc, for what is compiled for other targets than the host's: it comes with the sources of its standard
# library, and with that library built for arm64. Debian 12 on x86-64 is expected. To be sourced:
#
#   debian_rustc TARGET_DIR     has cargo use it, with CARGO_TARGET_DIR left to the caller

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

# Unpacked, never installed: it would take the place of rustup's. All at once, as all must be of one version.
debian_rustc() {
  local home=$1/debian-rustc root=$1/debian-rustc/root
  if [ ! -e "$root/complete" ]; then
    echo "${0##*/}: unpacking Debian's rustc into $root"
    rm -rf "$root" "$home/packages"
    mkdir -p "$home"/{packages,lists/partial} "$root"
    # Lists of their own, so that the machine learns of no other architecture.
    local other=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$home/lists" -o Dir::Cache="$home/cache")
    mkdir -p "$home/cache/archives/partial"
    as_root timeout 300 apt-get update -qq
    timeout 300 apt-get "${other[@]}" update -qq
    (
      cd "$home/packages"
      timeout 600 apt-get download -qq rustc-web libstd-rust-web-1.96 libstd-rust-web-dev rust-web-src libllvm22
      timeout 600 apt-get "${other[@]}" download -qq libstd-rust-web-dev
    )
    local package
    for package in "$home"/packages/*.deb; do dpkg -x "$package" "$root"; done
    rm -rf "$home"/{packages,lists,cache}
    touch "$root/complete"
  fi
  export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu RUSTC=$root/usr/bin/rustc CARGO_INCREMENTAL=0
  unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
}
