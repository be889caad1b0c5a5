"""``python -m grape_lc`` is ``grape``."""

from __future__ import annotations

from grape_lc.cli import main

if __name__ == "__main__":
    main()
