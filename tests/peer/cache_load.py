#!/usr/bin/env python3
"""Measures how long a model takes to prepare from its caches, beside compiling it and beside LiteRT.

    cargo build --release
    python3 tests/peer/cache_load.py [--nnhal PATH] [--rounds N] [MODEL.tflite ...]

Without MODEL it takes mobilenet_v2_1.0_224_f32.tflite of ../shared/models (NNHAL_MODELS names
another directory). Both sides take turns, so that what else the machine does falls on both. It
prints a table of medians for BENCHMARKS.md. nnhal's times are of the client, over binder RPC:
in a process that has just started, driver and all, and in a driver that has been running. LiteRT's
are of Interpreter(...) and allocate_tensors() in a process that has just started, for its own
kernels and for XNNPACK, which packs its weights there.

Fails unless a driver that has just started loads in at most 1/10 of its compiling and 1/10 of
LiteRT's initialisation with XNNPACK.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from environment import ROOT, enter_venv

if __name__ == "__main__":
    enter_venv()

MOST_OF_COMPILING = 1 / 10
MOST_OF_LITERT = 1 / 10
INITIALISE = """
import sys, time
from ai_edge_litert.interpreter import Interpreter, OpResolverType as R
resolver = R.AUTO if sys.argv[2] == "xnnpack" else R.BUILTIN_WITHOUT_DEFAULT_DELEGATES
start = time.perf_counter()
interpreter = Interpreter(sys.argv[1], experimental_op_resolver_type=resolver, num_threads=int(sys.argv[3]))
interpreter.allocate_tensors()
print((time.perf_counter() - start) * 1e3)
"""


def nnhal(tool, model, pattern, *more):
    """The time that the tool prints after `pattern`."""
    output = subprocess.run([tool, "run", model, *more], check=True, capture_output=True, text=True).stdout
    found = re.search(pattern + r" in ([0-9.]+) ms", output)
    if not found:
        sys.exit(f"{tool} run says nothing like {pattern!r}:\n{output}")
    return float(found.group(1))


def litert(model, kernels):
    command = [sys.executable, "-c", INITIALISE, model, kernels, str(os.cpu_count())]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(run.stdout.split()[-1])


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    facts = dict(tuple(part.strip() for part in line.split(":", 1)) for line in lines if ":" in line)
    name = facts.get("model name", "unknown")
    return f"{name} (family {facts.get('cpu family')}, model {facts.get('model')}), {os.cpu_count()} cores"


def bench(tool, model):
    """Preparation times in a driver that has been running: compiled first, then loaded."""
    command = [tool, "bench", model, "--seconds", "0.1", "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


ROWS = {
    "compile": "nnhal compiles",
    "save": "nnhal compiles and saves in cache files",
    "load": "nnhal loads from cache files, just started",
    "load-running": "nnhal loads from cache files, running, nothing kept",
    "store-running": "nnhal loads from its own store, running",
    "litert": "LiteRT initialises, its own kernels",
    "litert-xnnpack": "LiteRT initialises, XNNPACK",
}


def measure(tool, model, rounds):
    times = {name: [] for name in ROWS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            times["compile"].append(nnhal(tool, model, "compiled"))
            times["save"].append(nnhal(tool, model, "cache miss: compiled and saved", "--cache", cache))
            times["load"].append(nnhal(tool, model, "cache hit: loaded", "--cache", cache))
        figures = bench(tool, model)
        times["load-running"].append(figures["cache_load_ms"])
        if figures["store_load_ms"] is not None:
            times["store-running"].append(figures["store_load_ms"])
        times["litert"].append(litert(model, "own"))
        times["litert-xnnpack"].append(litert(model, "xnnpack"))
    return {name: values for name, values in times.items() if values}


def table(times):
    print("\n| | median ms | from | to |\n|---|---|---|---|")
    for name, values in times.items():
        print(f"| {ROWS[name]} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = pathlib.Path(os.environ.get("NNHAL_MODELS", ROOT.parent / "shared" / "models"))
    parser.add_argument("model", nargs="*", default=[models / "mobilenet_v2_1.0_224_f32.tflite"])
    parser.add_argument("--nnhal", default=ROOT / "target" / "release" / "nnhal")
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    late = []
    for model in map(pathlib.Path, arguments.model):
        times = measure(str(arguments.nnhal), str(model), arguments.rounds)
        print(f"{model.name} on {processor()}, {arguments.rounds} rounds")
        table(times)
        median = {name: statistics.median(values) for name, values in times.items()}
        of_compiling = median["load"] / median["compile"]
        of_litert = median["load"] / median["litert-xnnpack"]
        print(f"\nLoading takes {of_compiling:.3f} of compiling, {of_litert:.3f} of LiteRT's with XNNPACK, "
              f"{median['load'] / median['litert']:.2f} of LiteRT's without, which packs nothing.\n")
        if of_compiling > MOST_OF_COMPILING or of_litert > MOST_OF_LITERT:
            late.append(model.name)
    if late:
        sys.exit(f"{', '.join(late)}: expected at most {MOST_OF_COMPILING} and {MOST_OF_LITERT}")


if __name__ == "__main__":
    main()
