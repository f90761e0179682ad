"""Arrays that are not simply NumPy's: what the extension module calls for all others."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ._errors import InputError

# Types that `ml_dtypes` has, and the type of NumPy whose elements have their bits.
_BITS = {2: np.uint16, 1: np.uint8}


def plain(value: Any, place: str, wanted: str | None) -> tuple[str, Any]:
    """An array as the name of its element type and an array of NumPy's own types, in row-major order; of texts, their shape and a list.

    Lists and numbers become arrays of the type that is wanted, where no value changes its kind for it: `2` may be a float, `2.5` no integer.
    """
    array = value if isinstance(value, np.ndarray) else _made(value, place, wanted)
    dtype = array.dtype
    if dtype.kind in "OUT":
        texts = array.ravel().tolist()
        if not all(isinstance(text, str) for text in texts):
            raise InputError(
                f"{place} holds objects that are no texts\nhelp: give an array of numbers, or of `str`",
                message=f"{place} holds objects that are no texts",
                place=place,
                help="give an array of numbers, or of `str`",
            )
        return "object", (list(array.shape), texts)
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
    # Keeps the shape of an array without axes.
    array = np.require(array, requirements=["C", "A"])
    if array.dtype.isbuiltin != 1 and array.dtype.itemsize in _BITS:
        return array.dtype.name, array.view(_BITS[array.dtype.itemsize])
    return array.dtype.name, array


def _made(value: Any, place: str, wanted: str | None) -> np.ndarray[Any, Any]:
    """An array of something else."""
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value)
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    array = np.asarray(value)
    if wanted is None or wanted == "object" or array.dtype.kind in "OUT":
        return array
    dtype = named(wanted)
    # An empty list is one of floats to NumPy.
    if array.size and not np.can_cast(array.dtype, dtype, "same_kind"):
        message = f"{place}: a value of {array.dtype} is given for {wanted}"
        help = f"give an array of {wanted}"
        raise InputError(f"{message}\nhelp: {help}", message=message, place=place, help=help)
    return array.astype(dtype)


def _of_dlpack(value: Any) -> np.ndarray[Any, Any]:
    """An array of another library that lies in this machine's memory; of another device it is copied."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
            name = str(tensor.dtype).removeprefix("torch.")
            bits = torch.int16 if tensor.element_size() == 2 else torch.uint8
            codes: np.ndarray[Any, Any] = tensor.contiguous().view(bits).numpy()
            return codes.view(named(name))
        return np.asarray(tensor.resolve_conj().resolve_neg().numpy())
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        # Types that NumPy's DLPack lacks, and memory of other devices.
        return np.asarray(value)


def named(name: str) -> np.dtype[Any]:
    """An element type by the name that it has in NumPy or in `ml_dtypes`."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        own: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return own


def typed(codes: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """The array of a type of `ml_dtypes` whose bits these are."""
    return codes.view(named(name))


def texts(flat: list[str], shape: list[int]) -> np.ndarray[Any, Any]:
    """An array of texts."""
    array = np.empty(len(flat), dtype=object)
    array[:] = flat
    return array.reshape(shape)
