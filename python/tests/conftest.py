"""What the tests share: models that take no time."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import mlc_rewrite as mlc

ROOT = Path(__file__).resolve().parents[2]

# A model with something to remove, and an axis that is open.
REDUNDANT = """
def model(x: f32[n, 4], w: f32[4, 4]) -> y: f32[n, 4]
  = relu(transpose(transpose(x @ w, perm=[1, 0]), perm=[1, 0])) + 0
"""


@pytest.fixture(scope="session")
def squeezenet() -> Path:
    """A network for images."""
    return ROOT / "examples" / "squeezenet1_1.onnx"


@pytest.fixture
def redundant() -> mlc.Model:
    """A small model that can be made smaller."""
    return mlc.Model(text=REDUNDANT)


@pytest.fixture
def proto() -> onnx.ModelProto:
    """The same as ONNX: two transposes that undo each other."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "small", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What loads JAX comes last: a process that has it warns of every fork."""
    items.sort(key=lambda item: item.path.name == "test_converters.py")
