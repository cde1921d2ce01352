#!/usr/bin/env python3
"""Compares the memory of nnhal's driver with LiteRT's, model by model.

    cargo build --release
    python3 tests/peer/compare_memory.py [--release DIR] [--threads N] [MODEL.tflite ...]

A driver that knows nothing yet prepares the model and runs it, as does LiteRT (with XNNPACK, as it comes) in a process of its
own. Printed is each process's peak of resident memory less what it had before it saw the model: the model's own pages,
which both map, count on both sides. What nnhal's client holds is not counted.

Without MODELs it takes those of ../shared/models (NNHAL_MODELS names another directory). Nothing is asserted.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from environment import ROOT, enter_venv

if __name__ == "__main__":
    enter_venv()

from compare_speed import Daemon, models, print_machine, print_peer


def kib(process, what):
    """A figure of /proc/PROCESS/status."""
    for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1])
    raise KeyError(what)


def of_nnhal(release, path, threads):
    """The driver's peak less what it had before."""
    with tempfile.TemporaryDirectory() as folder, Daemon(release / "nnhald", threads, folder) as daemon:
        before = kib(daemon.process.pid, "VmRSS")
        # Not `bench`, which has several prepared models at a time.
        command = [release / "nnhal", "--service", f"unix:{daemon.socket}", "run", path]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return kib(daemon.process.pid, "VmHWM") - before


def of_litert(path, threads):
    """The peak of a process that runs the model, less what it had before; this is that process."""
    before = kib("self", "VmRSS")
    print_peer(path, threads, 0)
    print(kib("self", "VmHWM") - before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", type=pathlib.Path, default=ROOT / "target" / "release",
                        help="where nnhal and nnhald are")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--litert", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.litert:
        return of_litert(arguments.models[0], arguments.threads)
    print_machine()
    print("\n| model | file, MiB | driver, MiB | LiteRT, MiB | ratio |")
    print("|---|---|---|---|---|")
    for path in models(arguments.models):
        ours = of_nnhal(arguments.release.resolve(), path, arguments.threads)
        command = [sys.executable, __file__, "--litert", "--threads", str(arguments.threads), path]
        theirs = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
        mib = [path.stat().st_size / 2**20, ours / 1024, theirs / 1024]
        print(f"| {path.stem} | {mib[0]:.1f} | {mib[1]:.1f} | {mib[2]:.1f} | {mib[1] / mib[2]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
