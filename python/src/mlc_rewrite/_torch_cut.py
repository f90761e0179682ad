"""A functional program of ATen, cut: what can be written as ONNX runs here, what lies between is left to PyTorch.

Nodes are put into stages by what they read, in turns of the two kinds, so that there are as few parts as data allow and none waits for itself. Values that are written to an
input are not computed anew where the operator that makes them can write in place.
"""

from __future__ import annotations

import copy
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx.passes.split_module import split_module

from . import _torch_export

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_aten = torch.ops.aten


def _slice_written(base: torch.Tensor, part: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> torch.Tensor:
    _aten.slice.Tensor(base, dim, start, end, step).copy_(part)
    return base


def _select_written(base: torch.Tensor, part: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    base.select(dim, index).copy_(part)
    return base


# What makes a whole tensor of one and a part that is new, and how that is written in place.
_WRITTEN: dict[Any, Callable[..., Any]] = {
    _aten.index_copy.default: _aten.index_copy_.default,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.index_add.default: _aten.index_add_.default,
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter.value: _aten.scatter_.value,
    _aten.slice_scatter.default: _slice_written,
    _aten.select_scatter.default: _select_written,
}

# Operators that compute nothing: a stage that has no others is not worth a run.
_IDLE = {
    _aten.view.default,
    _aten.reshape.default,
    _aten.permute.default,
    _aten.transpose.int,
    _aten.t.default,
    _aten.expand.default,
    _aten.unsqueeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.slice.Tensor,
    _aten.select.int,
    _aten.alias.default,
    _aten.clone.default,
    _aten.detach.default,
    _aten.full.default,
    _aten.arange.start_step,
    _aten.scalar_tensor.default,
}


# What tracing checks of a program, which the exporter leaves out, too: `torch.compile` guards it.
_CHECKS = {
    _aten.sym_constrain_range_for_size.default,
    _aten._assert_async.default,
    _aten._assert_async.msg,
    _aten._assert_scalar.default,
    _aten._assert_tensor_metadata.default,
}


class Pieces(NamedTuple):
    """A program that was cut."""

    module: torch.fx.GraphModule
    """The whole: its inputs are those that stay open; it yields what is to be copied to inputs, and then the outputs."""
    parts: list[str]
    """The attributes of the module that can be written as ONNX."""
    copied: list[int]
    """Inputs that the first results are to be copied to."""
    left: dict[str, str]
    """Operators that are left to PyTorch, and why."""


def cut(functional: Any, refused: Mapping[str, str]) -> Pieces:
    """Cuts a program.

    Args:
        functional: As `_torch_export.functional` makes it.
        refused: Operators that were tried and cannot be run here, and why.
    """
    graph = copy.deepcopy(functional.graph_module.graph)
    module = torch.fx.GraphModule(functional.graph_module, graph)
    inputs = _constants_bound(functional, module)
    copied, in_place = _written(functional, graph, inputs)
    _extents_computed_where_they_are_used(graph)
    for node in [n for n in graph.nodes if n.target in _CHECKS]:
        graph.erase_node(node)
    for node in graph.nodes:
        # What a part yields lies in memory as it likes.
        if node.target is _aten.view.default:
            node.target = _aten.reshape.default
    left: dict[str, str] = {}

    def why(node: torch.fx.Node) -> str | None:
        if node in in_place:
            return "it writes to an input"
        return refused.get(str(node.target)) or _torch_export.unwritable(node)

    here = {}
    for node in graph.nodes:
        if node.op == "call_function" and not _is_extent(node):
            reason = why(node)
            here[node] = reason is None
            if reason is not None:
                left[str(node.target)] = reason
    stages = _worth_it(graph, here)
    if not any(stage % 2 == 0 for stage in stages.values()):
        return Pieces(module, [], copied, left)
    whole = split_module(module, module, lambda node: stages[node])
    _yield_tuples(whole)
    parts = [f"submod_{stage}" for stage in sorted({stage for stage in stages.values() if stage % 2 == 0})]
    for name in parts:
        _bound(whole, name)
    whole.recompile()
    return Pieces(whole, parts, copied, left)


def _yield_tuples(whole: torch.fx.GraphModule) -> None:
    """Makes every part yield a tuple, as those of several results do. Only newer versions of `split_module` can be asked to."""
    for call in [n for n in whole.graph.nodes if n.op == "call_module"]:
        part = getattr(whole, call.target)
        (output,) = (n for n in part.graph.nodes if n.op == "output")
        (value,) = output.args
        if isinstance(value, (tuple, list)):
            continue
        output.args = ((value,),)
        part.recompile()
        users = list(call.users)
        with whole.graph.inserting_after(call):
            first = whole.graph.call_function(operator.getitem, (call, 0))
        first.meta.update(call.meta)
        for user in users:
            user.replace_input_with(call, first)


def _is_extent(node: torch.fx.Node) -> bool:
    """True of a number that a run computes of extents."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def _constants_bound(functional: Any, module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Makes parameters, buffers and constants attributes of the module; returns the inputs that are left."""
    signature = functional.graph_signature
    if signature.buffers_to_mutate:
        raise ValueError(f"it writes to constants: {', '.join(signature.buffers_to_mutate.values())}")
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    inputs = []
    for number, node in enumerate([n for n in module.graph.nodes if n.op == "placeholder"]):
        name = named.get(node.name)
        if name is None:
            inputs.append(node)
            continue
        value = functional.state_dict[name] if name in functional.state_dict else functional.constants[name]
        attribute = f"_constant_{number}"
        if isinstance(value, torch.nn.Parameter):
            module.register_parameter(attribute, value)
        else:
            module.register_buffer(attribute, value)
        with module.graph.inserting_before(node):
            bound = module.graph.get_attr(attribute)
        bound.meta = dict(node.meta)
        node.replace_all_uses_with(bound)
        module.graph.erase_node(node)
    return inputs


def _written(functional: Any, graph: torch.fx.Graph, inputs: list[torch.fx.Node]) -> tuple[list[int], set[torch.fx.Node]]:
    """Which inputs the first results are copied to, and the nodes that write in place; what these yield is no result any more."""
    places = {node.name: number for number, node in enumerate(inputs)}
    [output] = [node for node in graph.nodes if node.op == "output"]
    targets = functional.graph_signature.user_inputs_to_mutate
    copied, in_place, results = [], set(), []
    for spec, value in zip(functional.graph_signature.output_specs, output.args[0]):
        written = targets.get(spec.arg.name) if spec.kind.name == "USER_INPUT_MUTATION" else None
        if written is None:
            results.append(value)
            continue
        base = inputs[places[written]]
        # What nothing else reads may be written to where its new value is computed.
        if value.target in _WRITTEN and value.args[0] is base and list(base.users) == [value]:
            value.target = _WRITTEN[value.target]
            in_place.add(value)
        else:
            copied.append(places[written])
            results.append(value)
    output.args = (tuple(results),)
    return copied, in_place


def _extents_computed_where_they_are_used(graph: torch.fx.Graph) -> None:
    """Gives every use of an extent its own nodes, so that no extent goes from part to part."""
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function" or not _is_extent(node):
            continue
        for user in list(node.users)[1:]:
            with graph.inserting_before(node):
                twin = graph.node_copy(node)
            user.replace_input_with(node, twin)


def _stages(graph: torch.fx.Graph, here: Mapping[torch.fx.Node, bool]) -> dict[torch.fx.Node, int]:
    """The stage of every node: even ones run here, odd ones in PyTorch; each node is in the first one of its kind in which all that it reads is there."""
    stages: dict[torch.fx.Node, int] = {}

    def ready(node: torch.fx.Node) -> int:
        reads = [stages[n] if n in stages else ready(n) for n in node.all_input_nodes if n.op == "call_function"]
        return max(reads, default=0)

    for node in graph.nodes:
        if node not in here:
            continue
        first = ready(node)
        if getattr(node.target, "__name__", None) == "getitem" and node.args[0] in stages:
            stages[node] = stages[node.args[0]]
        else:
            stages[node] = first + (first % 2 == here[node])
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and node not in stages:
            # An extent has one user; that of a result is computed by PyTorch.
            user = next(iter(node.users), None)
            stages[node] = stages[user] if user in stages else 1 + 2 * max(stages.values(), default=0)
    return stages


def _worth_it(graph: torch.fx.Graph, here: dict[torch.fx.Node, bool]) -> dict[torch.fx.Node, int]:
    """The stages, without any that would run here to compute nothing."""
    while True:
        stages = _stages(graph, here)
        busy = {stages[node] for node, runs in here.items() if runs and node.target not in _IDLE and getattr(node.target, "__name__", "") != "getitem"}
        idle = [node for node, runs in here.items() if runs and stages[node] not in busy]
        if not idle:
            return stages
        for node in idle:
            here[node] = False


def _bound(whole: torch.fx.GraphModule, name: str) -> None:
    """Gives a part the constants that the whole passes it."""
    part = getattr(whole, name)
    [call] = [node for node in whole.graph.nodes if node.op == "call_module" and node.target == name]
    open_inputs = []
    for passed, taken in zip(list(call.args), [n for n in part.graph.nodes if n.op == "placeholder"]):
        if passed.op != "get_attr":
            open_inputs.append(passed)
            continue
        value = getattr(whole, passed.target)
        if isinstance(value, torch.nn.Parameter):
            part.register_parameter(passed.target, value)
        else:
            part.register_buffer(passed.target, value)
        with part.graph.inserting_before(taken):
            constant = part.graph.get_attr(passed.target)
        taken.replace_all_uses_with(constant)
        part.graph.erase_node(taken)
    call.args = tuple(open_inputs)
    for node in [n for n in whole.graph.nodes if n.op == "get_attr" and not n.users]:
        whole.graph.erase_node(node)
    part.recompile()


def opened(part: torch.fx.GraphModule) -> tuple[dict[int, Any] | Any, ...]:
    """Which extents of a part's inputs a run decides, as ``torch.export`` takes them."""
    return tuple(open_extents(node.meta["val"]) for node in part.graph.nodes if node.op == "placeholder")


def open_extents(value: Any) -> Any:
    """Which extents of a value a run decides, by what tracing knew of it."""
    if isinstance(value, torch.Tensor):
        return {axis: torch.export.Dim.AUTO for axis, n in enumerate(value.shape) if isinstance(n, torch.SymInt)} or None
    return torch.export.Dim.AUTO if isinstance(value, torch.SymInt) else None


def only(module: torch.fx.GraphModule, wanted: Callable[[int], bool]) -> torch.fx.GraphModule:
    """The part of a graph that yields some of its results."""
    graph = copy.deepcopy(module.graph)
    [output] = [node for node in graph.nodes if node.op == "output"]
    results = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    output.args = (tuple(value for number, value in enumerate(results) if wanted(number)),)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, graph)
