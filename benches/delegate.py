#!/usr/bin/env python3
"""Times models through the LiteRT delegate beside `nnhal bench`, in the same mode.

    cargo build --release --workspace
    python3 benches/delegate.py [--mode MODE] [--seconds S] [--rounds N] [MODEL.tflite ...]

Both take turns, so that whatever else the machine does meets both alike; the figures are medians of each round's median.
`nnhal bench` times a run without the copies of inputs and outputs; the delegate's time is all of `invoke`.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "delegate"), str(TESTS / "peer")]
from environment import enter_venv  # noqa: E402

if __name__ == "__main__":
    enter_venv()

import check  # noqa: E402


def through_the_tool(model, mode, seconds):
    command = [check.Settings.binary("nnhal"), "bench", model, "--mode", mode, "--seconds", str(seconds), "--json"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(told.splitlines()[-1])["median_ms"]


def through_the_delegate(made, inputs, seconds):
    check.run(made, inputs)
    times, began = [], time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        made.invoke()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times[len(times) // 10 :])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, default=check.Settings.target)
    parser.add_argument("--mode", default="burst", choices=check.MODES)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    check.Settings.target = arguments.target.resolve()
    print(f"| model | `nnhal bench`, ms | delegate, ms | ratio | ratio of each round |\n|---|---|---|---|---|")
    for model in arguments.models or check.models():
        made = check.interpreter(model, [check.Settings.delegate(mode=arguments.mode)])
        inputs = check.inputs_of(made)
        pairs = []
        for _ in range(arguments.rounds):
            tool = through_the_tool(model, arguments.mode, arguments.seconds)
            pairs.append((tool, through_the_delegate(made, inputs, arguments.seconds)))
        tool, ours = (statistics.median(times) for times in zip(*pairs))
        ratios = ", ".join(f"{b / a:.2f}" for a, b in pairs)
        print(f"| {model.stem} | {tool:.3f} | {ours:.3f} | {ours / tool:.3f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
