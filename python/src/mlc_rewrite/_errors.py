"""Exceptions: `Error`, and one class for each kind of thing that is wrong."""

from __future__ import annotations


class Error(Exception):
    """Why something was not done. As text it is the message that the command line prints.

    Attributes:
        message: What is wrong, in one sentence.
        code: Of a mistake in a ``.rules`` text, as ``R003``; otherwise `None`.
        place: Where it is: a file, ``FILE:LINE:COLUMN`` of a text, a node or tensor of a model, an input, an operator.
        help: What can be done about it.
    """

    message: str
    code: str | None
    place: str | None
    help: str | None

    def __init__(
        self,
        text: str = "",
        *,
        message: str | None = None,
        code: str | None = None,
        place: str | None = None,
        help: str | None = None,
    ) -> None:
        super().__init__(text)
        self.message = text if message is None else message
        self.code = code
        self.place = place
        self.help = help

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class FileError(Error, OSError):
    """A file cannot be read or written."""


class ModelError(Error, ValueError):
    """Bytes are no model, or one that holds what is not supported."""


class RulesError(Error, ValueError):
    """A ``.rules`` text has mistakes."""


class SettingError(Error, ValueError):
    """A setting names or asks for what there is not: a target, a law, an operator set, a shape."""


class InputError(Error, ValueError):
    """The inputs of a run do not fit the model: a name, an element type, a shape."""


class OutputError(Error, ValueError):
    """A result is asked for by a name or an element type that it does not have."""


class ResourcesError(Error, MemoryError):
    """A run needs more memory or operations than are available; it was not begun."""


class RunError(Error, RuntimeError):
    """An operator fails on these inputs, as with an index out of range."""


class ExportError(Error, RuntimeError):
    """A program cannot be written as ONNX."""


class CheckError(Error, RuntimeError):
    """What was read of a model, or is to be written, is not what the model's file computes: nothing is written."""


class PipelineError(Error, RuntimeError):
    """A stage of the pipeline failed in a way that no input should bring about; please report it."""


for _class in [Error, *Error.__subclasses__()]:
    _class.__module__ = "mlc_rewrite"
del _class
