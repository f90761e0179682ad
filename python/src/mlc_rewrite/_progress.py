"""What a long call is at: a line on a terminal or in a notebook, and nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds that a call takes before it says what it is at.
PATIENCE = 1.0
#: Seconds between two looks.
_APART = 0.1


class Line:
    """One line that is written again and again, and is gone in the end."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._next = time.monotonic() + PATIENCE
        self._last = ""

    def at(self, stage: str, part: float | None) -> None:
        """Says what is being done, and the part of it that is done, if that is known."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _APART
        text = stage if part is None else f"{stage} {100 * part:.0f} %"
        if text != self._last:
            self._write(text)
            self._last = text

    def end(self) -> None:
        """Takes the line away."""
        if self._last:
            self._write("")


def line() -> Line | None:
    """Where a call is watched: in a notebook, on a terminal that standard error is, or nowhere."""
    shell = sys.modules.get("IPython")
    shell = shell and shell.get_ipython()
    if shell is not None and "IPKernelApp" in getattr(shell, "config", {}):
        return Line(_Cell())
    try:
        return Line(_on_terminal) if sys.stderr.isatty() else None
    except (AttributeError, ValueError):
        # There is no standard error, or it is closed.
        return None


def _on_terminal(text: str) -> None:
    # From the first column, with what was there before taken away.
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


class _Cell:
    """An output of a notebook's cell."""

    def __init__(self) -> None:
        self._shown: Any = None

    def __call__(self, text: str) -> None:
        from IPython import display

        data = {"text/plain": text}
        if self._shown is None:
            show: Any = display.display
            self._shown = show(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)
