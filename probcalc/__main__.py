"""`python -m probcalc` and the command `probcalc`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; an interrupt at any moment ends it quietly."""
    try:
        from probcalc.cli import main as run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
