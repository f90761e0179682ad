"""PyTorch: models of its modules, and ``torch.compile(model, backend="mlc_rewrite")``.

Graphs become ONNX by PyTorch's own exporter, which needs the package ``onnxscript`` (``pip install mlc-rewrite[torch]``). What cannot be exported or run here is left to
PyTorch, with the reason in `graphs`; so are graphs that are trained, that write to their inputs, or whose inputs are not on the CPU.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING, Any

import torch

from ._model import Model
from ._session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ._optimize import OptimizedModel

_log = logging.getLogger("mlc_rewrite.torch")

# Bytes beyond which a model is handed over in files: a message of ONNX has less than 2 GiB.
_IN_MEMORY = 1 << 30

# How far an element of the first call may be off what PyTorch computes, as a part of the largest element of its output.
_TOLERANCE = 1e-3

# Sets of parameters and extents that are kept compiled of one graph.
_KEPT = 8


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
    return _model(_exported(module, tuple(args), dict(kwargs or {}), dynamic_shapes), reading)


def _exported(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Any:
    with warnings.catch_warnings(), torch.no_grad():
        # What the exporter tells of its own versions.
        warnings.simplefilter("ignore")
        return torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, dynamic_shapes=dynamic_shapes, verbose=False)


def _model(program: Any, reading: Mapping[str, Any]) -> Model:
    weights = sum(value.const_value.nbytes for value in program.model.graph.initializers.values() if value.const_value is not None)
    if weights < _IN_MEMORY:
        return Model(program.model_proto, **reading)
    import atexit
    import shutil
    import tempfile

    # Weights stay in the mapped file.
    folder = tempfile.mkdtemp(prefix="mlc_rewrite")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "model.onnx")
    program.save(path, external_data=True)
    return Model(path, **reading)


class Graph:
    """One graph that ``torch.compile`` handed over, and what became of it."""

    def __init__(self, module: torch.fx.GraphModule, options: Mapping[str, Any]) -> None:
        self.module = module
        """The graph."""
        self.reason: str | None = None
        """Why it is left to PyTorch; `None` if it is run here, or has not been called."""
        self.sessions: list[Session] = []
        """What runs it: a session for each set of parameters and extents."""
        self._options = options
        self._ways: list[_Way] = []

    @property
    def optimized(self) -> list[OptimizedModel]:
        """The models that it became, which explain themselves."""
        return [session.optimized for session in self.sessions if session.optimized is not None]

    def __call__(self, *args: Any) -> Any:
        if self.reason is None:
            for way in self._ways:
                if way.fits(args):
                    return way(args)
            return self._first(args)
        return self.module(*args)

    def _first(self, args: tuple[Any, ...]) -> Any:
        """A call with parameters or extents that are new: compiled, and compared with PyTorch."""
        self.reason = _unfit(self.module, args)
        if self.reason is None and len(self._ways) >= _KEPT:
            self.reason = f"more than {_KEPT} sets of parameters or extents"
        if self.reason is not None:
            return self._left(self.module(*args))
        copies = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
        versions = [a._version for a in copies if isinstance(a, torch.Tensor)]
        expected = self.module(*copies)
        if versions != [a._version for a in copies if isinstance(a, torch.Tensor)]:
            # What was written to are the copies: the call is made once more, on what it is to write to.
            self.reason = "the graph writes to its inputs"
            return self._left(self.module(*args))
        if _shares(expected, copies):
            self.reason = "an output shares its memory with an input"
            return self._left(self.module(*args))
        try:
            way = _Way(self.module, args, expected, self._options)
            worst = way.difference(args, expected)
        except Exception as error:  # noqa: BLE001: whatever an exporter raises, eager PyTorch computes it
            self.reason = _cause(error)
            return self._left(expected)
        if worst is not None:
            self.reason = worst
            warnings.warn(f"mlc_rewrite: a graph is left to PyTorch: {worst}", RuntimeWarning, stacklevel=2)
            return self._left(expected)
        self._ways.append(way)
        self.sessions.append(way.session)
        return expected

    def _left(self, result: Any) -> Any:
        _log.info("a graph of %d nodes is left to PyTorch: %s", len(self.module.graph.nodes), self.reason)
        return result

    def __repr__(self) -> str:
        state = f"left to PyTorch: {self.reason}" if self.reason else f"{len(self.sessions)} sessions"
        return f"<mlc_rewrite.torch.Graph of {len(self.module.graph.nodes)} nodes, {state}>"


def _cause(error: BaseException) -> str:
    """What an error says in one line: that of the innermost one it was caused by, for exporters wrap what fails in advice."""
    import re

    said = f"{type(error).__name__}"
    inner: BaseException | None = error
    while inner is not None:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", str(inner)).strip().splitlines()
        if lines:
            said = f"{type(inner).__name__}: {lines[0].strip()}"
        inner = inner.__cause__
    return said


def _unfit(module: torch.fx.GraphModule, args: tuple[Any, ...]) -> str | None:
    """Why a graph is not tried."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    for held in [*tensors, *module.parameters(), *module.buffers()]:
        if held.device.type != "cpu":
            return f"a tensor is on {held.device}"
        if held.layout != torch.strided or held.is_quantized or type(held) not in (torch.Tensor, torch.nn.Parameter):
            return "a tensor is sparse, quantized or of a class of its own"
        if torch.is_grad_enabled() and held.requires_grad:
            return "gradients are wanted: call it under `torch.no_grad()` or `torch.inference_mode()`"
    return None


