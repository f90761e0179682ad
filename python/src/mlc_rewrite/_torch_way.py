"""A graph of ``torch.compile`` in the form in which it is compiled: what is constant and what stays open; and, compiled, how it is called and compared with PyTorch."""

from __future__ import annotations

import copy
import operator
from typing import TYPE_CHECKING, Any

import torch

from . import _torch_cut
from ._torch_part import Later, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ._session import Session

# How far an element of a first call may be off what PyTorch computes, as a part of the largest element of its output.
_TOLERANCE = 1e-3

# Sets of extents at which what is compiled for all of them is compared with PyTorch.
_COMPARED = 4

_version = operator.attrgetter("_version")


# Functions whose names do not say that they write.
_WRITERS = {operator.setitem, *(getattr(operator, name) for name in dir(operator) if name.startswith("i") and hasattr(operator, name[1:]))}


def may_write(node: torch.fx.Node) -> bool:
    """True of a node that may write to what it is given."""
    if node.op not in ("call_function", "call_method"):
        return bool(node.op == "call_module")
    # A flag may be that of an operator which can work in place.
    if node.kwargs.get("inplace") or node.kwargs.get("out") is not None or node.target in _WRITERS or any(a is True for a in node.args[1:]):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    schema = getattr(node.target, "_schema", None)
    return bool(name.endswith("_") or isinstance(node.target, torch._ops.HigherOrderOperator) or (schema is not None and schema.is_mutable))


