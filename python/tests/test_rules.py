"""Rules: checked, with counterexamples as arrays; layers called on arrays."""

from __future__ import annotations

import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mlc_rewrite as mlc

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "my_layer.rules"

WRONG = """
/// Not so: the square of a sum has a mixed term.
rule square_of_sum
  (a + b)^2 => a^2 + b^2
  given a: F[..s], b: F[..s]
  error reorder
"""


def test_what_holds() -> None:
    rules = mlc.Rules(EXAMPLE)
    found = rules.check(samples=40)
    assert found
    assert found.laws["snake_shift"] == "holds"
    assert not found.counterexamples
    assert "hold" in str(found)
    assert "<table>" in found._repr_html_()


def test_counterexamples_are_arrays() -> None:
    found = mlc.Rules(text=WRONG).check()
    assert not found
    [example] = found.counterexamples
    assert example.law == "square_of_sum"
    a, b = example.inputs["a"], example.inputs["b"]
    left, right = example.left, example.right
    assert left is not None and right is not None
    np.testing.assert_allclose((a.astype(float) + b.astype(float)) ** 2, left, rtol=1e-2)
    np.testing.assert_allclose(a.astype(float) ** 2 + b.astype(float) ** 2, right, rtol=1e-2)
    assert left[example.at] != right[example.at]
    assert example.broken in repr(example)


def test_layers_are_called_on_arrays() -> None:
    rules = mlc.Rules(EXAMPLE)
    assert rules.layers == ["snake"]
    snake = rules.layer("snake")
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(snake(x, alpha=1.5), x + np.sin(1.5 * x) ** 2 / 1.5, rtol=1e-5)
    np.testing.assert_allclose(snake(x=x, alpha=1), x + np.sin(x) ** 2, rtol=1e-5)
    assert snake(x.astype(np.float64), alpha=1.0).dtype == np.float64
    assert snake(x.astype(ml_dtypes.bfloat16), alpha=1.0).dtype == ml_dtypes.bfloat16
    assert snake(np.float32(0), alpha=1.0).shape == ()
    assert snake(x.T, alpha=1.0).tolist() == snake(x, alpha=1.0).T.tolist()
    assert "Snake" in snake.doc
    again = pickle.loads(pickle.dumps(snake))
    assert again(x, alpha=1.0).tolist() == snake(x, alpha=1.0).tolist()


def test_layers_are_models() -> None:
    model = mlc.Rules(EXAMPLE).layer("snake").model(np.zeros((2, 3), np.float32), alpha=1.0)
    assert model.inputs == [mlc.Value("x", "float32", (2, 3))]
    optimized, _ = mlc.optimize(model)
    assert len(optimized.to_bytes()) > 0
    assert pickle.loads(pickle.dumps(model)).inputs == model.inputs


def test_shipped_layers_and_several_results() -> None:
    rules = mlc.Rules(text="/// Both.\ndef both(x: F[..s]) -> F[..s], F[..s]\n  = (x + x, x * x)\n")
    twice, square = rules.layer("both")([3.0])
    assert (twice.tolist(), square.tolist()) == ([6], [9])
    np.testing.assert_allclose(rules.layer("softmax")(np.zeros(4, np.float32), axis=0), 0.25)


def test_what_layers_refuse() -> None:
    rules = mlc.Rules(EXAMPLE)
    snake = rules.layer("snake")
    with pytest.raises(mlc.InputError, match="takes 1 arrays, and 2 are given"):
        snake([1.0], [2.0], alpha=1.0)
    with pytest.raises(mlc.InputError, match="no array of i64"):
        snake([1], alpha=1.0)
    with pytest.raises(mlc.SettingError, match="attribute `alpha` of `snake` is missing"):
        snake([1.0])
    with pytest.raises(mlc.SettingError, match="attribute `beta` of `snake` is not declared"):
        snake([1.0], alpha=1.0, beta=2.0)
    with pytest.raises(mlc.SettingError, match="is not"):
        snake([1.0], alpha="big")
    with pytest.raises(mlc.SettingError, match="did you mean `snake`"):
        rules.layer("snak")([1.0])


def test_mistakes_in_texts(tmp_path: Path) -> None:
    with pytest.raises(mlc.RulesError) as raised:
        mlc.Rules(text="def f(x: F[..s]) -> F[..s]\n  = x +\n", name="mine.rules")
    assert raised.value.place is not None and raised.value.place.startswith("mine.rules:")
    with pytest.raises(mlc.FileError):
        mlc.Rules(tmp_path / "no.rules")
    with pytest.raises(TypeError):
        mlc.Rules()


def test_rules_take_part_in_optimising() -> None:
    rules = mlc.Rules(EXAMPLE)
    model = mlc.Model(EXAMPLE.with_name("my_layer_decomposed.rules"), rules=rules)
    _, report = mlc.optimize(model, target="cpu")
    assert "snake" in report.to_dict()["laws"], "its law fired: the layer was found where it is spelled out"