def _shares(result: Any, inputs: tuple[Any, ...]) -> bool:
    """True if a result lies in the memory of an input."""
    flat = result if isinstance(result, (tuple, list)) else (result,)
    memory = {a.untyped_storage().data_ptr() for a in inputs if isinstance(a, torch.Tensor) and a.numel()}
    return any(isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() in memory for out in flat)


class _Way:
    """A graph compiled for some parameters and for inputs of some extents."""

    def __init__(self, module: torch.fx.GraphModule, args: tuple[Any, ...], expected: Any, options: Mapping[str, Any]) -> None:
        self._held = [(i, a, a._version) for i, a in enumerate(args) if isinstance(a, torch.nn.Parameter)]
        constants = [*module.parameters(), *module.buffers()]
        self._inside = [(c, c._version) for c in constants]
        held = {i for i, _, _ in self._held}
        self._fixed = [(i, a) for i, a in enumerate(args) if not isinstance(a, torch.Tensor)]
        self._inputs = [(i, a.shape, a.dtype) for i, a in enumerate(args) if isinstance(a, torch.Tensor) and i not in held]
        flat = expected if isinstance(expected, (tuple, list)) else (expected,)
        self._kind = type(expected) if isinstance(expected, (tuple, list)) else None
        self._outputs = [_Output(value) for value in flat]
        given = tuple(args[i] for i, _, _ in self._inputs)
        bound = _Bound(module, args, [i for i, _, _ in self._inputs], [i for i, out in enumerate(self._outputs) if out.is_tensor])
        model = _model(_exported(bound.eval(), given, {}, None), {})
        self.session = Session(model, **options)
        self._names = [value.name for value in self.session.get_inputs()]
        if len(self._names) != len(given):
            raise ValueError("inputs that nothing reads are not told apart")

    def fits(self, args: tuple[Any, ...]) -> bool:
        """True if it was compiled for what this call is given."""
        return (
            all(args[i] is a and a._version == version for i, a, version in self._held)
            and all(c._version == version for c, version in self._inside)
            and all(args[i].shape == shape and args[i].dtype == dtype for i, shape, dtype in self._inputs)
            and all(args[i] == a for i, a in self._fixed)
        )

    def _run(self, args: tuple[Any, ...]) -> list[torch.Tensor]:
        feed = {name: args[i].detach() for name, (i, _, _) in zip(self._names, self._inputs)}
        plain = {name: t.numpy() if t.dtype in _OF_NUMPY else t for name, t in feed.items()}
        return [_tensor(array) for array in self.session.run(None, plain)]

    def __call__(self, args: tuple[Any, ...]) -> Any:
        computed = iter(self._run(args))
        flat = [out.placed(next(computed)) if out.is_tensor else out.value for out in self._outputs]
        return self._kind(flat) if self._kind is not None else flat[0]

    def difference(self, args: tuple[Any, ...], expected: Any) -> str | None:
        """How the results differ from those of PyTorch, if they do."""
        flat = expected if self._kind is not None else (expected,)
        wanted = [value for value, out in zip(flat, self._outputs) if out.is_tensor]
        for number, (own, value) in enumerate(zip(self._run(args), wanted, strict=True)):
            if own.shape != value.shape or own.dtype != value.dtype:
                return f"output {number} is {own.dtype} of {tuple(own.shape)}, not {value.dtype} of {tuple(value.shape)}"
            if not value.dtype.is_floating_point:
                if not torch.equal(own, value):
                    return f"output {number} differs"
                continue
            largest = value[value.isfinite()].abs().max().item() if value.isfinite().any() else 0.0
            allowed = (_TOLERANCE if value.dtype in (torch.float32, torch.float64) else 2e-2) * max(largest, 1e-6)
            if not torch.allclose(own, value, rtol=0.0, atol=allowed, equal_nan=True):
                worst = (own.double() - value.double()).abs().nan_to_num(nan=float("inf")).max().item()
                return f"output {number} is off by {worst:.1e}, where its largest element is {largest:.1e}"
        return None


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


