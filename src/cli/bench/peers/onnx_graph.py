"""An ONNX model as a function of a library of arrays.

What shapes alone decide is computed once, with NumPy, for inputs of the shapes that are given; the rest is a list of steps
that the library runs, or traces and compiles.
"""


class Host:
    """Operators that NumPy and libraries with its functions have; `xp` is the library."""

    def __init__(self, xp):
        self.xp = xp
        simple = {
            "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "MatMul": xp.matmul, "Sqrt": xp.sqrt, "Exp": xp.exp, "Log": xp.log,
            "Tanh": xp.tanh, "Neg": xp.negative, "Sin": xp.sin, "Cos": xp.cos, "Where": xp.where, "And": xp.logical_and,
            "Or": xp.logical_or, "Not": xp.logical_not, "Abs": xp.abs, "Identity": lambda x: x,
            "Equal": lambda a, b: a == b, "Less": lambda a, b: a < b, "Greater": lambda a, b: a > b,
            "GreaterOrEqual": lambda a, b: a >= b, "LessOrEqual": lambda a, b: a <= b,
        }
        for name, f in simple.items():
            setattr(self, name, lambda a, *args, f=f: f(*args))

    def is_integer(self, x):
        if isinstance(x, (int, float)):
            return isinstance(x, int)
        return self.xp.issubdtype(x.dtype, self.xp.integer)

    def permuted(self, x, order):
        return self.xp.transpose(x, order)

    def cast(self, x, code):
        return self.xp.asarray(x).astype(TYPES[code])

    def mean(self, x, axes, keep):
        return self.xp.mean(x, axis=axes, keepdims=keep)

    def total(self, x, axes, keep):
        return self.xp.sum(x, axis=axes, keepdims=keep)

    def taken(self, x, places, axis):
        return self.xp.take(x, places, axis=axis)

    def joined(self, xs, axis):
        return self.xp.concatenate(xs, axis=axis)

    def spread(self, x, shape):
        return self.xp.broadcast_to(x, shape)

    # Operators by ONNX's names: attributes, then inputs. Inputs that decide shapes are arrays of NumPy.

    def Div(self, a, x, y):
        # Shapes and counts are not negative.
        return x // y if self.is_integer(x) and self.is_integer(y) else x / y

    def Mod(self, a, x, y):
        return x % y

    def Pow(self, a, x, y):
        return x * x if isinstance(y, (int, float)) and y == 2 else x**y

    def Cast(self, a, x):
        return self.cast(x, a["to"])

    def Reshape(self, a, x, shape):
        shape = [int(n) for n in shape]
        return x.reshape([x.shape[i] if n == 0 and not a.get("allowzero") else n for i, n in enumerate(shape)])

    def Flatten(self, a, x):
        axis, count = a.get("axis", 1) % (len(x.shape) + 1), 1
        for n in x.shape[:axis]:
            count *= n
        return x.reshape([count, -1])

    def Transpose(self, a, x):
        return self.permuted(x, a.get("perm") or list(range(len(x.shape)))[::-1])

    def Concat(self, a, *xs):
        return self.joined(xs, a["axis"])

    def Gather(self, a, x, places):
        axis = a.get("axis", 0)
        if isinstance(places, (int, numpy.ndarray)):
            places = places % x.shape[axis]
        # Elsewhere they are what a model looks up: none is negative.
        return self.taken(x, places, axis)

    def Unsqueeze(self, a, x, axes):
        rank = len(x.shape) + len(axes)
        axes = {int(i) % rank for i in axes}
        left = iter(x.shape)
        return x.reshape([1 if i in axes else next(left) for i in range(rank)])

    def Squeeze(self, a, x, axes=None):
        axes = None if axes is None else {int(i) % len(x.shape) for i in axes}
        return x.reshape([n for i, n in enumerate(x.shape) if not (n == 1 if axes is None else i in axes)])

    def Slice(self, a, x, starts, ends, axes=None, steps=None):
        cut = [slice(None)] * len(x.shape)
        for i, (start, end) in enumerate(zip(starts, ends)):
            axis = int(axes[i]) if axes is not None else i
            cut[axis] = slice(int(start), int(end), int(steps[i]) if steps is not None else 1)
        return x[tuple(cut)]

    def Split(self, a, x, sizes=None):
        axis, n = a.get("axis", 0), len(a["_outputs"])
        sizes = [int(s) for s in sizes] if sizes is not None else [x.shape[axis] // n] * n
        out, at = [], 0
        for size in sizes:
            cut = [slice(None)] * len(x.shape)
            cut[axis] = slice(at, at + size)
            out.append(x[tuple(cut)])
            at += size
        return out

    def Expand(self, a, x, shape):
        shape, own = [int(n) for n in shape], list(x.shape)
        rank = max(len(shape), len(own))
        shape, own = [1] * (rank - len(shape)) + shape, [1] * (rank - len(own)) + own
        return self.spread(x.reshape(own), [max(p, q) if 0 not in (p, q) else 0 for p, q in zip(shape, own)])

    def ConstantOfShape(self, a, shape):
        value = a.get("value", numpy.zeros(1, "<f4"))
        return numpy.full([int(n) for n in shape], value.reshape(-1)[0], value.dtype).view(type(value))

    def Range(self, a, start, limit, step):
        return numpy.arange(start.item(), limit.item(), step.item(), dtype=start.dtype)

    def reduced(self, a, x, axes):
        """The axes of a reduction, and whether they stay."""
        axes = a.get("axes") if axes is None else [int(i) for i in axes]
        return tuple(axes or range(len(x.shape))), bool(a.get("keepdims", 1))

    def ReduceMean(self, a, x, axes=None):
        return self.mean(x, *self.reduced(a, x, axes))

    def ReduceSum(self, a, x, axes=None):
        return self.total(x, *self.reduced(a, x, axes))


# Inputs of operators that must be known: they decide shapes, axes or places.
KNOWN = {"Reshape": [1], "Unsqueeze": [1], "Squeeze": [1], "Slice": [1, 2, 3, 4], "Split": [1], "Expand": [1], "ConstantOfShape": [0],
         "Range": [0, 1, 2], "ReduceMean": [1], "ReduceSum": [1], "ReduceL2": [1], "ReduceMax": [1], "Pad": [1], "Resize": [1, 2, 3]}


# Inputs that are numbers of the library's language where they are known and have no axes, as people write them.
NUMBERS = {"Add": [0, 1], "Sub": [0, 1], "Mul": [0, 1], "Div": [0, 1], "Pow": [1], "Clip": [1, 2], "Gather": [1]}


def steps(file, device, inputs):
    """The steps of a model on inputs, and the names of its results; `device` is a library for the rest.

    Steps are (function, attributes, arguments, names of results); an argument is a name or a value of its own.
    """
    host = Host(numpy)
    known = {n: w for n, w in file.weights.items()}
    values, out, moved = dict(inputs), [], {}

    def operand(name, must_be_known, may_be_number):
        if not name:
            return None
        if may_be_number and name in known and known[name].ndim == 0 and not isinstance(known[name], Bits):
            return Value(known[name].item())
        if name in values:
            if must_be_known:
                raise ValueError(f"`{name}` decides a shape and is computed on the device")
            return name
        if must_be_known:
            # What compiles functions of Python takes numbers better than arrays of them.
            return Value(known[name].tolist() if known[name].dtype.kind == "i" and known[name].ndim == 1 else known[name])
        if name not in moved:
            moved[name] = device.moved(known[name])
        return Value(moved[name])

    for node in file.nodes:
        if node.domain not in ("", "ai.onnx"):
            raise ValueError(f"operator {node.domain}.{node.operator} is not known here")
        attributes = {**node.attributes, "_outputs": node.outputs}
        if node.operator == "Constant":
            value = next(v for k, v in attributes.items() if k.startswith("value"))
            known[node.outputs[0]] = value if isinstance(value, numpy.ndarray) else numpy.asarray(value)
            continue
        if node.operator == "Shape" and node.inputs[0] in values:
            shape = list(values[node.inputs[0]].shape)
            known[node.outputs[0]] = numpy.array(shape[attributes.get("start", 0) : attributes.get("end", len(shape))], "<i8")
            continue
        names = [n for n in node.inputs if n]
        if all(n in known for n in names):
            if node.operator == "Shape":
                known[node.outputs[0]] = numpy.array(known[names[0]].shape, "<i8")
                continue
            if hasattr(host, node.operator) and not any(isinstance(known[n], Bits) for n in names):
                made = getattr(host, node.operator)(attributes, *(known[n] if n else None for n in node.inputs))
                made = made if isinstance(made, list) else [made]
                known.update(zip(node.outputs, map(numpy.asarray, made)))
                continue
        f = getattr(device, node.operator, None)
        if f is None:
            raise ValueError(f"operator {node.operator} is not known here")
        decide, numbers = (which.get(node.operator, []) for which in (KNOWN, NUMBERS))
        arguments = [operand(n, i in decide, i in numbers) for i, n in enumerate(node.inputs)]
        step = (f, attributes, arguments, node.outputs)
        out.append(step)
        perform(step, values)
    # Results that are known are values, too.
    for name in file.outputs:
        if name not in values:
            values[name] = device.moved(known[name])
    fixed = {n: values[n] for n in file.outputs if not any(n in s[3] for s in out) and n not in inputs}
    return out, fixed


class Value:
    """An operand that no step computes."""

    def __init__(self, value):
        self.value = value


def perform(step, values):
    f, attributes, arguments, names = step
    given = [values[a] if isinstance(a, str) else a.value if isinstance(a, Value) else a for a in arguments]
    made = f(attributes, *given)
    made = list(made) if isinstance(made, (list, tuple)) else [made]
    for name, value in zip(names, made):
        if name:
            values[name] = value


def function(file, device, inputs):
    """The model as a function of its inputs in order."""
    todo, fixed = steps(file, device, inputs)
    names = list(inputs)

    def f(*arrays):
        values = dict(zip(names, arrays))
        for step in todo:
            perform(step, values)
        return [values[n] if n in values else fixed[n] for n in file.outputs]

    return f
