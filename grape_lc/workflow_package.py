"""Finds the example workflows, from a checkout and from an installed wheel alike.

In a checkout they are the folder ``workflows`` beside this package, and ``python -m
workflows.code`` runs one. A wheel carries the same files as ``grape_lc/_workflows``: a package
named ``workflows`` in site-packages would overwrite that of llama-index-workflows. So here they
are always imported as ``grape_lc._workflows``, and import each other relatively.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from grape_lc.errors import ConfigError
from grape_lc.files import import_file

if TYPE_CHECKING:
    from types import ModuleType

_PACKAGE = "grape_lc._workflows"


def workflows_folder() -> Path:
    """Folder of the example workflows. Raises ConfigError if this installation has none."""
    package = Path(__file__).resolve().parent
    places = (package / "_workflows", package.parent / "workflows")
    for place in places:
        if (place / "__init__.py").is_file():
            return place
    raise ConfigError(f"the example workflows are in neither {places[0]} nor {places[1]}")


def workflow_names() -> tuple[str, ...]:
    """Names of the example workflows, in alphabetical order."""
    modules = workflows_folder().glob("*.py")
    return tuple(sorted(path.stem for path in modules if not path.stem.startswith("_")))


def load_workflow(name: str) -> ModuleType:
    """Import one example workflow. Raises ConfigError with the known names if there is none."""
    known = workflow_names()
    if name not in known:
        raise ConfigError(f"no workflow {name!r}; there are: {', '.join(known)}")
    if _PACKAGE not in sys.modules:
        _import_package(workflows_folder())
    return importlib.import_module(f"{_PACKAGE}.{name}")


def _import_package(folder: Path) -> None:
    init = folder / "__init__.py"
    if import_file(_PACKAGE, init, submodule_search_locations=[str(folder)]) is None:
        raise ConfigError(f"{folder} cannot be imported as a package")
