#!/usr/bin/env python3
"""Checks the LiteRT delegate inside of the released wheel of ai-edge-litert.

    cargo build --release --workspace
    python3 tests/delegate/check.py [--target DIR] [--profile NAME] [--deaths N] [--rounds N] [CHECK ...]

The environment is that of tests/peer. Models are both digits models and all of
../shared/models (NNHAL_MODELS names another directory; where there is none, it says so
and goes on), and those of tests/data/operators. Without CHECKs it does all of them. Every
check runs in a process of its own, which must end well whatever the check did. One that
lacks what it needs is told as SKIPPED.
"""

import argparse
import gc
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peer"))
from environment import ROOT, enter_venv  # noqa: E402

if __name__ == "__main__":
    enter_venv()

import models as made_models  # noqa: E402
import numpy as np  # noqa: E402
from ai_edge_litert.interpreter import Interpreter, OpResolverType, load_delegate  # noqa: E402

SEED = 19
SECONDS = 900
# For how many seconds a check waits for what is to come soon.
PATIENCE = 20
MODES = ["sync", "fenced", "burst", "reusable", "fmq"]
DIGITS = ROOT / "models" / "digits_int8.tflite"
DIGITS_F32 = ROOT / "models" / "digits_f32.tflite"
OPERATORS = ROOT / "tests" / "data" / "operators"
# Files with a tensor whose size LiteRT knows only once it runs: it gives such graphs to no delegate.
DYNAMIC = ["loop_both_f32", "loop_lstm_f32", "loop_rnn_f32", "open_batch_f32"]
# What a check's process ends with that lacked what it needs.
SKIPPED = 77


class Settings:
    """What the command line says; checks read it."""

    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    profile = "release"
    deaths = 20
    rounds = 200

    @classmethod
    def binary(cls, name):
        return cls.target / cls.profile / name

    @classmethod
    def delegate(cls, **options):
        return load_delegate(str(cls.binary("libnnhal_delegate.so")), options)


def models():
    shared = pathlib.Path(os.environ.get("NNHAL_MODELS", ROOT / ".." / "shared" / "models"))
    found = sorted(shared.glob("*.tflite"))
    if not found:
        print(f"no models at {shared}: only the digits models are checked")
    return [DIGITS, DIGITS_F32, *found]


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


class Skipped(Exception):
    """A check lacks what it needs."""


class StandardError:
    """What this process writes to standard error meanwhile, Python's own and others' alike."""

    def __enter__(self):
        self.file = tempfile.TemporaryFile()
        sys.stderr.flush()
        self.saved = os.dup(2)
        os.dup2(self.file.fileno(), 2)
        return self

    def __exit__(self, *_):
        sys.stderr.flush()
        os.dup2(self.saved, 2)
        os.close(self.saved)
        self.file.seek(0)
        self.text = self.file.read().decode()
        os.write(2, self.text.encode())


def interpreter(model, delegates=(), **more):
    source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
    made = Interpreter(**source, experimental_delegates=list(delegates), **more)
    made.allocate_tensors()
    return made


def inputs_of(made, seed=SEED):
    """Random inputs in the range of each type; integers that may be indices stay small."""
    random = np.random.default_rng(seed)
    found = []
    for detail in made.get_input_details():
        shape, dtype = detail["shape"], detail["dtype"]
        if dtype == np.float32:
            found.append(random.uniform(-1, 1, shape).astype(dtype))
        elif dtype in (np.int8, np.uint8):
            limits = np.iinfo(dtype)
            found.append(random.integers(limits.min, limits.max + 1, shape, dtype))
        else:
            found.append(random.integers(0, 2, shape).astype(dtype))
    return found


def run(made, inputs):
    for detail, value in zip(made.get_input_details(), inputs):
        made.set_tensor(detail["index"], value)
    made.invoke()
    return [made.get_tensor(detail["index"]) for detail in made.get_output_details()]


