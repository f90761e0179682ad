"""Streams of runs: inputs that stay, and outputs that are the next run's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt


class Stream:
    """One stream of runs of a session: a conversation, a microphone, a simulation. `Session.bind` makes it.

    Inputs that are `set` stay, and an output that is fed back is an input of the next run without a copy. Of an output that is its input with more
    after it along an axis, as the keys and values are that a language model has seen, only what is new is written. A session has any
    number of streams; one is used by one thread at a time. A run that fails leaves it as it was.

    >>> from mlc_rewrite import Model, Session
    >>> session = Session(Model(text='''
    ... def model(x: f32[s, 2], past: f32[p, 2]) -> y: f32[2], seen: f32[p + s, 2]
    ...   let seen = concat(past, x, axis=0)
    ...   = (sum(seen, axes=[0]), seen)
    ... '''))
    >>> stream = session.bind()
    >>> stream.feed_back("seen", "past")
    >>> stream.set("past", [[1.0, 2.0]])
    >>> stream(x=[[10.0, 20.0]])["y"]
    array([11., 22.], dtype=float32)
    >>> stream(x=[[100.0, 200.0]])["y"]
    array([111., 222.], dtype=float32)
    >>> stream.shape("past")
    (3, 2)
    """

    __slots__ = ("_handle",)

    _handle: object

    def __init__(self) -> None:
        raise TypeError("`Session.bind` makes streams")

    @classmethod
    def _of(cls, handle: object) -> Stream:
        made = cls.__new__(cls)
        made._handle = handle
        return made

    def feed_back(self, output: str, input: str) -> None:
        """From now on this output of each run is this input of the next one. What the first run reads is `set`, or given to it.

        Raises:
            OutputError: There is no such output, or it is not of the input's type.
            InputError: There is no such input.
        """
        _native.stream_feed_back(self._handle, output, input)

    def feed_back_appended(self) -> list[tuple[str, str]]:
        """Feeds back all outputs that are an input and more after it, found by the operators, and says which they are: pairs of output and input."""
        return _native.stream_feed_back_appended(self._handle)

    def limit(self, input: str, extent: int) -> None:
        """The most that an input which is fed back may have along the axis in which it grows; a run that would take it further is refused.

        Raises:
            InputError: There is no such input, or it does not grow.
        """
        _native.stream_limit(self._handle, input, extent)

    def set(self, input: str, array: npt.ArrayLike) -> None:
        """Sets an input, which is copied, for all runs to come, or the state from which one that is fed back goes on.

        Raises:
            InputError: There is no such input, or its element type or shape does not fit.
        """
        _native.stream_set(self._handle, input, array)

    def get(self, input: str) -> np.ndarray[Any, Any] | None:
        """A copy of what an input is bound to; `None` if it is not."""
        array: np.ndarray[Any, Any] | None = _native.stream_get(self._handle, input)
        return array

    def shape(self, input: str) -> tuple[int, ...] | None:
        """The extents of what an input is bound to; `None` if it is not."""
        shape = _native.stream_shape(self._handle, input)
        return None if shape is None else tuple(shape)

    def reset(self) -> None:
        """Forgets what the inputs that are fed back are; other inputs stay as they were set."""
        _native.stream_reset(self._handle)

    def run(
        self, input_feed: Mapping[str, npt.ArrayLike], into: Mapping[str, np.ndarray[Any, Any]] | None = None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Runs once, without the interpreter's lock.

        Args:
            input_feed: Arrays by name; one that is given is taken in place of what is bound.
            into: Arrays that outputs are written to, where their kernels yield them if they lie so: writeable, contiguous, of the output's type, and
                not read or written by others meanwhile. What is in them after an error is arbitrary.

        Returns:
            The outputs that are neither fed back nor written to ``into``, by name.

        Raises:
            InputError: An input is missing or unknown, does not fit, or would grow beyond its limit.
            OutputError: There is no such output, or its array does not fit it.
            ResourcesError, RunError: As `Session.run` raises them.
        """
        return _native.stream_run(self._handle, dict(input_feed), {} if into is None else dict(into))

    def __call__(self, inputs: Mapping[str, npt.ArrayLike] | None = None, /, **arrays: npt.ArrayLike) -> dict[str, np.ndarray[Any, Any]]:
        """The same with inputs by keyword: ``stream(x=array)["y"]``."""
        return _native.stream_run(self._handle, {**inputs, **arrays} if inputs else arrays, {})

    def __copy__(self) -> Stream:
        """A stream that goes on from the same state by itself; what both hold is shared until one of them writes."""
        return Stream._of(_native.stream_clone(self._handle))

    copy = __copy__
