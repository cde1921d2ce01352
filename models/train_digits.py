"""Trains the digits models and writes the images they are tested on.

    python3.11 -m venv target/train-venv
    target/train-venv/bin/pip install tensorflow-cpu==2.21.0 keras==3.15.1 \
        scikit-learn==1.9.1 numpy==2.4.6 pillow==13.0.0 ai-edge-litert==2.3.0
    target/train-venv/bin/python models/train_digits.py

Writes, from scratch:
  models/digits_f32.tflite   float32 in and out
  models/digits_int8.tflite  int8 in and out, weights quantised per channel
  tests/data/digits/*.png    the held-out images, 8x8, 8-bit grey, named INDEX_labelN.png
                             (INDEX is the image's place in scikit-learn's data set)

The held-out images are chosen before training, take no part in it, nor in the choice of
the quantisation ranges, and are looked at once, at the end. The script fails where a
model is under 97.5 % on them, over 100 KB, or holds an operator outside of OPERATORS.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from keras import layers
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 1797
HELD_OUT = 360
EPOCHS = 60
BATCH = 32
LEAST_ACCURACY = 0.975
MOST_BYTES = 100 * 1000
OPERATORS = {
    "ADD", "AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED",
    "MAX_POOL_2D", "RESHAPE", "SOFTMAX",
}

MODELS = pathlib.Path(__file__).resolve().parent
IMAGES = MODELS.parent / "tests" / "data" / "digits"


def load():
    """The digits as 8-bit images [n, 8, 8], their labels, and which of them are held out."""
    digits = load_digits()
    # The data set counts 0..16; the PNG files, and so the training, see 0..255.
    pixels = np.round(digits.images * 255 / 16).astype(np.uint8)
    train, held_out = train_test_split(
        np.arange(len(pixels)), test_size=HELD_OUT, stratify=digits.target, random_state=SEED)
    return pixels, digits.target, train, np.sort(held_out)


def as_input(pixels):
    """What nnhal makes of an image for a float input: NHWC, pixel / 255."""
    return (pixels.astype(np.float32) / 255)[..., np.newaxis]


def network():
    x = image = keras.Input((8, 8, 1))
    for block in (
        [layers.Conv2D(16, 3, padding="same", use_bias=False)],
        [layers.DepthwiseConv2D(3, padding="same", use_bias=False)],
        [layers.Conv2D(32, 1, use_bias=False)],
    ):
        for layer in block + [layers.BatchNormalization(), layers.ReLU()]:
            x = layer(x)
    x = layers.MaxPooling2D(2)(x)
    y = layers.Conv2D(32, 3, padding="same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    x = layers.Add()([x, y])
    x = layers.AveragePooling2D(2)(x)
    x = layers.Dropout(0.3)(layers.Flatten()(x))
    return keras.Model(image, layers.Dense(10, activation="softmax")(x))


def shifted(images, rng):
    """Each image moved by up to one pixel either way, the edge filled with 0."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    moves = rng.integers(0, 3, size=(len(images), 2))
    return np.stack([p[r:r + 8, c:c + 8] for p, (r, c) in zip(padded, moves)])


def fit(model, images, labels):
    steps = EPOCHS * -(-len(images) // BATCH)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(3e-3, steps)),
        loss="sparse_categorical_crossentropy")
    rng = np.random.default_rng(SEED)
    for epoch in range(EPOCHS):
        order = rng.permutation(len(images))
        moved = shifted(images[order], rng)
        history = model.fit(moved, labels[order], batch_size=BATCH, shuffle=False, verbose=0)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {history.history['loss'][0]:.4f}")


def convert(model, calibration=None):
    """The .tflite file's bytes: batch 1, static shapes; int8 throughout where calibrated."""
    image = keras.Input(batch_shape=(1, 8, 8, 1), name="image")
    converter = tf.lite.TFLiteConverter.from_keras_model(keras.Model(image, model(image)))
    if calibration is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([image[np.newaxis]] for image in calibration)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def write_images(pixels, labels, indices):
    IMAGES.mkdir(parents=True, exist_ok=True)
    for old in IMAGES.glob("*.png"):
        old.unlink()
    for i in indices:
        Image.fromarray(pixels[i]).save(IMAGES / f"{i:04}_label{labels[i]}.png", optimize=True)


def check(path):
    """Fails unless the file, run by LiteRT on the written images, is as promised."""
    interpreter = Interpreter(
        str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    operators = {op["op_name"] for op in interpreter._get_ops_details()}
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    files = sorted(IMAGES.glob("*.png"))
    right = 0
    for file in files:
        image = as_input(np.asarray(Image.open(file)))[np.newaxis]
        if source["dtype"] == np.int8:
            scale, zero_point = source["quantization"]
            image = np.clip(np.round(image / scale) + zero_point, -128, 127).astype(np.int8)
        interpreter.set_tensor(source["index"], image)
        interpreter.invoke()
        answer = interpreter.get_tensor(result["index"])[0].argmax()
        right += file.stem.endswith(f"_label{answer}")
    size = path.stat().st_size
    print(f"{path.name}: {size} bytes, {right} of {len(files)} right "
          f"({100 * right / len(files):.2f} %), {sorted(operators)}")
    if size >= MOST_BYTES or right < LEAST_ACCURACY * len(files) or operators - OPERATORS:
        sys.exit(f"{path.name} is not what was promised")


def main():
    keras.utils.set_random_seed(SEED)
    tf.config.experimental.enable_op_determinism()
    pixels, labels, train, held_out = load()
    write_images(pixels, labels, held_out)
    model = network()
    fit(model, as_input(pixels[train]), labels[train])
    for name, calibration in (("f32", None), ("int8", as_input(pixels[train]))):
        path = MODELS / f"digits_{name}.tflite"
        path.write_bytes(convert(model, calibration))
        check(path)


if __name__ == "__main__":
    main()
