"""Models of other frameworks, by the converters of their communities. Keras runs and exports with JAX unless the environment names another backend."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest

import mlc_rewrite as mlc

# What the converters tell of their own versions.
pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(0)


def missing(*modules: str) -> None:
    for module in modules:
        pytest.importorskip(module, reason=f"{module} is not installed: it is tested where it is installed already", exc_type=ImportError)


def test_jax() -> None:
    missing("jax", "jax2onnx")
    import jax
    import jax.numpy as jnp

    w = jnp.asarray(RNG.normal(size=(16, 8)).astype(np.float32))

    def network(x: Any) -> Any:
        y = jax.nn.gelu(x @ w, approximate=False)
        return jax.nn.softmax((y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1e-5))

    x = RNG.normal(size=(4, 16)).astype(np.float32)
    for argument in (jnp.asarray(x), jax.ShapeDtypeStruct((4, 16), jnp.float32), ("batch", 16)):
        model = mlc.from_jax(network, [argument])
        [y] = mlc.Session(model, threads=1).run(None, {model.inputs[0].name: x})
        np.testing.assert_allclose(y, network(x), rtol=1e-4, atol=1e-5)
    assert isinstance(model.inputs[0].shape[0], str)


def test_keras() -> None:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    missing("keras")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import keras
    layers = keras.layers
    image = keras.Sequential(
        [
            layers.Input((8, 8, 3)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5, activation="softmax"),
        ]
    )
    rows = keras.Sequential([layers.Input((12,)), layers.Dense(16, activation="gelu"), layers.Dense(3)])
    for network, x in [(image, RNG.random((2, 8, 8, 3)).astype(np.float32)), (rows, RNG.random((2, 12)).astype(np.float32))]:
        expected = keras.ops.convert_to_numpy(network(x))
        model = mlc.from_keras(network)
        [y] = mlc.Session(model, threads=1).run(None, {model.inputs[0].name: x})
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_sklearn() -> None:
    missing("sklearn", "skl2onnx")
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = RNG.normal(size=(200, 5)).astype(np.float32)
    label = (x[:, 0] + x[:, 1] > 0).astype(np.int64)
    for classifier in (make_pipeline(StandardScaler(), LogisticRegression()), RandomForestClassifier(5, max_depth=4, random_state=0)):
        fitted = classifier.fit(x, label)
        model = mlc.from_sklearn(fitted, x)
        labels, probabilities = mlc.Session(model, threads=1).run(None, {model.inputs[0].name: x[:50]})
        assert labels.tolist() == fitted.predict(x[:50]).tolist()
        np.testing.assert_allclose(probabilities, fitted.predict_proba(x[:50]), rtol=1e-4, atol=1e-5)
    for regressor in (Ridge(), GradientBoostingRegressor(n_estimators=5, random_state=0)):
        fitted = regressor.fit(x, x[:, 0] * 2 + x[:, 1])
        model = mlc.from_sklearn(fitted, x)
        [y] = mlc.Session(model, threads=1).run(None, {model.inputs[0].name: x[:50]})
        np.testing.assert_allclose(np.ravel(y), fitted.predict(x[:50]), rtol=1e-4, atol=1e-4)
