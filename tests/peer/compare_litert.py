#!/usr/bin/env python3
"""Compares nnhal with LiteRT's reference kernels, model by model, on the same inputs.

    cargo build --release
    python3 tests/peer/compare_litert.py [--nnhal PATH] [MODEL.tflite ...]

Any Python from 3.11 on will do: the first run makes target/peer-venv and installs
requirements.txt there. Without MODELs it takes both digits models, on images they never
saw, and on seeded random inputs those of tests/data/operators, of one or a few operators each,
and every model of ../shared/models (NNHAL_MODELS names another directory; where there is none,
it says so and goes on).

Fails unless each output has LiteRT's type and shape, and lies within BOUNDS of its values.
"""

import argparse
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from environment import ROOT, enter_venv

if __name__ == "__main__":
    enter_venv()

import numpy as np
import tflite
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from PIL import Image

SEED = 8
RANDOM_INPUTS = 2
IMAGES = 24
SECONDS = 600
# Largest and mean difference: floats in parts of the output's range, integers in steps.
FLOAT_BOUNDS = (1e-4, 1e-4)
INT8_BOUNDS = (3, 0.1)
# NNAPI has no SQUARED_DIFFERENCE: it becomes a SUB and a MUL, and is rounded once more.
INT8_SQUARED_DIFFERENCE_BOUNDS = (8, 1)
# Both sides make bytes of floats before they multiply them with weights of 8 bits, each in its own way.
HYBRID_BOUNDS = (3e-2, 1e-2)
# LiteRT's int8 reference SOFTMAX aborts where the exponentials' sum reaches 512, as it does
# when this many classes are about equally likely.
SOFTMAX_CLASSES = 512


class Mismatch(Exception):
    """Why a model does not agree."""


class Graph:
    """What the comparison wants to know of a .tflite file, and the file without its end."""

    def __init__(self, path):
        self.bytes = bytearray(path.read_bytes())
        self.model = tflite.Model.GetRootAs(self.bytes)
        self.main = self.model.Subgraphs(0)

    def operators(self):
        return [self.main.Operators(i) for i in range(self.main.OperatorsLength())]

    def code(self, operator):
        code = self.model.OperatorCodes(operator.OpcodeIndex())
        return max(code.BuiltinCode(), code.DeprecatedBuiltinCode())

    def is_int8(self):
        output = self.main.Tensors(self.main.Outputs(0))
        return output.Type() == tflite.TensorType.INT8

    def type(self, tensor):
        return self.main.Tensors(tensor).Type()

    def is_hybrid(self):
        """Whether floats are multiplied with weights of 8 bits."""
        return any(
            operator.InputsLength() > 1 and self.type(operator.Inputs(0)) == tflite.TensorType.FLOAT32
            and self.type(operator.Inputs(1)) == tflite.TensorType.INT8
            for operator in self.operators())

    def bounds(self):
        if not self.is_int8():
            return HYBRID_BOUNDS if self.is_hybrid() else FLOAT_BOUNDS
        codes = map(self.code, self.operators())
        squares = tflite.BuiltinOperator.SQUARED_DIFFERENCE in codes
        return INT8_SQUARED_DIFFERENCE_BOUNDS if squares else INT8_BOUNDS

    def softmax_aborts(self):
        shape = self.main.Tensors(self.main.Outputs(0)).ShapeAsNumpy()
        last = self.code(self.operators()[-1])
        return (self.is_int8() and last == tflite.BuiltinOperator.SOFTMAX
                and shape[-1] >= SOFTMAX_CLASSES)

    def without_last_operator(self):
        """The file with its last operator cut off, whose input is now the graph's output."""
        cut, table = bytearray(self.bytes), self.main._tab
        outputs, operators = (table.Vector(table.Offset(field)) for field in (8, 10))
        struct.pack_into("<i", cut, outputs, self.operators()[-1].Inputs(0))
        struct.pack_into("<I", cut, operators - 4, self.main.OperatorsLength() - 1)
        return bytes(cut)


def litert(path, kernels):
    def prepared(kernels):
        interpreter = Interpreter(
            str(path), experimental_op_resolver_type=kernels, num_threads=1)
        interpreter.allocate_tensors()
        return interpreter

    try:
        return prepared(kernels)
    except (RuntimeError, ValueError) as why:
        # There are no reference kernels of some operators, nor of some of their types.
        if "Didn't find op" not in str(why):
            raise
        return prepared(OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)


def input_details(path):
    return litert(path, OpResolverType.BUILTIN_REF).get_input_details()


