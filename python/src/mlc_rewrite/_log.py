"""What ``mlc-rewrite --verbose`` says, for who listens to the logger ``mlc_rewrite``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def told(text: Callable[[], str]) -> None:
    """Logs each line of a text as information; it is written only where somebody listens."""
    # Who listens has imported it, which takes longer than the rest of this package.
    logging = sys.modules.get("logging")
    if logging is None:
        return
    log = logging.getLogger("mlc_rewrite")
    if log.isEnabledFor(logging.INFO):
        for line in text().splitlines():
            log.info("%s", line)
