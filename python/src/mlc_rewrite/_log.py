"""What ``mlc-rewrite --verbose`` says, for who listens to the logger ``mlc_rewrite``."""

from __future__ import annotations

import sys


def told(text: str) -> None:
    """Logs each line of a text as information."""
    # Who listens has imported it, which takes longer than the rest of this package.
    logging = sys.modules.get("logging")
    if logging is None:
        return
    log = logging.getLogger("mlc_rewrite")
    if log.isEnabledFor(logging.INFO):
        for line in text.splitlines():
            log.info("%s", line)
