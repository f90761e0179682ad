"""Models: what they are read from, and what they are read with."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

import mlc_rewrite as mlc


def test_every_source_is_the_same_model(proto: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(proto, path)
    data = proto.SerializeToString()
    for source in [path, str(path), data, bytearray(data), memoryview(data), proto, onnx_ir.from_proto(proto)]:
        model = mlc.Model(source)
        assert model.inputs == [mlc.Value("x", "float32", ("n", 4))]
        assert model.outputs == [mlc.Value("y", "float32", ("n", 4))]
        assert "relu" in model.text
        assert repr(model) == "<mlc_rewrite.Model (x: float32[n, 4]) -> (y: float32[n, 4])>"


def test_shapes_and_symbols_are_bound(redundant: mlc.Model) -> None:
    assert mlc.Model(redundant, bind={"n": 2}).inputs[0].shape == (2, 4)
    assert mlc.Model(redundant, shapes={"n": [5]}).inputs[0].shape == (5, 4)
    assert mlc.Model(redundant, shapes={"x": [6, 4]}).inputs[0].shape == (6, 4)
    assert redundant.inputs[0].shape == ("n", 4)


def test_values_become_constants(proto: onnx.ModelProto) -> None:
    axes = onnx.helper.make_tensor_value_info("axes", onnx.TensorProto.INT64, [1])
    proto.graph.input.append(axes)
    proto.graph.node.append(onnx.helper.make_node("ReduceSum", ["b", "axes"], ["z"], keepdims=0))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    model = mlc.Model(proto, values={"axes": np.array([1])})
    assert [v.name for v in model.inputs] == ["x"]
    assert model.outputs[1].shape == ("n",)


def test_rules_are_read_with_a_model(tmp_path: Path) -> None:
    rules = tmp_path / "own.rules"
    rules.write_text("//! Own layers.\n\n/// Twice.\ndef twice(x: F[..s]) -> F[..s]\n  = x + x\n")
    model = mlc.Model(text="def model(x: f32[3]) -> y: f32[3]\n  = twice(x)\n", rules=rules)
    assert mlc.Session(model)(x=[1, 2, 3])["y"].tolist() == [2, 4, 6]


def test_models_are_pickled(redundant: mlc.Model, proto: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(proto, path)
    bound = mlc.Model(redundant, bind={"n": 2})
    for model in [redundant, bound, mlc.Model(proto), mlc.Model(path)]:
        again = pickle.loads(pickle.dumps(model))
        assert (again.inputs, again.text) == (model.inputs, model.text)


def test_a_source_or_a_text(proto: onnx.ModelProto) -> None:
    with pytest.raises(TypeError, match="give one of the two"):
        mlc.Model()
    with pytest.raises(TypeError, match="give one of the two"):
        mlc.Model(proto, text="def f(x: f32[1]) -> f32[1]\n  = x\n")
    with pytest.raises(TypeError, match="a list is no model"):
        mlc.Model([])
