"""Errors: one class for each kind, with the place and what to do; what users do wrong, and what they are told."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import mlc_rewrite as mlc

TEXT = "def model(x: f32[n, 2], rows: i64[k]) -> y: f32[k, 2]\n  = gather(x, rows, axis=0)\n"
X, ROWS = np.ones((2, 2), np.float32), np.array([0])


def run(names: list[str] | None = None, **feed: Any) -> Any:
    return mlc.Session(mlc.Model(text=TEXT)).run(names, feed)


def unknown_operator() -> onnx.ModelProto:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    node = onnx.helper.make_node("Swoosh", ["x"], ["y"], name="odd", domain="my.own")
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("my.own", 1)]
    return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=imports)


CASES: list[tuple[str, Callable[[], Any], type[BaseException], str, str | None]] = [
    ("a file that is not there", lambda: mlc.Model("no.onnx"), mlc.FileError, "cannot open `no.onnx`", "no.onnx"),
    ("bytes that are no model", lambda: mlc.Model(b"junk"), mlc.ModelError, "not a readable ONNX model", None),
    ("a text with a mistake", lambda: mlc.Model(text="def f(x: f32[2]) -> f32[2]\n  = x + y\n"), mlc.RulesError, "`y` is not a variable", "model.rules:2:9"),
    ("an unknown operator", lambda: mlc.Session(unknown_operator()), mlc.ModelError, "Swoosh", None),
    ("an unknown target", lambda: mlc.optimize(mlc.Model(text=TEXT), target="onnxrt"), mlc.SettingError, "no target `onnxrt`", "target `onnxrt`"),
    ("an unknown law", lambda: mlc.optimize(mlc.Model(text=TEXT), without="no_such_law"), mlc.SettingError, "no_such_law", None),
    ("an unknown symbol", lambda: mlc.Model(mlc.Model(text=TEXT), bind={"m": 2}), mlc.SettingError, "no input of the model has an axis", "symbol `m`"),
    ("a shape that does not fit", lambda: mlc.Model(mlc.Model(text=TEXT), shapes={"x": [1, 2, 3]}), mlc.SettingError, "x", None),
    ("an input's name", lambda: run(z=X, rows=ROWS), mlc.InputError, "the model has no input `z`", "input `z`"),
    ("a missing input", lambda: run(x=X), mlc.InputError, "input `rows` is missing", "input `rows`"),
    ("an input's element type", lambda: run(x=X.astype(np.float64), rows=ROWS), mlc.InputError, "expected f32", "input `x`"),
    ("an input's shape", lambda: run(x=X[0], rows=ROWS), mlc.InputError, "expected f32", "input `x`"),
    ("a fraction for an integer", lambda: run(x=X, rows=[0.5]), mlc.InputError, "float64 is given for int64", "input `rows`"),
    ("objects", lambda: run(x=X, rows=[object()]), mlc.InputError, "objects that are no texts", "input `rows`"),
    ("complex numbers", lambda: run(x=X.astype(complex), rows=ROWS), mlc.InputError, "complex128", "input `x`"),
    ("an output's name", lambda: run(["z"], x=X, rows=ROWS), mlc.OutputError, "the model has no output `z`", "output `z`"),
    ("an index out of range", lambda: run(x=X, rows=[7]), mlc.RunError, "", None),
    ("memory", lambda: mlc.Session(mlc.Model(text=TEXT), memory=1 << 20)(x=np.ones((1 << 20, 2), np.float32), rows=ROWS), mlc.ResourcesError, "", None),
    ("a word", lambda: mlc.optimize(mlc.Model(text=TEXT), fp="fast"), ValueError, "one of 'exact', 'reorder', 'approx'", None),  # type: ignore[arg-type]
    ("a size", lambda: mlc.optimize(mlc.Model(text=TEXT), memory="much"), ValueError, "is no number of bytes", None),
    ("a device", lambda: mlc.Session(mlc.Model(text=TEXT), device="tpu"), ValueError, "'cuda'", None),
    ("a keyword", lambda: mlc.optimize(mlc.Model(text=TEXT), targets="cpu"), TypeError, "targets", None),  # type: ignore[call-arg]
    ("a thing that is no model", lambda: mlc.optimize(3), TypeError, "a int is no model", None),
    ("a negative extent", lambda: mlc.Model(text=TEXT, bind={"n": -1}), OverflowError, "", None),
]


@pytest.mark.parametrize(("call", "kind", "text", "place"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_users_are_told(call: Callable[[], Any], kind: type[BaseException], text: str, place: str | None) -> None:
    with pytest.raises(kind) as raised:
        call()
    error = raised.value
    assert text in str(error)
    if isinstance(error, mlc.Error):
        assert error.message and error.message in str(error)
        assert error.help, "it says what to do"
        assert place is None or error.place == place
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), again.message, again.place, again.help, again.code) == (
            str(error),
            error.message,
            error.place,
            error.help,
            error.code,
        )


def test_codes_of_texts() -> None:
    with pytest.raises(mlc.RulesError) as raised:
        mlc.Model(text="def f(x: f32[2]) -> f32[2]\n  = x + y\n")
    assert raised.value.code == "R002"


def test_classes_are_of_the_usual_kinds() -> None:
    usual = {
        mlc.FileError: OSError,
        mlc.InputError: ValueError,
        mlc.ModelError: ValueError,
        mlc.ResourcesError: MemoryError,
        mlc.RunError: RuntimeError,
    }
    for own, base in usual.items():
        assert issubclass(own, mlc.Error) and issubclass(own, base)
        assert own.__module__ == "mlc_rewrite"


def test_nothing_is_written_where_it_fails(proto: onnx.ModelProto, tmp_path: Path) -> None:
    with pytest.raises(mlc.FileError):
        mlc.optimize(proto, tmp_path / "missing" / "out.onnx")
    assert not list(tmp_path.iterdir())
