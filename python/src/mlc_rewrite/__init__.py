"""Optimises and runs machine-learning models.

>>> import mlc_rewrite as mlc
>>> session = mlc.Session(mlc.Model(text='''
... def model(x: f32[n, 2]) -> y: f32[n, 2]
...   = 2 * x + x
... '''))
>>> session(x=[[1.0, 2.0]])["y"]
array([[3., 6.]], dtype=float32)

An ONNX model is a path, ``bytes``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``:

* `optimize` makes a smaller, equal model of it, checks it, and says what was done;
* `Session` runs it, as ``onnxruntime.InferenceSession`` does;
* `Model` is one that is read once, with shapes, bound symbols and rules;
* `Rules` are layers and laws of one's own, checked, and called on arrays;
* `compare` says whether two models are equal by the laws, and where they differ;
* `diff` compares two graphs, and `fuzz` tries the optimiser on random ones;
* `Error` is what everything raises, with one class for each kind.

Importing this package takes milliseconds: NumPy is imported with the first array.
"""

from typing import TYPE_CHECKING, Any

from ._converters import from_jax, from_keras, from_sklearn
from ._errors import (
    CheckError,
    Error,
    ExportError,
    FileError,
    InputError,
    ModelError,
    OutputError,
    PipelineError,
    ResourcesError,
    RulesError,
    RunError,
    SettingError,
)
from ._model import Model, Value
from ._native import version as __version__
from ._optimize import OptimizedModel, optimize
from ._report import Answer, Explanation, Report, WhyNot
from ._rules import Check, Counterexample, Layer, Rules
from ._session import Session
from ._stream import Stream
from ._tools import Comparison, Difference, Fuzzed, compare, diff, fuzz

if TYPE_CHECKING:
    from .torch import explain as explain, from_torch as from_torch

__all__ = [
    "Answer",
    "Check",
    "CheckError",
    "Comparison",
    "Counterexample",
    "Difference",
    "Error",
    "Explanation",
    "ExportError",
    "FileError",
    "Fuzzed",
    "InputError",
    "Layer",
    "Model",
    "ModelError",
    "OptimizedModel",
    "OutputError",
    "PipelineError",
    "Report",
    "ResourcesError",
    "Rules",
    "RulesError",
    "RunError",
    "Session",
    "SettingError",
    "Stream",
    "Value",
    "WhyNot",
    "__version__",
    "compare",
    "diff",
    "from_jax",
    "from_keras",
    "from_sklearn",
    "fuzz",
    "optimize",
]


def __getattr__(name: str) -> Any:
    # PyTorch is imported by what needs it.
    if name in ("explain", "from_torch", "torch"):
        import importlib

        module = importlib.import_module(".torch", __name__)
        return module if name == "torch" else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
