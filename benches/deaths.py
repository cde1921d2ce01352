#!/usr/bin/env python3
"""How late a driver stops computing for a client that was killed amid its executions.

    benches/deaths.py [--release FOLDER] [--kills N] MODEL...

For each .tflite model a daemon serves one client after the other, each of which executes the model without end and is killed
at some moment, be it while the model is prepared. How long the daemon's threads have run is read from /proc until nothing is
added any more: the last addition is the end, so that what frees the client's memory counts as well. Needs Linux, and
nothing else to run.
"""

import argparse
import math
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

# A daemon that ran no longer for so many seconds has stopped; its own timers run for some microseconds now and then.
QUIET = 0.03
IDLE_NS = 100_000
# Threads that work by the clock and not for the dead client: one gives memory back half a second after earlier clients.
TIMERS = {"nnhal-trim", "nnhal-watch", "nnhal-watcher", "nnhal-idle"}
# Seconds that a client may take to begin.
PATIENCE = 30
SEED = 7


def run_times(process):
    """Nanoseconds that each thread of a process has run, but for timers."""
    times = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            if (task / "comm").read_text().strip() not in TIMERS:
                times[task.name] = int((task / "schedstat").read_text().split()[0])
        except OSError:
            pass  # it has just ended
    return times


def added(before, after):
    """Nanoseconds that threads ran between; those that ended are not known any more."""
    return sum(time - before.get(thread, 0) for thread, time in after.items())


def computes(daemon):
    """Whether a daemon has its client's work to do."""
    before = run_times(daemon.pid)
    time.sleep(0.02)
    return added(before, run_times(daemon.pid)) > IDLE_NS


def stops_after(daemon):
    """Seconds until a daemon computes no longer."""
    began = last = time.perf_counter()
    seen = run_times(daemon.pid)
    while True:
        now, times = time.perf_counter(), run_times(daemon.pid)
        if added(seen, times) > IDLE_NS:
            last, seen = now, times
        elif now - last > QUIET:
            return last - began


def kills(release, model, count, rng):
    """Milliseconds from each client's death to the end of the daemon's work for it."""
    with tempfile.TemporaryDirectory() as folder:
        service = f"unix:{folder}/socket"
        daemon = subprocess.Popen([f"{release}/nnhald", "--service", service, "--data", f"{folder}/data"],
                                  stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            late = []
            while len(late) < count:
                command = [f"{release}/nnhal", "--service", service, "bench", model, "--mode", "burst", "--seconds", "60"]
                client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(0.8 + rng.random())
                began = time.perf_counter()
                while not computes(daemon):
                    late_start = time.perf_counter() - began > PATIENCE
                    assert client.poll() is None and not late_start, f"{model} is not executed"
                client.kill()
                late.append(1e3 * stops_after(daemon))
                client.wait()
            return late
        finally:
            daemon.kill()
            daemon.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="target/release", help="where nnhal and nnhald are")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    print("| model | clients killed | median, ms | p99, ms | longest, ms |")
    print("|---|---|---|---|---|")
    for model in arguments.models:
        late = sorted(kills(arguments.release, model, arguments.kills, random.Random(SEED)))
        p99 = late[math.ceil(0.99 * len(late)) - 1]
        print(f"| {Path(model).stem} | {len(late)} | {statistics.median(late):.1f} | {p99:.1f} | {late[-1]:.1f} |")


if __name__ == "__main__":
    main()
