"""Writes small ONNX files without a package: nodes, inputs, outputs, and weights that are drawn from a seed."""

import random
import struct

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
CODES = {"f32": FLOAT, "f16": FLOAT16, "bf16": BFLOAT16}


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n & (1 << 64) - 1)


def text(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def value_info(field, name, dtype, shape):
    dims = b"".join(text(1, number(1, d)) for d in shape)
    return text(field, text(1, name) + text(2, text(1, number(1, CODES[dtype]) + text(2, dims))))


def attribute(name, value):
    if isinstance(value, float):
        body = varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    elif isinstance(value, int):
        body = number(3, value) + number(20, 2)
    else:
        body = b"".join(number(8, v) for v in value) + number(20, 7)
    return text(5, text(1, name) + body)


def node(operator, inputs, output, **attributes):
    parts = [text(1, i) for i in inputs] + [text(2, output), text(3, output), text(4, operator)]
    return text(1, b"".join(parts + [attribute(n, v) for n, v in attributes.items()]))


def encoded(values, dtype):
    """Numbers as bytes of an element type."""
    if dtype == "f16":
        return struct.pack(f"<{len(values)}e", *values)
    raw = struct.pack(f"<{len(values)}f", *values)
    # The upper half of a 32-bit float; numbers that are drawn need no rounding to the nearest.
    return raw if dtype == "f32" else b"".join(raw[i + 2 : i + 4] for i in range(0, len(raw), 4))


def tensor(name, dtype, shape, raw):
    return text(5, b"".join(number(1, d) for d in shape) + number(2, CODES[dtype]) + text(8, name) + text(9, raw))



def weight(name, dtype, shape, seed, scale):
    """A drawn weight: a block of numbers, repeated, each time from another of them on."""
    draw = random.Random(f"{seed} {name}")
    block = encoded([draw.gauss(0, scale) for _ in range(8191)], dtype)
    size = len(encoded([0.0], dtype))
    for d in shape:
        size *= d
    return tensor(name, dtype, shape, (block * (size // len(block) + 1))[:size])


def model(nodes, inputs, outputs, initializers, opset=17):
    graph = b"".join(nodes) + text(2, "micro") + b"".join(initializers)
    graph += b"".join(value_info(11, *i) for i in inputs) + b"".join(value_info(12, *o) for o in outputs)
    return number(1, 8) + text(7, graph) + text(8, text(1, "") + number(2, opset))