def run_litert(path, inputs, kernels):
    """One list of outputs for each list of inputs, every run from a fresh state."""
    interpreter, results = litert(path, kernels), []
    for arrays in inputs:
        interpreter.reset_all_variables()
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        results.append(
            [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    return results


def in_child(function, *arguments):
    """LiteRT's checks abort the process: let it be one that can be spared."""
    with ProcessPoolExecutor(1) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            raise Mismatch("LiteRT aborted") from None


def run_nnhal(nnhal, path, arrays, count):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "out").mkdir()
        files = [folder / f"in{i}.npy" for i in range(len(arrays))]
        for file, array in zip(files, arrays):
            np.save(file, array)
        command = [nnhal, "run", path, "--input", *files, "--output-dir", folder / "out"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise Mismatch(f"nnhal took over {SECONDS} s") from None
        if done.returncode:
            raise Mismatch(f"nnhal exited {done.returncode}: {done.stderr.strip()[-400:]}")
        found = len(list((folder / "out").glob("output*.npy")))
        if found != count:
            raise Mismatch(f"nnhal wrote {found} outputs, LiteRT has {count}")
        return [np.load(folder / "out" / f"output{i}.npy") for i in range(count)]


def difference(ours, theirs):
    """Largest and mean difference of two outputs, in the units of the bounds."""
    for what in ("dtype", "shape"):
        if getattr(ours, what) != getattr(theirs, what):
            raise Mismatch(f"{what} is {getattr(ours, what)}, LiteRT's {getattr(theirs, what)}")
    apart = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    if theirs.dtype.kind == "f":
        # An output all of one value has no range, and what it shows is nothing: NaN. But one number shows itself.
        span = np.ptp(theirs.astype(np.float64)) if theirs.size > 1 else abs(float(theirs.flat[0]))
        with np.errstate(divide="ignore", invalid="ignore"):
            apart /= span
    return apart.max(), apart.mean()


def compare(nnhal, path, inputs, kernels, bounds):
    """The worst figures over all inputs and outputs; Mismatch where out of bounds."""
    expected = in_child(run_litert, path, inputs, kernels)
    figures = [
        difference(ours, theirs)
        for arrays, outputs in zip(inputs, expected)
        for ours, theirs in zip(run_nnhal(nnhal, path, arrays, len(outputs)), outputs)
    ]
    # A NaN on either side is no agreement, and max() would hide it.
    worst = [math.nan if np.isnan(column).any() else max(column) for column in zip(*figures)]
    unit = "of range" if expected[0][0].dtype.kind == "f" else "steps"
    values = len(np.unique(np.concatenate([o.ravel() for outputs in expected for o in outputs])))
    text = (f"max {worst[0]:.3g} {unit}, mean {worst[1]:.3g} (bounds {bounds[0]:g}, "
            f"{bounds[1]:g}; {len(inputs)} inputs, {values} distinct values)")
    if not (worst[0] <= bounds[0] and worst[1] <= bounds[1]):
        raise Mismatch(text)
    return text


def random_inputs(path):
    rng, inputs = np.random.default_rng(SEED), []
    details = in_child(input_details, path)
    for _ in range(RANDOM_INPUTS):
        arrays = []
        for detail in details:
            shape, dtype = detail["shape"], detail["dtype"]
            if np.issubdtype(dtype, np.floating):
                arrays.append(rng.uniform(-1, 1, shape).astype(dtype))
            else:
                limits = np.iinfo(dtype)
                arrays.append(rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
        inputs.append(arrays)
    return inputs


def digit_inputs(path):
    """Some of the held-out images, as nnhal reads an image: pixel / 255, then quantised."""
    detail = in_child(input_details, path)[0]
    files = sorted((ROOT / "tests" / "data" / "digits").glob("*.png"))
    inputs = []
    for file in files[::len(files) // IMAGES][:IMAGES]:
        image = (np.asarray(Image.open(file)) / np.float32(255)).reshape(detail["shape"])
        if detail["dtype"] == np.int8:
            scale, zero_point = detail["quantization"]
            image = np.clip(np.round(image / scale) + zero_point, -128, 127)
        inputs.append([image.astype(detail["dtype"])])
    return inputs


def inputs_for(path):
    return digit_inputs(path) if path.parent == ROOT / "models" else random_inputs(path)


def models(named):
    if named:
        return [path.resolve() for path in named]
    shared = pathlib.Path(os.environ.get("NNHAL_MODELS", ROOT.parent / "shared" / "models"))
    found = sorted(shared.glob("*.tflite"))
    if not found:
        print(f"SKIP the shared models: no .tflite in {shared}")
    digits = [ROOT / "models" / f"digits_{kind}.tflite" for kind in ("f32", "int8")]
    return digits + sorted((ROOT / "tests" / "data" / "operators").glob("*.tflite")) + found


def ways(path, graph, folder):
    """The ways that a model is compared, each a name, a file and which kernels of LiteRT's."""
    reference = OpResolverType.BUILTIN_REF
    if not graph.softmax_aborts():
        return [(path.stem, path, reference)]
    cut = folder / path.name
    cut.write_bytes(graph.without_last_operator())
    optimised = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return [(f"{path.stem} before its SOFTMAX", cut, reference),
            (f"{path.stem} whole, optimised kernels", path, optimised)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nnhal", type=pathlib.Path, default=ROOT / "target/release/nnhal")
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    nnhal = arguments.nnhal.resolve()
    if not nnhal.exists():
        sys.exit(f"there is no {nnhal}: cargo build --release, or --nnhal PATH")
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in models(arguments.models):
            graph = Graph(path)
            for name, file, kernels in ways(path, graph, pathlib.Path(folder)):
                try:
                    text = compare(nnhal, file, inputs_for(file), kernels, graph.bounds())
                    passed += 1
                    print(f"PASS {name}: {text}", flush=True)
                except (Mismatch, OSError, RuntimeError, ValueError) as why:
                    failed += 1
                    print(f"FAIL {name}: {why}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
