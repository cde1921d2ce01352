#!/usr/bin/env python3
"""Makes models of one or a few operators each, to be compared with LiteRT (compare_litert.py).

    python3 -m venv DIR && DIR/bin/pip install tensorflow-cpu==2.21.0
    DIR/bin/python tests/peer/make_operators.py OUT [NAME ...]

Each becomes OUT/NAME_f32.tflite, and OUT/NAME_int8.tflite where it is one of QUANTISED. tests/data/operators holds what it
made last; it is none of CI's steps, as TensorFlow takes two gigabytes.
"""

import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from keras import layers, utils
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from calibration import to_int8

SEED = 0
rng = np.random.default_rng(SEED)
utils.set_random_seed(SEED)


def floats(*shape):
    return tf.constant(rng.uniform(-1, 1, shape).astype(np.float32))


def spread(x):
    """Inputs are from -1 to 1; this makes them larger."""
    return x * 6


def detection(by_class=False, classes_each=1):
    return lambda boxes, scores: detections(boxes, scores, str(by_class).lower(), classes_each)


def detections(boxes, scores, by_class, classes_each):
    rows = 10 * classes_each
    implements = " ".join([
        'name: "TFLite_Detection_PostProcess"',
        'attr { key: "max_detections" value { i: 10 } }',
        f'attr {{ key: "max_classes_per_detection" value {{ i: {classes_each} }} }}',
        'attr { key: "detections_per_class" value { i: 100 } }',
        f'attr {{ key: "use_regular_nms" value {{ b: {by_class} }} }}',
        'attr { key: "nms_score_threshold" value { f: 0.1 } }',
        'attr { key: "nms_iou_threshold" value { f: 0.5 } }',
        'attr { key: "num_classes" value { i: 5 } }',
        'attr { key: "y_scale" value { f: 10.0 } }',
        'attr { key: "x_scale" value { f: 10.0 } }',
        'attr { key: "h_scale" value { f: 5.0 } }',
        'attr { key: "w_scale" value { f: 5.0 } }',
    ])
    centres = rng.uniform(0.1, 0.9, (60, 2))
    anchors = np.concatenate([centres, rng.uniform(0.1, 0.4, (60, 2))], axis=1).astype(np.float32)

    @tf.function(experimental_implements=implements)
    def chosen(boxes, scores, anchors):
        return (tf.zeros((1, rows, 4)), tf.zeros((1, rows)), tf.zeros((1, rows)), tf.zeros((1,)))

    return chosen(boxes, tf.sigmoid(scores * 3), tf.constant(anchors))


def recurrent(layer):
    """A layer of Keras's, which becomes a loop."""
    layer.build((1, 7, 5))
    return lambda x: layer(x, training=False)


def branching(x):
    """As often as a constant says, either side of a choice."""
    step = lambda i, y: (i + 1, tf.cond(i < 2, lambda: y * 2.0, lambda: tf.nn.relu(y) + x))
    return tf.while_loop(lambda i, y: i < 5, step, (tf.constant(0), x))[1]


def attention(x):
    """Queries, keys and values in one tensor of five dimensions, as PyTorch's networks have them."""
    whole = tf.reshape(tf.linalg.matmul(x, floats(24, 72)), (1, 10, 3, 4, 6))
    q, k, v = tf.unstack(tf.transpose(whole, (2, 0, 3, 1, 4)))
    weights = tf.nn.softmax(tf.linalg.matmul(q, k, transpose_b=True) * 0.4)
    return tf.reshape(tf.transpose(tf.linalg.matmul(weights, v), (0, 2, 1, 3)), (1, 10, 24))


def windows(x):
    """Windows of an image and back, as Swin's."""
    x = tf.reshape(x, (2, 3, 4, 3, 4, 5))
    x = tf.reshape(tf.transpose(x, (0, 1, 3, 2, 4, 5)), (18, 16, 5))
    x = tf.nn.softmax(x) * 2
    return tf.reshape(tf.transpose(tf.reshape(x, (2, 3, 3, 4, 4, 5)), (0, 1, 3, 2, 4, 5)), (2, 12, 12, 5))


