"""Rules: laws, layers and operators of one's own; checked, and called on arrays."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from . import _native, _settings
from ._model import Model
from ._report import _html, _json, parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from ._session import Session

_KEPT = 64


class Rules:
    """Texts in the language of this project: layers, operators and laws. They are read when this is made.

    Args:
        paths: Files, which may use what the files before them declare.
        text: A text, after these files.
        name: What errors call the text.

    Raises:
        FileError: A file cannot be read.
        RulesError: A text has mistakes; ``place`` is its line and column, ``code`` the kind of mistake.

    >>> rules = Rules(text='''
    ... /// Snake: the identity and a wave.
    ... def snake(x: F[..s], alpha: float in 0.5..2) -> F[..s]
    ...   = x + sin(alpha * x)^2 / alpha
    ... ''')
    >>> rules.layers
    ['snake']
    >>> snake = rules.layer("snake")
    >>> snake([0.0, 1.0], alpha=1.0).round(3)
    array([0.   , 1.708], dtype=float32)
    >>> bool(rules.check(samples=20))
    True
    """

    __slots__ = ("_declared", "_sources")

    def __init__(self, *paths: _settings.Path, text: str | None = None, name: str = "rules.rules") -> None:
        self._sources: list[tuple[str, str | None]] = [(os.fspath(path), None) for path in paths]
        if text is not None:
            self._sources.append((name, text))
        if not self._sources:
            raise TypeError("rules are read from files or a text")
        self._declared = {name: rest for name, *rest in _native.rules_layers({"rules": self._sources})}

    @property
    def layers(self) -> list[str]:
        """The layers and operators that the texts declare, in their order."""
        return list(self._declared)

    def layer(self, name: str, *, device: str = "cpu", threads: int | None = None) -> Layer:
        """A layer, or an operator, shipped ones among them, that is called on arrays.

        Args:
            name: What its text calls it.
            device, threads: Where it runs, as for a `Session`.

        Raises:
            SettingError: Nothing has that name; it is raised by the first call.
        """
        return Layer(self, name, device, threads)

    def check(self, *, samples: int = 250, seed: int = 0, threads: int | None = None, target: str = "standard") -> Check:
        """Tests every law of the texts on samples, beside the float64 reference interpreter, and tries to prove it.

        Args:
            samples: How many, for each law.
            seed: Equal seeds draw equal samples.
            threads: Laws that are checked at a time; results do not depend on it.
            target: Whose costs ``picks`` tests speak of.

        Returns:
            What was found: it is true if everything holds; ``counterexamples`` has arrays on which a law does not.
        """
        reading = {"rules": self._sources}
        return Check(_native.rules_check(reading, samples, seed, threads or os.cpu_count() or 1, target))

    def __reduce__(self) -> Any:
        return _again, (self._sources,)

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Rules {', '.join(name for name, _ in self._sources)}>"


def _again(sources: list[tuple[str, str | None]]) -> Rules:
    rules = Rules.__new__(Rules)
    rules._sources = sources
    rules._declared = {name: rest for name, *rest in _native.rules_layers({"rules": sources})}
    return rules


class Layer:
    """A layer or an operator that is called on arrays; `Rules.layer` makes it.

    It is compiled for the element types, extents and attributes of a call, and the last 64 of these are kept.
    """

    __slots__ = ("_arrays", "_device", "_rules", "_sessions", "_threads", "doc", "name")

    def __init__(self, rules: Rules, name: str, device: str, threads: int | None) -> None:
        self.name = name
        """What its text calls it."""
        self._rules = rules
        self._device = device
        self._threads = threads
        self._sessions: OrderedDict[Any, Session] = OrderedDict()
        document, arrays, _ = rules._declared.get(name, ("", None, None))
        self._arrays: list[str] | None = arrays
        self.doc: str = document
        """Its documentation in the text."""

    def __call__(self, *arrays: npt.ArrayLike, **named: Any) -> Any:
        """Applies the layer.

        Args:
            arrays: As many as the layer takes, in its order, as `Session.run` takes them; lists and numbers are of ``float32`` or ``int64``.
            named: Further arrays by name, and attributes; those that are not given take their defaults.

        Returns:
            The result, or a tuple of them.

        Raises:
            InputError: The layer is not defined for these arrays.
            SettingError: There is no such layer or attribute, or a value is not of its kind.
        """
        given = list(arrays)
        for name in (self._arrays or [])[len(given) :]:
            if name in named:
                given.append(named.pop(name))
        plain = [_usual(array) for array in given]
        key = (tuple((a.dtype, a.shape) for a in plain), _json(named, default=str))
        session = self._sessions.get(key)
        if session is None:
            session = self._compiled(plain, named)
            self._sessions[key] = session
            if len(self._sessions) > _KEPT:
                self._sessions.popitem(last=False)
        feed = {value.name: array for value, array in zip(session.get_inputs(), plain)}
        outputs = session.run(None, feed)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def model(self, *arrays: npt.ArrayLike, **attributes: Any) -> Model:
        """The layer on arrays of these element types and extents as a model, to be optimised, written and run."""
        handle = _native.rules_layer({"rules": self._rules._sources}, self.name, [_usual(a) for a in arrays], attributes)
        text = _native.model_text(handle)
        model = Model.__new__(Model)
        model._handle = handle
        model._origin = (("text", text), {"rules": self._rules._sources})
        return model

    def _compiled(self, arrays: list[np.ndarray[Any, Any]], attributes: dict[str, Any]) -> Session:
        from ._session import Session

        return Session(self.model(*arrays, **attributes), device=self._device, threads=self._threads, optimize=False)

    def __reduce__(self) -> Any:
        return Layer, (self._rules, self.name, self._device, self._threads)

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Layer {self.name}>"


def _usual(array: Any) -> np.ndarray[Any, Any]:
    """An array; numbers and lists of Python are of the types that models mostly have."""
    import numpy as np

    from ._arrays import _of_dlpack

    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array)
    made = np.asarray(array)
    return made.astype(np.float32) if made.dtype == np.float64 and not hasattr(array, "dtype") else made


class Counterexample:
    """Arrays on which the sides of a law differ."""

    __slots__ = ("_data", "law")

    def __init__(self, law: str, data: dict[str, Any]) -> None:
        self.law = law
        """The law's name."""
        self._data = data

    @property
    def broken(self) -> str:
        """Which promise is broken, in one sentence."""
        return str(self._data["broken"])

    @property
    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """The variables of the law."""
        return {told["name"]: _array(told) for told in self._data["inputs"]}

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the law, as its text writes them."""
        return dict(self._data["attributes"])

    @property
    def left(self) -> np.ndarray[Any, Any] | None:
        """What the left side yields there, as float64 or int64; `None` if it has no value."""
        told = self._data["left"]
        return None if told is None else _array(told, exact=True)

    @property
    def right(self) -> np.ndarray[Any, Any] | None:
        """What the right side yields there, as float64 or int64; `None` if it has no value."""
        told = self._data["right"]
        return None if told is None else _array(told, exact=True)

    @property
    def at(self) -> tuple[int, ...]:
        """Where the first differing element lies."""
        return tuple(self._data["at"])

    def to_dict(self) -> dict[str, Any]:
        """All that is known of it; numbers are texts, since JSON has no NaN."""
        return dict(self._data)

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Counterexample of {self.law}: {self.broken}>"


def _array(told: Mapping[str, Any], exact: bool = False) -> np.ndarray[Any, Any]:
    import numpy as np

    from ._arrays import named
    from ._model import dtype_of_text

    name = dtype_of_text(told["dtype"])
    is_float = name.startswith(("float", "bfloat"))
    values = np.array([(float if is_float else int)(v) for v in told["values"]], np.float64 if is_float else np.int64)
    array = values.reshape(told["shape"])
    return array if exact else array.astype(named(name))


class Check:
    """What `Rules.check` found. It is true if every law holds and nothing in the texts is wrong; ``print`` it for the details."""

    __slots__ = ("_data", "text")

    def __init__(self, told: tuple[str, str]) -> None:
        self._data = parsed(told[0])
        self.text = told[1]
        """What was found, for people."""

    def __bool__(self) -> bool:
        return bool(self._data["sound"])

    @property
    def laws(self) -> dict[str, str]:
        """Each law's outcome: ``"holds"``, ``"fails"``, or ``"no_sample"`` if it can never fire."""
        return {law["law"]: law["verdict"]["outcome"]["is"] for law in self._data["laws"]}

    @property
    def counterexamples(self) -> list[Counterexample]:
        """One for each law that is false, as small as one was found."""
        return [
            Counterexample(law["law"], law["verdict"]["outcome"])
            for law in self._data["laws"]
            if law["verdict"]["outcome"]["is"] == "fails"
        ]

    @property
    def lints(self) -> list[dict[str, Any]]:
        """What is odd about the texts: ``code``, ``law``, ``file``, ``message``."""
        return list(self._data["lints"])

    def to_dict(self) -> dict[str, Any]:
        """Everything, by the names that ``mlc-rewrite check --json`` has."""
        return dict(self._data)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        outcomes = list(self.laws.values())
        return f"<mlc_rewrite.Check {outcomes.count('holds')} of {len(outcomes)} laws hold>"

    def _repr_html_(self) -> str:
        return _html(sorted(self.laws.items()), repr(self)[1:-1])
