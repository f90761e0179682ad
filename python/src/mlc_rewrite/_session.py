"""Sessions: models that are ready to run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _native, _settings
from ._model import Model, Value, _signature, values as _values
from ._optimize import OptimizedModel, _collected, _optimized, _read
from ._stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from ._optimize import Fp


class Session:
    """A model that is ready to run, any number of times and from several threads at once.

    It is optimised for this machine, the result is checked against the model, weights are packed. It is used as an
    ``onnxruntime.InferenceSession`` is: `run`, `get_inputs`, `get_outputs`.

    Args:
        model: As `Model` takes it, or an `OptimizedModel`.
        device: ``"cpu"``; ``"cuda"`` or ``"cuda:1"``, an NVIDIA device; ``"reference"``, the float64 reference interpreter.
        threads: Threads that share the work of a run, on whose number results do not depend; all cores by default.
        memory: Bytes that a run may take, as a number or as ``"4G"``; what the machine or the device has free by default.
        optimize: Whether the model is optimised, or run as it is read.
        rules, shapes, bind, values: How the model is read, see `Model`.
        fp, without, extents, check, check_on, tolerance, seed, time_limit: How it is optimised, see `optimize`.

    Raises:
        ResourcesError: A run would take more memory than it may.
        Error: As `Model` and `optimize` raise it.

    >>> session = Session(Model(text="def model(x: f32[n]) -> y: f32[n]\\n  = exp(x)\\n"))
    >>> session.run(None, {"x": [0.0]})
    [array([1.], dtype=float32)]
    >>> session.get_inputs()[0].name, session.get_inputs()[0].shape, session.get_inputs()[0].type
    ('x', ('n',), 'tensor(float)')
    """

    __slots__ = ("_handle", "_inputs", "_optimized", "_outputs", "__weakref__")

    _handle: object
    _inputs: list[Value]
    _outputs: list[Value]
    _optimized: OptimizedModel | None

    def __init__(
        self,
        model: Any,
        *,
        device: str = "cpu",
        threads: int | None = None,
        memory: int | str | None = None,
        optimize: bool = True,
        rules: Any = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        bind: Mapping[str, int] | None = None,
        values: Mapping[str, Any] | None = None,
        fp: Fp | None = None,
        without: str | Iterable[str] | None = None,
        extents: Mapping[str, tuple[int, int] | range] | None = None,
        check: bool | None = None,
        check_on: Iterable[Mapping[str, Any]] | None = None,
        tolerance: float | None = None,
        seed: int | None = None,
        time_limit: float | None = None,
    ) -> None:
        place = _place(device, threads, memory, fp)
        if isinstance(model, OptimizedModel):
            self._ready(_native.session_of_optimized(model._handle, place), model)
            return
        read = _read(model, rules, shapes, bind, values)
        if not optimize:
            self._ready(_native.session_of_model(read._handle, place), None)
            return
        optimized = _optimized(
            read,
            target=place["device"],
            fp=fp,
            without=without,
            extents=extents,
            check=check,
            check_on=check_on,
            tolerance=tolerance,
            seed=seed,
            threads=threads,
            memory=memory,
            time_limit=time_limit,
        )
        self._ready(_native.session_of_optimized(optimized._handle, place), optimized)

    @classmethod
    def _of_optimized(
        cls, optimized: OptimizedModel, device: str | None, threads: int | None, memory: int | str | None
    ) -> Session:
        plain = device is None and threads is None and memory is None
        place = None if plain else _place(device or "cpu", threads, memory, None)
        made = cls.__new__(cls)
        made._ready(_native.session_of_optimized(optimized._handle, place), optimized)
        return made

    @classmethod
    def load(
        cls,
        path: _settings.Path,
        *,
        device: str = "cpu",
        threads: int | None = None,
        memory: int | str | None = None,
        fp: Fp | None = None,
    ) -> Session:
        """A session that was saved by `save`: ready in the time of reading its weights, for nothing is read, optimised or checked again.

        Args:
            path: The file.
            device, threads, memory, fp: As `Session` takes them. The machine has the vectors, or the device, that the session was saved for.

        Raises:
            FileError: The file cannot be read.
            ModelError: It is damaged.
            SettingError: It was saved by another version, or for another kind of machine: optimise the model again.
            ResourcesError: A run would take more memory than it may.
        """
        made = cls.__new__(cls)
        made._ready(_native.session_load(os.fspath(path), _place(device, threads, memory, fp)), None)
        return made

    def save(self, path: _settings.Path) -> None:
        """Writes what the session is made of, weights included, as a file that takes its name when it is complete; `load` makes the session of it.

        Raises:
            SettingError: The data of each run decide the model.
            FileError: The file cannot be written.
        """
        _native.session_save(self._handle, os.fspath(path))

    def _ready(self, handle: object, optimized: OptimizedModel | None) -> None:
        self._handle = handle
        self._optimized = optimized
        self._inputs, self._outputs = _values(_native.session_values(handle))

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, npt.ArrayLike],
        run_options: None = None,
    ) -> list[np.ndarray[Any, Any]]:
        """Runs once, without the interpreter's lock.

        Args:
            output_names: Which outputs, in which order; all of them for `None`.
            input_feed: Arrays by name: of NumPy, of anything that has ``__dlpack__`` (PyTorch, JAX), or lists and numbers. NumPy's are read where
                they lie if they are contiguous, aligned and of this machine's byte order, and are not to be written meanwhile; others are copied.
            run_options: Is there for programs that pass `None`.

        Returns:
            Arrays that own their elements. Types that NumPy lacks are those of the package ``ml_dtypes``; texts are objects.

        Raises:
            InputError: An input is missing or unknown; its element type or shape does not fit.
            OutputError: There is no such output.
            ResourcesError: The run would take too much memory.
            RunError: An operator fails on these values.
        """
        if run_options is not None:
            raise TypeError("options of a run are those of its session: `threads`, `memory`, `device`")
        feed = input_feed if isinstance(input_feed, dict) else dict(input_feed)
        return _native.session_run(self._handle, None if output_names is None else list(output_names), feed)

    def __call__(self, inputs: Mapping[str, npt.ArrayLike] | None = None, /, **arrays: npt.ArrayLike) -> dict[str, np.ndarray[Any, Any]]:
        """Runs once and returns all outputs by name: ``session(x=array)["y"]``.

        Inputs whose names are no identifiers are given as a mapping: ``session({"input.1": array})``. Otherwise as `run`.
        """
        feed = {**inputs, **arrays} if inputs else arrays
        return _native.session_call(self._handle, feed)

    def get_inputs(self) -> list[Value]:
        """The inputs, in order: each has ``name``, ``shape``, ``type`` (``"tensor(float)"``) and ``dtype`` (``"float32"``)."""
        return list(self._inputs)

    def get_outputs(self) -> list[Value]:
        """The outputs, in order."""
        return list(self._outputs)

    def bind(self) -> Stream:
        """A stream of runs that holds nothing yet: inputs that stay, outputs that are fed back, outputs in arrays of the caller."""
        return Stream._of(_native.stream_of(self._handle))

    @property
    def appended(self) -> list[tuple[str, str]]:
        """The outputs that are an input with more after it along an axis, each with that input: what a cache is, by the operators."""
        return _native.session_appended(self._handle)

    @property
    def optimized(self) -> OptimizedModel | None:
        """What it was made of, to be asked why; `None` of a model that was not optimised, and of a session that was loaded."""
        return self._optimized

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Session {_signature(self._inputs)} -> {_signature(self._outputs)}>"


def _place(device: str, threads: int | None, memory: int | str | None, fp: str | None) -> dict[str, Any]:
    """The device of a session as plain values."""
    kind, number = _settings.device(device)
    return _collected(device=kind, number=number, threads=threads, memory=_settings.size(memory), fp=fp)
