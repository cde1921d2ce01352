#!/usr/bin/env python3
"""Makes networks of usual kinds, with random weights, to be measured beside LiteRT (compare_speed.py).

    python3 -m venv DIR && DIR/bin/pip install tensorflow-cpu==2.21.0
    DIR/bin/python tests/peer/make_networks.py OUT [NAME ...]

Each becomes OUT/NAME_f32.tflite and OUT/NAME_int8.tflite, as TensorFlow converts it after calibration on random images.
What they compute means nothing; their layers are those that networks of their kinds have. It is none of CI's steps, as
TensorFlow takes two gigabytes.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

SEED = 0
keras = tf.keras
layers = keras.layers


def application(name, **options):
    """A network of Keras's own, without its published weights."""
    return lambda: getattr(keras.applications, name)(weights=None, **options)


def keyword_spotting():
    given = layers.Input((49, 10, 1))
    x = layers.Conv2D(64, (10, 4), strides=2, padding="same", activation="relu")(given)
    for _ in range(4):
        x = layers.DepthwiseConv2D(3, padding="same", activation="relu")(x)
        x = layers.Conv2D(64, 1, activation="relu")(x)
    return keras.Model(given, layers.Dense(12, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def segmentation():
    """A U-Net, whose images grow by transposed convolutions and by resizing."""
    def block(x, channels):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        return x

    given = layers.Input((128, 128, 3))
    levels = [block(given, 16)]
    for channels in (32, 64, 128):
        levels.append(block(layers.MaxPool2D()(levels[-1]), channels))
    x = levels[3]
    for level, channels in ((levels[2], 64), (levels[1], 32)):
        x = layers.Conv2DTranspose(channels, 2, strides=2, padding="same")(x)
        x = block(layers.Concatenate()([x, level]), channels)
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    x = block(layers.Concatenate()([x, levels[0]]), 16)
    return keras.Model(given, layers.Softmax()(layers.Conv2D(21, 1)(x)))


def detection():
    """An SSD over MobileNet V2, up to where boxes are chosen."""
    base = keras.applications.MobileNetV2((300, 300, 3), include_top=False, weights=None)
    images = [base.get_layer("block_13_expand_relu").output, base.output]
    for channels in (512, 256, 256, 128):
        x = layers.Conv2D(channels // 2, 1, activation="relu")(images[-1])
        images.append(layers.Conv2D(channels, 3, strides=2, padding="same", activation="relu")(x))
    boxes = [layers.Reshape((-1, 4))(layers.Conv2D(6 * 4, 3, padding="same")(x)) for x in images]
    classes = [layers.Reshape((-1, 91))(layers.Conv2D(6 * 91, 3, padding="same")(x)) for x in images]
    scores = layers.Activation("sigmoid")(layers.Concatenate(axis=1)(classes))
    return keras.Model(base.input, [layers.Concatenate(axis=1)(boxes), scores])


def temporal():
    """Dilated convolutions along time, as for speech."""
    given = layers.Input((256, 40))
    x = layers.Conv1D(128, 3, padding="same")(given)
    for dilation in (1, 2, 4, 8, 16, 32):
        y = layers.Conv1D(128, 3, dilation_rate=dilation, padding="same", activation="relu")(x)
        x = layers.Add()([x, layers.Conv1D(128, 1)(y)])
    return keras.Model(given, layers.Dense(64)(x))


def super_resolution():
    given = layers.Input((64, 64, 3))
    first = x = layers.Conv2D(32, 3, padding="same")(given)
    for _ in range(4):
        y = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
        x = layers.Add()([x, layers.Conv2D(32, 3, padding="same")(y)])
    x = layers.Conv2D(48, 3, padding="same")(layers.Add()([x, first]))
    return keras.Model(given, layers.Lambda(lambda image: tf.nn.depth_to_space(image, 4))(x))


def recurrent():
    """Two GRUs, step by step: some 1,800 small operations."""
    given = layers.Input((50, 64))
    x = layers.GRU(128, return_sequences=True, unroll=True)(given)
    x = layers.GRU(64, unroll=True)(x)
    return keras.Model(given, layers.Dense(32, activation="softmax")(x))


NETWORKS = {
    "kws": keyword_spotting,
    "unet": segmentation,
    "ssd": detection,
    "tcn": temporal,
    "esr": super_resolution,
    "gru": recurrent,
    "resnet50": application("ResNet50"),
    "effb0": application("EfficientNetB0"),
    "effv2b0": application("EfficientNetV2B0", include_preprocessing=False),
    "incv3": application("InceptionV3"),
    "mnv3l": application("MobileNetV3Large", include_preprocessing=False),
    "dense121": application("DenseNet121"),
    "nasm": application("NASNetMobile"),
}


def convert(model, quantised):
    shape = (1, *model.input_shape[1:])
    # With a batch of one, and weights that are constants.
    function = tf.function(lambda x: model(x, training=False))
    function = convert_variables_to_constants_v2(
        function.get_concrete_function(tf.TensorSpec(shape, tf.float32)))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
    if quantised:
        rng = np.random.default_rng(SEED)
        samples = [[rng.uniform(-1, 1, shape).astype(np.float32)] for _ in range(2)]
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: iter(samples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or NETWORKS
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        sys.exit(f"{unknown[0]} is not a network of this script, which has {', '.join(NETWORKS)}")
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        keras.utils.set_random_seed(SEED)
        model = NETWORKS[name]()
        for kind, quantised in (("f32", False), ("int8", True)):
            path = out / f"{name}_{kind}.tflite"
            path.write_bytes(convert(model, quantised))
            print(path, path.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
