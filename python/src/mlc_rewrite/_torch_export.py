"""PyTorch's exporters: modules as programs of ATen, as ONNX, and as models; and which operators they can write.

Nothing here runs a model, or decides what is run where.
"""

from __future__ import annotations

import os
import re
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from . import _torch_layer
from ._model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Bytes beyond which a model is handed over in files: a message of ONNX has less than 2 GiB.
_IN_MEMORY = 1 << 30


def program(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Any:
    """The module as a ``torch.export.ExportedProgram``."""
    with warnings.catch_warnings(), torch.no_grad():
        # What the exporter tells of its own versions.
        warnings.simplefilter("ignore")
        made = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        # What PyTorch 2.9 would check in every decomposition, by names that only `torch.compile` knows, which guards it itself.
        if getattr(made, "_guards_code", None):
            made._guards_code = []
        return made.run_decompositions(_WHOLE) if any(_is_whole(node) for node in made.graph.nodes) else made


def _attended(x: Any, width: int, heads: int, weight: Any, bias: Any, out_weight: Any, out_bias: Any) -> tuple[Any, Any]:
    """Attention of a sequence to itself, and its weights."""
    parts = torch.nn.functional.linear(x, weight, bias).chunk(3, dim=-1)
    q, k, v = (part.unflatten(-1, (heads, width // heads)).transpose(1, 2) for part in parts)
    weights = ((q * (width // heads) ** -0.5) @ k.transpose(-2, -1)).softmax(dim=-1)
    return torch.nn.functional.linear((weights @ v).transpose(1, 2).flatten(-2), out_weight, out_bias), weights


def _attention(q: Any, k: Any, v: Any, width: int, heads: int, weight: Any, bias: Any, out_weight: Any, out_bias: Any, *rest: Any, **named: Any) -> Any:
    told = dict(zip(("mask", "need_weights", "average_attn_weights"), rest), **named)
    y, weights = _attended(q, width, heads, weight, bias, out_weight, out_bias)
    if not told.get("need_weights", True):
        return y, weights.new_empty(0)
    return y, weights.mean(dim=1) if told.get("average_attn_weights", True) else weights


def _encoder_layer(
    x: Any, width: int, heads: int, weight: Any, bias: Any, out_weight: Any, out_bias: Any, gelu: bool, norm_first: bool, eps: float, *parameters: Any, **_: Any
) -> Any:
    g1, z1, g2, z2, w1, b1, w2, b2 = parameters[:8]
    functional = torch.nn.functional

    def attention(x: Any) -> Any:
        return _attended(x, width, heads, weight, bias, out_weight, out_bias)[0]

    def feed_forward(x: Any) -> Any:
        hidden = functional.linear(x, w1, b1)
        return functional.linear(functional.gelu(hidden) if gelu else functional.relu(hidden), w2, b2)

    if norm_first:
        x = x + attention(functional.layer_norm(x, (width,), g1, z1, eps))
        return x + feed_forward(functional.layer_norm(x, (width,), g2, z2, eps))
    x = functional.layer_norm(x + attention(x), (width,), g1, z1, eps)
    return functional.layer_norm(x + feed_forward(x), (width,), g2, z2, eps)


# What PyTorch computes as one operator in evaluation, where there is no mask, and its exporter does not know.
_WHOLE = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    torch.ops.aten._native_multi_head_attention.default: _attention,
}


def _is_whole(node: torch.fx.Node) -> bool:
    """True of such an operator, if what it is given is what its decomposition is for."""
    if node.target not in _WHOLE:
        return False
    given = dict(zip((argument.name for argument in node.target._schema.arguments), node.args), **node.kwargs)
    return given.get("mask") is None and ("query" not in given or given["query"] is given["key"] is given["value"])


def onnx(exported: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None) -> Any:
    """A module, or an exported program, as a ``torch.onnx.ONNXProgram``."""
    if not isinstance(exported, torch.export.ExportedProgram):
        exported = program(exported, args, dict(kwargs or {}), dynamic_shapes)
    layers = {node.target for node in exported.graph.nodes} & set(_torch_layer.translations())
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return torch.onnx.export(
            exported, dynamo=True, verbose=False, custom_translation_table=_torch_layer.translations() if layers else None
        )


def model(written: Any, reading: Mapping[str, Any]) -> Model:
    """An ONNX program as a model; layers of texts are read as their texts say."""
    reading = _torch_layer.reading(written.model, reading)
    weights = sum(value.const_value.nbytes for value in written.model.graph.initializers.values() if value.const_value is not None)
    if weights < _IN_MEMORY:
        return Model(written.model_proto, **reading)
    import atexit
    import shutil
    import tempfile

    # Weights stay in the mapped file.
    folder = tempfile.mkdtemp(prefix="mlc_rewrite")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "model.onnx")
    written.save(path, external_data=True)
    return Model(path, **reading)


@lru_cache(maxsize=1)
def _registry() -> Any:
    from torch.onnx._internal.exporter import _registration

    return _registration.ONNXRegistry.from_torchlib()


@lru_cache(maxsize=1)
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """What PyTorch takes operators apart by that its exporter has no ONNX for."""
    from torch.onnx._internal.exporter import _decomp

    known = set(_decomp.get_onnx_implemented_overloads(_registry()))
    table = _decomp.create_onnx_friendly_decomposition_table(known)
    return {target: parts for target, parts in table.items() if target not in _torch_layer.translations()}


def functional(exported: Any) -> Any:
    """The program without writes, in the operators that the exporter would write as ONNX."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return exported.run_decompositions(_decompositions())


def is_random(exported: Any) -> bool:
    """True of a program that draws random numbers."""
    return any(map(_draws, exported.graph.nodes))


def _draws(node: torch.fx.Node) -> bool:
    """True of a node that draws random numbers: dropout is none where it is turned off."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = {argument.name: argument.default_value for argument in node.target._schema.arguments}
    given.update(zip(given, node.args), **node.kwargs)
    return all(given.get(name) is None or bool(given[name]) for name in ("dropout_p", "train", "training"))


def unwritable(node: torch.fx.Node) -> str | None:
    """Why the exporter cannot write a node of a functional program as ONNX, or why that is not tried."""
    target = node.target
    if getattr(target, "__module__", None) in ("_operator", "operator", "math") or target in _torch_layer.translations():
        return None
    if not isinstance(target, torch._ops.OpOverload):
        return f"{getattr(target, '__name__', target)} is no operator of ATen"
    if _draws(node):
        return f"{target} draws random numbers"
    if any(value.dtype.is_complex for value in _tensors(node, *node.all_input_nodes)):
        return f"{target} is of complex numbers"
    if any(value.device.type != "cpu" for value in _tensors(node)):
        return f"{target} is not on the CPU"
    return None if _registry().is_registered(target) else f"the exporter has no ONNX for {target}"


def _tensors(*nodes: torch.fx.Node) -> list[torch.Tensor]:
    """What nodes yield, as far as it is tensors."""
    found: list[torch.Tensor] = []
    for node in nodes:
        value = node.meta.get("val")
        found.extend(v for v in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(v, torch.Tensor))
    return found


def cause(error: BaseException) -> str:
    """What an error says in one line: that of the innermost one it was caused by, for exporters wrap what fails in advice."""
    said = f"{type(error).__name__}"
    inner: BaseException | None = error
    while inner is not None:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", str(inner)).strip().splitlines()
        if lines:
            said = f"{type(inner).__name__}: {lines[0].strip()}"
        inner = inner.__cause__
    return said


def operator_of(written: Any, place: str | None) -> str | None:
    """The operator of ATen that a node of an ONNX program was written for, by the node's name in an error."""
    words = re.findall(r"[\w.:/]+", place or "")
    for node in written.model.graph:
        if node.name and node.name in words:
            told = re.search(r"target=torch\.ops\.([\w.]+)", node.metadata_props.get("pkg.torch.onnx.fx_node", ""))
            return told.group(1) if told else None
    return None
