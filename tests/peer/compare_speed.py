#!/usr/bin/env python3
"""Measures nnhal beside LiteRT with XNNPACK, model by model, and prints a table for BENCHMARKS.md.

    cargo build --release
    python3 tests/peer/compare_speed.py [--threads 1 2] [--rounds N] [MODEL.tflite ...]

nnhal computes in a daemon of its own and is measured by its client, end to end: a burst
over binder RPC. LiteRT is called in process. Each round of either side is by processes that
have just started; both take turns, round by round, on the same number of threads. A figure
is the median of its rounds' medians.

A first result is what a user waits for: from the model's file to the first output. nnhal's
second one is that of a driver that has just started and loads what an earlier one saved.

Without MODELs it takes those of ../shared/models (NNHAL_MODELS names another directory).
Nothing is asserted: whoever reads the table must know what else the machine was doing,
which is why its load stands below.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from environment import ROOT, enter_venv

if __name__ == "__main__":
    enter_venv()

import numpy as np
from ai_edge_litert.interpreter import Interpreter

SEED = 8
# Instructions that decide what either side can do, as /proc/cpuinfo names them.
FLAGS = ["avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "amx_bf16",
         "asimddp", "i8mm", "asimdhp"]
START_SECONDS = 10


class Daemon:
    """An nnhald of the given number of threads, as long as the `with` lasts."""

    def __init__(self, program, threads, folder):
        self.socket = pathlib.Path(folder, "nnhald.sock")
        self.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen([
            program, "--service", f"unix:{self.socket}", "--threads", str(threads),
            "--data", pathlib.Path(folder, "data")], stderr=subprocess.DEVNULL)

    def __enter__(self):
        end = time.monotonic() + START_SECONDS
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                sys.exit("nnhald did not start")
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def json_of(command):
    """The line of JSON that a command ends with."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


class Nnhal:
    def __init__(self, nnhal, nnhald, path, threads):
        self.nnhal, self.nnhald, self.path, self.threads = nnhal, nnhald, path, threads

    def round(self, seconds):
        """Median of one run, and both first results, in milliseconds."""
        # Each round begins with a daemon that knows nothing of the model.
        with tempfile.TemporaryDirectory() as folder:
            def tool(command, *more):
                with Daemon(self.nnhald, self.threads, folder) as daemon:
                    return json_of([self.nnhal, "--service", f"unix:{daemon.socket}", command, self.path,
                                    "--mode", "burst", "--json", *more])

            figures = tool("bench", "--seconds", str(seconds))
            cached = ["--runs", "1", "--cache", pathlib.Path(folder, "cache")]
            tool("run", *cached)
            loaded = tool("run", *cached)
        if not loaded["cache_hit"]:
            sys.exit(f"{self.path} was saved, and not loaded")
        first = sum(figures[part] for part in ("import_ms", "compile_ms", "first_run_ms"))
        return figures["median_ms"], first, loaded["compile_ms"] + loaded["median_ms"]


class LiteRt:
    def __init__(self, path, threads):
        self.path, self.threads = path, threads

    def round(self, seconds):
        """Median of one run, and the first result, in milliseconds."""
        return json_of([sys.executable, __file__, "--peer", str(seconds),
                        "--threads", str(self.threads), "--", self.path])


def print_peer(path, threads, seconds):
    """One round of LiteRT's, by this process, as a line of JSON."""
    started = time.perf_counter()
    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    prepared = time.perf_counter() - started
    rng = np.random.default_rng(SEED)
    for detail in interpreter.get_input_details():
        shape, dtype = detail["shape"], detail["dtype"]
        if np.issubdtype(dtype, np.floating):
            array = rng.uniform(-1, 1, shape).astype(dtype)
        else:
            limits = np.iinfo(dtype)
            array = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        interpreter.set_tensor(detail["index"], array)
    started = time.perf_counter()
    interpreter.invoke()
    first = prepared + time.perf_counter() - started
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        started = time.perf_counter()
        interpreter.invoke()
        times.append(time.perf_counter() - started)
    print(json.dumps([1e3 * statistics.median(times), 1e3 * first]))


def measure(ours, theirs, rounds, seconds):
    """Medians of both sides' rounds, which alternate, each (a run, first result)."""
    figures = ([], [])
    for number in range(rounds):
        sides = [(ours, figures[0]), (theirs, figures[1])]
        for side, to in sides if number % 2 == 0 else reversed(sides):
            to.append(side.round(seconds))
    return [tuple(map(statistics.median, zip(*side))) for side in figures]


def print_machine():
    subprocess.run(["sh", ROOT / "benches" / "machine.sh"])
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = {word for line in text.splitlines() if line.startswith(("flags", "Features"))
             for word in line.split(":", 1)[1].split()}
    print("instructions:", ", ".join(flag for flag in FLAGS if flag in found) or "none of those that matter")
    print("date:", time.strftime("%Y-%m-%d"))


def geometric_mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios)))


def print_table(threads, rows):
    """`rows`: a model's name and both sides' figures."""
    print(f"\nOn {threads} thread{'s' if threads > 1 else ''}, milliseconds:\n")
    print("| model | nnhal | LiteRT | ratio | nnhal, first result | LiteRT, first result | ratio "
          "| nnhal, loaded, first result | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    ratios = []
    for name, (run, first, loaded), (their_run, their_first) in rows:
        ratios.append((run / their_run, first / their_first, loaded / their_first))
        print(f"| {name} | {run:.3f} | {their_run:.3f} | {ratios[-1][0]:.2f} "
              f"| {first:.1f} | {their_first:.1f} | {ratios[-1][1]:.2f} | {loaded:.1f} | {ratios[-1][2]:.2f} |")
    means = [geometric_mean(column) for column in zip(*ratios)]
    print(f"| geometric mean | | | {means[0]:.2f} | | | {means[1]:.2f} | | {means[2]:.2f} |", flush=True)


def models(named):
    if named:
        return [path.resolve() for path in named]
    folder = pathlib.Path(os.environ.get("NNHAL_MODELS", ROOT.parent / "shared" / "models"))
    return sorted(folder.glob("*.tflite")) or sys.exit(f"no .tflite in {folder}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", type=pathlib.Path, default=ROOT / "target" / "release",
                        help="where nnhal and nnhald are")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round of one side")
    parser.add_argument("--peer", type=float, metavar="SECONDS", help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.peer is not None:
        return print_peer(arguments.models[0], arguments.threads[0], arguments.peer)
    nnhal, nnhald = (arguments.release.resolve() / name for name in ("nnhal", "nnhald"))
    if not nnhal.exists() or not nnhald.exists():
        sys.exit(f"there is no {nnhal} with its nnhald: cargo build --release, or --release PATH")
    print_machine()
    for threads in arguments.threads:
        rows = []
        for path in models(arguments.models):
            path.read_bytes()  # or the first of both would wait for the disk
            sides = Nnhal(nnhal, nnhald, path, threads), LiteRt(path, threads)
            rows.append((path.stem, *measure(*sides, arguments.rounds, arguments.seconds)))
            print(f"{path.stem}: {rows[-1][1][0]:.3f} and {rows[-1][2][0]:.3f} ms", file=sys.stderr)
        print_table(threads, rows)


if __name__ == "__main__":
    main()
