"""Arrays in and out: strides, element types, extents of zero, texts, other libraries' memory."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as arrays_of
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies

import mlc_rewrite as mlc

DTYPES = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
    "bool": np.bool_,
}


def identity(dtype: str, rank: int) -> mlc.Session:
    axes = ", ".join("abcdef"[:rank])
    text = f"def model(x: {dtype}[{axes}]) -> y: {dtype}[{axes}]\n  = reshape(x, shape=[{', '.join('|' + a + '|' for a in 'abcdef'[:rank])}])\n"
    return mlc.Session(mlc.Model(text=text), optimize=False, threads=1)


@pytest.fixture(scope="module")
def sessions() -> dict[tuple[str, int], mlc.Session]:
    return {(name, rank): identity(name, rank) for name in DTYPES for rank in range(4)}


@given(data=strategies.data())
@settings(max_examples=300, deadline=None)
def test_any_array_goes_there_and_back(sessions: dict[tuple[str, int], mlc.Session], data: strategies.DataObject) -> None:
    name, rank = data.draw(strategies.sampled_from(sorted(sessions)))
    shape = tuple(data.draw(strategies.lists(strategies.integers(0, 5), min_size=rank, max_size=rank)))
    array = data.draw(arrays_of.arrays(DTYPES[name], shape))
    # Any view: reversed, with gaps, transposed, in another byte order, where no element is aligned.
    if rank and data.draw(strategies.booleans()):
        array = array[tuple(slice(None, None, data.draw(strategies.sampled_from([1, 2, -1, -2]))) for _ in shape)]
    if data.draw(strategies.booleans()):
        array = array.T
    if data.draw(strategies.booleans()):
        array = array.astype(array.dtype.newbyteorder(">"))
    if data.draw(strategies.booleans()):
        room = np.zeros(array.nbytes + 1, np.uint8)
        odd = room[1:].view(array.dtype).reshape(array.shape)
        odd[...] = array
        array = odd
    if data.draw(strategies.booleans()):
        array.flags.writeable = False
    before = array.copy()
    [out] = sessions[name, rank].run(None, {"x": array})
    assert out.dtype == DTYPES[name] and out.shape == array.shape
    assert out.flags.owndata and out.flags.writeable and out.flags.c_contiguous
    np.testing.assert_array_equal(out, before)
    assert not np.shares_memory(out, array)
    out[...] = 0
    np.testing.assert_array_equal(array, before)


SMALL = ["bf16", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "i4", "u4"]
NAMES = {
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "i4": "int4",
    "u4": "uint4",
}


@pytest.mark.parametrize("name", SMALL)
def test_types_of_ml_dtypes(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, NAMES[name]))
    session = identity(name, 2)
    array = np.array([[0, 1, 2], [3, 4, 7]], np.float32).astype(dtype)
    for given_array in [array, array.T, array[:, ::-1], array[:0]]:
        [out] = session.run(None, {"x": given_array})
        assert out.dtype == dtype
        np.testing.assert_array_equal(out.astype(np.float32), given_array.astype(np.float32))
    assert session.get_inputs()[0].dtype == NAMES[name]


def test_texts() -> None:
    session = identity("str", 1)
    for array in [np.array(["a", "ä", ""]), np.array(["a", "ä", ""], dtype=object), ["a", "ä", ""]]:
        [out] = session.run(None, {"x": array})
        assert out.dtype == object and out.tolist() == ["a", "ä", ""]


def test_numbers_and_lists() -> None:
    assert identity("f32", 0)(x=2)["y"].item() == 2
    assert identity("f32", 0)(x=np.float32(2))["y"].item() == 2
    assert identity("i64", 1)(x=range(3))["y"].tolist() == [0, 1, 2]
    assert identity("f32", 1)(x=[])["y"].shape == (0,)
    with pytest.raises(mlc.InputError):
        identity("i64", 0)(x=2.5)


def test_dlpack_in() -> None:
    class Elsewhere:
        """An array of another library."""

        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self.array = array

        def __dlpack__(self, **keywords: Any) -> Any:
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert identity("f32", 2)(x=Elsewhere(array))["y"].tolist() == array.tolist()
    assert identity("f32", 2)(x=Elsewhere(array.T))["y"].tolist() == array.T.tolist()


def test_dlpack_out() -> None:
    [out] = identity("f32", 1).run(None, {"x": [1.0, 2.0]})
    assert np.from_dlpack(out).tolist() == [1, 2]
