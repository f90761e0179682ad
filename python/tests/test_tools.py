"""Comparing graphs, and fuzzing."""

from __future__ import annotations

import onnx
import pytest

import mlc_rewrite as mlc


def test_graphs_are_compared(proto: onnx.ModelProto) -> None:
    assert not mlc.diff(proto, proto)
    assert str(mlc.diff(proto, proto)) == "the graphs are the same: 3 nodes"
    optimized, _ = mlc.optimize(mlc.Model(proto))
    found = mlc.diff(proto, optimized)
    assert found
    assert (found.operators["Transpose"]["before"], found.operators["Transpose"]["after"]) == (2, 0)
    assert "Transpose: 2 -> 0" in str(found)
    with pytest.raises(mlc.ModelError, match="no graph of ONNX"):
        mlc.diff(proto, mlc.Model(text="def f(x: f32[1]) -> f32[1]\n  = x\n"))


def test_models_are_compared(proto: onnx.ModelProto) -> None:
    optimized, _ = mlc.optimize(mlc.Model(proto))
    found = mlc.compare(proto, optimized)
    assert found.is_equal and not found.regions and str(found).startswith("equal by the laws")
    assert found.html().startswith("<!doctype html>") and "two models" in found.html()
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    other.graph.node.add(op_type="Neg", input=[other.graph.output[0].name], output=["turned"], name="turned")
    other.graph.output[0].name = "turned"
    with pytest.raises(mlc.ModelError, match="outputs"):
        mlc.compare(proto, other)


def test_random_programs() -> None:
    found = mlc.fuzz(cases=5, seed=1)
    assert found and found.cases == 5 and not found.failures
    assert "5 programs" in str(found)
    with pytest.raises(mlc.Error, match="fast"):
        mlc.fuzz(cases=1, fp="fast")