def tool_outputs(model, inputs, mode="burst"):
    """What `nnhal run` makes of the same inputs."""
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        files = []
        for i, value in enumerate(inputs):
            files.append(directory / f"input{i}.npy")
            np.save(files[-1], value)
        command = [Settings.binary("nnhal"), "run", model, "--mode", mode, "--output-dir", directory, "--input"]
        subprocess.run([*command, *files], check=True, stdout=subprocess.DEVNULL, timeout=SECONDS)
        count = len(list(directory.glob("output*.npy")))
        return [np.load(directory / f"output{i}.npy") for i in range(count)]


def same(ours, theirs, what):
    expect(len(ours) == len(theirs), f"{what}: {len(ours)} outputs, not {len(theirs)}")
    for i, (a, b) in enumerate(zip(ours, theirs)):
        expect(a.dtype == b.dtype, f"{what}: output {i} is {a.dtype}, not {b.dtype}")
        expect(a.tobytes() == b.tobytes(), f"{what}: output {i} differs")


def check_layout():
    """The graph as the delegate reads it is the graph that the runtime has."""
    for model in models():
        with StandardError() as told:
            plain = Interpreter(model_path=str(model))
            try:
                made = interpreter(model, [Settings.delegate(verbose=2)])
            except RuntimeError as why:
                raise AssertionError(f"the runtime's layout is not the known one: {why}") from why
        del made
        lines = [line.removeprefix("nnhal: ") for line in told.text.splitlines() if line.startswith("nnhal: ")]
        seen = {}
        for line in lines:
            if line.startswith("tensor "):
                index, rest = line.removeprefix("tensor ").split(" ", 1)
                seen[int(index)] = rest
        types = {np.float32: "FLOAT32", np.int8: "INT8", np.uint8: "UINT8", np.int32: "INT32", np.int64: "INT64",
                 np.bool_: "BOOL", np.float16: "FLOAT16"}
        expect(seen, f"{model.name}: the delegate says nothing of its tensors")
        for detail in plain.get_tensor_details():
            text, index = seen.get(detail["index"], ""), detail["index"]
            dims = [int(d) for d in detail["shape"]]
            start = f"{types[detail['dtype']]} {dims} "
            expect(text.startswith(start), f"{model.name}: tensor {index} is {start}, the delegate reads {text}")
            expect(text.endswith(" " + detail["name"]) or not detail["name"], f"{model.name}: tensor {index}: {text}")
            parameters = detail["quantization_parameters"]
            scales = parameters["scales"]
            if len(scales) == 1:
                scale = float(text.split("scale: ")[1].split(",")[0])
                zero_point = int(text.split("zero_point: ")[1].split(" ")[0])
                expect(np.float32(scale) == scales[0], f"{model.name}: tensor {index}: scale {scale}")
                expect(zero_point == parameters["zero_points"][0], f"{model.name}: tensor {index}: {zero_point}")
            elif len(scales) > 1:
                expect(f"dim: {parameters['quantized_dimension']} " in text, f"{model.name}: tensor {index}: {text}")
                read = text.split("scales: [")[1].split("]")[0].split(",")
                expect([np.float32(s) for s in read] == list(scales), f"{model.name}: tensor {index}: scales")
        nodes = [line for line in lines if line.startswith("node ")]
        operations = plain._get_ops_details()
        expect(len(nodes) == len(operations), f"{model.name}: {len(nodes)} nodes of {len(operations)}")
        for line, operation in zip(nodes, operations):
            arguments = f"{[int(i) for i in operation['inputs']]} -> {[int(i) for i in operation['outputs']]}"
            start = f"node {operation['index']} {operation['op_name']} {arguments} "
            expect(line.startswith(start), f"{model.name}: {start}: the delegate reads {line}")
        print(f"{model.name}: {len(seen)} tensors, {len(nodes)} nodes")


def check_options():
    """What is wrong with the options or the way to the driver is told in one line."""
    for options, expected in [
        ({"modus": "burst"}, "min_nodes_per_partition"),
        ({"mode": "quick"}, "reusable"),
        ({"service": "tcp:1"}, "unix:PATH"),
        ({"service": "unix:/nonexistent/nnhal.sock"}, "nnhald --service"),
        ({"service": "binder:nobody"}, "binder"),
    ]:
        try:
            Settings.delegate(**options)
        except ValueError as why:
            # The first line is LiteRT's own: that the delegate could not be loaded.
            lines = str(why).splitlines()[1:]
            expect(len(lines) == 1 and expected in lines[0], f"{options}: {why}")
        else:
            raise AssertionError(f"{options} was taken")
    try:
        interpreter(DIGITS.read_bytes()[:1000], [Settings.delegate()])
    except (ValueError, RuntimeError):
        pass
    else:
        raise AssertionError("half a model was taken")


