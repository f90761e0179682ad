"""A case of `onnx_cases.py` with axes left open: which symbols it has, its model, and its inputs at given extents."""
import itertools
import random

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_cases import Case
from open_judge import in_runtime

# What open axes have where one model of a case is made; nothing in the model follows it.
USUAL = 4
# How axes are declared: equal extents by one name, each axis by a name of its own (as some exporters do), by none, or not even a rank.
NAMINGS = ["named", "apart", "nameless", "unranked"]


class Extent(int):
    """A number that a run decides: `scale` times the extent of a symbol, plus `offset`."""

    def __new__(cls, value, symbol, scale=1, offset=0):
        own = int.__new__(cls, value)
        own.symbol, own.scale, own.offset = symbol, scale, offset
        return own

    def __mul__(self, k):
        return Extent(int(self) * int(k), self.symbol, self.scale * int(k), self.offset * int(k))

    def __add__(self, k):
        return Extent(int(self) + int(k), self.symbol, self.scale, self.offset + int(k))

    def __sub__(self, k):
        return self + -int(k)

    __rmul__, __radd__ = __mul__, __add__

    @property
    def name(self):
        times = self.symbol if self.scale == 1 else f"{self.scale}*{self.symbol}"
        return times if self.offset == 0 else f"{times} + {self.offset}"


class OpenCase(Case):
    """A case at the extents `at` of its symbols; a symbol that is not there has its usual extent and is closed.

    The symbol of `k.n` is `n`, that of `k.dim(NAME)` is NAME, and every number in a shape is the extent of one, too: `d3` of all axes of 3.
    """

    def __init__(self, name, opset, at, seed=0, values="plain"):
        super().__init__(name, opset, None)
        self.at, self.seed, self.values = at, seed, values
        self.n = self.dim("n")
        self.met, self.axes = {}, {}

    def dim(self, symbol, usual=USUAL):
        return Extent(self.at.get(symbol, usual), symbol)

    def x(self, *shape, dtype=np.float32, low=-3, high=3, data=None):
        # Every input has numbers of its own, so that the extents of one do not change those of another.
        self.rng = np.random.default_rng([self.seed, len(self.inputs)])
        dims = []
        for e in shape if data is None else np.asarray(data).shape:
            if not isinstance(e, Extent):
                symbol = f"d{e}"
                e = Extent(self.at.get(symbol, e), symbol) if data is None else int(e)
            if isinstance(e, Extent):
                self.met.setdefault(e.symbol)
            dims.append(e)
        if data is not None and any(isinstance(e, Extent) for e in shape):
            dims = list(shape)
            self.met.update((e.symbol, None) for e in shape if isinstance(e, Extent))
        name = super().x(*(int(e) for e in dims), dtype=dtype, low=low, high=high, data=data)
        self.axes[name] = dims
        return name

    def dims(self, name):
        """The axes of an input as it is declared: symbols of those that are open."""
        return [e if isinstance(e, Extent) and e.symbol in self.at else int(e) for e in self.axes[name]]

    def is_open(self, name):
        return any(isinstance(e, Extent) for e in self.dims(name))

    def structure(self):
        """What must not follow the extents of a run."""
        return [n.SerializeToString() for n in self.nodes], [(n, v.dtype, v.shape, v.tobytes()) for n, v in self.consts]


def build(maker, name, opset, at, seed=0):
    k = OpenCase(name, opset, at, seed)
    maker(k)
    return k


def declared(k, name, naming, count):
    """An input's declaration."""
    data = dict(k.inputs)[name]
    dtype = helper.np_dtype_to_tensor_dtype(data.dtype)
    if naming == "unranked":
        return helper.make_tensor_value_info(name, dtype, None)
    names = {"named": lambda e: e.name, "apart": lambda e: f"axis{next(count)}", "nameless": lambda e: None}[naming]
    return helper.make_tensor_value_info(name, dtype, [names(e) if isinstance(e, Extent) else e for e in k.dims(name)])


def model(k, naming="named", frozen=False):
    """The model of a case; `frozen`: what has no open axis is a weight."""
    count = itertools.count()
    frozen = frozen and any(k.is_open(n) for n, _ in k.inputs)
    weights = [n for n, _ in k.inputs if frozen and not k.is_open(n)]
    data = dict(k.inputs)
    inputs = [declared(k, n, naming, count) for n, _ in k.inputs if n not in weights]
    inits = [numpy_helper.from_array(v, n) for n, v in k.consts] + [numpy_helper.from_array(data[n], n) for n in weights]
    imports = [helper.make_opsetid("", k.o)] + [helper.make_opsetid(d, 1) for d in sorted({n.domain for n in k.nodes} - {""})]
    version = max(4, helper.find_min_ir_version_for(imports, ignore_unknown=True))
    graph = helper.make_graph(k.nodes, "sweep", inputs, [onnx.ValueInfoProto(name=n) for n in k.outputs], inits)
    m = helper.make_model(graph, opset_imports=imports, ir_version=version)
    inferred = onnx.shape_inference.infer_shapes(m, strict_mode=True, data_prop=True)
    known = {v.name: v for v in [*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input]}
    found = [known.get(n) for n in k.outputs]
    if not all(v is not None and v.type.tensor_type.elem_type and v.type.tensor_type.HasField("shape") for v in found):
        found = as_computed(m, k.outputs, {i.name: data[i.name] for i in inputs})
    del m.graph.output[:]
    m.graph.output.extend(found)
    if naming != "unranked":  # The checker wants a rank, and no runtime does.
        onnx.checker.check_model(m, full_check=True)
    return m


def as_computed(m, names, feed):
    """Results' declarations where they are not inferred: the type and the rank that ONNX Runtime computes."""
    outs = in_runtime([(m, [feed])])[0][0]
    if not isinstance(outs, dict):
        raise ValueError(outs)
    return [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(outs[n].dtype), [None] * outs[n].ndim) for n in names]


def sets_of(symbols, extents, rng, mixed=4):
    """Extents of all symbols: each extent everywhere, then unequal ones."""
    found = [dict.fromkeys(symbols, e) for e in extents]
    if len(symbols) > 1:
        found += [{s: rng.choice(extents) for s in symbols} for _ in range(mixed)]
    return found


class Variant:
    """A case with some axes open: its model and its inputs by sets of extents."""

    def __init__(self, op, maker, opset, symbols, naming, frozen, extents, seed):
        self.op, self.opset, self.symbols, self.naming, self.frozen = op, opset, symbols, naming, frozen
        usual = {s: int(s[1:]) if s[1:].isdigit() and s[0] == "d" else USUAL for s in symbols}
        k = build(maker, "k", opset, usual, seed)
        if frozen and not any(k.is_open(n) for n, _ in k.inputs):
            raise ValueError("no axis is open")
        self.model = model(k, naming, frozen)
        self.nodes = len(k.nodes)
        taken = [i.name for i in self.model.graph.input]
        rng = random.Random(seed)
        self.sets = []
        for at in sets_of(symbols, extents, rng):
            try:
                own = build(maker, "k", opset, at, seed)
            except (ValueError, IndexError, ZeroDivisionError):
                continue
            if own.structure() == k.structure():
                self.sets.append((at, {n: v for n, v in own.inputs if n in taken}))

    @property
    def title(self):
        at = ",".join(self.symbols)
        return f"{self.op} at {self.opset}, open {at}, {self.naming}{', weights fixed' if self.frozen else ''}"