def shuffled(x):
    """Every dimension of five moves."""
    return tf.transpose(tf.reshape(x, (2, 3, 4, 5, 6)), (4, 2, 0, 3, 1))


# By name: what it computes, and the shapes of its inputs.
OPERATORS = {
    "gelu": (lambda x: tf.nn.gelu(spread(x), approximate=False), (3, 700)),
    "gelu_tanh": (lambda x: tf.nn.gelu(spread(x), approximate=True), (3, 700)),
    "attention5": (attention, (1, 10, 24)),
    "windows6": (windows, (2, 12, 12, 5)),
    "transpose5": (shuffled, (6, 120)),
    "add5": (lambda x: tf.reshape(x, (2, 3, 4, 5, 6)) + floats(4, 1, 6), (6, 120)),
    "mean5": (lambda x: tf.reduce_mean(tf.reshape(x, (2, 3, 4, 5, 6)), (1, 2, 4)), (6, 120)),
    "max5": (lambda x: tf.reduce_max(tf.reshape(x, (2, 3, 4, 5, 6)), (0, 3), keepdims=True), (6, 120)),
    "softmax5": (lambda x: tf.nn.softmax(tf.reshape(x, (2, 3, 4, 5, 6))), (6, 120)),
    "slice5": (lambda x: tf.reshape(x, (2, 3, 4, 5, 6))[:, 1:, ::-2, 3, 1:5:2], (6, 120)),
    "gather5": (lambda x: tf.gather(tf.reshape(x, (2, 3, 4, 5, 6)), [3, 0, 3], axis=2), (6, 120)),
    "concat5": (lambda x: tf.concat([tf.reshape(x, (2, 3, 4, 5, 6)), floats(2, 3, 2, 5, 6)], 2), (6, 120)),
    "stack5": (lambda x: tf.stack([x, x * 2], 2), (2, 3, 4, 5)),
    "matmul5": (lambda x: tf.linalg.matmul(tf.reshape(x, (2, 3, 2, 5, 6)), floats(2, 3, 2, 6, 4)), (6, 60)),
    "tile5": (lambda x: tf.tile(tf.reshape(x, (2, 3, 1, 5, 6)), (1, 1, 3, 1, 1)), (6, 30)),
    "matmul_one": (lambda x: tf.linalg.matmul(x, floats(1, 6, 4)), (5, 3, 6)),
    "matmul_left": (lambda x: tf.linalg.matmul(floats(3, 6), tf.reshape(x, (4, 6, 5))), (4, 30)),
    "broadcast_to": (lambda x: tf.broadcast_to(x, (4, 3, 5)), (3, 1)),
    "new_axis": (lambda x: x[..., tf.newaxis, 1:] * floats(3, 1), (4, 5)),
    "split_v": (lambda x: [part * 2 for part in tf.split(x, (1, 4, 2), axis=1)], (3, 7)),
    "gather_batch": (lambda x: tf.gather(x, [[3, 0], [1, 1]], axis=1, batch_dims=1), (2, 5, 3)),
    "gather_nd": (lambda x: tf.gather_nd(x, [[0, 4], [1, 2], [1, 0]]), (2, 5, 3)),
    "where": (lambda x: tf.where(x > 0.1, x * 3, -1e4), (4, 5)),
    "where_row": (lambda x: tf.where(x[:1] > 0.1, x, tf.constant(0.5)), (4, 5)),
    "cast_bool": (lambda x: tf.cast(x > 0.2, tf.float32) + tf.cast(tf.cast(x, tf.bool), tf.float32), (4, 5)),
    "one_hot": (lambda x: tf.one_hot(tf.cast(x * 4, tf.int32), 5, 2.0, -1.0, axis=1), (4, 5)),
    "cos": (lambda x: tf.cos(spread(x)), (4, 50)),
    "sign": (lambda x: tf.sign(tf.floor(spread(x))), (4, 50)),
    "ceil": (lambda x: tf.math.ceil(spread(x)), (4, 50)),
    "add_n": (lambda x, y: tf.add_n([x, y, x * y]), (4, 50), (4, 50)),
    "floor_mod": (lambda x: tf.math.floormod(tf.cast(x * 40, tf.int32), tf.constant([3, -4, 5, 7])), (9, 4)),
    "relu01": (lambda x: tf.minimum(tf.maximum(x * 2, 0.0), 1.0), (4, 50)),
    "detection": (detection(), (1, 60, 4), (1, 60, 5)),
    "detection_by_class": (detection(by_class=True), (1, 60, 4), (1, 60, 5)),
    "detection_classes": (detection(classes_each=3), (1, 60, 4), (1, 60, 5)),
    "row_to_batch": (lambda x: tf.space_to_batch(x, [2], [[2, 3]]) * 2, (1, 9, 5)),
    "batch_to_row": (lambda x: tf.batch_to_space(x, [2], [[2, 3]]) * 2, (2, 7, 5)),
    "spread_beyond": (lambda x: tf.nn.relu(tf.nn.conv2d_transpose(x, floats(2, 2, 6, 5), (1, 12, 12, 6), 3, "VALID")
                                           + floats(6)), (1, 4, 4, 5)),
    "open_batch": (lambda x: tf.reshape(x, (tf.shape(x)[0], 4, 6)) * 2, (None, 6, 4)),
    "open_list": (lambda x: tf.reshape(x, tf.concat([tf.shape(x)[:1], [24]], 0)) * 2, (None, 6, 4)),
    "top_equal": (lambda x: tf.math.top_k(tf.floor(x * 3), 5), (6, 40)),
    "reverse_last": (lambda x: tf.reverse(x, (-1,)), (3, 4, 5)),
    "slice_int": (lambda x: tf.cast(x * 50, tf.int32)[1:, -2, 1:3], (3, 4, 5)),
    "last": (lambda x: x[:, -1] * x[0, 1, -2], (2, 3, 4)),
    "loop_lstm": (recurrent(layers.LSTM(6, return_sequences=True)), (1, 7, 5)),
    "loop_gru": (recurrent(layers.GRU(6)), (1, 7, 5)),
    "loop_rnn": (recurrent(layers.SimpleRNN(6, go_backwards=True, return_sequences=True)), (1, 7, 5)),
    "loop_both": (recurrent(layers.Bidirectional(layers.GRU(4, return_sequences=True))), (1, 7, 5)),
    "loop_branch": (branching, (4, 5)),
}

