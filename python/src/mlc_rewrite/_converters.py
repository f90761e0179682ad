"""Models of other frameworks, by the converters to ONNX that their communities keep. Each is imported by the call that needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def from_jax(function: Callable[..., Any], args: Sequence[Any], **reading: Any) -> Model:
    """The model of a function of JAX, or of a Flax or Equinox module, by ``jax2onnx`` (``pip install mlc-rewrite[jax]``).

    Args:
        function: What is called with arrays and yields arrays; what it closes over becomes constants.
        args: For each argument an array, a ``jax.ShapeDtypeStruct``, or a shape of ``float32`` in which a name is an open extent: ``("batch", 16)``.
        reading: As `Model` takes them: ``bind``, ``shapes``, ``rules``, ``values``.

    Raises:
        ImportError: ``jax2onnx`` is not installed.
        Error: As `Model` raises it.
    """
    import jax2onnx

    return Model(jax2onnx.to_onnx(function, list(args)), **reading)


def from_keras(model: Any, **reading: Any) -> Model:
    """The model of a Keras model, by its own export to ONNX (``pip install mlc-rewrite[keras]``), with any backend that Keras can export from.

    Args:
        model: A ``keras.Model`` that was called once, as its export asks. Axes that are `None` there, as that of the batch, stay open where the export of its backend leaves them so.
        reading: As `Model` takes them: ``bind``, ``shapes``, ``rules``, ``values``.

    Raises:
        Error: As `Model` raises it.
    """
    import os
    import tempfile
    import warnings

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        with warnings.catch_warnings():
            # What the exporter tells of its own versions.
            warnings.simplefilter("ignore")
            model.export(path, format="onnx", verbose=False)
        with open(path, "rb") as file:
            return Model(file.read(), **reading)


def from_sklearn(model: Any, example: Any, **reading: Any) -> Model:
    """The model of an estimator or pipeline of scikit-learn, by ``skl2onnx`` (``pip install mlc-rewrite[sklearn]``).

    Classifiers yield labels, and probabilities as one array.

    Args:
        model: What was fitted.
        example: Rows as it was fitted with, whose element type is that of the input; how many rows there are stays open.
        reading: As `Model` takes them: ``bind``, ``shapes``, ``rules``, ``values``.

    Raises:
        ImportError: ``skl2onnx`` is not installed.
        Error: As `Model` raises it.
    """
    import skl2onnx
    from sklearn.base import is_classifier

    options = {"zipmap": False} if is_classifier(model) else None
    return Model(skl2onnx.to_onnx(model, example[:1], options=options), **reading)
