"""Layers of texts in modules of PyTorch: one operator, ``mlc_rewrite::layer``, that carries its text.

PyTorch runs it by a session of the layer; its exporter writes a node of the layer's name in a domain of ours, which is read back by an ``onnx`` item that is made for it.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from ._model import Model
from ._rules import Layer, Rules, _again

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DOMAIN = "mlc_rewrite.layers"

# What a node says of the texts that its layer is of.
_TEXTS = "mlc_rewrite.rules"

_KINDS = {bool: "bool", int: "int", float: "float", str: "string"}


class TorchLayer(torch.nn.Module):  # type: ignore[misc]
    """A layer of a text as a module: called as the layer is, on tensors of the CPU. `mlc_rewrite.torch.layer` makes it.

    Attributes that are given when it is made need not be given in calls. It has no gradients.
    """

    def __init__(self, rules: Rules, name: str, attributes: Mapping[str, Any]) -> None:
        super().__init__()
        self.name = name
        """What its text calls it."""
        self._arrays = rules.layer(name)._arrays
        self._attributes = dict(attributes)
        self._told = _told(attributes)
        self._rules = json.dumps(rules._sources)

    def forward(self, *arrays: torch.Tensor, **named: Any) -> Any:
        given = list(arrays)
        for name in (self._arrays or [])[len(given) :]:
            if name in named:
                given.append(named.pop(name))
        attributes = _told({**self._attributes, **named}) if named else self._told
        results = torch.ops.mlc_rewrite.layer(given, self.name, attributes, self._rules)
        return results[0] if len(results) == 1 else tuple(results)

    def extra_repr(self) -> str:
        return ", ".join([self.name, *(f"{name}={value}" for name, value in self._attributes.items())])


def _told(attributes: Mapping[str, Any]) -> str:
    """Attributes as a text, in operations that ``torch.compile`` traces."""
    return "{" + ", ".join(f"{name!r}: {attributes[name]!r}" for name in sorted(attributes)) + "}"


@lru_cache(maxsize=64)
def _layer(rules: str, name: str) -> Layer:
    return Layer(_again([(name, text) for name, text in json.loads(rules)]), name, "cpu", None)


@torch.library.custom_op("mlc_rewrite::layer", mutates_args=(), device_types="cpu")  # type: ignore[untyped-decorator]
def _apply(arrays: list[torch.Tensor], name: str, attributes: str, rules: str) -> list[torch.Tensor]:
    from ._torch_part import _tensor

    made = _layer(rules, name)(*arrays, **ast.literal_eval(attributes))
    return [_tensor(array) for array in (made if isinstance(made, tuple) else (made,))]


@_apply.register_fake  # type: ignore[untyped-decorator]
def _(arrays: list[torch.Tensor], name: str, attributes: str, rules: str) -> list[torch.Tensor]:
    symbols: dict[str, Any] = {}

    def extent(n: Any) -> int | str:
        if isinstance(n, int):
            return n
        # Equal extents have one name.
        known = next((name for name, value in symbols.items() if value.node.expr == n.node.expr), f"n{len(symbols)}")
        return symbols.setdefault(known, n) and known

    types = tuple((str(a.dtype).removeprefix("torch."), tuple(extent(n) for n in a.shape)) for a in arrays)
    sample: _OfArrays = tuple((dtype, tuple(n if isinstance(n, int) else symbols[n].node.hint for n in shape)) for dtype, shape in types)
    found = _types(sample, name, attributes, rules)
    _RESULTS[rules, name] = len(found)
    if symbols:
        found = _open_types(types, name, attributes, rules, len(found))
    return [
        torch.empty([n if isinstance(n, int) else _computed(n, symbols) for n in shape], dtype=getattr(torch, dtype))
        for dtype, shape in found
    ]


# How many results layers have, by their texts and names; known when a layer is traced, which is before it is written.
_RESULTS: dict[tuple[str, str], int] = {}

_OfArrays = tuple[tuple[str, tuple[int, ...]], ...]
_Types = tuple[tuple[str, tuple["int | str", ...]], ...]


@lru_cache(maxsize=256)
def _types(types: _OfArrays, name: str, attributes: str, rules: str) -> _Types:
    """The types of a layer's results on arrays of these types."""
    import numpy as np

    from ._arrays import named

    arrays = [np.empty(shape, named(dtype)) for dtype, shape in types]
    model = _layer(rules, name).model(*arrays, **ast.literal_eval(attributes))
    return tuple((value.dtype, value.shape) for value in model.outputs)


@lru_cache(maxsize=256)
def _open_types(types: _Types, name: str, attributes: str, rules: str, results: int) -> _Types:
    """The same where extents are open, by a model of one node."""
    import onnx

    codes = [getattr(onnx.TensorProto, _of_onnx(dtype)) for dtype, _ in types]
    inputs = [onnx.helper.make_tensor_value_info(f"x{i}", code, shape) for i, (code, (_, shape)) in enumerate(zip(codes, types))]
    given = ast.literal_eval(attributes)
    outputs = [f"y{i}" for i in range(results)]
    node = onnx.helper.make_node(_operator(name, given), [i.name for i in inputs], outputs, domain=DOMAIN, **given)
    graph = onnx.helper.make_graph([node], name, inputs, [onnx.ValueInfoProto(name=output) for output in outputs])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid(DOMAIN, 1)]
    sources = [*json.loads(rules), *_items({(name, len(inputs), results, attributes)})]
    model = Model(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), rules=_Sources(sources))
    return tuple((value.dtype, value.shape) for value in model.outputs)


