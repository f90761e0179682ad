"""NumPy archives without NumPy, and how far two of them differ."""

import array
import ast
import math
import struct
import zipfile

CODES = {"f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "b1": "B"}


def elements(kind, data):
    """The elements of an array's bytes as numbers."""
    code = kind.lstrip("<|=")
    if code == "f2":
        return [v for (v,) in struct.iter_unpack("<e", data)]
    if code == "V2":
        # bf16: the upper half of a 32-bit float.
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[::2], data[1::2]
        return elements("f4", bytes(wide))
    if code not in CODES:
        raise ValueError(f"elements of type {kind} cannot be read")
    out = array.array(CODES[code])
    out.frombytes(data)
    return out


def read(path):
    """Shapes and elements by name."""
    out = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            raw = archive.read(name)
            if raw[:6] != b"\x93NUMPY":
                raise ValueError(f"{name} is no array")
            wide = raw[6] > 1
            (length,) = struct.unpack_from("<I" if wide else "<H", raw, 8)
            start = (12 if wide else 10) + length
            head = ast.literal_eval(raw[start - length : start].decode("latin-1"))
            out[name.removesuffix(".npy")] = (head["shape"], elements(head["descr"], raw[start:]))
    return out


def finite(found):
    """True if any element is."""
    return any(math.isfinite(v) for _, values in found.values() for v in values)


def all_finite(found):
    """True if every element is."""
    return all(math.isfinite(v) for _, values in found.values() for v in values)


def difference(wanted, got):
    """The largest difference of an element from the one wanted, relative to the largest wanted; what is not finite must agree."""
    if wanted.keys() != got.keys():
        return math.inf
    worst = 0.0
    for name, (shape, want) in wanted.items():
        other, have = got[name]
        if shape != other:
            return math.inf
        if want == have:
            continue
        scale = max((abs(v) for v in want if math.isfinite(v)), default=0.0)
        most = 0.0
        for a, b in zip(want, have):
            if a != b and not (a != a and b != b):
                if not (math.isfinite(a) and math.isfinite(b)):
                    return math.inf
                most = max(most, abs(a - b))
        worst = max(worst, most / scale if scale else (math.inf if most else 0.0))
    return worst
