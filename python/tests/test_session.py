"""Sessions: runs, names, threads."""

from __future__ import annotations

import pathlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest

import mlc_rewrite as mlc

STEP = """
def model(x: f32[n, 2], rows: i64[k]) -> first: f32[k, 2], second: f32[n, 2]
  = (gather(x, rows, axis=0), x * 2)
"""


@pytest.fixture
def session() -> mlc.Session:
    return mlc.Session(mlc.Model(text=STEP))


def test_it_is_used_as_an_inference_session(session: mlc.Session) -> None:
    feed = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "rows": np.array([2, 0])}
    first, second = session.run(None, feed)
    assert first.tolist() == [[4, 5], [0, 1]]
    assert second.tolist() == [[0, 2], [4, 6], [8, 10]]
    [second] = session.run(["second"], feed)
    assert second.shape == (3, 2)
    second, first = session.run(["second", "first"], feed)
    assert (second.shape, first.shape) == ((3, 2), (2, 2))
    assert [(i.name, i.shape, i.type) for i in session.get_inputs()] == [
        ("x", ("n", 2), "tensor(float)"),
        ("rows", ("k",), "tensor(int64)"),
    ]
    assert [o.name for o in session.get_outputs()] == ["first", "second"]


def test_it_is_called_by_name(session: mlc.Session) -> None:
    outputs = session(x=[[1.0, 2.0]], rows=[0, 0])
    assert list(outputs) == ["first", "second"]
    assert outputs["first"].tolist() == [[1, 2], [1, 2]]
    assert session({"x": [[1, 2]]}, rows=[0])["first"].tolist() == [[1, 2]]


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("optimize", [True, False])
def test_devices_agree(device: str, optimize: bool) -> None:
    session = mlc.Session(mlc.Model(text=STEP), device=device, optimize=optimize, threads=1)
    assert session(x=[[1, 2]], rows=[0])["second"].tolist() == [[2, 4]]
    assert (session.optimized is not None) == optimize


def test_an_optimised_model_is_run(redundant: mlc.Model) -> None:
    optimized, _ = mlc.optimize(redundant)
    x, w = np.ones((1, 4), np.float32), np.eye(4, dtype=np.float32)
    for session in [optimized.session(), optimized.session(threads=1), mlc.Session(optimized), optimized.session(device="reference")]:
        assert session(x=x, w=w)["y"].tolist() == [[1, 1, 1, 1]]


def test_data_may_decide_a_model(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(onnx.helper.make_node("NonZero", ["y"], ["where"]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("where", onnx.TensorProto.INT64, [2, None]))
    session = mlc.Session(proto)
    x = np.zeros((2, 4), np.float32)
    for at in range(4):
        x[:] = 0
        x[1, at] = 1
        # The array is written again between runs: nothing that is kept may be seen to change.
        assert session(x=x)["where"].tolist() == [[1], [at]]


def test_a_flag_that_is_written_again_decides_again() -> None:
    helper = onnx.helper
    bodies = {name: helper.make_graph([helper.make_node(op, ["x", "x"], [name])], name, [], [helper.make_empty_tensor_value_info(name)]) for name, op in (("sum", "Add"), ("product", "Mul"))}
    node = helper.make_node("If", ["flag"], ["y"], then_branch=bodies["sum"], else_branch=bodies["product"])
    inputs = [helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [1]), helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])]
    graph = helper.make_graph([node], "decided", inputs, [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])])
    session = mlc.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    flag, x = np.array([True]), np.array([3, 5], np.float32)
    for n, then in enumerate([True, False, False, True, False]):
        flag[0], x[1] = then, n
        assert session(flag=flag, x=x)["y"].tolist() == ([6, 2 * n] if then else [9, n * n])


def test_threads_share_a_session(squeezenet: object) -> None:
    session = mlc.Session(squeezenet, threads=1)
    images = np.random.default_rng(0).random((8, 1, 3, 224, 224), dtype=np.float32)
    alone = [session.run(None, {"input": image})[0] for image in images]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda image: session.run(None, {"input": image})[0], images))
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_threads_go_on_during_a_run(squeezenet: object) -> None:
    session = mlc.Session(squeezenet, threads=1)
    image = np.zeros((1, 3, 224, 224), np.float32)
    session.run(None, {"input": image})
    done = threading.Event()
    ticks = 0

    def run() -> None:
        session.run(None, {"input": image})
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not done.wait(0.001):
        ticks += 1
    thread.join()
    assert ticks > 2


def test_a_saved_session_is_loaded(session: mlc.Session, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.plan"
    session.save(path)
    loaded = mlc.Session.load(path, threads=1)
    assert [str(v) for v in loaded.get_inputs()] == [str(v) for v in session.get_inputs()]
    assert loaded.optimized is None
    feed = {"x": np.arange(8, dtype=np.float32).reshape(4, 2), "rows": np.array([3])}
    for own, wanted in zip(loaded.run(None, feed), session.run(None, feed), strict=True):
        np.testing.assert_array_equal(own, wanted)
    with pytest.raises(mlc.FileError):
        mlc.Session.load(tmp_path / "none.plan")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(mlc.ModelError) as caught:
        mlc.Session.load(path)
    assert caught.value.place == str(path)
    path.write_bytes(whole.replace(b"0.1.0", b"0.0.9"))
    with pytest.raises(mlc.SettingError, match="another build, of version 0.0.9"):
        mlc.Session.load(path)
