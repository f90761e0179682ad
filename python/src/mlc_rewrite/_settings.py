"""Keywords as the plain values that the extension module takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias, Union

    Path: TypeAlias = Union[str, os.PathLike[str]]

_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}


def rules(given: Any) -> list[tuple[str, str | None]] | None:
    """Rules as pairs of a name and a text, or of a path and `None`: from a path, `Rules`, or several of them."""
    if given is None:
        return None
    if isinstance(given, (str, os.PathLike)):
        return [(os.fspath(given), None)]
    own = getattr(given, "_sources", None)
    if own is not None:
        return list(own)
    return [source for one in given for source in rules(one) or []]


def shapes(given: Mapping[str, Sequence[int]] | None) -> list[tuple[str, list[int]]] | None:
    """Shapes by input, or extents by symbol."""
    if given is None:
        return None
    return [(name, [int(n) for n in extents]) for name, extents in given.items()]


def extents(given: Mapping[str, tuple[int, int] | range] | None) -> list[tuple[str, int, int]] | None:
    """Ranges of extents by symbol, both ends included; a `range` ends before its last as ranges do."""
    if given is None:
        return None
    ends = {s: (r.start, r.stop - 1) if isinstance(r, range) else r for s, r in given.items()}
    return [(symbol, int(first), int(last)) for symbol, (first, last) in ends.items()]


def size(given: int | str | None) -> int | None:
    """A number of bytes: `1 << 30`, or ``"512M"``, ``"4G"``."""
    if given is None or isinstance(given, int):
        return given
    text = given.strip().upper().removesuffix("B").removesuffix("I")
    scale = _UNITS.get(text[-1:])
    number = text[:-1] if scale else text
    try:
        return int(float(number) * (1 << (scale or 0)))
    except (ValueError, OverflowError):
        raise ValueError(f"memory={given!r} is no number of bytes, such as 1073741824, '512M' or '4G'") from None


def names(given: str | Iterable[str] | None) -> list[str] | None:
    """One name or several."""
    if given is None:
        return None
    return [given] if isinstance(given, str) else list(given)


def path(given: Path | None) -> str | None:
    """A path as text."""
    return None if given is None else os.fspath(given)


def device(given: str) -> tuple[str, int]:
    """A device's kind and number: ``"cpu"``, ``"reference"``, ``"cuda"``, ``"cuda:1"``."""
    kind, _, number = given.partition(":")
    if kind not in ("cpu", "cuda", "reference") or number and not (kind == "cuda" and number.isdecimal()):
        raise ValueError(f"device={given!r} is none of 'cpu', 'cuda', 'cuda:1', 'reference'")
    return kind, int(number or 0)
