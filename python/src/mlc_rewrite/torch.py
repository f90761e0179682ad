"""PyTorch: models of its modules, layers of texts in them, and ``torch.compile(model, backend="mlc_rewrite")``.

Graphs become ONNX by PyTorch's own exporter, which needs the package ``onnxscript`` (``pip install mlc-rewrite[torch]``). What cannot be exported or run here is left to
PyTorch, with the reason in `explain`; so are graphs that are trained, or whose inputs are not on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import _torch_export
from ._rules import Rules
from ._torch_explain import Compiled, explain
from ._torch_graph import Graph, backend, graphs
from ._torch_layer import TorchLayer, translations

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from ._model import Model

__all__ = ["Compiled", "Graph", "TorchLayer", "backend", "explain", "from_torch", "graphs", "layer", "translations"]


def from_torch(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    **reading: Any,
) -> Model:
    """The model of a module, or of a ``torch.export.ExportedProgram``, by PyTorch's exporter to ONNX.

    Args:
        module: In evaluation mode; it is left as it is.
        args, kwargs: Example inputs, as the module is called.
        dynamic_shapes: Which extents stay open, as ``torch.onnx.export`` takes them.
        reading: As `Model` takes them: ``bind``, ``shapes``, ``rules``, ``values``.

    Raises:
        RuntimeError: PyTorch cannot export it; its message says what.
        Error: As `Model` raises it.
    """
    if isinstance(module, torch.nn.Module) and module.training:
        raise ValueError("the module is in training mode, where layers such as dropout are random: call `module.eval()` first")
    return _torch_export.model(_torch_export.onnx(module, tuple(args), kwargs, dynamic_shapes), reading)


def layer(rules: Rules | str | os.PathLike[str], name: str, **attributes: Any) -> TorchLayer:
    """A layer that a text declares, as a module of PyTorch.

    It is run here, is one node for ``torch.compile`` and for exporters, and `from_torch` and the backend read that node by its text again, so that its laws take part.
    ``torch.onnx.export`` writes it as a node of the domain ``mlc_rewrite.layers`` if it is given ``custom_translation_table=mlc_rewrite.torch.translations()``.

    Args:
        rules: What declares it, or a path of it.
        name: What its text calls it.
        attributes: Attributes of all calls; a call may give others.

    >>> rules = Rules(text='''
    ... /// Snake: the identity and a wave.
    ... def snake(x: F[..s], alpha: float in 0.5..2) -> F[..s]
    ...   = x + sin(alpha * x)^2 / alpha
    ... ''')
    >>> layer(rules, "snake", alpha=1.0)(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.7081])
    """
    return TorchLayer(rules if isinstance(rules, Rules) else Rules(rules), name, attributes)
