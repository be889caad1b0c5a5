"""The ``grape`` command.

Exit codes: 0 done; 1 done, but part of it failed; 2 wrong arguments, or an error of this package,
told in one line; 130 interrupted.
"""

from __future__ import annotations

# The order is that of the help.
# isort: off
from grape_lc.cli import demo, trace, explain, inspect, bench, report  # noqa: F401
from grape_lc.cli import simulate, paper, regimes, profile  # noqa: F401

# isort: on
from grape_lc.cli.common import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the ``grape`` command."""
    app()
