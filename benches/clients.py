#!/usr/bin/env python3
"""What many clients of one model take: executions a second of all of them, and the memory of the daemon.

    benches/clients.py [--release FOLDER] [--clients N...] [--threads N] [--seconds S] [--users] [--share-weights] [--together] MODEL...

For each .tflite model and each number of clients a daemon is started. Its clients, a process each, prepare the model one after
the other, or all of them at once, and execute it in bursts side by side until they are killed; the daemon's own count of some
seconds tells how many executions that are. They are one user's, or, as root, each a user of its own. Memory is the daemon's proportional share (Pss), so that pages of files which several
models have mapped count once, without the pages of its program: the most that was seen while clients ran, less what the daemon had
before, and what is left two seconds after they have gone. Needs Linux, and nothing else to run.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

# Seconds between two looks at the daemon's memory.
LOOK = 0.05
# Seconds after which all clients that have a model execute it.
SETTLED = 3
# Seconds after which memory of clients that are gone is to be given back.
GONE = 2
PATIENCE = 10
FIRST_USER = 20000


def pss(process):
    """MiB."""
    sum_of_all, counts = 0, True
    for line in Path(f"/proc/{process.pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-", line):
            counts = not re.search(r"/nnhald$|\.so[.0-9]*$", line)
        elif counts and line.startswith("Pss:"):
            sum_of_all += int(line.split()[1])
    return sum_of_all / 1024


class Daemon:
    def __init__(self, arguments, folder):
        self.service = f"unix:{folder}/socket"
        self.tool = [f"{arguments.release}/nnhal", "--service", self.service]
        command = [f"{arguments.release}/nnhald", "--service", self.service, "--data", f"{folder}/data"]
        command += ["--threads", str(arguments.threads)] + (["--socket-mode", "666"] if arguments.users else [])
        command += ["--share-weights"] if arguments.share_weights else []
        os.chmod(folder, 0o755)
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        began = time.monotonic()
        while not Path(folder, "socket").exists():
            assert self.process.poll() is None and time.monotonic() - began < PATIENCE, "nnhald did not start"
            time.sleep(LOOK)

    def status(self):
        done = subprocess.run([*self.tool, "info", "--live", "--json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def executions(self):
        """How many have succeeded, and when that was."""
        return self.status()["executions"]["succeeded"], time.monotonic()

    def end(self):
        self.process.terminate()
        self.process.wait()


class Client:
    """A client that executes the model without end."""

    def __init__(self, arguments, daemon, model, number):
        command = [*daemon.tool, "run", model, "--mode", "burst", "--runs", "1000000000"]
        user = FIRST_USER + number if arguments.users else None
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, user=user)

    def end(self):
        assert self.process.poll() is None, f"a client failed: {self.process.stderr.read().strip()}"
        self.process.kill()
        self.process.wait()


def measure(arguments, model, count):
    """Executions a second, and MiB of the daemon: at the most, and after all."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(arguments, folder)
        try:
            before = most = pss(daemon.process)
            clients = []

            def look(seconds):
                nonlocal most
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    most = max(most, pss(daemon.process))
                    time.sleep(LOOK)

            for number in range(count):
                clients.append(Client(arguments, daemon, model, number))
                look(0 if arguments.together else 4 * LOOK)
            look(SETTLED)
            first, since = daemon.executions()
            look(arguments.seconds)
            last, until = daemon.executions()
            for client in clients:
                client.end()
            time.sleep(GONE)
            return (last - first) / (until - since), most - before, pss(daemon.process) - before
        finally:
            daemon.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="target/release", help="where nnhal and nnhald are")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--users", action="store_true", help="each client is a user of its own")
    parser.add_argument("--share-weights", action="store_true", help="what the daemon is told")
    parser.add_argument("--together", action="store_true", help="all clients prepare the model at once")
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    print("| model | clients | executions a second | of one client's | memory, MiB | of one client's | left, MiB |")
    print("|---|---|---|---|---|---|---|")
    for model in arguments.models:
        one = None
        for count in arguments.clients:
            rate, most, left = measure(arguments, model, count)
            one = one or (rate, most)
            print(f"| {Path(model).stem} | {count} | {rate:.0f} | {rate / one[0]:.2f} | {most:.1f} | {most / one[1]:.2f} "
                  f"| {left:.1f} |", flush=True)


if __name__ == "__main__":
    main()
