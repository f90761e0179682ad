"""Graphs that ``torch.compile`` hands over: compiled when they are called, compared with PyTorch, and left to it where that is not to be."""

from __future__ import annotations

import copy
import logging
import operator
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch

from . import _torch_cut, _torch_export
from ._torch_part import Later, Part, RefusedError
from ._torch_way import Form, Way, may_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ._optimize import OptimizedModel
    from ._session import Session

_log = logging.getLogger("mlc_rewrite.torch")

# Sets of parameters, numbers and extents that are kept compiled of one graph.
_KEPT = 8

# A parameter that has changed so often is an input from then on.
_CHANGES = 2


class Graph:
    """One graph that ``torch.compile`` handed over, and what became of it."""

    def __init__(self, module: torch.fx.GraphModule, options: Mapping[str, Any]) -> None:
        self.module, self._inside = _lifted(module)
        """The graph; tensors that it held are its last inputs."""
        self.reason: str | None = None
        """Why it is left to PyTorch; `None` if it is run here, or has not been called."""
        self.left: dict[str, str] = {}
        """Operators of it that are left to PyTorch while the rest runs here, and why."""
        self._options = options
        self._ways: list[Way] = []
        self._inputs = [n for n in self.module.graph.nodes if n.op == "placeholder"]
        self._changes = dict.fromkeys((i for i, node in enumerate(self._inputs) if _is_static(node)), 0)
        self._lock = threading.RLock()

    @property
    def sessions(self) -> list[Session]:
        """What runs it: sessions for each set of parameters, numbers, and extents that are not open."""
        return [session for way in self._ways for session in way.sessions]

    @property
    def optimized(self) -> list[OptimizedModel]:
        """The models that it became, which explain themselves."""
        return [session.optimized for session in self.sessions if session.optimized is not None]

    def __call__(self, *args: Any) -> Any:
        args += self._inside
        if _watching:
            for seen in _watching:
                seen.append(self)
        if self.reason is None:
            for way in self._ways:
                if way.fits(args):
                    if way.compared and way.is_new(args):
                        break
                    return way(args)
            grad = torch.is_grad_enabled()
            with self._lock, torch.inference_mode(False), torch.no_grad():
                result, run = self._first(args, grad)
            return result if run is None else run(args)
        return self.module(*args)

    def _first(self, args: tuple[Any, ...], grad: bool) -> tuple[Any, Callable[..., Any] | None]:
        """A call that is compared with PyTorch; one with parameters, numbers or extents that are new is compiled for them. Returns its result, or what computes it."""
        reason = self.reason or _unfit(args, grad)
        way = next((way for way in self._ways if way.fits(args)), None)
        if reason is None and way is None and len(self._ways) >= _KEPT:
            reason = f"more than {_KEPT} sets of parameters, numbers or extents"
        if reason is not None:
            return self._left(reason)
        own, others = _copies(self.module, args), _copies(self.module, args)
        versions = _versions(own)
        state = torch.get_rng_state()
        try:
            expected = self.module(*own)
            after = torch.get_rng_state()
            written = [i for i, (then, now) in enumerate(zip(versions, _versions(own))) if then != now]
            if way is None:
                way = self._compiled(args, others, own, expected, written)
                way.is_new(args)
            torch.set_rng_state(state)
            worst = way.difference(way(others), expected) or way.difference([others[i] for i in written], [own[i] for i in written])
        except Exception as error:  # noqa: BLE001: whatever an exporter raises, PyTorch computes it
            _log.debug("a graph cannot be compiled", exc_info=error)
            torch.set_rng_state(state)
            return self._left(_torch_export.cause(error))
        if worst is not None:
            warnings.warn(f"mlc_rewrite: a graph is left to PyTorch: {worst}", RuntimeWarning, stacklevel=3)
            torch.set_rng_state(state)
            return self._left(worst)
        if way not in self._ways:
            self._ways.append(way)
        if written or way.has_views:
            torch.set_rng_state(state)
            return None, way
        torch.set_rng_state(after)
        return expected, None

    def _compiled(self, args: Sequence[Any], others: Sequence[Any], own: Sequence[Any], expected: Any, written: list[int]) -> Way:
        """The graph compiled for the parameters, numbers and extents of a call."""
        for way in self._ways[-1:]:
            self._changes.update((i, self._changes[i] + 1) for i in way.changed(args))
        # Versions only grow.
        self._ways = [way for way in self._ways if way.is_current()]
        constants = [i for i, changes in self._changes.items() if i not in written and changes < _CHANGES and not args[i].is_inference()]
        form = Form(self.module, self._inputs, args, constants, expected, own)
        if written and _share(args):
            raise ValueError("inputs share their memory, and are written to")
        given = tuple(g.clone() if isinstance(g, torch.Tensor) else g for g in form.given(others))
        exported = _torch_export.program(form.bound(), given, {}, form.opened())
        compute, copied, self.left = self._computed(exported, given, bool(written))
        return Way(form, compute, [form.open_at[i] for i in copied])

    def _computed(self, exported: Any, given: Sequence[Any], writes: bool) -> tuple[Callable[..., Any], list[int], dict[str, str]]:
        """What computes a program: one session, or several with PyTorch between them; which inputs its first results are copied to; what is left."""
        refused: dict[str, str] = {}
        whole: Exception = ValueError("it draws random numbers")
        if not writes and not _torch_export.is_random(exported):
            try:
                return Part(_torch_export.onnx(exported), self._options), [], {}
            except RefusedError as error:
                refused[error.operator] = error.why
            except Exception as error:  # noqa: BLE001: the operators to blame are told apart below
                _log.debug("a graph cannot be compiled as a whole", exc_info=error)
                whole = error
        functional = _torch_export.functional(exported)
        while True:
            pieces = _torch_cut.cut(functional, refused)
            if not pieces.parts:
                told = "; ".join(dict.fromkeys(pieces.left.values()))
                raise ValueError(told or "it computes nothing")
            if not pieces.left and not writes:
                raise whole
            for name in pieces.parts:
                part = getattr(pieces.module, name)
                delattr(pieces.module, name)
                setattr(pieces.module, name, Later(part, self._options))
            try:
                # The first run compiles each part for what it is given.
                pieces.module(*(g.clone() if isinstance(g, torch.Tensor) else g for g in given))
            except RefusedError as error:
                if error.operator in refused:
                    raise
                refused[error.operator] = error.why
                continue
            later = [getattr(pieces.module, name) for name in pieces.parts]
            failed = {name: part.reason for name, part in zip(pieces.parts, later) if part.reason is not None}
            if len(failed) == len(later):
                raise ValueError("; ".join(dict.fromkeys(failed.values())))
            return pieces.module, pieces.copied, {**pieces.left, **failed}

    def _left(self, reason: str) -> tuple[None, Callable[..., Any]]:
        self.reason = reason
        self._ways.clear()
        _log.info("a graph of %d nodes is left to PyTorch: %s", len(self.module.graph.nodes), reason)
        return None, lambda args: self.module(*args)

    def __repr__(self) -> str:
        state = f"left to PyTorch: {self.reason}" if self.reason else f"{len(self.sessions)} sessions"
        if self.left:
            state += f", without {', '.join(self.left)}"
        return f"<mlc_rewrite.torch.Graph of {len(self.module.graph.nodes)} nodes, {state}>"


