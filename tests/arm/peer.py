"""Runs a .tflite model by LiteRT with XNNPACK on one thread: peer.py SITE MODEL RUNS, SITE being where its packages are."""

import sys

sys.path.insert(0, sys.argv[1])
from ai_edge_litert.interpreter import Interpreter  # noqa: E402

interpreter = Interpreter(model_path=sys.argv[2], num_threads=1)
interpreter.allocate_tensors()
for _ in range(int(sys.argv[3])):
    interpreter.invoke()