def _tensor(array: Any) -> torch.Tensor:
    """A tensor over the memory of a result."""
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    dtype = getattr(torch, array.dtype.name)
    bits = array.view("int16" if array.dtype.itemsize == 2 else "uint8")
    return torch.from_numpy(bits).view(dtype)


class _Output:
    """How PyTorch yields an output."""

    def __init__(self, value: Any) -> None:
        self.is_tensor = isinstance(value, torch.Tensor)
        self.value = None if self.is_tensor else value
        if not self.is_tensor:
            return
        self._strides = None if value.is_contiguous() else value.stride()

    def placed(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with the strides that PyTorch gives it."""
        if self._strides is None:
            return tensor
        return torch.empty_strided(tensor.shape, self._strides, dtype=tensor.dtype).copy_(tensor)


class _Bound(torch.nn.Module):  # type: ignore[misc]
    """A graph with its parameters and numbers in their places."""

    def __init__(self, module: torch.fx.GraphModule, args: tuple[Any, ...], open_at: list[int], wanted: list[int]) -> None:
        super().__init__()
        self._module = module
        self._open_at = open_at
        self._wanted = wanted
        self._args: list[Any] = list(args)
        for i, value in enumerate(args):
            if isinstance(value, torch.nn.Parameter):
                self.register_parameter(f"constant_{i}", value)
                self._args[i] = None
            elif isinstance(value, torch.Tensor):
                self._args[i] = None

    def forward(self, *given: torch.Tensor) -> Any:
        args = [getattr(self, f"constant_{i}", value) if value is None else value for i, value in enumerate(self._args)]
        for i, value in zip(self._open_at, given):
            args[i] = value
        result = self._module(*args)
        flat = result if isinstance(result, (tuple, list)) else (result,)
        return tuple(flat[i] for i in self._wanted)


_graphs: list[Graph] = []


def graphs() -> list[Graph]:
    """The graphs that ``torch.compile`` handed over in this process, in order: which are run here, and why others are left to PyTorch."""
    return list(_graphs)


def backend(module: torch.fx.GraphModule, example_inputs: list[Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="mlc_rewrite", options={...})`` calls with each graph.

    Args:
        module: The graph.
        example_inputs: Not used: they have no values. The graph is compiled, and compared with PyTorch, when it is first called.
        options: As `Session` takes them: ``{"threads": 2}``.
    """
    del example_inputs
    graph = Graph(module, dict(options or {}))
    _graphs.append(graph)
    return graph
