"""`python -m twoshift`, and the program itself: an interrupt during the imports ends quietly, too."""

from __future__ import annotations

import sys

__all__ = ["run"]


def run() -> int:
    """Import the command line and run it."""
    try:
        from twoshift.cli import main

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
