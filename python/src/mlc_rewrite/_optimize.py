"""Optimisation, and what comes of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _log, _native, _settings
from ._model import Model, Value, _signature, is_ir, values
from ._report import Answer, Explanation, Report, WhyNot, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Literal, TypeAlias

    from ._session import Session

    Fp: TypeAlias = Literal["exact", "reorder", "approx"]
    Objective: TypeAlias = Literal["latency", "memory", "size"]
    Solver: TypeAlias = Literal["greedy", "anytime", "exact"]


def optimize(
    model: Any,
    output: _settings.Path | None = None,
    *,
    target: str | None = None,
    fp: Fp | None = None,
    objective: Objective | None = None,
    without: str | Iterable[str] | None = None,
    rules: Any = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    bind: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    extents: Mapping[str, tuple[int, int] | range] | None = None,
    opset: int | None = None,
    check: bool | None = None,
    check_on: Iterable[Mapping[str, Any]] | None = None,
    tolerance: float | None = None,
    seed: int | None = None,
    threads: int | None = None,
    memory: int | str | None = None,
    nodes: int | None = None,
    rounds: int | None = None,
    effort: int | None = None,
    time_limit: float | None = None,
    solver: Solver | None = None,
    deadline: float | None = None,
    target_file: _settings.Path | None = None,
    profile: _settings.Path | None = None,
    external_data: bool | None = None,
) -> tuple[Any, Report]:
    """Makes an equal, cheaper model, checks it against the one that is given, and says what was done.

    Args:
        model: As `Model` takes it. ``bytes``, an ``onnx.ModelProto`` and an ``onnx_ir.Model`` come back as such; of a path and of a `Model` an
            `OptimizedModel` comes back, which is saved, run and asked.
        output: Where the result is written to besides; it may be the path that it was read from.
        target: What will run it: ``"standard"`` (any ONNX runtime, the default), ``"onnxruntime"``, ``"openvino"``, ``"tensorrt"``, ``"cpu"``
            (this package), or a target of one's own rules.
        fp: Which laws may fire: those that keep every bit, those that regroup sums (the default), or also approximations.
        objective: What is to be least: estimated time, planned memory, or the bytes of the weights.
        without: Laws that must not fire, by name.
        rules, shapes, bind, values: How the model is read, see `Model`.
        extents: Which extents come for a symbol that stays open, both ends included: ``{"seq": (1, 512)}``.
        opset: The operator set that is written; that of the model by default.
        check: Whether the result is compared with the model before it is returned, which is the default.
        check_on: Further inputs to compare them on, each a mapping from names to arrays.
        tolerance: How far an element may be off, as a part of its output's largest element.
        seed: Seed of the self-check's inputs.
        threads: Threads of the search and of the self-check, on which results do not depend; all cores by default.
        memory: Bytes that a run of the self-check may take, as a number or as ``"4G"``; what the machine has free by default.
        nodes, rounds, effort, time_limit: Limits of the exploration: nodes of the e-graph, rounds, steps of matching for each node of the model, seconds.
        solver, deadline: How the cheapest program is searched for, and for how many seconds, in place of a number of steps.
        target_file: A text whose last target it is for.
        profile: Figures of the target, as TOML, in place of those of its text.
        external_data: Whether weights of ``output`` go to a data file beside it; by default those of more than 1 GiB do.

    Returns:
        The result and a `Report`. ``report.optimized`` is the `OptimizedModel` in any case.

    Raises:
        SettingError: A target, law, operator set, shape or symbol does not exist or does not fit.
        CheckError: What would be written is not what the model computes.
        ExportError: An operator cannot be written at this operator set.
        Error: As `Model` raises it.

    >>> model = Model(text='''
    ... def model(x: f32[4, 4]) -> y: f32[4, 4]
    ...   = transpose(transpose(x, perm=[1, 0]), perm=[1, 0]) + 0
    ... ''')
    >>> optimized, report = optimize(model)
    >>> report.nodes_after < report.nodes_before
    True
    """
    read = _read(model, rules, shapes, bind, values)
    optimized = _optimized(
        read,
        target="standard" if target is None and target_file is None else target,
        fp=fp,
        objective=objective,
        without=without,
        extents=extents,
        opset=opset,
        check=check,
        check_on=check_on,
        tolerance=tolerance,
        seed=seed,
        threads=threads,
        memory=memory,
        nodes=nodes,
        rounds=rounds,
        effort=effort,
        time_limit=time_limit,
        solver=solver,
        deadline=deadline,
        target_file=target_file,
        profile=profile,
    )
    if output is not None:
        optimized.save(output, external_data=external_data)
    return optimized._as(model), optimized.report


def _optimized(read: Model, **keywords: Any) -> OptimizedModel:
    """The model, optimised as the keywords say; `None` is as if it were not given."""
    plain: dict[str, Callable[[Any], Any]] = {
        "without": _settings.names,
        "extents": _settings.extents,
        "check_on": lambda sets: [dict(one) for one in sets],
        "memory": _settings.size,
        "target_file": _settings.path,
        "profile": _settings.path,
    }
    given = _collected(**keywords)
    settings = {name: plain[name](value) if name in plain else value for name, value in given.items()}
    optimized = OptimizedModel._of(_native.optimize(read._handle, settings))
    _log.told(lambda: str(optimized.report))
    return optimized


def _collected(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _read(
    model: Any,
    rules: Any,
    shapes: Mapping[str, Sequence[int]] | None,
    bind: Mapping[str, int] | None,
    values: Mapping[str, Any] | None,
) -> Model:
    """The model, read as it is said."""
    plain = rules is None and shapes is None and bind is None and values is None
    if plain and isinstance(model, Model):
        return model
    return Model(model, rules=rules, shapes=shapes, bind=bind, values=values)


class OptimizedModel:
    """The result of `optimize`: to be saved, run, and asked why it is what it is."""

    __slots__ = ("_handle", "_report")

    _handle: object
    _report: Report

    def __init__(self) -> None:
        raise TypeError("`mlc_rewrite.optimize` makes optimised models")

    @classmethod
    def _of(cls, handle: object) -> OptimizedModel:
        made = cls.__new__(cls)
        made._handle = handle
        made._report = Report(made, parsed(_native.optimized_report(handle)))
        return made

    def _as(self, source: Any) -> Any:
        """The result as the kind of thing that the source is."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            return self.to_bytes()
        if is_ir(source):
            return self.to_ir()
        if hasattr(source, "SerializeToString"):
            proto = type(source)()
            proto.ParseFromString(self.to_bytes())
            return proto
        return self

    @property
    def report(self) -> Report:
        """What was done: figures before and after, laws, the self-check."""
        return self._report

    @property
    def inputs(self) -> list[Value]:
        """The inputs, in order."""
        return values(_native.optimized_values(self._handle))[0]

    @property
    def outputs(self) -> list[Value]:
        """The outputs, in order."""
        return values(_native.optimized_values(self._handle))[1]

    @property
    def is_as_read(self) -> bool:
        """True if nothing better was found than the model as it was read."""
        return _native.optimized_is_as_read(self._handle)

    @property
    def text(self) -> str:
        """The result as a text of the rule language."""
        return _native.optimized_text(self._handle)

    def save(self, path: _settings.Path, *, external_data: bool | None = None) -> None:
        """Writes the result as an ONNX file, which takes its name when it is complete.

        Args:
            path: Where to; it may be the file that the model was read from.
            external_data: Whether weights go to a data file beside it; by default those of more than 1 GiB do.

        Raises:
            FileError: The file cannot be written.
            ExportError: An operator cannot be written.
        """
        _native.optimized_write(self._handle, os.fspath(path), external_data)

    def to_bytes(self) -> bytes:
        """The result as the bytes of an ONNX file, weights included.

        Raises:
            ExportError: An operator cannot be written, or the file would have 2 GiB or more.
        """
        return _native.optimized_bytes(self._handle)

    def to_proto(self) -> Any:
        """The result as an ``onnx.ModelProto``; needs the package ``onnx``."""
        import onnx

        return onnx.ModelProto.FromString(self.to_bytes())

    def to_ir(self) -> Any:
        """The result as an ``onnx_ir.Model``; needs the package ``onnx_ir``."""
        import onnx_ir

        return onnx_ir.from_proto(self.to_proto())

    def session(self, *, device: str | None = None, threads: int | None = None, memory: int | str | None = None) -> Session:
        """Makes the result ready to run here. See `Session`, which also takes a model and optimises it for this machine."""
        from ._session import Session

        return Session._of_optimized(self, device, threads, memory)

    def explain(self, *, all: bool = False) -> Explanation:
        """What became of the model's nodes, by which laws, and what that gains.

        Args:
            all: Whether the text names all nodes and laws, and not those alone that matter most.
        """
        return Explanation(_native.optimized_explain(self._handle, all))

    def html(self) -> str:
        """The explanation as one page for a browser: both graphs, with the laws, prices and proofs behind every kernel.

        The page stands alone: it loads nothing and holds no weights. Write it to a file, and open that.
        """
        return _native.optimized_html(self._handle)

    def why_not(self, name: str) -> WhyNot:
        """Why a law did not fire, or why the result is without an operator.

        Args:
            name: That of a law, a layer, an operator of ONNX or a kernel of the target.

        Raises:
            SettingError: Nothing has that name.
        """
        return WhyNot(_native.optimized_why_not(self._handle, name))

    def node(self, name: str) -> Answer:
        """What became of a node of the model: what computes it before and after, and which laws touched it; of one that reading removed,
        by which step.

        Raises:
            SettingError: The model has no such node or value.
        """
        return Answer(_native.optimized_node(self._handle, name))

    def why_not_fused(self, a: str, b: str) -> Answer:
        """Why two nodes of the model are not in one kernel of the plan, or that they are.

        Raises:
            SettingError: The model has no such node or value.
        """
        return Answer(_native.optimized_why_not_fused(self._handle, a, b))

    def would_gain(self, what: str) -> Answer:
        """What another plan would gain: the model is planned once more.

        Args:
            what: An error class (``exact``, ``reorder``, ``approx``), an objective (``latency``, ``memory``, ``size``), or a law.

        Raises:
            SettingError: Nothing has that name, or it is how the model is planned already.
        """
        return Answer(_native.optimized_would_gain(self._handle, what))

    def numerics(self) -> Answer:
        """The error of each law's steps, and how the model amplifies a rounding of its inputs, in units in the last place."""
        return Answer(_native.optimized_numerics(self._handle))

    def kernels(self) -> Answer:
        """The kernels of the plan, with the nodes of the model that they compute and their estimated times."""
        return Answer(_native.optimized_kernels(self._handle))

    def __repr__(self) -> str:
        return f"<mlc_rewrite.OptimizedModel {_signature(self.inputs)} -> {_signature(self.outputs)}>"

    def _repr_html_(self) -> str:
        return self._report._repr_html_()
