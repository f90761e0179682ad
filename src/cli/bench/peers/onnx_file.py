"""Reads ONNX files without their package: nodes, attributes, weights."""

import os
import struct

try:
    import numpy
except ImportError:
    print("error: NumPy is not installed", flush=True)
    raise SystemExit from None

# Element types by their numbers; bf16 is kept as its bits.
TYPES = {1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 12: "<u4", 13: "<u8"}
BF16 = 16


class Bits(numpy.ndarray):
    """The bits of bf16 elements."""


def fields(data):
    """The values of a message by the numbers of its fields."""
    out, at, data = {}, 0, memoryview(data)

    def varint():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}[kind] if kind != 2 else varint()
            value = data[at : at + size]
            at += size
        out.setdefault(key >> 3, []).append(value)
    return out


def text(message, field):
    return bytes(message.get(field, [b""])[-1]).decode()


def signed(n):
    return n - (1 << 64) if n >> 63 else n


def integers(message, field):
    """Repeated integers, packed or not."""
    out = []
    for part in message.get(field, []):
        if isinstance(part, int):
            out.append(signed(part))
            continue
        n = shift = 0
        for byte in part:
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                out.append(signed(n))
                n = shift = 0
    return out


def floats(message, field):
    return [v for part in message.get(field, []) for (v,) in struct.iter_unpack("<f", part)]


def tensor(data, folder):
    message = fields(data)
    dims, code = integers(message, 1), message.get(2, [1])[-1]
    kind = "<u2" if code == BF16 else TYPES.get(code)
    if kind is None:
        raise ValueError(f"weights of element type {code} are not read")
    if message.get(14, [0])[-1] == 1:
        place = {text(p, 1): text(p, 2) for p in map(fields, message.get(13, []))}
        with open(os.path.join(folder, place["location"]), "rb") as file:
            file.seek(int(place.get("offset", 0)))
            values = numpy.frombuffer(file.read(int(place["length"])) if "length" in place else file.read(), kind)
    elif 9 in message:
        values = numpy.frombuffer(message[9][-1], kind)
    elif 4 in message:
        values = numpy.array(floats(message, 4), kind)
    elif 10 in message:
        values = numpy.frombuffer(b"".join(map(bytes, message[10])), "<f8")
    else:
        numbers = integers(message, 7) or integers(message, 5)
        values = numpy.array(numbers, "<u2").view(kind) if code in (10, BF16) else numpy.array(numbers, kind)
    values = values.reshape(dims)
    return values.view(Bits) if code == BF16 else values


def attribute(data, folder):
    message = fields(data)
    kind = message.get(20, [0])[-1]
    value = {
        1: lambda: struct.unpack("<f", message[2][-1])[0],
        2: lambda: signed(message.get(3, [0])[-1]),
        3: lambda: text(message, 4),
        4: lambda: tensor(message[5][-1], folder),
        6: lambda: floats(message, 7),
        7: lambda: integers(message, 8),
        8: lambda: [bytes(s).decode() for s in message.get(9, [])],
    }.get(kind)
    return text(message, 1), value() if value else None


class Node:
    def __init__(self, data, folder):
        message = fields(data)
        self.inputs = [bytes(n).decode() for n in message.get(1, [])]
        self.outputs = [bytes(n).decode() for n in message.get(2, [])]
        self.operator, self.domain = text(message, 4), text(message, 7)
        self.attributes = dict(attribute(a, folder) for a in message.get(5, []))


class File:
    """A model: nodes in order, weights by name, names of inputs and outputs."""

    def __init__(self, path):
        folder = os.path.dirname(path) or "."
        with open(path, "rb") as file:
            graph = fields(fields(file.read())[7][-1])
        self.nodes = [Node(n, folder) for n in graph.get(1, [])]
        self.weights = {text(fields(t), 8): tensor(t, folder) for t in graph.get(5, [])}
        names = [[text(fields(v), 1) for v in graph.get(f, [])] for f in (11, 12)]
        self.inputs, self.outputs = [n for n in names[0] if n not in self.weights], names[1]
