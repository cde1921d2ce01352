#!/usr/bin/env python3
"""Classifies a picture with a stock LiteRT interpreter, alone and with this driver behind it.

    cargo build --release --workspace
    pip install ai-edge-litert pillow
    python3 examples/litert.py [MODEL.tflite PICTURE] [--delegate FILE] [--option KEY=VALUE ...]

Without a model it reads a handwritten digit. Options are the delegate's: for example
--option service=unix:/tmp/nnhal.sock --option mode=fmq.
"""

import argparse
import pathlib
import sys
import time

try:
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, load_delegate
    from PIL import Image
except ImportError as why:
    sys.exit(f"{why}: pip install ai-edge-litert pillow")

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 2
WARM_UP = 5


def read(picture, detail):
    """The picture as the model's input: sized to it, quantised as it is."""
    _, height, width, channels = detail["shape"]
    image = Image.open(picture).convert("L" if channels == 1 else "RGB").resize((width, height))
    values = np.asarray(image, np.float32).reshape(1, height, width, channels) / 255
    if detail["dtype"] == np.float32:
        return values
    scale, zero_point = detail["quantization"]
    limits = np.iinfo(detail["dtype"])
    return np.clip(np.round(values / scale) + zero_point, limits.min, limits.max).astype(detail["dtype"])


def classify(model, picture, delegates):
    """The best class, its score, the output and the median time of a run in milliseconds."""
    interpreter = Interpreter(model_path=str(model), experimental_delegates=delegates)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    interpreter.set_tensor(source["index"], read(picture, source))
    times, began = [], time.perf_counter()
    while len(times) < 2 * WARM_UP or time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        interpreter.invoke()
        times.append(time.perf_counter() - start)
    output = interpreter.get_tensor(result["index"]).flatten()
    scale, zero_point = result["quantization"]
    scores = (output.astype(np.float32) - zero_point) * scale if scale else output
    best = int(np.argmax(scores))
    return best, float(scores[best]), output, 1000 * float(np.median(times[WARM_UP:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=ROOT / "models" / "digits_int8.tflite")
    digits = ROOT / "tests" / "data" / "digits"
    parser.add_argument("picture", nargs="?", type=pathlib.Path, default=digits / "0002_label2.png")
    delegate = ROOT / "target" / "release" / "libnnhal_delegate.so"
    parser.add_argument("--delegate", type=pathlib.Path, default=delegate)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    options = dict(option.partition("=")[::2] for option in arguments.option)
    if not arguments.delegate.exists():
        sys.exit(f"{arguments.delegate} is not there: cargo build --release --workspace")
    try:
        ours = load_delegate(str(arguments.delegate.resolve()), options)
    except ValueError as why:
        sys.exit(str(why))

    print(f"{arguments.picture.name}, {arguments.model.name}")
    print(f"{'':18}{'class':>6}{'score':>9}{'median, ms':>12}")
    outputs = []
    for name, delegates in (("LiteRT alone", []), ("with the driver", [ours])):
        best, score, output, median = classify(arguments.model, arguments.picture, delegates)
        print(f"{name:18}{best:6}{score:9.4f}{median:12.3f}")
        outputs.append((best, output))
    if outputs[0][0] != outputs[1][0]:
        sys.exit("they do not agree")


if __name__ == "__main__":
    main()
