"""Comparing graphs and models, and fuzzing the optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native, _settings
from ._model import Model
from ._report import _json, _Told, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._optimize import Fp


class Difference:
    """How two graphs differ; it is true if they do."""

    __slots__ = ("_data",)

    def __init__(self, told: str) -> None:
        self._data = parsed(told)

    def __bool__(self) -> bool:
        return bool(self._data["interface"] or self._data["operators"] or any(c["count"] for c in self._data["constants"]))

    @property
    def operators(self) -> dict[str, dict[str, Any]]:
        """Operators of which the models have different nodes: how many ``before`` and ``after``, and which were ``removed``, ``added``, ``changed``."""
        return dict(self._data["operators"])

    @property
    def interface(self) -> list[tuple[str, str, str]]:
        """Operator sets, inputs and outputs that differ: what it is, the first model's, the second's."""
        return [(what, a, b) for what, a, b in self._data["interface"]]

    @property
    def same(self) -> int:
        """Nodes that compute the same value in both models."""
        return int(self._data["same"])

    def to_dict(self) -> dict[str, Any]:
        """Everything, by the names that ``mlc-rewrite diff --json`` has."""
        return dict(self._data)

    def to_json(self) -> str:
        """The same as JSON."""
        return _json(self._data)

    def __str__(self) -> str:
        if not self:
            return f"the graphs are the same: {self.same} nodes"
        lines = [f"{what}: {a} -> {b}" for what, a, b in self.interface]
        lines.append(f"{self.same} nodes compute the same in both")
        lines.extend(f"{name}: {o['before']} -> {o['after']}" for name, o in self.operators.items())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Difference in {len(self.operators)} operators, {self.same} nodes the same>"


def diff(a: Any, b: Any) -> Difference:
    """How the graph of an ONNX model differs from that of another: nodes, constants, inputs and outputs.

    Args:
        a, b: As `Model` takes them, or `OptimizedModel`.

    Raises:
        ModelError: One of them is no ONNX model.
    """
    return Difference(_native.model_difference(_graph(a)._handle, _graph(b)._handle))


def _graph(source: Any) -> Model:
    from ._optimize import OptimizedModel

    if isinstance(source, OptimizedModel):
        return Model(source.to_bytes())
    return source if isinstance(source, Model) else Model(source)


class Comparison(_Told):
    """Whether two models are equal by the laws, and if not, where they differ. ``print`` it, or look at ``to_dict()``."""

    __slots__ = ("_handle",)

    def __init__(self, handle: object) -> None:
        super().__init__(_native.compared_told(handle, False))
        self._handle = handle

    @property
    def answer(self) -> str:
        """``equal`` (proved by laws), ``differ``, or ``not_proved``."""
        return str(self._data["answer"])

    @property
    def is_equal(self) -> bool:
        """True if every output of the second model is proved to be that of the first."""
        return self.answer == "equal"

    @property
    def regions(self) -> list[dict[str, Any]]:
        """The places where they differ, or are not proved equal: nodes of either model, and inputs on which the values differ."""
        return list(self._data["regions"])

    def html(self) -> str:
        """Both models as one page for a browser: what is equal is linked, and what differs is marked.

        The page stands alone: it loads nothing and holds no weights. Write it to a file, and open that.
        """
        return _native.compared_html(self._handle)

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Comparison: {self.answer}, {len(self.regions)} places>"


def compare(
    a: Any,
    b: Any,
    *,
    fp: Fp | None = None,
    without: str | Iterable[str] | None = None,
    rules: Any = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    bind: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Comparison:
    """Whether two models are equal by the laws, and if not, where they differ, on which inputs, and by how much.

    Args:
        a, b: As `Model` takes them, or `OptimizedModel`: a model, and what another tool made of it.
        fp, without, rules, shapes, bind, values, seed, threads: As `optimize` takes them.

    Raises:
        ModelError: Their inputs or outputs differ, or one of them is a text of rules.
    """
    from ._optimize import _collected, _read

    first, second = (_read(_graph(m), rules, shapes, bind, values) for m in (a, b))
    names = None if without is None else _settings.names(without)
    settings = _collected(fp=fp, without=names, seed=seed, threads=threads)
    return Comparison(_native.compare(first._handle, second._handle, settings))


class Fuzzed:
    """What a campaign of `fuzz` found; it is true if nothing is wrong."""

    __slots__ = ("_data", "text")

    def __init__(self, data: dict[str, Any], text: str) -> None:
        self._data = data
        self.text = text
        """What was found, for people."""

    def __bool__(self) -> bool:
        return not self.failures

    @property
    def cases(self) -> int:
        """Programs that were tried."""
        return int(self._data["cases"])

    @property
    def failures(self) -> list[dict[str, Any]]:
        """What went wrong, each with the smallest ``program`` for which it does, and the ``laws`` to blame."""
        return list(self._data["failures"])

    def to_dict(self) -> dict[str, Any]:
        """Everything, by the names that ``mlc-rewrite fuzz --json`` has."""
        return dict(self._data)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Fuzzed {self.cases} programs, {len(self.failures)} failures>"


def fuzz(
    *,
    time: float | None = None,
    cases: int | None = None,
    rules: Any = None,
    fp: str | None = None,
    without: str | Iterable[str] | None = None,
    seed: int | None = None,
) -> Fuzzed:
    """Tries the whole pipeline on random programs, in a process of its own: optimised and run in every way, against the reference interpreter.

    Args:
        time: Seconds to go on for; 60 if neither this nor ``cases`` is given.
        cases: Programs to try.
        rules: Paths of further laws and layers, or `Rules`, which then take part.
        fp, without: Which laws may fire, as for `optimize`.
        seed: Equal seeds try equal programs.

    Raises:
        Error: The command does not run: its message.
    """
    import os
    import subprocess
    import sys
    import tempfile

    from ._errors import Error

    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        paths = []
        for number, (name, text) in enumerate(_settings.rules(rules) or []):
            path = name if text is None else os.path.join(folder, f"{number}.rules")
            if text is not None:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            paths.append(path)
        given = {"--time": time, "--cases": cases, "--fp": fp, "--seed": seed}
        arguments = [part for name, value in given.items() if value is not None for part in (name, str(value))]
        arguments += [part for path in paths for part in ("--rules", path)]
        arguments += [part for law in _settings.names(without) or [] for part in ("--without", law)]
        command = [sys.executable, "-m", "mlc_rewrite", "fuzz", "--json", report, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode > 1 or not os.path.exists(report):
            raise Error(done.stderr.strip().removeprefix("error: "))
        with open(report, encoding="utf-8") as file:
            return Fuzzed(parsed(file.read()), done.stdout)
