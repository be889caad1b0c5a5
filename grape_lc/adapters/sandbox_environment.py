"""The environment of a traced program: the caller's, without secrets and without its home."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from grape_lc.adapters.secrets import holds_secret

PLACEHOLDER = "withheld-by-grape-trace"
"""Stands for a secret: clients that insist on a key at import can be made all the same."""

MOST_LINKS = 2000
"""Entries of a folder that are linked to; more would take seconds to make and to remove."""

_TRACERS = (
    "LANGCHAIN_TRACING",
    "LANGCHAIN_TRACING_V2",
    "LANGSMITH_TRACING",
    "LANGSMITH_TRACING_V2",
)


def scrubbed(
    environment: Mapping[str, str], scratch: Path
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment for a program in ``scratch``, and the names of what is withheld, sorted.

    What is withheld has PLACEHOLDER as its value. Home, temporary files and caches are in
    ``scratch``; modules are found where this process finds them.
    """
    withheld = sorted(name for name, value in environment.items() if holds_secret(name, value))
    home, temporary = str(scratch / "home"), str(scratch / "tmp")
    return {
        **environment,
        **dict.fromkeys(withheld, PLACEHOLDER),
        "HOME": home,
        "XDG_CACHE_HOME": str(scratch / "home" / ".cache"),
        "XDG_CONFIG_HOME": str(scratch / "home" / ".config"),
        "XDG_DATA_HOME": str(scratch / "home" / ".local" / "share"),
        "XDG_STATE_HOME": str(scratch / "home" / ".local" / "state"),
        "TMPDIR": temporary,
        "TMP": temporary,
        "TEMP": temporary,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if Path(path).is_absolute()),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Who watches runs would watch this one too.
        **dict.fromkeys(_TRACERS, "false"),
    }, tuple(withheld)


def make_scratch(scratch: Path, folder: Path) -> Path:
    """Make the folders of a program in ``scratch``; returns its working folder.

    There each entry of the user's ``folder`` is linked to, so that relative paths can be read. What
    is written to a new relative path stays in the scratch folder. A folder of more than
    ``MOST_LINKS`` entries is the working folder itself: a new file there is one elsewhere.
    """
    for name in ("home", "tmp", "work"):
        (scratch / name).mkdir()
    work = scratch / "work"
    with os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, MOST_LINKS + 1)]
    if len(names) > MOST_LINKS:
        return folder
    for name in names:
        (work / name).symlink_to(folder / name)
    return work
