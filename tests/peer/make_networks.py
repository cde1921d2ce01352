#!/usr/bin/env python3
"""Makes networks of usual kinds, with random weights, to be measured beside LiteRT (compare_speed.py).

    python3 -m venv DIR && DIR/bin/pip install tensorflow-cpu==2.21.0
    DIR/bin/python tests/peer/make_networks.py OUT [NAME ...]

Each becomes OUT/NAME_f32.tflite and, but for FLOATS_ONLY, OUT/NAME_int8.tflite, as TensorFlow converts it after calibration
on random images; those of OTHER_KINDS become OUT/NAME_f16.tflite and OUT/NAME_dynamic.tflite too, whose weights only are
shorter. What they compute means nothing; their layers are those that networks of their kinds have. It is none of CI's
steps, as TensorFlow takes two gigabytes.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from calibration import to_int8

SEED = 0
keras = tf.keras
layers = keras.layers
ops = keras.ops


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


def encoder_block(x, heads, size, hidden):
    """What transformers consist of: attention and two layers, each after a normalisation."""
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(heads, size)(y, y)])
    y = layers.Dense(hidden, activation="gelu")(layers.LayerNormalization()(x))
    return layers.Add()([x, layers.Dense(x.shape[-1])(y)])


def vision_transformer():
    given = layers.Input((224, 224, 3))
    x = layers.Reshape((196, 192))(layers.Conv2D(192, 16, strides=16)(given))
    for _ in range(4):
        x = encoder_block(x, 3, 64, 768)
    return keras.Model(given, layers.Dense(1000)(layers.GlobalAveragePooling1D()(x)))


def text_encoder():
    """A BERT of two layers behind its embeddings, whose attention leaves out what is masked."""
    given = layers.Input((64, 257))
    x, mask = given[..., :256], given[:, None, None, :, 256] > -0.5
    x = layers.LayerNormalization()(x)
    for _ in range(2):
        y = layers.Dense(768)(x)
        q, k, v = ops.unstack(ops.transpose(ops.reshape(y, (-1, 64, 3, 4, 64)), (2, 0, 3, 1, 4)))
        weights = ops.where(mask, ops.matmul(q, ops.swapaxes(k, 2, 3)) / 8.0, -1e4)
        y = ops.reshape(ops.transpose(ops.matmul(ops.softmax(weights), v), (0, 2, 1, 3)), (-1, 64, 256))
        x = layers.LayerNormalization()(x + layers.Dense(256)(y))
        y = layers.Dense(1024)(x)
        y = ops.gelu(y, approximate=True)
        x = layers.LayerNormalization()(x + layers.Dense(256)(y))
    return keras.Model(given, layers.Dense(256, activation="tanh")(x[:, 0]))


def mobile_vit():
    """Convolutions, and a transformer over the pixels of patches, two times."""
    given = layers.Input((128, 128, 3))
    x = layers.Conv2D(32, 3, strides=2, padding="same", activation="swish")(given)
    for channels, size in ((64, 32), (96, 16)):
        y = layers.Conv2D(channels * 2, 1, activation="swish")(x)
        y = layers.DepthwiseConv2D(3, strides=2, padding="same", activation="swish")(y)
        x = layers.Conv2D(channels, 1)(y)
        y = layers.Conv2D(channels, 1)(layers.Conv2D(channels, 3, padding="same", activation="swish")(x))
        half = size // 2
        y = ops.transpose(ops.reshape(y, (-1, half, 2, half, 2, channels)), (0, 2, 4, 1, 3, 5))
        y = ops.reshape(y, (-1, half * half, channels))
        for _ in range(2):
            y = encoder_block(y, 4, channels // 4, channels * 2)
        y = ops.transpose(ops.reshape(y, (-1, 2, 2, half, half, channels)), (0, 3, 1, 4, 2, 5))
        y = layers.Conv2D(channels, 1, activation="swish")(ops.reshape(y, (-1, size, size, channels)))
        x = layers.Conv2D(channels, 3, padding="same", activation="swish")(layers.Concatenate()([x, y]))
    return keras.Model(given, layers.Dense(1000)(layers.GlobalAveragePooling2D()(x)))


def landmarks():
    """Blocks with PRELU, which grow by padding their channels, as networks for faces and poses have them."""
    given = layers.Input((192, 192, 3))
    x = layers.PReLU(shared_axes=(1, 2))(layers.Conv2D(16, 3, strides=2, padding="same")(given))
    for channels in (16, 32, 64, 128):
        for strides in (1, 2):
            y = layers.DepthwiseConv2D(3, strides=strides, padding="same")(x)
            y = layers.Conv2D(channels if strides == 2 else x.shape[-1], 1)(y)
            if strides == 2:
                x = layers.MaxPool2D()(x)
                x = ops.pad(x, ((0, 0), (0, 0), (0, 0), (0, channels - x.shape[-1])))
            x = layers.PReLU(shared_axes=(1, 2))(layers.Add()([x, y]))
    points = layers.Reshape((-1,))(layers.Conv2D(468 * 3, x.shape[1])(x))
    return keras.Model(given, [points, layers.Activation("sigmoid")(layers.Conv2D(1, x.shape[1])(x))])


def portrait():
    """A network that says which class each pixel is of, whose images grow by resizing."""
    base = keras.applications.MobileNetV2((256, 256, 3), alpha=0.5, include_top=False, weights=None)
    x = layers.Conv2D(64, 1, activation="relu")(base.get_layer("block_13_expand_relu").output)
    y = layers.GlobalAveragePooling2D(keepdims=True)(x)
    x = x * layers.Conv2D(64, 1, activation="sigmoid")(y)
    x = ops.image.resize(x, (64, 64))
    x = layers.Concatenate()([x, layers.Conv2D(16, 1)(base.get_layer("block_3_expand_relu").output)])
    x = layers.SeparableConv2D(64, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(6, 1, kernel_initializer=keras.initializers.VarianceScaling(1e8))(x)
    x = ops.softmax(ops.image.resize(x, (256, 256)))
    return keras.Model(base.input, [x, layers.Lambda(lambda x: tf.argmax(x, axis=-1, output_type=tf.int32))(x)])


def yolo():
    """As YOLO v8's smallest, with its boxes as distributions."""
    def conv(x, channels, size=3, strides=1):
        # As large as keeps what comes out as far spread as what went in.
        start = keras.initializers.VarianceScaling(2.1)
        x = layers.Conv2D(channels, size, strides, padding="same", kernel_initializer=start)(x)
        return layers.Activation("swish")(x)

    def block(x, channels, count):
        parts = list(ops.split(conv(x, channels, 1), 2, axis=-1))
        for _ in range(count):
            y = conv(conv(parts[-1], channels // 2), channels // 2)
            parts.append(layers.Add()([y, parts[-1]]))
        return conv(layers.Concatenate()(parts), channels, 1)

    given = layers.Input((320, 320, 3))
    x = block(conv(conv(given, 16, strides=2), 32, strides=2), 32, 1)
    small = x = block(conv(x, 64, strides=2), 64, 2)
    middle = x = block(conv(x, 128, strides=2), 128, 2)
    parts = [conv(block(conv(x, 256, strides=2), 256, 1), 128, 1)]
    for _ in range(3):
        parts.append(layers.MaxPool2D(5, 1, padding="same")(parts[-1]))
    large = conv(layers.Concatenate()(parts), 256, 1)
    middle = block(layers.Concatenate()([layers.UpSampling2D(2)(large), middle]), 128, 1)
    small = block(layers.Concatenate()([layers.UpSampling2D(2)(middle), small]), 64, 1)
    heads = [layers.Reshape((-1, 144))(layers.Conv2D(144, 1)(conv(x, 64))) for x in (small, middle, large)]
    x = layers.Concatenate(axis=1)(heads)
    boxes = ops.softmax(ops.reshape(x[..., :64], (1, -1, 4, 16)))
    return keras.Model(given, [boxes, ops.sigmoid(x[..., 64:])])


def looped():
    """A GRU whose steps are a loop."""
    given = layers.Input((50, 64))
    return keras.Model(given, layers.Dense(32, activation="softmax")(layers.GRU(128)(given)))


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
    "mnv3l": application("MobileNetV3Large", input_shape=(224, 224, 3), include_preprocessing=False),
    "dense121": application("DenseNet121"),
    "nasm": application("NASNetMobile"),
    "convnext": application("ConvNeXtTiny", include_preprocessing=False),
    "vit": vision_transformer,
    "yolo": yolo,
    "bert2": text_encoder,
    "mobilevit": mobile_vit,
    "landmarks": landmarks,
    "portrait": portrait,
    "gruloop": looped,
}

# With weights of 16 bits; with weights of 8 bits and values of 32, which LiteRT makes of 8 bits as it runs.
OTHER_KINDS = ["kws", "bert2", "mobilevit"]
# TensorFlow's converter ends the process where it is to quantise a loop.
FLOATS_ONLY = ["gruloop"]


def convert(model, kind):
    shape = (1, *model.input_shape[1:])
    # With a batch of one, and weights that are constants.
    function = tf.function(lambda x: model(x, training=False))
    function = convert_variables_to_constants_v2(
        function.get_concrete_function(tf.TensorSpec(shape, tf.float32)))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
    if kind != "f32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "f16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        to_int8(converter, [shape], 2, np.random.default_rng(SEED))
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
        kinds = ["f32"] + ["int8"] * (name not in FLOATS_ONLY) + ["f16", "dynamic"] * (name in OTHER_KINDS)
        for kind in kinds:
            path = out / f"{name}_{kind}.tflite"
            path.write_bytes(convert(model, kind))
            print(path, path.stat().st_size, flush=True)


if __name__ == "__main__":
    main()
