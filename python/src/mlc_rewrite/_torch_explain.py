"""What became of a function or module that ``torch.compile`` compiled: its graphs, what runs here, and what is left to PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _torch_graph
from ._report import _time, preformatted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._torch_graph import Graph


class Compiled:
    """The graphs of a call, in the order in which they ran: ``print`` it, or look at ``graphs``."""

    __slots__ = ("graphs",)

    def __init__(self, graphs: list[Graph]) -> None:
        self.graphs = graphs
        """What ran: ``reason``, ``left``, ``sessions`` and ``optimized`` of each."""

    def __bool__(self) -> bool:
        """True if all of it runs here."""
        return bool(self.graphs) and all(graph.reason is None and not graph.left for graph in self.graphs)

    def __str__(self) -> str:
        if not self.graphs:
            return "the call ran no graph of this backend"
        return "\n".join(line for number, graph in enumerate(self.graphs) for line in _lines(number, graph))

    def __repr__(self) -> str:
        here = sum(graph.reason is None for graph in self.graphs)
        return f"<mlc_rewrite.torch.Compiled {here} of {len(self.graphs)} graphs run here>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def _lines(number: int, graph: Graph) -> list[str]:
    """What is told of a graph."""
    head = f"graph {number}: {len(graph.module.graph.nodes)} nodes"
    if graph.reason is not None:
        return [f"{head}, left to PyTorch: {graph.reason}"]
    lines = [f"{head}, {len(graph.sessions)} sessions"]
    for optimized in graph.optimized:
        report = optimized.report
        laws = ", ".join(f"{law} × {n}" for law, n in sorted(report.laws.items(), key=lambda x: (-x[1], x[0])))
        lines.append(f"  {report.nodes_before} → {report.nodes_after} nodes, {_time(report.cost_before)} → {_time(report.cost_after)} estimated; laws: {laws or 'none'}")
    lines.extend(f"  left to PyTorch: {operator}: {why}" for operator, why in graph.left.items())
    return lines


def explain(compiled: Callable[..., Any], *args: Any, **kwargs: Any) -> Compiled:
    """Calls what ``torch.compile`` made, and tells which graphs that ran: what became of each, by which laws, and what is left to PyTorch and why.

    Args:
        compiled: The function or module.
        args, kwargs: What it is called with.
    """
    seen: list[Graph] = []
    _torch_graph._watching.append(seen)
    try:
        compiled(*args, **kwargs)
    finally:
        # By identity: lists are equal if they hold the same.
        _torch_graph._watching[:] = [one for one in _torch_graph._watching if one is not seen]
    return Compiled(seen)