def _of_onnx(dtype: str) -> str:
    return {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())


def _computed(text: str, symbols: Mapping[str, Any]) -> Any:
    """An extent that is computed of symbols, such as ``2 * n0 + 1``."""
    apply: dict[type, Callable[..., Any]] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv, ast.USub: operator.neg}

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Expression):
            return value(node.body)
        if isinstance(node, ast.Name):
            return symbols[node.id]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.BinOp):
            return apply[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp):
            return apply[type(node.op)](value(node.operand))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            return {"max": torch.sym_max, "min": torch.sym_min}[node.func.id](*(value(a) for a in node.args))
        raise KeyError(ast.dump(node))

    try:
        return value(ast.parse(text, mode="eval"))
    except (KeyError, SyntaxError) as error:
        raise NotImplementedError(f"an extent of a layer's result, {text}, is not computed where extents are open: compile it with `dynamic=False`") from error


class _Sources(list[Any]):
    """Texts, as `_settings.rules` takes them."""

    @property
    def _sources(self) -> list[tuple[str, str | None]]:
        return [(name, text) for name, text in self]


def _operator(name: str, attributes: Mapping[str, Any]) -> str:
    """What a layer's node is called: layers that are given attributes of other kinds are other operators."""
    return "_".join([name, *(f"{attribute}_{_kind(value)}" for attribute, value in sorted(attributes.items()))])


def _kind(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "floats" if any(isinstance(v, float) for v in value) else "ints"
    return _KINDS[type(value)]


def _items(nodes: set[tuple[str, int, int, str]]) -> list[tuple[str, str]]:
    """The texts by which nodes are read: layers with their numbers of arrays and results, and their attributes."""
    items = {}
    for name, arrays, results, told in sorted(nodes):
        attributes = ast.literal_eval(told)
        inputs = ", ".join(f"x{i}" for i in range(arrays))
        kinds = {n: "int" if _kind(v) == "bool" else _kind(v) for n, v in sorted(attributes.items())}
        declared = "; " + ", ".join(f"{n}: {kind}" for n, kind in kinds.items()) if kinds else ""
        outputs = f" -> {', '.join(f'y{i}' for i in range(results))}" if results > 1 else ""
        passed = ", ".join([inputs, *(f"{n}={n} == 1" if _kind(v) == "bool" else f"{n}={n}" for n, v in sorted(attributes.items()))])
        written = _operator(name, attributes)
        items[written] = f'/// The layer `{name}` of a module of PyTorch.\nonnx {written}({inputs}{declared}){outputs} since 1 in "{DOMAIN}"\n  = {name}({passed})\n'
    return [("layers of PyTorch", text) for text in ["\n".join(items.values())] if text]


def _translated(arrays: Sequence[Any], name: str, attributes: str, rules: str) -> Any:
    """The node of a layer, for the exporter."""
    import onnx
    import onnxscript

    schema = onnx.defs.OpSchema
    given = ast.literal_eval(attributes)
    results = _RESULTS[rules, name]
    types = [f"tensor({t})" for t in ("float", "double", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")]
    names = [f"x{i}" for i in range(len(arrays))] + [f"y{i}" for i in range(results)]
    parameters = [schema.FormalParameter(n, f"T{n}") for n in names]
    kinds = {"bool": "INT", "int": "INT", "float": "FLOAT", "string": "STRING", "ints": "INTS", "floats": "FLOATS"}
    made = schema(
        _operator(name, given),
        DOMAIN,
        1,
        inputs=parameters[: len(arrays)],
        outputs=parameters[len(arrays) :],
        type_constraints=[(f"T{n}", types, "") for n in names],
        attributes=[schema.Attribute(n, getattr(schema.AttrType, kinds[_kind(v)])) for n, v in given.items()],
    )
    outputs = onnxscript.evaluator.default().eval(made, list(arrays), given)
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    outputs[0].producer().metadata_props[_TEXTS] = json.dumps([name, len(arrays), results, attributes, rules])
    return outputs


def translations() -> dict[Any, Callable[..., Any]]:
    """How PyTorch's exporter writes layers: for ``torch.onnx.export(..., custom_translation_table=...)``."""
    return {torch.ops.mlc_rewrite.layer.default: _translated}


def reading(model: Any, others: Mapping[str, Any]) -> dict[str, Any]:
    """What a model of ``onnx_ir`` is read with: its layers' texts, and the items for their nodes."""
    from . import _settings

    told = [json.loads(node.metadata_props[_TEXTS]) for node in model.graph.all_nodes() if node.domain == DOMAIN]
    if not told:
        return dict(others)
    sources: list[tuple[str, str | None]] = _settings.rules(others.get("rules")) or []
    for *_, rules in told:
        sources.extend((name, text) for name, text in json.loads(rules) if (name, text) not in sources)
    sources.extend(_items({(name, arrays, results, attributes) for name, arrays, results, attributes, _ in told}))
    return {**others, "rules": _Sources(sources)}