def check_models():
    """Every node goes to the driver, and the results are the tool's, byte for byte."""
    for model in models():
        for mode in MODES if model in (DIGITS, DIGITS_F32) else ["burst"]:
            with StandardError() as told:
                made = interpreter(model, [Settings.delegate(mode=mode, verbose=1)])
            expect("nodes run on the driver" in told.text and " all " in told.text, f"{model.name}: {told.text}")
            inputs = inputs_of(made)
            expected = tool_outputs(model, inputs, mode)
            same(run(made, inputs), expected, f"{model.name}, {mode}")
            run(made, inputs_of(made, SEED + 1))
            made.reset_all_variables()
            same(run(made, inputs), expected, f"{model.name}, {mode}, again")
        print(f"{model.name}: equal")


def check_operators():
    """Each small model gives what LiteRT gives alone, run after run; but those that LiteRT gives to no delegate."""
    for model in sorted(OPERATORS.glob("*.tflite")):
        try:
            ours = interpreter(model, [Settings.delegate()])
        except RuntimeError as why:
            expect(model.stem in DYNAMIC and "nnhal" not in str(why), f"{model.name}: {why}")
            continue
        expect(model.stem not in DYNAMIC, f"{model.name}: LiteRT has given it to the delegate")
        theirs = interpreter(model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        for seed in range(SEED, SEED + 3):
            inputs = inputs_of(ours, seed)
            for i, (a, b) in enumerate(zip(run(ours, inputs), run(theirs, inputs))):
                what = f"{model.name}, output {i}"
                expect(a.shape == b.shape and a.dtype == b.dtype, f"{what}: {a.dtype} {a.shape}, {b.dtype} {b.shape}")
                # Bytes are rounded in other places, as tests/peer/compare_litert.py allows for.
                limit = 1e-4 * max(1, np.abs(b).max()) if a.dtype == np.float32 else 3 * (a.dtype == np.int8)
                furthest = np.abs(a.astype(float) - b.astype(float)).max()
                expect(furthest <= limit, f"{what}: {furthest}")


def check_states():
    """A recurrent model goes on from where its last run ended, as it does without the delegate."""
    found = [model for model in models() if "lstm" in model.name]
    if not found:
        raise Skipped("there is no model of an LSTM")
    for model in found:
        ours, theirs = interpreter(model, [Settings.delegate()]), interpreter(model)
        first = None
        for step in range(4):
            inputs = inputs_of(ours, SEED + step % 2)
            for a, b in zip(run(ours, inputs), run(theirs, inputs)):
                expect(np.allclose(a, b, atol=1e-4), f"{model.name}, step {step}: {np.abs(a - b).max()}")
                first = a.copy() if first is None else first
        ours.reset_all_variables()
        expect(np.array_equal(run(ours, inputs_of(ours))[0], first), f"{model.name}: a reset does not reset")
        print(f"{model.name}: states are kept")


def check_partitions():
    """A model with an operator that NNAPI lacks runs in parts, and one line says what stayed behind."""
    content = made_models.with_round(DIGITS_F32)
    with StandardError() as told:
        made = interpreter(content, [Settings.delegate()])
    lines = [line for line in told.text.splitlines() if line.startswith("nnhal: ")]
    expect(len(lines) == 1 and "ROUND (node" in lines[0], told.text)
    inputs = inputs_of(made)
    theirs = run(interpreter(content), inputs)[0]
    for options in ({}, {"max_partitions": 1}, {"min_nodes_per_partition": 100}):
        ours = run(interpreter(content, [Settings.delegate(**options)]), inputs)[0]
        expect(np.allclose(ours, theirs, atol=1e-4), f"{options}: {np.abs(ours - theirs).max()}")


def check_custom():
    """A model with an operator of LiteRT's own runs in parts around it."""
    content = made_models.spectrogram_of_sigmoid()
    with StandardError() as told:
        made = interpreter(content, [Settings.delegate()])
    lines = [line for line in told.text.splitlines() if line.startswith("nnhal: ")]
    expect(len(lines) == 1 and "2 of 3 nodes" in lines[0] and "AudioSpectrogram" in lines[0], told.text)
    inputs = inputs_of(made)
    ours, theirs = run(made, inputs)[0], run(interpreter(content), inputs)[0]
    expect(np.allclose(ours, theirs, atol=1e-4), f"{np.abs(ours - theirs).max()}")


def check_shapes():
    """Another shape is another compilation, and the earlier ones are still there afterwards."""
    made = interpreter(made_models.sigmoid(), [Settings.delegate()])
    index = made.get_input_details()[0]["index"]
    for shape in ((1, 4), (5, 4), (2, 2, 2, 3), (1, 4), (3, 1), (7, 9), (100, 100), (5, 4), (1, 4)):
        made.resize_tensor_input(index, shape)
        made.allocate_tensors()
        values = np.random.default_rng(SEED).uniform(-4, 4, shape).astype(np.float32)
        ours = run(made, [values])[0]
        expect(ours.shape == shape, f"{shape}: the output has {ours.shape}")
        expect(np.allclose(ours, 1 / (1 + np.exp(-values)), atol=1e-5), f"{shape}: wrong values")


class Daemon:
    """A driver in a process of its own."""

    def __init__(self, directory):
        self.socket = pathlib.Path(directory) / "nnhal.sock"
        self.process = None

    def start(self):
        command = [Settings.binary("nnhald"), f"--service=unix:{self.socket}", "--data=none"]
        self.process = subprocess.Popen(command, env={**os.environ, "NNHAL_LOG": "error"})
        began = time.monotonic()
        while time.monotonic() - began < 60:
            try:
                return Settings.delegate(service=f"unix:{self.socket}")
            except ValueError:
                time.sleep(0.01)
        raise AssertionError("the daemon does not serve")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def check_deaths():
    """The driver is killed at any moment, amid runs and preparations: the call raises, and works once the driver is back."""
    random = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as directory:
        daemon = Daemon(directory)
        delegate = daemon.start()
        made = interpreter(DIGITS, [delegate])
        inputs = inputs_of(made)
        expected = [value.copy() for value in run(made, inputs)]
        raised = 0
        for i in range(Settings.deaths):
            killer = threading.Timer(random.uniform(0, 0.01), daemon.kill)
            killer.start()
            try:
                while True:
                    if i % 4 == 3:
                        interpreter(DIGITS, [delegate])
                    same(run(made, inputs), expected, "before the death")
            except (RuntimeError, ValueError) as why:
                expect("nnhal:" in str(why), f"{why}")
                raised += 1
            killer.join()
            try:
                run(made, inputs)
                raise AssertionError("a run without a driver")
            except RuntimeError as why:
                expect("nnhal:" in str(why), f"{why}")
            del delegate
            delegate = daemon.start()
            same(run(made, inputs), expected, "after the restart")
        daemon.kill()
        expect(raised == Settings.deaths, f"{raised} errors")
        print(f"{raised} deaths")


def resources():
    status = pathlib.Path("/proc/self/status").read_text()
    field = lambda name: int(status.split(name + ":")[1].split()[0])  # noqa: E731
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": field("Threads"), "kB": field("VmRSS")}


def resources_within(bounds):
    """What there is once it is within bounds, or in the end: a driver's threads end a moment after the driver is dropped."""
    until = time.monotonic() + PATIENCE
    while True:
        now = resources()
        if all(now[kind] <= bound for kind, bound in bounds.items()) or time.monotonic() > until:
            return now
        time.sleep(0.01)


def check_leaks():
    """Interpreters and delegates come and go, and leave nothing behind."""
    content = DIGITS.read_bytes()

    def once(delegate):
        made = interpreter(content, [delegate])
        run(made, inputs_of(made))

    for what in ("one delegate", "a delegate each"):
        shared = Settings.delegate() if what == "one delegate" else None
        start = None
        for i in range(Settings.rounds):
            once(shared or Settings.delegate())
            if i == Settings.rounds // 4:
                gc.collect()
                start = resources()
        gc.collect()
        bounds = {"descriptors": start["descriptors"] + 2, "threads": start["threads"] + 2, "kB": start["kB"] * 1.1 + 4096}
        end = resources_within(bounds)
        print(f"{what}: {start} -> {end}")
        for kind, bound in bounds.items():
            expect(end[kind] <= bound, f"{what}: {kind}")
        del shared
    left = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(f"nnhal-{os.getpid()}-")]
    expect(not left, f"left behind: {left}")


