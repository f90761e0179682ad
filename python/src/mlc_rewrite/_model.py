"""Models: read from files, from memory, and from texts."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _log, _native, _settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What ONNX Runtime calls the element types.
_ONNX = {
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float",
    "float64": "double",
    "object": "string",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}


_OWN = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "bool": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (2, 4, 8, 16, 32, 64)},
}


def dtype_of_text(name: str) -> str:
    """What NumPy calls an element type of the rule language."""
    return _OWN.get(name, name)


class Value(NamedTuple):
    """An input or output of a model."""

    name: str
    """What it is called in runs."""
    dtype: str
    """Its element type as NumPy or ``ml_dtypes`` calls it; ``"object"`` for texts."""
    shape: tuple[int | str, ...]
    """Its extents: numbers, and what only a run decides by name, as ``"batch"``."""

    @property
    def type(self) -> str:
        """The type as ONNX Runtime spells it, such as ``"tensor(float)"``."""
        return f"tensor({_ONNX.get(self.dtype, self.dtype)})"


def values(described: Any) -> tuple[list[Value], list[Value]]:
    """Inputs and outputs as the extension module tells them."""
    inputs, outputs = described
    return [Value(n, d, tuple(s)) for n, d, s in inputs], [Value(n, d, tuple(s)) for n, d, s in outputs]


class Model:
    """A model that is read, with what it is read with. Reading it once serves any number of optimisations and sessions.

    Args:
        source: A path (an ``.onnx`` file, a ``.rules`` text whose last ``def`` it is, a GGUF file, or a folder with ``config.json`` and
            ``*.safetensors``; weights stay in the mapped file), the ``bytes`` of an ONNX file, an ``onnx.ModelProto``, an
            ``onnx_ir.Model``, or another `Model` to be read again with more settings.
        text: A text of the rule language, in place of a source: its last ``def`` is the model.
        rules: Paths of further laws, layers, operators or targets, or `Rules`; one or several.
        shapes: Shapes of inputs in place of the declared ones, and extents of symbols: ``{"image": [1, 3, 224, 224], "batch": [1]}``.
        bind: Extents of symbols: ``{"batch": 1}``. Unlike ``shapes``, a name that is no symbol is an error.
        values: Inputs that become constants, by name, as those that decide shapes or axes.
        fold_defaults: Whether inputs with a default become constants. By default that is so where it matters to shapes.
        options: Options of the architecture that a file of weights is read by: ``{"last": True}`` for the logits of the last position.

    Raises:
        FileError: The file cannot be read.
        ModelError: It is no model, or holds what is not supported; ``place`` says where.
        RulesError: A text has mistakes.
        SettingError: A shape, a symbol or a value does not fit the model.

    >>> model = Model(text="def model(x: f32[n]) -> y: f32[n]\\n  = x * x\\n", bind={"n": 3})
    >>> model.inputs
    [Value(name='x', dtype='float32', shape=(3,))]
    """

    __slots__ = ("_handle", "_origin")

    _handle: object
    _origin: Any

    def __init__(
        self,
        source: Any = None,
        *,
        text: str | None = None,
        rules: Any = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        bind: Mapping[str, int] | None = None,
        values: Mapping[str, Any] | None = None,
        fold_defaults: bool | None = None,
        options: Mapping[str, bool] | None = None,
    ) -> None:
        if (source is None) == (text is None):
            raise TypeError("a model is read from a source or a text: give one of the two")
        reading = {
            "rules": _settings.rules(rules),
            "shapes": _settings.shapes(shapes),
            "bind": None if bind is None else [(s, int(n)) for s, n in bind.items()],
            "values": None if values is None else dict(values),
            "fold_defaults": fold_defaults,
            "options": None if options is None else list(options.items()),
        }
        reading = {name: value for name, value in reading.items() if value is not None}
        origin: Any
        if text is not None:
            self._handle = _native.model_of_text(text, reading)
            origin = ("text", text)
        elif isinstance(source, Model):
            self._handle = _native.model_read_with(source._handle, reading) if reading else source._handle
            origin = ("model", source._origin)
        elif isinstance(source, (str, os.PathLike)):
            self._handle = _native.model_read(os.fspath(source), reading)
            origin = ("path", os.path.abspath(os.fspath(source)))
        else:
            data = _bytes(source)
            self._handle = _native.model_of_bytes(data, reading)
            origin = ("bytes", data)
        self._origin = (origin, reading)
        _log.told(lambda: "".join(f"note: {note}\n" for note in self.notes))

    @property
    def inputs(self) -> list[Value]:
        """The inputs, in order."""
        return values(_native.model_values(self._handle))[0]

    @property
    def outputs(self) -> list[Value]:
        """The outputs, in order."""
        return values(_native.model_values(self._handle))[1]

    @property
    def notes(self) -> list[str]:
        """What is odd about the model and does not matter to its values, and what had to be assumed of its symbols."""
        return list(_native.model_notes(self._handle))

    @property
    def text(self) -> str:
        """The computation as a text of the rule language."""
        return _native.model_text(self._handle)

    def __repr__(self) -> str:
        return f"<mlc_rewrite.Model {_signature(self.inputs)} -> {_signature(self.outputs)}>"

    def __reduce__(self) -> Any:
        return _again, (self._origin,)


def _signature(values: list[Value]) -> str:
    return "(" + ", ".join(f"{v.name}: {v.dtype}[{', '.join(map(str, v.shape))}]" for v in values) + ")"


def _again(origin: Any) -> Model:
    """A model that was pickled, read again: of a file, the path was kept; of memory, the bytes."""
    (kind, content), reading = origin
    model = Model.__new__(Model)
    model._origin = origin
    if kind == "text":
        model._handle = _native.model_of_text(content, reading)
    elif kind == "path":
        model._handle = _native.model_read(content, reading)
    elif kind == "bytes":
        model._handle = _native.model_of_bytes(content, reading)
    else:
        before = _again(content)._handle
        model._handle = _native.model_read_with(before, reading) if reading else before
    return model


def _bytes(source: Any) -> bytes:
    """The bytes of an ONNX file, of what holds a model in memory."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if hasattr(source, "SerializeToString"):
        return bytes(source.SerializeToString())
    if is_ir(source):
        import onnx_ir

        return bytes(onnx_ir.to_proto(source).SerializeToString())
    raise TypeError(
        f"a {type(source).__name__} is no model: give a path, the bytes of an ONNX file, an `onnx.ModelProto`, an `onnx_ir.Model` or a `Model`"
    )


def is_ir(source: Any) -> bool:
    """True if it is a model of `onnx_ir`, which is then imported already."""
    module = sys.modules.get("onnx_ir")
    return module is not None and isinstance(source, module.Model)
