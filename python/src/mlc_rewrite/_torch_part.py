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

# Element types of `ml_dtypes`, whose arrays are bits to NumPy and PyTorch.
_BITS = {"bfloat16": torch.bfloat16, **{name: getattr(torch, name) for name in dir(torch) if name.startswith("float8_")}}


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
        self._feed = [(value.name, places[value.name], _given if value.dtype in _BITS else _array) for value in inputs]
        self._made = [_tensor if value.dtype in _BITS else torch.from_numpy for value in self.session.get_outputs()]
        self._handle = self.session._handle

    def __call__(self, *given: Any) -> list[torch.Tensor]:
        feed = {name: taken(given[place]) for name, place, taken in self._feed}
        return [made(array) for made, array in zip(self._made, _native.session_run(self._handle, None, feed))]


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
    """An input of a session, whose element type NumPy has."""
    try:
        return value.numpy()
    except (AttributeError, RuntimeError):
        # Integers, and tensors that gradients may be asked of.
        return np.asarray(value) if not isinstance(value, torch.Tensor) else value.detach().resolve_conj().resolve_neg().numpy()


def _given(value: Any) -> Any:
    """An input whose element type NumPy lacks: sessions take tensors."""
    return value


def _tensor(array: Any) -> torch.Tensor:
    """A tensor over the memory of a result."""
    dtype = _BITS.get(array.dtype.name)
    if dtype is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view("int16" if array.dtype.itemsize == 2 else "uint8")).view(dtype)
