"""What exporters write where axes are open: windows, caches, masks, arithmetic of shapes, bounds that a run computes."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnx_cases import B, F, I

IDIOMS = {}
LAST = 2**63 - 1


def idiom(name, since=13, until=99):
    def keep(f):
        IDIOMS.setdefault(name.split("#")[0], []).append((name, since, until, f))
        return f
    return keep


# Parts.
def slices(k, x, begin, end, axis=0, step=1):
    """x[begin:end:step] along an axis; bounds are numbers or values of one element."""
    at = [v if isinstance(v, str) else k.c([v]) for v in (begin, end)]
    if k.o < 10:
        return k.node("Slice", x, starts=[begin], ends=[end], axes=[axis])
    return k.node("Slice", x, *at, k.c([axis]), k.c([step]))


def extent(k, x, axis, scalar=False):
    """The extent of an axis, as a list of one or as a number."""
    return k.node("Gather", k.node("Shape", x), k.c(axis if scalar else [axis]), axis=0)


def joined(k, *parts):
    """A shape, from numbers and values of one element."""
    return k.node("Concat", *(p if isinstance(p, str) else k.c([p]) for p in parts), axis=0)


def unsqueezed(k, x, axes):
    return k.node("Unsqueeze", x, k.c(axes)) if k.o >= 13 else k.node("Unsqueeze", x, axes=axes)


def squeezed(k, x, axes):
    return k.node("Squeeze", x, k.c(axes)) if k.o >= 13 else k.node("Squeeze", x, axes=axes)


def summed(k, x, axes, keep=1, op="ReduceSum"):
    by_input = k.o >= (13 if op == "ReduceSum" else 18)
    return k.node(op, x, k.c(axes), keepdims=keep) if by_input else k.node(op, x, axes=axes, keepdims=keep)


def counted(k, stop, start=0, step=1):
    return k.node("Range", k.c(start), stop, k.c(step))


def dims(k, *names):
    return [k.dim(n) for n in names]


# Slices with bounds around the ends of an open axis.
for begin, end, step in [(-3, LAST, 1), (2, 5, 1), (0, -3, 1), (3, None, -2), (-1, None, -1), (5, LAST, 1), (-2, -1, 1), (1, LAST, 2), (4, 2, 1),
                         (-9, 2, 1), (0, 3, 1), (-1, 1, -1), (7, -7, -3), (0, LAST, 1), (-5, -2, 2), (1, -1, 1), (0, 0, 1)]:
    end = -LAST if end is None else end

    def cutting(k, begin=begin, end=end, step=step):
        k.out(slices(k, k.x(k.n, 2), begin, end, 0, step))

    def inside(k, begin=begin, end=end, step=step):
        y = slices(k, k.x(2, k.n, 3), begin, end, 1, step)
        k.out(k.node("Relu", y), k.node("Shape", y))

    def twice(k, begin=begin, end=end, step=step):
        x = k.x(k.n, 2)
        k.out(k.node("Concat", slices(k, x, begin, end, 0, step), slices(k, x, -2, LAST), axis=0))

    idiom(f"Slice#{begin}:{end}:{step}", 10)(cutting)
    idiom(f"SliceInside#{begin}:{end}:{step}", 10)(inside)
    idiom(f"SlicesJoined#{begin}:{end}:{step}", 10)(twice)
for begin, end in [(-3, LAST), (2, 5), (0, -3), (1, LAST), (0, 2)]:
    idiom(f"SliceOld#{begin}:{end}", 7, 9)(lambda k, b=begin, e=end: k.out(slices(k, k.x(k.n, 2), b, e)))
    idiom(f"SliceOldInside#{begin}:{end}", 7, 9)(lambda k, b=begin, e=end: k.out(k.node("Relu", slices(k, k.x(2, k.n), b, e, 1))))


@idiom("SliceByExtent", 10)
def _(k):
    x = k.x(k.n, 2)
    k.out(slices(k, x, k.node("Sub", extent(k, x, 0), k.c([3])), LAST))


@idiom("SliceByExtent#half", 10)
def _(k):
    x = k.x(k.n, 2)
    half = k.node("Div", extent(k, x, 0), k.c([2]))
    k.out(slices(k, x, 0, half), slices(k, x, half, LAST))


@idiom("SliceByExtent#other", 10)
def _(k):
    n, m = dims(k, "n", "m")
    x, y = k.x(n, 2), k.x(m, 2)
    k.out(slices(k, x, 0, extent(k, y, 0)), slices(k, x, k.node("Neg", extent(k, y, 0)), LAST))


@idiom("SliceByExtent#last", 10)
def _(k):
    x = k.x(2, k.n, 3)
    n = extent(k, x, 1)
    k.out(slices(k, x, k.node("Sub", n, k.c([1])), n, 1))


@idiom("SliceByInput", 10)
def _(k):
    k.out(slices(k, k.x(k.n, 2), k.x(1, dtype=I, low=-4, high=4), k.x(1, dtype=I, low=-4, high=6)))


@idiom("SliceOfSlice", 10)
def _(k):
    x = slices(k, slices(k, k.x(k.n, 2), 2, LAST), 0, -2)
    k.out(x, extent(k, x, 0))


@idiom("SliceOfSlice#last", 10)
def _(k):
    k.out(slices(k, slices(k, k.x(2, k.n), -4, LAST, 1), 0, 2, 1))


@idiom("SlicesBeside", 10)
def _(k):
    x = k.x(k.n, 2)
    k.out(slices(k, x, 0, 2), slices(k, x, 2, LAST))


@idiom("SlicesBeside#three", 10)
def _(k):
    x = k.x(2, k.n)
    k.out(*(slices(k, x, b, e, 1) for b, e in ((0, 2), (2, 4), (4, LAST))))


@idiom("SlicesBeside#negative", 10)
def _(k):
    x = k.x(2, k.n)
    k.out(slices(k, x, 0, -2, 1), slices(k, x, -2, LAST, 1))


@idiom("Differences", 10)
def _(k):
    x = k.x(2, k.n)
    k.out(k.node("Sub", slices(k, x, 1, LAST, 1), slices(k, x, 0, -1, 1)))


@idiom("Flip", 10)
def _(k):
    x = k.x(2, k.n, 3)
    y = slices(k, x, -1, -LAST, 1, -1)
    k.out(y, k.node("Concat", x, y, axis=1))


@idiom("ShapeOfSlice", 10)
def _(k):
    x = k.x(k.n, 3)
    k.out(*(k.node("Shape", slices(k, x, b, e)) for b, e in ((5, LAST), (-3, LAST), (1, 4), (0, -2))))


# Caches.
for keep in (1, 3, 4):
    @idiom(f"WindowOfCache#{keep}", 10)
    def _(k, keep=keep):
        past, new = dims(k, "past", "new")
        both = k.node("Concat", k.x(1, past, 4), k.x(1, new, 4), axis=1)
        k.out(slices(k, both, -keep, LAST, 1), k.node("ReduceMax", both, keepdims=0) if k.o < 18 else both)


@idiom("Cache")
def _(k):
    past, new = dims(k, "past", "new")
    q, keys, values = (k.x(1, 2, new, 4) for _ in range(3))
    keys = k.node("Concat", k.x(1, 2, past, 4), keys, axis=2)
    values = k.node("Concat", k.x(1, 2, past, 4), values, axis=2)
    scores = k.node("MatMul", q, k.node("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = k.node("Mul", scores, k.c(0.5, F))
    k.out(k.node("MatMul", k.node("Softmax", scores, axis=-1), values), keys, values)


@idiom("CacheCausal", 14)
def _(k):
    past, new = dims(k, "past", "new")
    q, key = k.x(1, 2, new, 4), k.x(1, 2, new, 4)
    keys = k.node("Concat", k.x(1, 2, past, 4), key, axis=2)
    total, own = extent(k, keys, 2), extent(k, q, 2)
    ones = k.node("ConstantOfShape", joined(k, own, total), value=numpy_helper.from_array(np.array([-1e4], F)))
    mask = k.node("Trilu", ones, squeezed(k, k.node("Add", k.node("Sub", total, own), k.c([1])), [0]), upper=1)
    scores = k.node("Add", k.node("MatMul", q, k.node("Transpose", keys, perm=[0, 1, 3, 2])), mask)
    k.out(k.node("Softmax", scores, axis=-1), keys)


@idiom("CacheConv")
def _(k):
    t = k.dim("t")
    both = k.node("Concat", k.x(1, 3, 2), k.x(1, 3, t), axis=2)
    k.out(k.node("Conv", both, k.x(3, 1, 3), group=3), slices(k, both, -2, LAST, 2))


@idiom("CacheScatter", 16)
def _(k):
    n = k.dim("n")
    x = k.x(8, 2)
    rows = counted(k, extent(k, k.x(n, 2), 0, scalar=True))
    k.out(k.node("ScatterND", x, unsqueezed(k, rows, [1]), k.x(n, 2)))


@idiom("Positions")
def _(k):
    past, new = dims(k, "past", "new")
    at = extent(k, k.x(1, past, 2), 1, scalar=True)
    rows = k.node("Range", at, k.node("Add", at, extent(k, k.x(1, new, 2), 1, scalar=True)), k.c(1))
    k.out(k.node("Gather", k.c(np.arange(60).reshape(20, 3), F), rows, axis=0))


# Masks.
@idiom("MaskExpanded")
def _(k):
    b, s = dims(k, "b", "s")
    mask = k.x(b, s, dtype=I, low=0, high=1)
    wide = unsqueezed(k, mask, [1, 2])
    wide = k.node("Expand", wide, joined(k, extent(k, mask, 0), 1, extent(k, mask, 1), extent(k, mask, 1)))
    wide = k.node("Sub", k.c(1, F), k.node("Cast", wide, to=TensorProto.FLOAT))
    k.out(k.node("Where", k.node("Cast", wide, to=TensorProto.BOOL), k.c(-1e4, F), wide))


@idiom("MaskAdded", 9)
def _(k):
    b, s = dims(k, "b", "s")
    mask = k.node("Cast", unsqueezed(k, k.x(b, s, dtype=I, low=0, high=1), [1, 2]), to=1)
    mask = k.node("Mul", k.node("Sub", k.c(1, F), mask), k.c(-1e4, F))
    k.out(k.node("Softmax", k.node("Add", k.x(b, 2, s, s), mask), axis=3))


@idiom("MaskCausal", 11)
def _(k):
    x = k.x(1, k.n, k.n)
    rows = counted(k, extent(k, x, 1, scalar=True))
    mask = k.node("Less", unsqueezed(k, rows, [0]), unsqueezed(k, k.node("Add", rows, k.c(1)), [1]))
    k.out(k.node("Where", mask, x, k.c(-1e9, F)))


@idiom("MaskCausal#equal", 12)
def _(k):
    b, s = dims(k, "b", "s")
    x = k.x(b, s, dtype=I)
    rows = counted(k, extent(k, x, 1, scalar=True))
    mask = k.node("LessOrEqual", unsqueezed(k, rows, [0]), unsqueezed(k, rows, [1]))
    keep = k.node("And", mask, k.node("Cast", unsqueezed(k, x, [1]), to=9))
    k.out(k.node("Where", keep, k.c(0, F), k.c(-3e38, F)))


@idiom("MaskOfLengths", 11)
def _(k):
    b, s = dims(k, "b", "s")
    x, lengths = k.x(b, s, 3), k.x(b, dtype=I, low=0, high=6)
    mask = k.node("Less", counted(k, extent(k, x, 1, scalar=True)), unsqueezed(k, lengths, [1]))
    mask = unsqueezed(k, k.node("Cast", mask, to=1), [2])
    total = summed(k, k.node("Mul", x, mask), [1], 0)
    k.out(k.node("Div", total, k.node("Clip", summed(k, mask, [1], 0), k.c(1e-9, F))))


@idiom("MaskTrilu", 14)
def _(k):
    s = k.dim("s")
    x = k.x(2, s, s)
    one = k.node("ConstantOfShape", slices(k, k.node("Shape", x), 1, 3), value=numpy_helper.from_array(np.array([1], F)))
    k.out(k.node("Where", k.node("Cast", k.node("Trilu", one, upper=0), to=9), x, k.c(-np.inf, F)))


@idiom("MaskWindow", 12)
def _(k):
    s = k.dim("s")
    rows = counted(k, extent(k, k.x(s, 2), 0, scalar=True))
    far = k.node("Abs", k.node("Sub", unsqueezed(k, rows, [1]), unsqueezed(k, rows, [0])))
    k.out(k.node("Cast", k.node("LessOrEqual", far, k.c(2)), to=1))


# Reshapes by shapes.
@idiom("ReshapeByShape", 7)
def _(k):
    b, s = dims(k, "b", "s")
    x = k.x(b, s, 6)
    k.out(k.node("Reshape", x, joined(k, extent(k, x, 0), extent(k, x, 1), 2, 3)))


@idiom("ReshapeByShape#merged", 7)
def _(k):
    b, s = dims(k, "b", "s")
    x = k.x(b, s, 6)
    k.out(k.node("Reshape", x, joined(k, k.node("Mul", extent(k, x, 0), extent(k, x, 1)), 6)))


@idiom("ReshapeByShape#rest", 7)
def _(k):
    b, s = dims(k, "b", "s")
    x = k.x(b, s, 2, 3)
    k.out(k.node("Reshape", x, joined(k, extent(k, x, 0), extent(k, x, 1), -1)))


@idiom("ReshapeBack", 7)
def _(k):
    b, s = dims(k, "b", "s")
    x = k.x(b, s, 3)
    y = k.node("Relu", k.node("Reshape", x, k.c([-1, 3])))
    k.out(k.node("Reshape", y, k.node("Shape", x)))


for shape, of in [([0, -1], (2, 3)), ([-1], (2, 3)), ([0, 0, -1], (2, 3)), ([-1, 6], (2, 3)), ([0, 2, 3], (6,)), ([-1, 0, 3], (2, 3)), ([0, -1, 2], (2, 4)), ([1, -1], (3,))]:
    idiom(f"Reshape#{shape}", 7)(lambda k, shape=shape, of=of: k.out(k.node("Reshape", k.x(k.n, *of), k.c(shape))))
    idiom(f"ReshapeBeside#{shape}", 7)(lambda k, shape=shape, of=of: k.out(
        k.node("Relu", k.node("Reshape", k.node("Add", k.x(k.n, *of), k.c(1, F)), k.c(shape)))))


@idiom("ReshapeAllow", 14)
def _(k):
    x = k.x(k.n, 2, 3)
    k.out(k.node("Reshape", x, joined(k, extent(k, x, 0), 6), allowzero=1))


@idiom("Heads", 7)
def _(k):
    b, s = dims(k, "b", "s")
    x = k.node("MatMul", k.x(b, s, 6), k.x(6, 8))
    y = k.node("Transpose", k.node("Reshape", x, k.c([0, 0, 2, 4])), perm=[0, 2, 1, 3])
    z = k.node("MatMul", y, k.node("Transpose", y, perm=[0, 1, 3, 2]))
    z = k.node("MatMul", k.node("Softmax", z, axis=3), y)
    k.out(k.node("Reshape", k.node("Transpose", z, perm=[0, 2, 1, 3]), k.c([0, 0, 8])))


@idiom("Heads#shared")
def _(k):
    b, s = dims(k, "b", "s")
    keys = k.x(b, 2, s, 4)
    shape = joined(k, extent(k, keys, 0), 2, 3, extent(k, keys, 2), 4)
    wide = k.node("Expand", unsqueezed(k, keys, [2]), shape)
    k.out(k.node("Reshape", wide, joined(k, extent(k, keys, 0), 6, extent(k, keys, 2), 4)))


@idiom("ShuffleChannels", 7)
def _(k):
    b, h = dims(k, "b", "h")
    x = k.x(b, 4, h, h)
    y = k.node("Reshape", x, joined(k, extent(k, x, 0), 2, 2, extent(k, x, 2), extent(k, x, 3)))
    k.out(k.node("Reshape", k.node("Transpose", y, perm=[0, 2, 1, 3, 4]), k.node("Shape", x)))


@idiom("Patches", 7)
def _(k):
    b, h = dims(k, "b", "h")
    x = k.node("Conv", k.x(b, 3, h, h), k.x(5, 3, 2, 2), strides=[2, 2])
    k.out(k.node("Transpose", k.node("Reshape", x, k.c([0, 5, -1])), perm=[0, 2, 1]))


@idiom("WindowsOfImage", 10)
def _(k):
    b, h = dims(k, "b", "h")
    x = k.x(b, 2 * h, 2 * h, 3)
    n, m = (k.node("Div", extent(k, x, a), k.c([2])) for a in (1, 2))
    y = k.node("Reshape", x, joined(k, extent(k, x, 0), n, 2, m, 2, 3))
    k.out(k.node("Reshape", k.node("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), k.c([-1, 2, 2, 3])))


@idiom("Roll", 10)
def _(k):
    x = k.x(2, k.n, 3)
    k.out(k.node("Concat", slices(k, x, 2, LAST, 1), slices(k, x, 0, 2, 1), axis=1))


@idiom("Roll#back", 10)
def _(k):
    x = k.x(k.n, 3)
    k.out(k.node("Concat", slices(k, x, -1, LAST), slices(k, x, 0, -1), axis=0))


# Squeezes.
@idiom("SqueezeAll", 7)
def _(k):
    k.out(k.node("Squeeze", k.x(k.n, 1, 3)))


@idiom("SqueezeAll#used", 13)
def _(k):
    a, b = dims(k, "a", "b")
    k.out(k.node("Relu", k.node("Squeeze", k.x(a, 1, b, 2))))


@idiom("SqueezeThere", 7)
def _(k):
    k.out(k.node("Relu", squeezed(k, unsqueezed(k, k.x(k.n, 3), [0, 3]), [3])))


@idiom("SqueezesBeside", 7)
def _(k):
    x = k.x(k.n, 1, 3, 1)
    k.out(squeezed(k, x, [1]), squeezed(k, x, [3]))


@idiom("SqueezesChained", 7)
def _(k):
    k.out(squeezed(k, squeezed(k, k.x(k.n, 1, 3, 1), [3]), [1]))


for axis in (0, 1, 2, 3, -1):
    idiom(f"Flatten#{axis}", 11)(lambda k, axis=axis: k.out(k.node("Flatten", k.x(k.dim("a"), 2, k.dim("b")), axis=axis)))
    idiom(f"FlattenUsed#{axis}", 11)(lambda k, axis=axis: k.out(k.node("Relu", k.node("Flatten", k.node("Neg", k.x(2, k.n, 3)), axis=axis))))


@idiom("FlattenDense", 9)
def _(k):
    b, h = dims(k, "b", "h")
    x = k.node("GlobalAveragePool", k.node("Relu", k.x(b, 4, h, h)))
    k.out(k.node("Gemm", k.node("Flatten", x), k.x(5, 4), k.x(5), transB=1))


# Shapes.
@idiom("ShapeArithmetic")
def _(k):
    x = k.x(k.n, 3, 2)
    a = extent(k, x, 0, scalar=True)
    k.out(k.node("Mul", a, k.c(2)), k.node("Sub", a, k.c(5)), k.node("Div", a, k.c(2)), k.node("Div", k.node("Sub", a, k.c(5)), k.c(2)),
          k.node("Mod", a, k.c(2)), k.node("Mod", k.node("Sub", a, k.c(5)), k.c(3)))


@idiom("ShapeArithmetic#float")
def _(k):
    a = k.node("Cast", extent(k, k.x(k.n, 3), 0), to=1)
    k.out(k.node("Cast", k.node("Floor", k.node("Mul", a, k.c([0.5], F))), to=7), k.node("Cast", k.node("Ceil", k.node("Div", a, k.c([3.0], F))), to=7),
          k.node("Sqrt", a), k.node("Div", k.c([1.0], F), k.node("Sqrt", a)))


@idiom("ShapeCompared")
def _(k):
    a, b = dims(k, "a", "b")
    x, y = (extent(k, k.x(s, 2), 0) for s in (a, b))
    k.out(k.node("Equal", x, y), k.node("Less", x, y), k.node("Max", x, y), k.node("Min", x, y), k.node("Where", k.node("Equal", x, y), x, k.c([7])))


@idiom("ShapeProduct")
def _(k):
    x = k.x(k.dim("a"), 3, k.dim("b"))
    k.out(k.node("ReduceProd", k.node("Shape", x), keepdims=0), k.node("Size", x))


@idiom("ShapeEnds", 15)
def _(k):
    x = k.x(k.dim("a"), 3, k.dim("b"))
    k.out(k.node("Shape", x, start=1), k.node("Shape", x, end=-1), k.node("Shape", x, start=-1, end=5))


@idiom("Mean")
def _(k):
    x = k.x(2, k.n, 3)
    k.out(k.node("Div", summed(k, x, [1], 0), k.node("Cast", extent(k, x, 1), to=1)))


@idiom("Scaled")
def _(k):
    x = k.x(2, k.n)
    k.out(k.node("Mul", x, k.node("Sqrt", k.node("Cast", extent(k, x, 1), to=1))))


# Expand, Tile, ConstantOfShape, Range.
@idiom("ExpandWhere")
def _(k):
    x = k.x(1, 3)
    shape = joined(k, extent(k, k.x(k.n, 2), 0), -1)
    one = k.node("ConstantOfShape", k.node("Shape", shape), value=numpy_helper.from_array(np.array([1], I)))
    k.out(k.node("Expand", x, k.node("Where", k.node("Equal", shape, k.c([-1, -1])), one, shape)))


@idiom("ExpandWhere#batch")
def _(k):
    b = k.dim("b")
    shape = k.node("Concat", extent(k, k.x(b, 3), 0), k.c([-1]), k.c([-1]), axis=0)
    one = k.node("ConstantOfShape", k.c([3]), value=numpy_helper.from_array(np.array([1], I)))
    wide = k.node("Where", k.node("Equal", shape, k.node("Mul", one, k.c(-1))), one, shape)
    token = k.node("Expand", k.c(np.arange(4).reshape(1, 1, 4), F), wide)
    k.out(k.node("Concat", token, k.x(b, k.dim("s"), 4), axis=1))


@idiom("ExpandAs", 8)
def _(k):
    k.out(k.node("Expand", k.x(1, 3), k.node("Shape", k.x(k.dim("a"), k.dim("b"), 3))))


@idiom("ExpandOpen", 8)
def _(k):
    k.out(k.node("Expand", k.x(k.n, 3), k.c([2, 1, 3])), k.node("Expand", k.x(k.n, 1), k.c([1, 4])))


@idiom("ExpandOpen#number", 8)
def _(k):
    k.out(k.node("Relu", k.node("Expand", k.x(k.n, 2), k.c([3, 2]))))


@idiom("TileByShape", 7)
def _(k):
    k.out(k.node("Tile", k.x(2, 3), joined(k, extent(k, k.x(k.n, 2), 0), 2)))


@idiom("TileOpen", 7)
def _(k):
    k.out(k.node("Tile", k.x(k.n, 3), k.c([2, 1])), k.node("Tile", k.x(2, k.dim("m")), k.c([1, 3])))


@idiom("ZerosLike", 9)
def _(k):
    x = k.x(k.dim("a"), k.dim("b"))
    k.out(k.node("ConstantOfShape", k.node("Shape", x)), k.node("Add", x, k.node("ConstantOfShape", k.node("Shape", x), value=numpy_helper.from_array(np.array([2], F)))))


@idiom("State", 9)
def _(k):
    b = k.dim("b")
    x = k.x(3, b, 2)
    state = k.node("ConstantOfShape", joined(k, 1, extent(k, x, 1), 4))
    k.out(*k.node("LSTM", x, k.x(1, 16, 2), k.x(1, 16, 4), "", "", state, state, hidden_size=4, outputs=3))


@idiom("RangeByExtent", 11)
def _(k):
    n = extent(k, k.x(k.n, 2), 0, scalar=True)
    k.out(counted(k, n), counted(k, n, 2), counted(k, n, 1, 2), k.node("Range", k.node("Sub", n, k.c(1)), k.c(-1), k.c(-1)))


@idiom("RangeByExtent#grid", 11)
def _(k):
    h, w = dims(k, "h", "w")
    x = k.x(1, 2, h, w)
    rows, columns = (k.node("Cast", counted(k, extent(k, x, a, scalar=True)), to=1) for a in (2, 3))
    shape = slices(k, k.node("Shape", x), 2, 4)
    grid = [unsqueezed(k, k.node("Expand", unsqueezed(k, v, [a]), shape), [2]) for v, a in ((rows, 1), (columns, 0))]
    k.out(k.node("Reshape", k.node("Concat", *grid, axis=2), k.c([-1, 2])))


@idiom("RangeByInput", 11)
def _(k):
    stop = squeezed(k, k.x(1, dtype=I, low=0, high=6), [0])
    k.out(k.node("Mul", counted(k, stop), k.c(2)))


# Operands of unlike extents.
for op in "Add Sub Mul Div PRelu".split():
    idiom(f"{op}#means", 7)(lambda k, op=op: k.out(k.node(op, k.x(k.dim("b"), k.dim("c"), k.dim("h"), k.dim("w")), k.c(np.arange(1, 4).reshape(1, 3, 1, 1), F))))
    idiom(f"{op}#row", 7)(lambda k, op=op: k.out(k.node(op, k.x(2, k.n), k.c([1, 2, 3], F))))
    idiom(f"{op}#rows", 7)(lambda k, op=op: k.out(k.node(op, k.x(k.dim("a"), 3), k.x(k.dim("b"), 3))))
    idiom(f"{op}#columns", 7)(lambda k, op=op: k.out(k.node("Relu", k.node(op, k.x(k.dim("a"), 3), k.x(1, k.dim("b"))))))


@idiom("WhereOpen", 9)
def _(k):
    a, b = dims(k, "a", "b")
    k.out(k.node("Where", k.x(a, 3, dtype=B), k.x(b, 1), k.c([1, 2, 3], F)))


@idiom("MinMaxOpen", 8)
def _(k):
    k.out(k.node("Max", k.x(k.dim("a"), 3), k.x(3)), k.node("Min", k.x(k.dim("a"), 3), k.x(k.dim("b"), 1)))


@idiom("MatMulOpen", 7)
def _(k):
    b, s = dims(k, "b", "s")
    k.out(k.node("Add", k.node("MatMul", k.x(b, s, 3), k.x(3, 5)), k.x(5)))


@idiom("MatMulOpen#batches", 7)
def _(k):
    a, b, s = dims(k, "a", "b", "s")
    k.out(k.node("MatMul", k.x(a, 2, s, 3), k.x(b, 1, 3, s)))


@idiom("MatMulOpen#ints", 9)
def _(k):
    k.out(k.node("Add", k.node("MatMul", k.x(k.n, 3, dtype=I), k.x(3, 2, dtype=I)), k.x(2, dtype=I)))


@idiom("SplitOpen", 7, 12)
def _(k):
    k.out(*k.node("Split", k.x(2, k.n), axis=1, split=[1, 3], outputs=2))


@idiom("SplitOpen", 13)
def _(k):
    k.out(*k.node("Split", k.x(2, k.n), k.c([1, 3]), axis=1, outputs=2))


@idiom("SplitOpen#even", 18)
def _(k):
    k.out(*k.node("Split", k.x(2, k.n), axis=1, num_outputs=2, outputs=2))


@idiom("SplitBack", 18)
def _(k):
    parts = k.node("Split", k.x(2, k.n), axis=1, num_outputs=3, outputs=3)
    k.out(k.node("Concat", *parts, axis=1))


@idiom("ConcatOpen", 7)
def _(k):
    a, b = dims(k, "a", "b")
    x = k.x(a, 3)
    k.out(k.node("Concat", x, k.x(b, 3), k.node("Relu", x), axis=0))


# Windows.
for op in "MaxPool AveragePool".split():
    for kernel, stride, pads in [(2, 2, 0), (3, 2, 1), (3, 3, 0), (2, 3, 1), (5, 1, 2)]:
        for ceil in (0, 1):
            def pool(k, op=op, kernel=kernel, stride=stride, pads=pads, ceil=ceil):
                more = {"count_include_pad": 1} if op == "AveragePool" and stride == 2 else {}
                k.out(k.node(op, k.x(1, 2, k.dim("h"), k.dim("w")), kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pads] * 4, ceil_mode=ceil, **more))
            idiom(f"{op}Open#{kernel}{stride}{pads}{ceil}", 10)(pool)
    for way in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        idiom(f"{op}Open#{way}", 7)(lambda k, op=op, way=way: k.out(k.node(op, k.x(1, 2, k.n), kernel_shape=[3], strides=[2], auto_pad=way)))
for way in ("SAME_UPPER", "SAME_LOWER"):
    idiom(f"ConvOpen#{way}", 7)(lambda k, way=way: k.out(k.node("Conv", k.x(1, 2, k.dim("h"), k.dim("w")), k.x(3, 2, 3, 3), auto_pad=way, strides=[2, 2])))


@idiom("ConvNet", 9)
def _(k):
    b, h, w = dims(k, "b", "h", "w")
    x = k.node("Conv", k.x(b, 3, h, w), k.x(4, 3, 3, 3), k.x(4), pads=[1] * 4, strides=[2, 2])
    x = k.node("BatchNormalization", x, *(k.x(4, low=0.5) for _ in range(4)))
    x = k.node("MaxPool", k.node("Relu", x), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = k.node("Conv", x, k.x(4, 1, 3, 3), group=4, pads=[1] * 4)
    x = k.node("GlobalAveragePool", k.node("Add", x, k.node("Mul", y, k.node("Sigmoid", k.node("GlobalAveragePool", y)))))
    k.out(k.node("Gemm", k.node("Flatten", x), k.x(4, 2), k.x(2)))


@idiom("ResizeTwice", 13)
def _(k):
    k.out(k.node("Resize", k.x(1, 2, k.dim("h"), k.dim("w")), "", k.c([1, 1, 2, 2], F), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"))


@idiom("ResizeTwice#old", 11, 12)
def _(k):
    k.out(k.node("Resize", k.x(1, 2, k.dim("h"), k.dim("w")), k.c([], F), k.c([1, 1, 2, 2], F), mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"))


@idiom("ResizeLike", 13)
def _(k):
    x, y = k.x(1, 2, k.dim("h"), k.dim("w")), k.x(1, 3, k.dim("u"), k.dim("v"))
    shape = k.node("Concat", slices(k, k.node("Shape", x), 0, 2), slices(k, k.node("Shape", y), 2, 4), axis=0)
    k.out(k.node("Resize", x, "", "", shape, mode="linear", coordinate_transformation_mode="half_pixel"))


@idiom("PadToEven", 11)
def _(k):
    x = k.x(1, k.n)
    odd = k.node("Mod", extent(k, x, 1), k.c([2]))
    k.out(k.node("Pad", x, k.node("Concat", k.c([0, 0, 0]), odd, axis=0)))


@idiom("PadOpen", 11)
def _(k):
    k.out(*(k.node("Pad", k.x(1, k.n), k.c([0, 1, 0, 2]), mode=m) for m in ("constant", "edge", "reflect")))


@idiom("PadOpen#negative", 11)
def _(k):
    k.out(k.node("Pad", k.x(2, k.n), k.c([0, -1, 0, -1])))


@idiom("Frames", 11)
def _(k):
    x = k.x(k.n)
    count = k.node("Add", k.node("Div", k.node("Sub", extent(k, x, 0, scalar=True), k.c(3)), k.c(2)), k.c(1))
    at = k.node("Add", unsqueezed(k, k.node("Mul", counted(k, count), k.c(2)), [1]), k.c([[0, 1, 2]]))
    k.out(k.node("Gather", x, at, axis=0))


@idiom("Stft", 17)
def _(k):
    k.out(k.node("STFT", k.x(1, k.n, 1), k.c(2), "", k.c(4)))


@idiom("Stft#two", 17)
def _(k):
    k.out(k.node("STFT", k.x(1, k.n), k.c(2), k.c([1, 2, 2, 1], F), k.c(4)))


# Reductions and normalisations of open axes.
for op in "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL2 ReduceL1 ReduceSumSquare ReduceLogSumExp ReduceLogSum".split():
    for axes, keep in (([1], 1), ([-1], 0), ([0, 1], 0), ([0], 0)):
        idiom(f"{op}Open#{axes}{keep}", 7)(lambda k, op=op, axes=axes, keep=keep: k.out(summed(k, k.x(k.dim("a"), k.dim("b"), low=0.5), axes, keep, op)))
for op in "ReduceL2 ReduceL1 ReduceLogSum ReduceLogSumExp ReduceSumSquare ReduceMean".split():
    idiom(f"{op}Ints", 7)(lambda k, op=op: k.out(summed(k, k.x(k.n, 3, dtype=np.int32, low=1, high=9), [1], 1, op)))


@idiom("LogSumExpInfinite", 7)
def _(k):
    rows = np.array([[1, np.inf, 2], [-np.inf] * 3, [np.nan, 1, 2], [-np.inf, 3, 4]], F)
    k.out(summed(k, k.node("Add", k.c(rows, F), k.x(1, 1, low=0, high=1)), [1], 1, "ReduceLogSumExp"))


@idiom("NormInParts")
def _(k):
    b, s = dims(k, "b", "s")
    x = k.x(b, s, 4)
    d = k.node("Sub", x, summed(k, x, [-1], op="ReduceMean"))
    v = k.node("Add", summed(k, k.node("Mul", d, d), [-1], op="ReduceMean"), k.c(1e-5, F))
    k.out(k.node("Add", k.node("Mul", k.node("Div", d, k.node("Sqrt", v)), k.x(4)), k.x(4)))


@idiom("NormInParts#open")
def _(k):
    x = k.x(2, 3, k.n)
    d = k.node("Sub", x, summed(k, x, [2], op="ReduceMean"))
    v = k.node("Add", summed(k, k.node("Mul", d, d), [2], op="ReduceMean"), k.c(1e-5, F))
    k.out(k.node("Div", d, k.node("Sqrt", v)))


@idiom("NormInParts#flat")
def _(k):
    x = k.x(k.dim("a"), k.dim("b"))
    d = k.node("Sub", x, summed(k, x, [1], op="ReduceMean"))
    v = k.node("Add", summed(k, k.node("Mul", d, d), [1], op="ReduceMean"), k.c(1e-5, F))
    k.out(k.node("Div", d, k.node("Sqrt", v)))


@idiom("NormPooled", 9)
def _(k):
    x = k.node("InstanceNormalization", k.x(2, 3, k.n), k.x(3), k.x(3))
    k.out(k.node("GlobalAveragePool", x))


@idiom("LayerNormOutputs", 17)
def _(k):
    k.out(*k.node("LayerNormalization", k.x(k.n, 4), k.x(4), k.x(4), outputs=3))


@idiom("LayerNormHalf", 17)
def _(k):
    k.out(*k.node("LayerNormalization", k.x(k.n, 4, dtype=np.float16), k.x(4, dtype=np.float16), k.x(4, dtype=np.float16), outputs=2))


@idiom("GeluScalar", 9)
def _(k):
    x = k.node("Gather", k.x(k.n), k.c(0), axis=0)
    e = k.node("Erf", k.node("Div", x, k.c(np.sqrt(2), F)))
    k.out(k.node("Mul", k.node("Mul", x, k.node("Add", e, k.c(1, F))), k.c(0.5, F)))


@idiom("GeluTanh", 9)
def _(k):
    x = k.x(k.dim("a"), k.dim("b"))
    t = k.node("Tanh", k.node("Mul", k.node("Add", x, k.node("Mul", k.c(0.044715, F), k.node("Mul", x, k.node("Mul", x, x)))), k.c(0.7978845608, F)))
    k.out(k.node("Mul", k.node("Mul", x, k.c(0.5, F)), k.node("Add", t, k.c(1, F))))


for dtype in (F, np.float64, I, np.int32):
    idiom(f"LeakyByWhere#{np.dtype(dtype).name}", 13)(lambda k, dtype=dtype: (lambda x: k.out(
        k.node("Where", k.node("Greater", x, k.c(0, dtype)), x, k.node("Mul", x, k.c(2, dtype)))))(k.x(k.n, 3, dtype=dtype)))
    idiom(f"DenseOf#{np.dtype(dtype).name}", 13)(lambda k, dtype=dtype: k.out(
        k.node("Add", k.node("MatMul", k.x(k.n, 3, dtype=dtype), k.x(3, 2, dtype=dtype)), k.x(2, dtype=dtype))))


@idiom("TopKByExtent", 11)
def _(k):
    x = k.x(2, k.n)
    k.out(*k.node("TopK", x, k.node("Min", extent(k, x, 1), k.c([3])) if k.o >= 12 else k.c([1]), outputs=2))


@idiom("TopKFixed", 11)
def _(k):
    k.out(*k.node("TopK", k.x(2, k.n), k.c([2]), outputs=2))


for op in "ArgMax ArgMin".split():
    for last in (0, 1):
        for keep in (0, 1):
            idiom(f"{op}Open#{last}{keep}", 12)(lambda k, op=op, last=last, keep=keep: k.out(k.node(op, k.x(k.dim("a"), k.dim("b")), axis=1, keepdims=keep, select_last_index=last)))


@idiom("PoolingOfToken", 11)
def _(k):
    b, s = dims(k, "b", "s")
    ids = k.x(b, s, dtype=I, low=0, high=9)
    at = k.node("ArgMax", ids, axis=1, keepdims=0)
    rows = counted(k, extent(k, ids, 0, scalar=True))
    both = k.node("Concat", unsqueezed(k, rows, [1]), unsqueezed(k, at, [1]), axis=1)
    k.out(k.node("GatherND", k.x(b, s, 3), both))


@idiom("FirstToken", 11)
def _(k):
    b, s = dims(k, "b", "s")
    k.out(k.node("Gather", k.x(b, s, 3), k.c(0), axis=1), k.node("Gather", k.x(b, s, 3), k.c(-1), axis=1))


@idiom("Embedding", 9)
def _(k):
    b, s = dims(k, "b", "s")
    ids = k.x(b, s, dtype=I, low=0, high=4)
    table, places = k.x(5, 3), k.c(np.arange(30).reshape(1, 10, 3), F)
    own = slices(k, places, 0, extent(k, ids, 1), 1) if k.o >= 10 else places
    k.out(k.node("Add", k.node("Gather", table, ids), own))


@idiom("Rotary", 10)
def _(k):
    b, s = dims(k, "b", "s")
    x = k.x(b, 2, s, 4)
    half = k.node("Concat", k.node("Neg", slices(k, x, 2, LAST, 3)), slices(k, x, 0, 2, 3), axis=3)
    table = k.c(np.linspace(0, 3, 40).reshape(1, 1, 10, 4), F)
    own = slices(k, table, 0, extent(k, x, 2), 2)
    k.out(k.node("Add", k.node("Mul", x, k.node("Cos", own)), k.node("Mul", half, k.node("Sin", own))))


@idiom("RelativeShift", 11)
def _(k):
    s = k.dim("s")
    x = k.x(1, 2, s, s)
    padded = k.node("Pad", x, k.c([0, 0, 0, 1, 0, 0, 0, 0]))
    shape = k.node("Shape", padded)
    y = k.node("Reshape", padded, joined(k, 1, 2, extent(k, padded, 3), extent(k, padded, 2)))
    k.out(k.node("Reshape", slices(k, y, 1, LAST, 2), k.node("Shape", x)), shape)


@idiom("NonZeroRows")
def _(k):
    x = k.x(k.n, 3)
    at = k.node("NonZero", k.node("Greater", x, k.c(0, F)))
    k.out(k.node("GatherND", x, k.node("Transpose", at)))


@idiom("NonZeroCount")
def _(k):
    x = k.x(k.n, dtype=I, low=0, high=1)
    at = k.node("NonZero", x)
    k.out(extent(k, at, 1), k.node("Squeeze", at, k.c([0])))


@idiom("CompressRows", 11)
def _(k):
    x = k.x(k.n, 2)
    k.out(k.node("Compress", x, k.x(k.n, dtype=B), axis=0))


@idiom("CumSumPositions", 11)
def _(k):
    mask = k.x(k.dim("b"), k.dim("s"), dtype=I, low=0, high=1)
    at = k.node("Sub", k.node("CumSum", mask, k.c(1)), k.c(1))
    k.out(k.node("Where", k.node("Equal", mask, k.c(0)), k.c(1), at))


@idiom("OneHotRows", 11)
def _(k):
    k.out(k.node("OneHot", k.x(k.n, dtype=I, low=0, high=3), k.c(4), k.c([0, 1], F)))


@idiom("ScatterRows", 16)
def _(k):
    n = k.dim("n")
    k.out(k.node("ScatterND", k.x(4, 2), k.x(n, 1, dtype=I, low=0, high=3), k.x(n, 2), reduction="add"))


@idiom("GatherReverse", 10)
def _(k):
    s, b = dims(k, "s", "b")
    x = k.node("Gather", k.x(5, 3), k.x(s, b, dtype=I, low=0, high=4), axis=0)
    k.out(k.node("ReverseSequence", x, k.x(b, dtype=I, low=1, high=1)))


@idiom("Recurrent", 7)
def _(k):
    s, b = dims(k, "s", "b")
    out = k.node("GRU", k.x(s, b, 2), k.x(2, 9, 2), k.x(2, 9, 3), hidden_size=3, direction="bidirectional", outputs=2)
    y = k.node("Transpose", out[0], perm=[0, 2, 1, 3])
    k.out(k.node("Reshape", y, k.c([0, 0, -1])), out[1])


for equation, shapes in [("bij,bjk->bik", ("bi3", "b34")), ("ij,j->i", ("a3", "3")), ("bhid,bhjd->bhij", ("b2i3", "b2j3")), ("bi,bi->b", ("a3", "b3")), ("i,j->ij", ("a", "b")),
                         ("bij->bji", ("ab2",)), ("bii->b", ("a22",)), ("b...,b->...", ("a3", "b")), ("ij,jk,kl->il", ("a2", "23", "3b"))]:
    def product(k, equation=equation, shapes=shapes):
        k.out(k.node("Einsum", *(k.x(*(int(c) if c.isdigit() else k.dim(c) for c in s)) for s in shapes), equation=equation))
    idiom(f"EinsumOpen#{equation}", 12)(product)


def body(k, name, inputs, nodes, outputs):
    return helper.make_graph(nodes, name, inputs, outputs)


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


@idiom("LoopByExtent", 11)
def _(k):
    n = extent(k, k.x(k.n, 2), 0, scalar=True)
    x = k.x(2, 3)
    inner = body(k, "body", [info("i", 7, []), info("go", 9, []), info("v", 1, [None, None])],
                 [helper.make_node("Add", ["v", "v"], ["w"]), helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Relu", ["w"], ["z"])],
                 [info("on", 9, []), info("w", 1, [None, None]), info("z", 1, [None, None])])
    k.nodes.append(helper.make_node("Loop", [n, "", x], ["loop", "scanned"], name="k/loop", body=inner))
    k.types.update(loop=info("loop", 1, [2, 3]), scanned=info("scanned", 1, [None, 2, 3]))
    k.out("loop", "scanned")


@idiom("LoopGrows", 13)
def _(k):
    x, row = k.x(k.n, 2), k.x(1, 2)
    inner = body(k, "body", [info("i", 7, []), info("go", 9, []), info("v", 1, [None, 2])],
                 [helper.make_node("Concat", ["v", row], ["w"], axis=0), helper.make_node("Identity", ["go"], ["on"])],
                 [info("on", 9, []), info("w", 1, [None, 2])])
    k.nodes.append(helper.make_node("Loop", [k.c(3), "", x], ["loop"], name="k/loop", body=inner))
    k.types.update(loop=info("loop", 1, [None, 2]))
    k.out("loop")


@idiom("ScanRows", 9)
def _(k):
    x, state = k.x(k.n, 2), k.x(2)
    inner = body(k, "body", [info("s", 1, [2]), info("r", 1, [2])],
                 [helper.make_node("Add", ["s", "r"], ["t"]), helper.make_node("Mul", ["t", "r"], ["q"])], [info("t", 1, [2]), info("q", 1, [2])])
    k.nodes.append(helper.make_node("Scan", [state, x], ["last", "rows"], name="k/scan", body=inner, num_scan_inputs=1))
    k.types.update(last=info("last", 1, [2]), rows=info("rows", 1, [None, 2]))
    k.out("last", "rows")


@idiom("IfByExtent", 13)
def _(k):
    x = k.x(k.n, 2)
    few = k.node("Less", extent(k, x, 0, scalar=True), k.c(3))
    one, two = k.c(1, F), k.c([0])
    yes = body(k, "yes", [], [helper.make_node("Add", [x, one], ["a"])], [info("a", 1, [None, 2])])
    no = body(k, "no", [], [helper.make_node("Relu", [x], ["b"])], [info("b", 1, [None, 2])])
    k.nodes.append(helper.make_node("If", [few], ["chosen"], name="k/if", then_branch=yes, else_branch=no))
    k.types.update(chosen=info("chosen", 1, [None, 2]))
    k.out("chosen")


@idiom("IfSqueeze", 13)
def _(k):
    x = k.x(k.n, 2)
    one = k.node("Equal", extent(k, x, 0, scalar=True), k.c(1))
    axes = k.c([0])
    yes = body(k, "yes", [], [helper.make_node("Squeeze", [x, axes], ["a"])], [info("a", 1, None)])
    no = body(k, "no", [], [helper.make_node("Identity", [x], ["b"])], [info("b", 1, None)])
    k.nodes.append(helper.make_node("If", [one], ["chosen"], name="k/if", then_branch=yes, else_branch=no))
    k.types.update(chosen=info("chosen", 1, None))
    k.out("chosen")


# Values that are outputs as well.
@idiom("OutputInside", 9)
def _(k):
    x = k.node("Relu", k.x(k.n, 3))
    k.out(x, k.node("NonZero", x), k.node("Add", x, k.c(1, F)))


@idiom("OutputIsInput", 7)
def _(k):
    x = k.x(k.n, 3)
    k.out(k.node("Identity", x), k.node("Relu", x))


@idiom("OutputTwice", 9)
def _(k):
    x = k.x(k.n, 3)
    k.out(k.node("Relu", x), k.node("Relu", x), k.node("Identity", k.node("Relu", x)))


@idiom("SignedZero", 7)
def _(k):
    x = k.x(k.n, 3)
    k.out(k.node("Reciprocal", k.node("Mul", x, k.c(-0.0, F))), k.node("Reciprocal", k.node("Neg", k.node("Mul", x, k.c(0.0, F)))))


@idiom("QuantizedOpen", 10)
def _(k):
    x = k.node("QuantizeLinear", k.x(k.n, 3), k.c(0.1, F), k.c(128, np.uint8))
    k.out(k.node("DequantizeLinear", x, k.c(0.1, F), k.c(128, np.uint8)), x)


@idiom("DynamicallyQuantized", 11)
def _(k):
    x, scale, zero = k.node("DynamicQuantizeLinear", k.x(k.dim("b"), k.dim("s"), 4), outputs=3)
    y = k.node("MatMulInteger", x, k.c(np.arange(-6, 6).reshape(4, 3), np.int8), zero, k.c(0, np.int8))
    k.out(k.node("Mul", k.node("Cast", y, to=1), k.node("Mul", scale, k.c(0.02, F))))
