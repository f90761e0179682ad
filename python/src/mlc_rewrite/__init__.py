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
* `Error` is what everything raises, with one class for each kind.

Importing this package takes milliseconds: NumPy is imported with the first array.
"""

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
from ._report import Explanation, Report, WhyNot
from ._session import Session

__all__ = [
    "CheckError",
    "Error",
    "Explanation",
    "ExportError",
    "FileError",
    "InputError",
    "Model",
    "ModelError",
    "OptimizedModel",
    "OutputError",
    "PipelineError",
    "Report",
    "ResourcesError",
    "RulesError",
    "RunError",
    "Session",
    "SettingError",
    "Value",
    "WhyNot",
    "__version__",
    "optimize",
]