# Only of functions whose weights are constants does the converter make loops without lists.
LOOPS = [name for name in OPERATORS if name.startswith("loop_")]

QUANTISED = ["gelu", "gelu_tanh", "attention5", "windows6", "transpose5", "add5", "mean5", "softmax5", "slice5", "gather5",
             "concat5", "stack5", "matmul5", "tile5", "matmul_one", "matmul_left", "broadcast_to", "split_v", "gather_batch",
             "where", "cos", "row_to_batch", "batch_to_row", "spread_beyond", "top_equal"]


def convert_loop(compute, shapes):
    given = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    function = tf.function(compute, input_signature=given).get_concrete_function()
    function = convert_variables_to_constants_v2(function, lower_control_flow=False)
    return tf.lite.TFLiteConverter.from_concrete_functions([function]).convert()


def convert(compute, shapes, quantised):
    given = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    module = tf.Module()
    module.call = tf.function(lambda *inputs: {f"o{i}": o for i, o in enumerate(listed(compute(*inputs)))},
                              input_signature=given)
    # Only from a saved model does the converter take functions that stand for custom operators.
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=module.call)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.allow_custom_ops = True
        if quantised:
            to_int8(converter, shapes, 8, rng)
        return converter.convert()


def listed(outputs):
    return outputs if isinstance(outputs, (list, tuple)) else [outputs]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or OPERATORS
    unknown = [name for name in names if name not in OPERATORS]
    if unknown:
        sys.exit(f"{unknown[0]} is none of {', '.join(OPERATORS)}")
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        compute, *shapes = OPERATORS[name]
        for kind in ("f32", "int8") if name in QUANTISED else ("f32",):
            path = out / f"{name}_{kind}.tflite"
            try:
                made = convert_loop(compute, shapes) if name in LOOPS else convert(compute, shapes, kind == "int8")
                path.write_bytes(made)
            except Exception as why:  # the converter's own, of any kind
                print(f"{path}: {str(why)[:300]}", flush=True)
                continue
            print(path, path.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
