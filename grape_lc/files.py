"""Files: written as a whole, so that readers see the old content or the new one; imported."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether something is there that is no regular file: a folder, a device, a pipe.

    Links are followed. Raises OSError where that is not to be found out, ValueError for a path
    that cannot be one.
    """
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except FileNotFoundError:
        return False


def write_whole(path: str | os.PathLike[str], text: str, *, shared: bool = False) -> None:
    """Write a text file as UTF-8, in a folder that exists; nothing is left behind if that fails.

    Where ``path`` is a link, the file that it leads to is written. What is no regular file, such
    as ``/dev/stdout`` or a pipe, is written to directly. shared: a new file gets the usual mode;
    else it is for its owner's eyes only (0600). An old file in a folder that may not be written to
    is overwritten, and keeps its mode if shared. Raises OSError, and ValueError as ``is_special``.
    """
    if is_special(path):
        with Path(path).open("w", encoding="utf-8") as special:
            special.write(text)
        return
    target = Path(os.path.realpath(path))
    try:
        _replace(target, text, shared=shared)
    except PermissionError:
        if not target.exists():
            raise
        _overwrite(target, text, shared=shared)


def _replace(target: Path, text: str, *, shared: bool) -> None:
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=target.parent, prefix=".", suffix=".tmp", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            file.write(text)
            file.close()
            if shared:
                temporary.chmod(0o666 & ~_umask())
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def _overwrite(target: Path, text: str, *, shared: bool) -> None:
    content = text.encode()  # what cannot be written must not cost the old content
    if not shared:
        target.chmod(0o600)
    target.write_bytes(content)


def import_file(
    name: str, path: Path, *, submodule_search_locations: list[str] | None = None
) -> ModuleType | None:
    """Import a file as the module ``name``; ``None`` for a file that is not Python's.

    submodule_search_locations: of a package. Nothing is left in ``sys.modules`` if it fails.
    """
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=submodule_search_locations
    )
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _umask() -> int:
    """The process's mask, read where reading does not set it for a moment."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return 0o022
