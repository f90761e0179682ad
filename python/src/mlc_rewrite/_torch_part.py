"""A part of a graph of PyTorch as a session: tensors in, tensors out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import _native, _torch_cut, _torch_export
from ._errors import Error
from ._session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_NUMPY = {
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
}


class RefusedError(Exception):
    """An operator that was written as ONNX cannot be run here."""

    def __init__(self, operator: str, why: str) -> None:
        super().__init__(f"{operator}: {why}")
        self.operator = operator
        self.why = why


class Part:
    """A session for what was written as ONNX.

    Raises:
        RefusedError: An operator cannot be run here.
        Error: The model cannot be read or run, whose operators are not to blame.
    """

    def __init__(self, written: Any, options: Mapping[str, Any]) -> None:
        try:
            self.session = Session(_torch_export.model(written, {}), **options)
        except Error as error:
            operator = _torch_export.operator_of(written, error.place)
            if operator is None:
                raise
            raise RefusedError(operator, error.message) from error
        places = {value.name: place for place, value in enumerate(written.model.graph.inputs)}
        inputs = self.session.get_inputs()
        self.shapes = {places[value.name]: value.shape for value in inputs}
        """The extents of the inputs that are read, by their places: numbers, and names of those that a run decides."""
        self._feed = [(value.name, places[value.name]) for value in inputs]
        self._handle = self.session._handle

    def __call__(self, *given: Any) -> list[torch.Tensor]:
        feed = {name: _array(given[place]) for name, place in self._feed}
        return [_tensor(array) for array in _native.session_run(self._handle, None, feed)]


class Later:
    """A part of a graph that was cut; its first run compiles it. If that fails and no operator is to blame, PyTorch computes it."""

    def __init__(self, module: torch.fx.GraphModule, options: Mapping[str, Any]) -> None:
        self.module = module
        self.part: Part | None = None
        self.reason: str | None = None
        """Why PyTorch computes it."""
        self._options = options

    def __call__(self, *given: Any) -> Any:
        if self.part is None and self.reason is None:
            self._compile(given)
        return self.module(*given) if self.part is None else self.part(*given)

    def _compile(self, given: tuple[Any, ...]) -> None:
        own = tuple(g.clone() if isinstance(g, torch.Tensor) else g for g in given)
        try:
            exported = _torch_export.program(self.module, own, {}, _torch_cut.opened(self.module))
            self.part = Part(_torch_export.onnx(exported), self._options)
        except RefusedError:
            raise
        except Exception as error:  # noqa: BLE001: whatever an exporter raises, PyTorch computes it
            self.reason = _torch_export.cause(error)


def _array(value: Any) -> Any:
    """An input of a session."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    return value.detach().numpy() if value.dtype in _OF_NUMPY else value


def _tensor(array: Any) -> torch.Tensor:
    """A tensor over the memory of a result."""
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    dtype = getattr(torch, array.dtype.name)
    bits = array.view("int16" if array.dtype.itemsize == 2 else "uint8")
    return torch.from_numpy(bits).view(dtype)
