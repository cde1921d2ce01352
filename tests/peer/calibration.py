"""How the scripts that make models have TensorFlow quantise them."""

import numpy as np
import tensorflow as tf


def to_int8(converter, shapes, count, rng):
    """Has `converter` make all values 8-bit ones, those of inputs and outputs too, by so many random samples from -1 to 1."""
    samples = [[rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes] for _ in range(count)]
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: iter(samples)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