def as_sequence(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


class Form:
    """What of a graph's inputs is constant, which are open, and how its results are to be."""

    def __init__(
        self, module: torch.fx.GraphModule, inputs: list[torch.fx.Node], args: Sequence[Any], constants: list[int], expected: Any, own: Sequence[Any]
    ) -> None:
        self.module = module
        self.known = [node.meta.get("example_value") for node in inputs]
        self.held = [(i, args[i]) for i in constants]
        read_as_numbers = {i for i, node in enumerate(inputs) if isinstance(args[i], torch.Tensor) and node.users and all(_is_item(u) for u in node.users)}
        self.numbers = {i: args[i].item() for i in read_as_numbers}
        tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and i not in constants and i not in read_as_numbers]
        self.extents = self._extents(tensors)
        others = [i for i, a in enumerate(args) if not isinstance(a, torch.Tensor) and i not in self.extents]
        integers = [i for i in others if isinstance(self.known[i], torch.SymInt)]
        self.numbers.update((i, args[i]) for i in others if i not in integers)
        self.open_at = tensors + integers
        self.kind = type(expected) if isinstance(expected, (tuple, list)) else None
        memory = {a.untyped_storage().data_ptr() for a in own if isinstance(a, torch.Tensor) and a.numel()}
        self.outputs = [_Output(value, memory) for value in as_sequence(expected)]
        self.views = any(out.is_view for out in self.outputs)

    def _extents(self, tensors: list[int]) -> dict[int, tuple[int, int]]:
        """Inputs that are extents of other inputs, by these and their axes."""
        found = {}
        for number, known in enumerate(self.known):
            if not isinstance(known, torch.SymInt):
                continue
            for i in tensors:
                axes = [a for a, n in enumerate(self.known[i].shape) if isinstance(n, torch.SymInt) and n.node.expr == known.node.expr]
                if axes:
                    found[number] = (i, axes[0])
                    break
        return found

    def bound(self) -> torch.nn.Module:
        """The graph with its constants and numbers in their places."""
        return _Bound(self).eval()

    def given(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """What stays open, of a call."""
        return tuple(args[i] for i in self.open_at)

    def opened(self) -> Any:
        """The extents and integers that a run decides."""
        return (tuple(_torch_cut.open_extents(self.known[i]) for i in self.open_at),)


def _is_item(node: torch.fx.Node) -> bool:
    return bool(node.op == "call_method" and node.target == "item")


class _Bound(torch.nn.Module):  # type: ignore[misc]
    """A graph as a module of what stays open."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self._form = form
        self._graph = _with_numbers(form.module, form.numbers)
        self._wanted = [i for i, out in enumerate(form.outputs) if out.is_computed]
        for i, value in form.held:
            if isinstance(value, torch.nn.Parameter):
                self.register_parameter(f"constant_{i}", value)
            else:
                self.register_buffer(f"constant_{i}", value)

    def forward(self, *given: Any) -> Any:
        form = self._form
        args: list[Any] = [None] * len(form.known)
        for i, _ in form.held:
            args[i] = getattr(self, f"constant_{i}")
        for i, value in zip(form.open_at, given):
            args[i] = value
        for i, (tensor, axis) in form.extents.items():
            args[i] = args[tensor].shape[axis]
        for i, value in form.numbers.items():
            args[i] = value
        flat = as_sequence(self._graph(*args))
        return tuple(flat[i] for i in self._wanted)


def _with_numbers(module: torch.fx.GraphModule, numbers: Mapping[int, Any]) -> torch.fx.GraphModule:
    """The graph with tensors that it only reads a number of taken as that number."""
    if not numbers:
        return module
    graph = copy.deepcopy(module.graph)
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    for i, value in numbers.items():
        for node in [n for n in inputs[i].users if _is_item(n)]:
            node.replace_all_uses_with(value)
            graph.erase_node(node)
    return torch.fx.GraphModule(module, graph)


class _Output:
    """How PyTorch yields an output."""

    def __init__(self, value: Any, inputs: set[int]) -> None:
        is_tensor = isinstance(value, torch.Tensor)
        self.is_view = is_tensor and value.untyped_storage().data_ptr() in inputs
        """True if it lies in the memory of an input: PyTorch makes it anew in every call."""
        self.is_computed = is_tensor and not self.is_view
        self._order = None if not is_tensor or value.is_contiguous() else _order(value)

    def placed(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with its axes in memory as PyTorch has them."""
        if self._order is None:
            return tensor
        back = sorted(range(len(self._order)), key=self._order.__getitem__)
        return tensor.permute(self._order).contiguous().permute(back)


def _order(value: torch.Tensor) -> list[int] | None:
    """The axes as they lie in memory, from the outermost on; `None` if elements share their places."""
    order = sorted(range(value.dim()), key=lambda axis: (-value.stride(axis), -value.shape[axis]))
    return order if value.permute(order).is_contiguous() else None


class Way:
    """A graph compiled for some parameters and numbers, and for some or all extents."""

    def __init__(self, form: Form, compute: Callable[..., Any], copied: list[int]) -> None:
        self._compute = compute
        self._copied = copied
        self._open_at = form.open_at
        self._take = _taking(form.open_at)
        self._held_at = [i for i, _ in form.held]
        self._take_held = _taking(self._held_at)
        self._held = tuple(value for _, value in form.held)
        self._each_version = [value._version for value in self._held]
        self._versions = sum(self._each_version)
        self._numbers = list(form.numbers.items())
        self._kind = form.kind
        self._outputs = form.outputs
        self._plain = all(out.is_computed and out._order is None for out in form.outputs)
        rest = [i for i, out in enumerate(form.outputs) if not out.is_computed]
        self._rest = _torch_cut.only(form.module, set(rest).__contains__) if rest else None
        if self._rest is not None and any(map(may_write, self._rest.graph.nodes)):
            raise ValueError("what is no tensor of its own is computed by writing")
        self.has_views = form.views
        """True if outputs lie in the memory of inputs."""
        symbols = [(i, axis) for i in form.open_at for axis in (_torch_cut.open_extents(form.known[i]) or {} if isinstance(form.known[i], torch.Tensor) else {})]
        self._open = symbols
        self._fixed = self._specialised(symbols)
        self._seen: set[tuple[int, ...]] = set()
        self.compared = _COMPARED if symbols else 0
        """How many sets of extents are still to be compared with PyTorch."""

    @property
    def _parts(self) -> list[Part]:
        if isinstance(self._compute, Part):
            return [self._compute]
        return [later.part for later in vars(self._compute).values() if isinstance(later, Later) and later.part is not None]

    @property
    def sessions(self) -> list[Session]:
        """What runs it here."""
        return [part.session for part in self._parts]

    def _specialised(self, symbols: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Extents that were open to ``torch.compile`` and that the exporter took as numbers."""
        if not isinstance(self._compute, Part):
            return []
        shapes = {self._open_at[place]: shape for place, shape in self._compute.shapes.items()}
        return [(i, axis, n) for i, axis in symbols if i in shapes and isinstance(n := shapes[i][axis], int)]

    def fits(self, args: Sequence[Any]) -> bool:
        """True if it was compiled for what this call is given; that the types and numbers of axes are those, ``torch.compile`` guards."""
        return (
            all(map(operator.is_, self._take_held(args), self._held))
            and sum(map(_version, self._held)) == self._versions
            and all(args[i].shape[axis] == n for i, axis, n in self._fixed)
            and all((args[i].item() if isinstance(args[i], torch.Tensor) else args[i]) == value for i, value in self._numbers)
        )

    def changed(self, args: Sequence[Any]) -> list[int]:
        """The inputs that were taken as constants and are others now."""
        held = zip(self._held_at, self._held, self._each_version)
        return [i for i, value, version in held if args[i] is not value or value._version != version]

    def is_current(self) -> bool:
        """True if no constant has been written to, so that a call may come that it fits."""
        return bool(sum(map(_version, self._held)) == self._versions)

    def is_new(self, args: Sequence[Any]) -> bool:
        """True if the extents of a call are to be compared with PyTorch."""
        extents = tuple(args[i].shape[axis] for i, axis in self._open)
        if extents in self._seen or not self.compared:
            return False
        self._seen.add(extents)
        self.compared -= 1
        return True

    def __call__(self, args: Sequence[Any]) -> Any:
        computed = self._compute(*self._take(args))
        if self._copied:
            for i, value in zip(self._copied, computed):
                args[i].copy_(value)
            computed = computed[len(self._copied) :]
        if self._plain:
            return self._kind(computed) if self._kind is not None else computed[0]
        own = iter(computed)
        rest = iter(self._rest(*args) if self._rest is not None else ())
        flat = [out.placed(next(own)) if out.is_computed else next(rest) for out in self._outputs]
        return self._kind(flat) if self._kind is not None else flat[0]

    def difference(self, results: Any, expected: Any) -> str | None:
        """How results differ from those of PyTorch, if they do."""
        for number, (own, value) in enumerate(zip(as_sequence(results), as_sequence(expected), strict=True)):
            if not isinstance(value, torch.Tensor):
                if own != value:
                    return f"output {number} is {own}, not {value}"
                continue
            if own.shape != value.shape or own.dtype != value.dtype:
                return f"output {number} is {own.dtype} of {tuple(own.shape)}, not {value.dtype} of {tuple(value.shape)}"
            if value.dtype.is_complex:
                own, value = torch.view_as_real(own), torch.view_as_real(value)
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


def _taking(places: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that takes these elements of a sequence."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    return (lambda args: (args[places[0]],)) if places else (lambda args: ())
