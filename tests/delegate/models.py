"""Small models for the checks: made here or changed from a file, never kept as files.

What the operators compute is the checks' affair.
"""

import flatbuffers
import tflite
from flatbuffers import flexbuffers

# An operator that LiteRT has and NNAPI lacks, and that takes and gives what SOFTMAX does.
ROUND = 116
SOFTMAX = 25
LOGISTIC = 14
CUSTOM = 32


def with_round(path):
    """The model with ROUND in the place of SOFTMAX."""
    content = bytearray(path.read_bytes())
    model = tflite.Model.GetRootAs(content)
    for i in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(i)
        if max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) == SOFTMAX:
            table = code._tab
            for place, size in ((4, 1), (10, 4)):
                offset = table.Offset(place)
                if offset:
                    content[table.Pos + offset : table.Pos + offset + size] = ROUND.to_bytes(size, "little")
    return bytes(content)


def sigmoid():
    """One LOGISTIC on a [1, 4] tensor, which takes any other shape as well."""
    return chain([[1, 4], [1, 4]], [LOGISTIC])


def spectrogram_of_sigmoid():
    """LOGISTIC, the custom operator AudioSpectrogram, LOGISTIC."""
    options = flexbuffers.Dumps({"window_size": 8, "stride": 4, "magnitude_squared": True})
    return chain([[16, 1], [16, 1], [1, 3, 5], [1, 3, 5]], [LOGISTIC, ("AudioSpectrogram", bytes(options)), LOGISTIC])


def chain(shapes, operators):
    """A model of float tensors of these shapes, with an operator from each to the next: a builtin one's code, or the
    name and the options of a custom one."""
    builder = flatbuffers.Builder(1024)
    offsets, ints = builder.PrependUOffsetTRelative, builder.PrependInt32

    def vector(start, items, prepend):
        start(builder, len(items))
        for item in reversed(items):
            prepend(item)
        return builder.EndVector()

    tensors, nodes, codes = [], [], []
    for i, shape in enumerate(shapes):
        name = builder.CreateString(f"tensor {i}")
        shape = vector(tflite.TensorStartShapeVector, shape, ints)
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, shape)
        tflite.TensorAddName(builder, name)
        tensors.append(tflite.TensorEnd(builder))
    for i, operator in enumerate(operators):
        name, options = operator if isinstance(operator, tuple) else (None, None)
        code = CUSTOM if name else operator
        name, options = name and builder.CreateString(name), options and builder.CreateByteVector(options)
        inputs = vector(tflite.OperatorStartInputsVector, [i], ints)
        outputs = vector(tflite.OperatorStartOutputsVector, [i + 1], ints)
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, i)
        tflite.OperatorAddInputs(builder, inputs)
        tflite.OperatorAddOutputs(builder, outputs)
        if options:
            tflite.OperatorAddCustomOptions(builder, options)
        nodes.append(tflite.OperatorEnd(builder))
        tflite.OperatorCodeStart(builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, code)
        tflite.OperatorCodeAddBuiltinCode(builder, code)
        if name:
            tflite.OperatorCodeAddCustomCode(builder, name)
        codes.append(tflite.OperatorCodeEnd(builder))
    inputs = vector(tflite.SubGraphStartInputsVector, [0], ints)
    outputs = vector(tflite.SubGraphStartOutputsVector, [len(operators)], ints)
    tensors = vector(tflite.SubGraphStartTensorsVector, tensors, offsets)
    nodes = vector(tflite.SubGraphStartOperatorsVector, nodes, offsets)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, tensors)
    tflite.SubGraphAddInputs(builder, inputs)
    tflite.SubGraphAddOutputs(builder, outputs)
    tflite.SubGraphAddOperators(builder, nodes)
    subgraphs = vector(tflite.ModelStartSubgraphsVector, [tflite.SubGraphEnd(builder)], offsets)
    codes = vector(tflite.ModelStartOperatorCodesVector, codes, offsets)
    tflite.BufferStart(builder)
    buffers = vector(tflite.ModelStartBuffersVector, [tflite.BufferEnd(builder)], offsets)
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, codes)
    tflite.ModelAddSubgraphs(builder, subgraphs)
    tflite.ModelAddBuffers(builder, buffers)
    builder.Finish(tflite.ModelEnd(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