def check_threads():
    """Two interpreters in two threads, on one driver."""
    expected = tool_outputs(DIGITS, inputs_of(interpreter(DIGITS)))
    failures = []

    def work():
        try:
            made = interpreter(DIGITS, [Settings.delegate()])
            for _ in range(200):
                same(run(made, inputs_of(made)), expected, "in a thread")
        except Exception as why:  # told by the main thread
            failures.append(why)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, f"{failures}")


def check_cache():
    """A second process finds in the cache directory what the first has compiled, if it is asked for in the same way."""
    with tempfile.TemporaryDirectory() as directory:
        program = "import check, sys; check.Settings.target = check.pathlib.Path(sys.argv[1]);" \
            "check.Settings.profile = sys.argv[2];" \
            "more = dict(option.split('=') for option in sys.argv[4:]);" \
            "made = check.Settings.delegate(cache=sys.argv[3], verbose=1, **more);" \
            "check.run(m := check.interpreter(check.DIGITS, [made]), check.inputs_of(m))"
        told = []
        for options in ([], [], ["preference=low_power"], ["priority=high"]):
            command = [sys.executable, "-c", program, Settings.target, Settings.profile, directory, *options]
            done = subprocess.run(command, check=True,
                                  cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=SECONDS)
            told.append(done.stderr)
        found = ["Hit in the cache" in text for text in told]
        expect(found == [False, True, False, False] and "Miss in the cache" in told[0], f"{told}")


