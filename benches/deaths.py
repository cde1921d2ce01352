#!/usr/bin/env python3
"""How late a driver stops computing for a client that is gone amid its executions.

    benches/deaths.py [--release FOLDER] [--way killed|closed] [--mode MODE] [--clients N] MODEL...

For each .tflite model a daemon serves one client after the other, each of which executes the model without end. At some moment
it is killed, be it while the model is prepared; or it is stopped and its connections are closed, so that it lives. Which of the
daemon's threads compute is read from /proc until none does any more, so that what frees the client's memory counts as well. A process that is killed is dead once its threads had a core to die on; the driver can know
of it from then on, and both are told. Needs Linux, and nothing else to run; as root it is itself not kept from the cores.
"""

import argparse
import ctypes
import math
import os
import random
import select
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

# A daemon that does nothing for so many seconds has stopped.
QUIET = 0.03
# Seconds between two looks: to look takes a part of a core.
LOOK = 0.0005
# Threads that work by the clock and not for the client that is gone. One gives memory back half a second after earlier
# clients, some have served others and end as they were idle for seconds.
TIMERS = {"nnhal-trim", "nnhal-watch", "nnhal-idle", "nnhal-notify"}
# Seconds that a client may take to begin.
PATIENCE = 30
SEED = 7
SYS_PIDFD_GETFD = 438


# By so much the priority of this process is above that of those that it looks at, where it may be.
PRIORITY = 5


def start(command):
    """A process with the priority that this one had."""
    as_before = (lambda: os.nice(PRIORITY)) if os.geteuid() == 0 else None
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=as_before)


class Daemon:
    """A daemon, and whether it works."""

    def __init__(self, release, folder):
        self.service = f"unix:{folder}/socket"
        self.process = start([f"{release}/nnhald", "--service", self.service, "--data", f"{folder}/data"])
        time.sleep(0.5)

    def computes(self):
        """Whether a thread of it has a core or waits for one, of those that do not work by the clock."""
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue  # it has just ended
            if rest.split()[0] in "RD" and name not in TIMERS:
                return True
        return False

    def is_at_work(self):
        """Whether it has its client's work to do: at each of some looks."""
        return all(self.computes() or time.sleep(LOOK) for _ in range(20))

    def end(self):
        self.process.kill()
        self.process.wait()


class Client:
    """A client that executes a model without end."""

    def __init__(self, release, service, model, mode):
        command = [f"{release}/nnhal", "--service", service, "bench", model, "--mode", mode, "--seconds", "60"]
        self.process = start(command)
        self.descriptor = os.pidfd_open(self.process.pid)
        self.death = select.poll()
        self.death.register(self.descriptor, select.POLLIN)

    def sockets(self):
        """Copies of what it is connected by."""
        folder = Path(f"/proc/{self.process.pid}/fd")
        numbers = [int(each.name) for each in folder.iterdir() if os.readlink(each).startswith("socket:")]
        copies = [ctypes.CDLL(None).syscall(SYS_PIDFD_GETFD, self.descriptor, number, 0) for number in numbers]
        return [socket.socket(fileno=copy) for copy in copies]

    def leave(self, way):
        """Goes. Gives what says whether the driver can know."""
        if way == "killed":
            self.process.kill()
            return lambda: self.death.poll(0)
        self.process.send_signal(signal.SIGSTOP)
        for connection in self.sockets():
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        return lambda: True

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.descriptor)


def stops_after(daemon, client, way):
    """Seconds until the driver can know that the client is gone, and from then until the daemon computes no longer."""
    began = time.perf_counter()
    is_gone = client.leave(way)
    known, last = None, began
    while True:
        now = time.perf_counter()
        if known is None and is_gone():
            known = now
        if daemon.computes():
            last = now
        elif known is not None and now - max(last, known) > QUIET:
            return known - began, max(last - known, 0)
        time.sleep(LOOK)


def departures(arguments, model, rng):
    """Milliseconds, two of each client that leaves."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(arguments.release, folder)
        try:
            late = []
            while len(late) < arguments.clients:
                client = Client(arguments.release, daemon.service, model, arguments.mode)
                try:
                    time.sleep(0.8 + rng.random())
                    began = time.perf_counter()
                    while not daemon.is_at_work():
                        late_start = time.perf_counter() - began > PATIENCE
                        assert client.process.poll() is None and not late_start, f"{model} is not executed"
                    late.append([1e3 * time for time in stops_after(daemon, client, arguments.way)])
                finally:
                    client.end()
            return late
        finally:
            daemon.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="target/release", help="where nnhal and nnhald are")
    parser.add_argument("--way", choices=["killed", "closed"], default="killed")
    parser.add_argument("--mode", default="burst", help="how the client executes, of the modes of nnhal bench")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    if os.geteuid() == 0:
        os.nice(-PRIORITY)
    print("| model | clients | until it can be known: median, p99, longest, ms | from then on: median, p99, longest, ms |")
    print("|---|---|---|---|")
    for model in arguments.models:
        late = departures(arguments, model, random.Random(SEED))
        columns = []
        for times in map(sorted, zip(*late)):
            p99 = times[math.ceil(0.99 * len(times)) - 1]
            columns.append(f"{statistics.median(times):.1f}, {p99:.1f}, {times[-1]:.1f}")
        print(f"| {Path(model).stem} | {len(late)} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
