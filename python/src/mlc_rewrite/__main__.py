"""The command ``mlc-rewrite``: ``python -m mlc_rewrite``."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of this process, and returns what it exits with."""
    # The command does not return to the interpreter while it works: Ctrl-C ends the process, as it does of any command.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.command(["mlc-rewrite", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
