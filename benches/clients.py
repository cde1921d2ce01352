#!/usr/bin/env python3
"""What many clients of one model take: executions a second of all of them, and the memory of the daemon.

    benches/clients.py [--release FOLDER] [--clients N...] [--threads N] [--seconds S] [--users] [--together] MODEL...

For each .tflite model and each number of clients a daemon is started. Its clients, a process each, prepare the model one after
the other, or all of them at once, and execute it in bursts side by side, until all have done so for some seconds. They are one
user's, or, as root, each a user of its own. Memory is the daemon's proportional share (Pss), so that pages of files which several
models have mapped count once, without the pages of its program: the most that was seen while clients ran, less what the daemon had
before, and what is left two seconds after they have gone. Needs Linux, and nothing else to run.
"""

import argparse
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

# Seconds between two looks at the daemon's memory.
LOOK = 0.05
# Seconds after which memory of clients that are gone is to be given back.
GONE = 2
PATIENCE = 60
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
        command = [f"{arguments.release}/nnhald", "--service", self.service, "--data", f"{folder}/data"]
        command += ["--threads", str(arguments.threads)] + (["--socket-mode", "666"] if arguments.users else [])
        os.chmod(folder, 0o755)
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        began = time.monotonic()
        while not Path(folder, "socket").exists():
            assert self.process.poll() is None and time.monotonic() - began < PATIENCE, "nnhald did not start"
            time.sleep(LOOK)

    def end(self):
        self.process.terminate()
        self.process.wait()


class Client:
    """A client that executes the model for some seconds once it is told to begin."""

    def __init__(self, arguments, service, model, number):
        command = [f"{arguments.release}/nnhal", "--service", service, "bench", model, "--mode", "burst"]
        command += ["--seconds", str(arguments.seconds)]
        user = FIRST_USER + number if arguments.users else None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user=user)

    def executions(self):
        out, err = self.process.communicate()
        ran = re.search(r"^ran (\d+) times", out, re.MULTILINE)
        assert ran, f"a client failed: {err.strip()}"
        return int(ran[1])


def measure(arguments, model, count):
    """Executions a second, and MiB of the daemon: at the most, and after all."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(arguments, folder)
        try:
            before = most = pss(daemon.process)
            clients = []
            while any(client.process.poll() is None for client in clients) or len(clients) < count:
                if len(clients) < count:
                    clients.append(Client(arguments, daemon.service, model, len(clients)))
                    if arguments.together and len(clients) < count:
                        continue
                most = max(most, pss(daemon.process))
                time.sleep(LOOK)
            executions = sum(client.executions() for client in clients)
            time.sleep(GONE)
            return executions / arguments.seconds, most - before, pss(daemon.process) - before
        finally:
            daemon.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="target/release", help="where nnhal and nnhald are")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--users", action="store_true", help="each client is a user of its own")
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
