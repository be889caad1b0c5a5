"""Whose code is running: the user's, a library's or the standard library's."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Literal

Origin = Literal["stdlib", "library", "user"]

_STDLIB = tuple(Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib"))
_INSTALLED = tuple(Path(sysconfig.get_path(key)) for key in ("purelib", "platlib"))
_PACKAGES = ("site-packages", "dist-packages")
_OURS = Path(__file__).parent.parent
_OUR_EXAMPLES = _OURS / "_workflows"
_OUR_FILES = f"{_OURS}{os.sep}"
_SANDBOX = str(Path(__file__).with_name("sandbox_"))
_EXECUTORS = tuple(
    Path(sysconfig.get_path("stdlib"), *parts)
    for parts in (("asyncio",), ("concurrent", "futures"))
)


@lru_cache(maxsize=4096)
def origin_of(file: str) -> Origin:
    """Whose a source file is; code without a file, such as ``<string>``, is the user's."""
    if file.startswith("<frozen "):
        return "stdlib"
    path = Path(file)
    if path.is_relative_to(_OURS):
        return "user" if path.is_relative_to(_OUR_EXAMPLES) else "library"
    if any(part in _PACKAGES for part in path.parts) or _under(path, _INSTALLED):
        return "library"
    return "stdlib" if _under(path, _STDLIB) else "user"


def _under(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something.

    by_user: no library stands between the user's code and what is done.
    executor: it is done in the way of asyncio or of an executor.
    user: ``file:line`` of the user's innermost code; library: that of a library's. ``None``: none.
    """

    by_user: bool
    executor: bool
    user: str | None
    library: str | None


def actor(folder: str) -> Actor:
    """Who called into the audit hook that calls this. folder: files in it are named from there."""
    by_user: bool | None = None
    executor = False
    library = user = None
    for frame in _frames():
        file = frame.f_code.co_filename
        origin = origin_of(file)
        if origin == "stdlib":
            executor = executor or (by_user is None and Path(file).parent in _EXECUTORS)
            continue
        if by_user is None:
            by_user = origin == "user"
        if origin == "user":
            user = place_of(file, frame.f_lineno, folder)
            break
        if library is None and not file.startswith(_OUR_FILES):
            library = place_of(file, frame.f_lineno, folder)
    return Actor(bool(by_user), executor, user, library)


def called_by_user(depth: int) -> bool:
    """Whether the frame ``depth`` above the caller is of the user's code."""
    return origin_of(sys._getframe(depth + 1).f_code.co_filename) == "user"


def _frames() -> Iterator[FrameType]:
    """From the innermost outwards, without those of the sandbox itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_SANDBOX):
            yield frame
        frame = frame.f_back


def place_of(file: str, line: int, folder: str) -> str:
    """``file:line``; the file as it is named from ``folder``, or from where packages are."""
    path = Path(file)
    for package in _PACKAGES:
        if package in path.parts:
            path = Path(*path.parts[path.parts.index(package) + 1 :])
    if path.is_relative_to(folder):
        path = path.relative_to(folder)
    return f"{path}:{line}"
