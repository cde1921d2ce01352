#!/usr/bin/env python3
"""Measures how long a model takes to prepare from its cache, beside compiling it and beside LiteRT.

    cargo build --release
    python3 tests/peer/cache_load.py [--nnhal PATH] [--rounds N] [MODEL.tflite]

Without MODEL it takes mobilenet_v2_1.0_224_f32.tflite of ../shared/models (NNHAL_MODELS names
another directory). Both sides take turns, so that what else the machine does falls on both; all
times are medians, in ms. nnhal's are of the client, over binder RPC, in a process that has just
started, and so is LiteRT's, for its own kernels and for XNNPACK.

Fails unless loading takes at most 1/10 of compiling and 1/5 of LiteRT's initialisation.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from compare_litert import ROOT, enter_venv

if __name__ == "__main__":
    enter_venv()

MOST_OF_COMPILING = 1 / 10
MOST_OF_LITERT = 1 / 5
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    models = pathlib.Path(os.environ.get("NNHAL_MODELS", ROOT.parent / "shared" / "models"))
    parser.add_argument("model", nargs="?", default=models / "mobilenet_v2_1.0_224_f32.tflite")
    parser.add_argument("--nnhal", default=ROOT / "target" / "release" / "nnhal")
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    model, tool = str(arguments.model), str(arguments.nnhal)

    times = {"compile": [], "save": [], "load": [], "litert": [], "litert-xnnpack": []}
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as cache:
            times["compile"].append(nnhal(tool, model, "compiled"))
            times["save"].append(nnhal(tool, model, "cache miss: compiled and saved", "--cache", cache))
            times["load"].append(nnhal(tool, model, "cache hit: loaded", "--cache", cache))
            times["litert"].append(litert(model, "own"))
            times["litert-xnnpack"].append(litert(model, "xnnpack"))
    median = {name: statistics.median(values) for name, values in times.items()}

    print(f"{pathlib.Path(model).name} on {processor()}, {arguments.rounds} rounds")
    for name, values in times.items():
        print(f"{name:15} {median[name]:9.2f} ms  (from {min(values):.2f} to {max(values):.2f})")
    of_compiling = median["load"] / median["compile"]
    of_litert = median["load"] / min(median["litert"], median["litert-xnnpack"])
    print(f"loading takes {of_compiling:.3f} of compiling, {of_litert:.3f} of LiteRT's initialisation")
    if of_compiling > MOST_OF_COMPILING or of_litert > MOST_OF_LITERT:
        sys.exit(f"expected at most {MOST_OF_COMPILING} and {MOST_OF_LITERT}")


if __name__ == "__main__":
    main()
