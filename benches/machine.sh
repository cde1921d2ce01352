#!/bin/sh
# Prints the machine that figures are from: processor, cores, memory, kernel, system and compiler. Reads nothing but
# what the kernel and the system say of themselves.
processor=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
memory=$(sed -n 's/^MemTotal:[[:space:]]*\([0-9]*\) kB/\1/p' /proc/meminfo)
. /etc/os-release
echo "processor: ${processor:-unknown}, $(nproc) cores"
echo "memory: $((memory / 1024)) MiB"
echo "system: ${PRETTY_NAME:-unknown}, Linux $(uname -r), $(uname -m)"
echo "compiler: $(rustc --version 2>/dev/null || echo none)"
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg)"