def _is_static(node: torch.fx.Node) -> bool:
    """True of an input that is a parameter, a buffer, or another tensor that a module holds."""
    known = node.meta.get("example_value")
    return bool(isinstance(known, torch.nn.Parameter)) or "_dynamo_static_input_type" in node.meta.get("tensor_dict", ())


def _lifted(module: torch.fx.GraphModule) -> tuple[torch.fx.GraphModule, tuple[torch.Tensor, ...]]:
    """The graph with the tensors that it holds as further inputs, and these."""
    held: dict[str, torch.Tensor] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = operator.attrgetter(node.target)(module)
            if isinstance(value, torch.Tensor):
                held[node.target] = value
    if not held:
        return module, ()
    graph = copy.deepcopy(module.graph)
    last = [n for n in graph.nodes if n.op == "placeholder"][-1:]
    for target, value in held.items():
        with graph.inserting_after(last[0]) if last else graph.inserting_before(next(iter(graph.nodes))):
            lifted = graph.placeholder(f"held_{target.replace('.', '_')}")
        lifted.meta = {"example_value": value, "tensor_dict": {"_dynamo_static_input_type": "unguarded"}}
        last = [lifted]
        for node in [n for n in graph.nodes if n.op == "get_attr" and n.target == target]:
            node.replace_all_uses_with(lifted)
            graph.erase_node(node)
    return torch.fx.GraphModule(module, graph), tuple(held.values())


def _unfit(args: tuple[Any, ...], grad: bool) -> str | None:
    """Why a graph is not tried."""
    for held in [a for a in args if isinstance(a, torch.Tensor)]:
        if held.device.type != "cpu":
            return f"a tensor is on {held.device}"
        if held.layout != torch.strided or held.is_quantized or type(held) not in (torch.Tensor, torch.nn.Parameter):
            return "a tensor is sparse, quantized or of a class of its own"
        if grad and held.requires_grad:
            return "gradients are wanted: call it under `torch.no_grad()` or `torch.inference_mode()`"
    return None


def _copies(module: torch.fx.GraphModule, args: Sequence[Any]) -> list[Any]:
    """What a call may be tried on: copies, if the graph may write to what it is given."""
    if not any(may_write(node) for node in module.graph.nodes):
        return list(args)
    return [torch.nn.Parameter(a.clone(), a.requires_grad) if isinstance(a, torch.nn.Parameter) else a.clone() if isinstance(a, torch.Tensor) else a for a in args]


def _share(args: Sequence[Any]) -> bool:
    """True if two tensors lie in the same memory."""
    places = [a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor) and a.numel()]
    return len(places) != len(set(places))


def _versions(args: Iterable[Any]) -> list[int | None]:
    return [a._version if isinstance(a, torch.Tensor) and not a.is_inference() else None for a in args]


# Those whose compiled functions are alive.
_graphs: list[weakref.ref[Graph]] = []

# What calls are watched by: lists that graphs add themselves to.
_watching: list[list[Graph]] = []


def graphs() -> list[Graph]:
    """The graphs that ``torch.compile`` handed over in this process and still has, in order: which are run here, and why others are left to PyTorch."""
    return [graph for graph in (ref() for ref in _graphs) if graph is not None]


def backend(module: torch.fx.GraphModule, example_inputs: list[Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """What ``torch.compile(model, backend="mlc_rewrite", options={...})`` calls with each graph.

    Args:
        module: The graph.
        example_inputs: As the first call will give them. The graph is compiled, and compared with PyTorch, in that call.
        options: As `Session` takes them: ``{"threads": 2}``.
    """
    del example_inputs
    graph = Graph(module, dict(options or {}))
    _graphs[:] = [*(ref for ref in _graphs if ref() is not None), weakref.ref(graph)]
    return graph