def check_example():
    """What the README says to try first."""
    command = [sys.executable, ROOT / "examples" / "litert.py", "--delegate", Settings.binary("libnnhal_delegate.so")]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout
    classes = {line[:15]: line[18:].split()[0] for line in told.splitlines()[2:]}
    expect(classes == {"LiteRT alone   ": "2", "with the driver": "2"}, told)


CHECKS = {name.removeprefix("check_"): value for name, value in list(globals().items()) if name.startswith("check_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, default=Settings.target)
    parser.add_argument("--profile", default=Settings.profile, help="of cargo, by which the programs are built")
    parser.add_argument("--deaths", type=int, default=Settings.deaths)
    parser.add_argument("--rounds", type=int, default=Settings.rounds)
    parser.add_argument("--here", action="store_true", help="in this process")
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=", ".join(CHECKS))
    arguments = parser.parse_args()
    Settings.target, Settings.profile = arguments.target.resolve(), arguments.profile
    Settings.deaths, Settings.rounds = arguments.deaths, arguments.rounds
    unknown = set(arguments.checks) - set(CHECKS)
    if unknown:
        parser.error(f"no check is called {', '.join(sorted(unknown))}")
    if arguments.here:
        for name in arguments.checks:
            try:
                CHECKS[name]()
            except Skipped as why:
                print(why)
                return SKIPPED
        return 0
    failed, skipped = [], []
    for name in arguments.checks or CHECKS:
        print(f"{name} ...", flush=True)
        command = [sys.executable, __file__, "--here", "--target", Settings.target, "--profile", Settings.profile, name]
        command += ["--deaths", str(Settings.deaths), "--rounds", str(Settings.rounds)]
        try:
            status = subprocess.run(command, timeout=SECONDS).returncode
        except subprocess.TimeoutExpired:
            status = f"no end within {SECONDS} s"
        print(f"{name}: {({0: 'ok', SKIPPED: 'SKIPPED'}).get(status, f'FAILED ({status})')}", flush=True)
        skipped += [name] * (status == SKIPPED)
        failed += [name] * (status not in (0, SKIPPED))
    passed = len(arguments.checks or CHECKS) - len(failed) - len(skipped)
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
