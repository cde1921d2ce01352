#!/bin/bash
# Makes what android/build.sh takes for an NDK, of what a Rust toolchain has: a linker, and stubs of the platform's libraries.
#
#   android/stub_ndk/make.sh DIR
#
# What is linked with it cannot run: it has the functions that android/symbols lists, which is what the daemon may need of
# the platform, and no start code, which is the NDK's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools=$1/toolchains/llvm/prebuilt/stub/bin
lld=$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld
api=${NNHAL_ANDROID_API:-30}
mkdir -p "$tools"

# stub NAME EMULATION LOADER: the compiler NAME, for what lld links by EMULATION and LOADER loads.
stub() {
  local libraries=$1/stubs/$2 list library
  mkdir -p "$libraries"
  echo 'INPUT()' >"$libraries/empty.ld"
  for list in android/symbols/*.txt; do
    library=$(basename "$list" .txt).so
    "$lld" -flavor gnu -m "$3" -shared -soname "$library" -o "$libraries/$library" \
      $(sed 's/.*/--defsym=&=0/' "$list") "$libraries/empty.ld"
  done
  cat android/stub_ndk/clang.sh - >"$tools/$2$api-clang" <<END
exec "$lld" -flavor gnu -m $3 --dynamic-linker=/system/bin/$4 --entry=main -L "$libraries" "\${arguments[@]}"
END
  chmod +x "$tools/$2$api-clang"
}

stub "$1" aarch64-linux-android aarch64linux linker64
stub "$1" armv7a-linux-androideabi armelf_linux_eabi linker
stub "$1" x86_64-linux-android elf_x86_64 linker64

# By this name it strips. rustc starts it with its own libraries at hand, and so does this.
rm -f "$tools/llvm-strip"
cat >"$tools/llvm-strip" <<END
#!/bin/bash
export LD_LIBRARY_PATH="${lld%/lib/rustlib/*}/lib"
exec -a llvm-strip "${lld%/*}/rust-objcopy" "\$@"
END
chmod +x "$tools/llvm-strip"
