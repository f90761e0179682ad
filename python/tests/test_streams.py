"""Streams of runs: state that is fed back, inputs that stay, outputs in arrays of the caller."""

from __future__ import annotations

import numpy as np
import pytest

import mlc_rewrite as mlc

STEP = """
def model(x: f32[s, 2], past: f32[p, 2]) -> y: f32[s, p + s], seen: f32[p + s, 2]
  let seen = concat(past, x, axis=0)
  = (x @ transpose(seen, perm=[1, 0]), seen)
"""


@pytest.fixture
def session() -> mlc.Session:
    return mlc.Session(mlc.Model(text=STEP))


def test_state_is_fed_back(session: mlc.Session) -> None:
    assert session.appended == [("seen", "past")]
    stream = session.bind()
    assert stream.feed_back_appended() == [("seen", "past")]
    stream.set("past", np.zeros((0, 2), np.float32))
    seen = np.zeros((0, 2), np.float32)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = rng.random((1, 2), dtype=np.float32)
        y, seen = session.run(None, {"x": x, "past": seen})
        outputs = stream(x=x)
        assert list(outputs) == ["y"]
        np.testing.assert_array_equal(outputs["y"], y)
    assert stream.shape("past") == (20, 2)
    np.testing.assert_array_equal(stream.get("past"), seen)
    stream.reset()
    assert stream.get("past") is None and stream.shape("past") is None


def test_a_copy_goes_its_own_way(session: mlc.Session) -> None:
    stream = session.bind()
    stream.feed_back("seen", "past")
    stream.set("past", [[1.0, 2.0]])
    other = stream.copy()
    stream(x=[[3.0, 4.0]])
    assert (stream.shape("past"), other.shape("past")) == ((2, 2), (1, 2))


def test_what_is_set_is_copied(session: mlc.Session) -> None:
    stream = session.bind()
    past = np.ones((1, 2), np.float32)
    stream.set("past", past)
    past[:] = 7
    assert stream(x=[[1.0, 1.0]])["y"].tolist() == [[2, 2]]
    x = np.ones((1, 2), np.float32)
    stream.feed_back("seen", "past")
    stream(x=x)
    x[:] = 9
    assert stream.get("past").tolist() == [[1, 1], [1, 1]]  # type: ignore[union-attr]


def test_outputs_are_written_to_arrays(session: mlc.Session) -> None:
    stream = session.bind()
    y = np.zeros((1, 2), np.float32)
    feed = {"x": [[1.0, 2.0]], "past": [[3.0, 4.0]]}
    outputs = stream.run(feed, into={"y": y})
    assert list(outputs) == ["seen"] and y.tolist() == [[11, 5]]
    refused = {
        "the array for it": np.zeros((1, 3), np.float32),
        "f64": np.zeros((1, 2)),
        "cannot be written": np.zeros((1, 4), np.float32)[:, ::2],
    }
    for text, array in refused.items():
        with pytest.raises(mlc.OutputError, match=text):
            stream.run(feed, into={"y": array})
    y.flags.writeable = False
    with pytest.raises(mlc.OutputError, match="cannot be written"):
        stream.run(feed, into={"y": y})
    room = np.zeros(8, np.float32)
    with pytest.raises(mlc.OutputError, match="shares its memory"):
        stream.run(feed, into={"y": room[:2].reshape(1, 2), "seen": room[1:5].reshape(2, 2)})


def test_limits_and_mistakes(session: mlc.Session) -> None:
    stream = session.bind()
    with pytest.raises(mlc.OutputError, match="the model has no output `z`"):
        stream.feed_back("z", "past")
    with pytest.raises(mlc.InputError, match="does not grow"):
        stream.limit("past", 3)
    stream.feed_back("seen", "past")
    stream.limit("past", 2)
    stream.set("past", [[1.0, 2.0]])
    stream(x=[[1.0, 2.0]])
    with pytest.raises(mlc.InputError, match="its limit is 2"):
        stream(x=[[1.0, 2.0]])
    assert stream.shape("past") == (2, 2)
    with pytest.raises(TypeError, match="makes streams"):
        mlc.Stream()


def test_a_stream_outlives_its_session() -> None:
    stream = mlc.Session(mlc.Model(text=STEP)).bind()
    assert stream(x=[[1.0, 2.0]], past=[[0.0, 0.0]])["y"].tolist() == [[0, 5]]
