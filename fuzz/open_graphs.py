"""Random graphs with open axes, drawn from a seed. The same seed gives the same nodes whatever the extents are."""
import random

import numpy as np
from onnx import numpy_helper

from onnx_cases import B, F, I
from open_idioms import LAST, counted, extent, joined, slices, squeezed, summed, unsqueezed

# Floats that stay small under these.
UNARY = "Relu Neg Sigmoid Tanh Abs Softplus Identity Softsign Elu Sin Floor".split()
BINARY = "Add Sub Mul Max Min".split()


class Value:
    """A result: its name, its type and its axes, each a number, the name of a symbol, or unlike any other."""

    def __init__(self, name, dtype, axes):
        self.name, self.dtype, self.axes = name, dtype, list(axes)

    def __len__(self):
        return len(self.axes)


class Graph:
    def __init__(self, k, seed):
        self.k, self.rng = k, random.Random(seed)
        self.values, self.unknown, self.used = [], 0, set()
        symbols = ["a", "b"][:self.rng.randint(1, 2)]
        for _ in range(self.rng.randint(1, 3)):
            axes = [self.rng.choice([*symbols, *symbols, 1, 2, 3]) for _ in range(self.rng.randint(1, 4))]
            if not set(axes) & set(symbols):
                axes[self.rng.randrange(len(axes))] = symbols[0]
            shape = [k.dim(e) if isinstance(e, str) else e for e in axes]
            self.add(k.x(*shape), F, axes)

    def add(self, name, dtype, axes):
        self.values.append(Value(name, dtype, axes))
        return self.values[-1]

    def any(self, dtype=F, rank=None, least=0):
        """A value of a type, more often a late one."""
        some = [v for v in self.values if v.dtype == dtype and len(v) >= least and (rank is None or len(v) == rank)]
        if not some:
            return None
        v = some[max(self.rng.randrange(len(some)), self.rng.randrange(len(some)))]
        self.used.add(v.name)
        return v

    def new(self):
        self.unknown += 1
        return f"?{self.unknown}"

    def axis(self, v):
        return self.rng.randrange(len(v))

    def node(self, op, v, *more, axes=None, dtype=None, **attrs):
        return self.add(self.k.node(op, v.name, *more, **attrs), dtype or v.dtype, v.axes if axes is None else axes)

    # Each of these adds an operator, or nothing where there is no operand for it.
    def unary(self):
        if v := self.any():
            self.node(self.rng.choice(UNARY), v)

    def binary(self):
        v = self.any()
        if v is None:
            return
        other = self.partner(v)
        self.node(self.rng.choice(BINARY), v, other)

    def partner(self, v):
        """The name of an operand that NumPy's rule lets stand beside the value."""
        same = [w for w in self.values if w.dtype == v.dtype and w is not v and self.fits(w, v)]
        if same and self.rng.random() < 0.7:
            w = self.rng.choice(same)
            self.used.add(w.name)
            return w.name
        count = v.axes[-1] if v.axes and isinstance(v.axes[-1], int) and self.rng.random() < 0.5 else 1
        data = np.arange(1, 1 + count) if v.dtype == I else np.linspace(-1, 1.5, count)
        return self.k.c(data if self.rng.random() < 0.7 else data.reshape(1, -1) if len(v) > 1 else data[:1], v.dtype)

    def fits(self, w, v):
        return len(w) <= len(v) and all(a in (1, b) for a, b in zip(reversed(w.axes), reversed(v.axes)))

    def compare(self):
        v = self.any()
        if v is None:
            return
        c = self.k.node("Less", v.name, self.partner(v))
        if self.rng.random() < 0.6:
            return self.add(self.k.node("Where", c, v.name, self.k.c(0.5, F)), F, v.axes)
        self.add(self.k.node("Cast", c, to=1), F, v.axes)

    def cut(self):
        v = self.any(self.rng.choice([F, F, I]), least=1)
        if v is None:
            return
        axis = self.axis(v)
        begin = self.rng.choice([0, 0, 1, 2, 5, -1, -2, -3, -7])
        end = self.rng.choice([LAST, LAST, LAST, 1, 2, 4, -1, -2, -3])
        step = self.rng.choice([1, 1, 1, 2, -1])
        if step < 0:
            begin, end = (-1, -LAST) if self.rng.random() < 0.5 else (end, begin)
        if self.k.o < 10 and step != 1:
            return
        if self.k.o >= 10 and self.rng.random() < 0.3:
            begin = self.k.node("Sub", extent(self.k, v.name, axis), self.k.c([self.rng.randint(0, 4)]))
        axes = v.axes.copy()
        axes[axis] = self.new()
        self.add(slices(self.k, v.name, begin, end, axis, step), v.dtype, axes)

    def join(self):
        v = self.any(least=1)
        if v is None:
            return
        axis = self.axis(v)
        others = [w for w in self.values if w.dtype == v.dtype and len(w) == len(v) and all(a == b for i, (a, b) in enumerate(zip(w.axes, v.axes)) if i != axis)]
        parts = [v.name, *(self.rng.choice(others).name for _ in range(self.rng.randint(1, 2)))]
        self.used.update(parts)
        axes = v.axes.copy()
        axes[axis] = self.new()
        self.add(self.k.node("Concat", *parts, axis=axis), v.dtype, axes)

    def pick(self):
        v = self.any(least=1)
        if v is None:
            return
        axis = self.axis(v)
        at = self.rng.choice([0, -1, [0], [-1], [0, 0]])
        axes = v.axes[:axis] + ([len(at)] if isinstance(at, list) else []) + v.axes[axis + 1:]
        self.add(self.k.node("Gather", v.name, self.k.c(at), axis=axis), v.dtype, axes)

    def turn(self):
        if v := self.any(least=2):
            perm = self.rng.sample(range(len(v)), len(v))
            self.node("Transpose", v, perm=perm, axes=[v.axes[p] for p in perm])

    def widen(self):
        if (v := self.any()) and len(v) < 4:
            axis = self.rng.randint(0, len(v))
            self.add(unsqueezed(self.k, v.name, [axis]), v.dtype, v.axes[:axis] + [1] + v.axes[axis:])

    def squeeze(self):
        v = self.any(least=1)
        if v is None:
            return
        ones = [i for i, e in enumerate(v.axes) if e == 1] or [self.axis(v)]
        axis = self.rng.choice(ones)
        self.add(squeezed(self.k, v.name, [axis]), v.dtype, v.axes[:axis] + v.axes[axis + 1:])

    def flatten(self):
        if v := self.any(least=1):
            axis = self.rng.randint(0, len(v))
            ends = [v.axes[:axis], v.axes[axis:]]
            self.node("Flatten", v, axis=axis, axes=[e[0] if len(e) == 1 else 1 if not e else self.new() for e in ends])

    def reshape(self):
        v = self.any(least=1)
        if v is None:
            return
        way = self.rng.randrange(4)
        if way == 0:
            return self.node("Reshape", v, self.k.c([-1]), axes=[self.new()])
        if way == 1:
            return self.node("Reshape", v, self.k.c([0, -1]), axes=[v.axes[0], self.new()])
        if way == 2 and len(v) > 1:
            shape = joined(self.k, self.k.node("Mul", extent(self.k, v.name, 0), extent(self.k, v.name, 1)), *(extent(self.k, v.name, i) for i in range(2, len(v))))
            return self.node("Reshape", v, shape, axes=[self.new(), *v.axes[2:]])
        self.node("Reshape", v, joined(self.k, extent(self.k, v.name, 0), -1), axes=[v.axes[0], self.new()])

    def expand(self):
        v, w = self.any(), self.any()
        if v is None:
            return
        if self.fits(v, w):
            return self.node("Expand", v, self.k.node("Shape", w.name), axes=w.axes)
        shape = [self.rng.choice([1, 2, 3]) if e == 1 else 1 for e in v.axes]
        self.node("Expand", v, self.k.c([2, *shape]), axes=[2] + [s if e == 1 else e for e, s in zip(v.axes, shape)])

    def tile(self):
        if (v := self.any(least=1)):
            times = [self.rng.choice([1, 1, 2]) for _ in v.axes]
            self.node("Tile", v, self.k.c(times), axes=[e if t == 1 else self.new() for e, t in zip(v.axes, times)])

    def pad(self):
        if (v := self.any(least=1)) and self.k.o >= 11:
            pads = [self.rng.choice([0, 0, 1, 2, -1]) for _ in range(2 * len(v))]
            self.node("Pad", v, self.k.c(pads), axes=[self.new() for _ in v.axes])

    def reduce(self):
        v = self.any(least=1)
        if v is None:
            return
        op = self.rng.choice("ReduceSum ReduceMean ReduceMax ReduceMin ReduceL2 ReduceLogSumExp ReduceSumSquare".split())
        axes = sorted(self.rng.sample(range(len(v)), self.rng.randint(1, min(2, len(v)))))
        keep = self.rng.randint(0, 1)
        left = [1 if i in axes else e for i, e in enumerate(v.axes) if keep or i not in axes]
        self.add(summed(self.k, v.name, axes, keep, op), F, left)

    def norm(self):
        v = self.any(least=1)
        if v is None:
            return
        if self.k.o >= 17 and isinstance(v.axes[-1], int) and self.rng.random() < 0.5:
            scale = self.k.c(np.linspace(0.5, 1.5, v.axes[-1]), F)
            return self.node("LayerNormalization", v, scale)
        self.node(self.rng.choice(["Softmax", "LogSoftmax"]), v, axis=len(v) - 1)

    def dense(self):
        v = self.any(least=2)
        if v is None:
            return
        if isinstance(v.axes[-1], int) and self.rng.random() < 0.7:
            w = self.k.c(np.linspace(-1, 1, v.axes[-1] * 4).reshape(v.axes[-1], 4), F)
            y = self.node("MatMul", v, w, axes=[*v.axes[:-1], 4])
            if self.rng.random() < 0.5:
                self.node("Add", y, self.k.c([0.5, 0, -0.5, 1], F))
            return
        perm = [*range(len(v) - 2), len(v) - 1, len(v) - 2]
        turned = self.k.node("Transpose", v.name, perm=perm)
        self.node("MatMul", v, turned, axes=[*v.axes[:-1], v.axes[-2]])

    def window(self):
        v = self.any(rank=4) or self.any(rank=3)
        if v is None or len(v) < 3:
            return
        spatial = len(v) - 2
        kernel, stride, pads = self.rng.randint(1, 3), self.rng.randint(1, 2), self.rng.randint(0, 1)
        axes = v.axes[:2] + [self.new() for _ in range(spatial)]
        if kernel > 1 and self.rng.random() < 0.5:
            more = {"ceil_mode": self.rng.randint(0, 1)} if self.k.o >= 10 else {}
            return self.node(self.rng.choice(["MaxPool", "AveragePool"]), v, axes=axes, kernel_shape=[kernel] * spatial, strides=[stride] * spatial, pads=[pads] * 2 * spatial, **more)
        if isinstance(v.axes[1], int):
            w = np.linspace(-1, 1, 2 * v.axes[1] * kernel**spatial).reshape(2, v.axes[1], *[kernel] * spatial)
            axes[1] = 2
            self.node("Conv", v, self.k.c(w, F), axes=axes, strides=[stride] * spatial, pads=[pads] * 2 * spatial)

    def running(self):
        if (v := self.any(least=1)) and self.k.o >= 11:
            self.node("CumSum", v, self.k.c(self.axis(v)))

    def best(self):
        v = self.any(least=1)
        if v is None:
            return
        axis, keep = self.axis(v), self.rng.randint(0, 1)
        y = self.k.node(self.rng.choice(["ArgMax", "ArgMin"]), v.name, axis=axis, keepdims=keep)
        self.add(self.k.node("Cast", y, to=1), F, [1 if i == axis else e for i, e in enumerate(v.axes) if keep or i != axis])

    def shape(self):
        """A number that follows from extents, and what is made of it."""
        v = self.any(least=1)
        if v is None:
            return
        n = extent(self.k, v.name, self.axis(v), scalar=True)
        for _ in range(self.rng.randint(0, 2)):
            n = self.k.node(self.rng.choice(["Add", "Sub", "Mul", "Div"]), n, self.k.c(self.rng.randint(1, 3)))
        way = self.rng.randrange(4)
        if way == 0 and self.k.o >= 11:
            return self.add(self.k.node("Cast", counted(self.k, n), to=1), F, [self.new()])
        if way == 1:
            one = self.k.node("Reshape", n, self.k.c([1]))
            value = numpy_helper.from_array(np.array([0.5], F))
            if self.k.o >= 9:
                return self.add(self.k.node("ConstantOfShape", self.k.node("Max", one, self.k.c([0])) if self.k.o >= 12 else one, value=value), F, [self.new()])
        if way == 2:
            return self.node("Mul", v, self.k.node("Cast", n, to=1))
        self.add(self.k.node("Reshape", n, self.k.c([1])), I, [1])

    def chosen(self):
        if (v := self.any(rank=1)) and self.k.o >= 13:
            at = self.k.node("NonZero", self.k.node("Greater", v.name, self.k.c(0, F)))
            self.add(self.k.node("GatherND", v.name, self.k.node("Transpose", at)), F, [self.new()])

    def grow(self, count):
        ways = ([self.unary] * 3 + [self.binary] * 5 + [self.compare] * 2 + [self.cut] * 5 + [self.join] * 3 + [self.pick, self.turn, self.turn, self.widen, self.squeeze, self.squeeze,
                self.flatten, self.flatten, self.reshape, self.reshape, self.expand, self.expand, self.tile, self.pad, self.reduce, self.reduce, self.norm,
                self.dense, self.dense, self.window, self.window, self.running, self.best, self.shape, self.shape, self.chosen])
        for _ in range(count):
            self.rng.choice(ways)()

    def end(self):
        """Results are what nothing reads, and now and then a value inside."""
        made = [v for v in self.values if v.name not in dict(self.k.inputs)]
        outputs = [v.name for v in made if v.name not in self.used or self.rng.random() < 0.15]
        self.k.out(*dict.fromkeys(outputs or [made[-1].name]))


def graph(k, seed):
    g = Graph(k, seed)
    g.grow(g.rng.randint(2, 12))
    g.end()
