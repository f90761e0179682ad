"""Optimisation: kinds of models in and out, options, reports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

import mlc_rewrite as mlc


def test_a_path_becomes_a_model_that_is_saved_and_run(squeezenet: Path, tmp_path: Path) -> None:
    optimized, report = mlc.optimize(squeezenet, target="onnxruntime")
    assert isinstance(optimized, mlc.OptimizedModel)
    assert report.optimized is optimized
    assert report.nodes_after < report.nodes_before
    optimized.save(tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(saved, full_check=True)
    assert len(saved.graph.node) == report.nodes_after
    image = np.random.default_rng(0).random((1, 3, 224, 224), dtype=np.float32)
    [fast] = optimized.session(threads=1).run(None, {"input": image})
    [plain] = mlc.Session(squeezenet, optimize=False, threads=1).run(None, {"input": image})
    np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-4)


def test_the_same_kind_comes_back(proto: onnx.ModelProto) -> None:
    same, report = mlc.optimize(proto)
    assert isinstance(same, onnx.ModelProto)
    assert [node.op_type for node in same.graph.node] == ["Relu"]
    assert (report.nodes_before, report.nodes_after) == (3, 1)
    data, _ = mlc.optimize(proto.SerializeToString())
    assert isinstance(data, bytes)
    assert data == same.SerializeToString(deterministic=True) or onnx.ModelProto.FromString(data) == same
    graph, _ = mlc.optimize(onnx_ir.from_proto(proto))
    assert isinstance(graph, onnx_ir.Model)
    assert [node.op_type for node in graph.graph] == ["Relu"]
    # What is given stays as it is.
    assert len(proto.graph.node) == 3


def test_output_is_written(proto: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(proto, path)
    mlc.optimize(path, path)
    assert len(onnx.load(path).graph.node) == 1


def test_options_reach_the_optimiser(proto: onnx.ModelProto) -> None:
    bound, _ = mlc.optimize(proto, bind={"n": 3})
    assert [d.dim_value for d in bound.graph.input[0].type.tensor_type.shape.dim] == [3, 4]
    written, _ = mlc.optimize(proto, opset=20)
    assert written.opset_import[0].version == 20
    result, report = mlc.optimize(
        proto,
        target="onnxruntime",
        fp="exact",
        objective="memory",
        without=["relu_of_relu"] if False else [],
        extents={"n": (1, 64)},
        check_on=[{"x": np.ones((2, 4), np.float32)}],
        tolerance=1e-5,
        seed=7,
        threads=1,
        memory="1G",
        nodes=1000,
        rounds=3,
        effort=1000,
        time_limit=10.0,
        solver="greedy",
        deadline=1.0,
    )
    assert report.target == "onnxruntime"
    assert len(result.graph.node) == 1


def test_a_check_can_be_left_out(redundant: mlc.Model) -> None:
    assert mlc.optimize(redundant)[1].self_check_error is not None
    assert mlc.optimize(redundant, check=False)[1].self_check_error is None


def test_reports_are_for_people_and_programs(redundant: mlc.Model) -> None:
    _, report = mlc.optimize(redundant)
    assert json.loads(report.to_json()) == report.to_dict()
    assert f"{report.nodes_before} → {report.nodes_after}" in str(report)
    assert report._repr_html_().startswith("<table>")
    assert report.laws and all(n > 0 for n in report.laws.values())
    assert "nodes for standard" in repr(report)
    assert report.seconds and not report.laws_turned_off and not report.is_as_read


def test_results_explain_themselves(redundant: mlc.Model) -> None:
    _, report = mlc.optimize(redundant)
    explanation = report.explain()
    assert {law["law"] for law in explanation.laws} == set(report.laws) or explanation.laws
    assert str(explanation) == explanation.text != ""
    assert "<pre " in explanation._repr_html_()
    assert report.html().startswith("<!doctype html>") and "<script" in report.html()
    refusal = report.why_not("softmax")
    assert refusal.name == "softmax" and "softmax" in str(refusal)
    with pytest.raises(mlc.SettingError, match="no law and no operator"):
        report.why_not("softmix")


def test_results_answer_questions(redundant: mlc.Model) -> None:
    _, report = mlc.optimize(redundant)
    optimized = report.optimized
    assert optimized.kernels().to_dict()["kernels"] and "roofline" in str(optimized.kernels())
    assert optimized.would_gain("exact").to_dict()["tried"] == "--fp exact"
    assert "ulp" in str(optimized.numerics())
    with pytest.raises(mlc.SettingError, match="no node `nothing`"):
        optimized.node("nothing")
    with pytest.raises(mlc.SettingError, match="no node `nothing`"):
        optimized.why_not_fused("nothing", "nothing")


def test_nodes_that_reading_removed_are_told_of(proto: onnx.ModelProto) -> None:
    left = onnx.ModelProto()
    left.CopyFrom(proto)
    left.graph.node.add(op_type="Identity", input=[left.graph.output[0].name], output=["unused"], name="idle")
    optimized = mlc.optimize(mlc.Model(left))[0]
    assert "idle" in str(optimized.node("idle")) and optimized.node("idle").to_dict()["notes"]


def test_optimised_models_tell_what_they_are(redundant: mlc.Model) -> None:
    optimized, _ = mlc.optimize(redundant)
    assert [v.name for v in optimized.inputs] == ["x", "w"]
    assert optimized.outputs == [mlc.Value("y", "float32", ("n", 4))]
    assert "transpose" not in optimized.text
    with pytest.raises(TypeError):
        mlc.OptimizedModel()


def test_equal_calls_have_equal_results(proto: onnx.ModelProto) -> None:
    data = proto.SerializeToString()
    assert mlc.optimize(data, threads=1)[0] == mlc.optimize(data, threads=2)[0]
