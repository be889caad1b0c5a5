"""The file that ``grape trace`` writes and ``attach(graph, "flow.json")`` reads.

    {
      "format": 1,
      "graph": "app:graph",
      "source_hash": "…",
      "made_with": {"grape_lc": "…", "langgraph": "…", "langchain_core": "…"},
      "warnings": [],
      "denied": [],
      "confined": [],
      "flow": {…}
    }

It holds the graph's prompts as they stand in its code, with slots for what is not known. The same
graph gives the same file, so that it can be reviewed and kept under version control.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from grape_lc import __version__
from grape_lc.errors import ConfigError, FlowError, FlowFormatError
from grape_lc.files import write_whole
from grape_lc.flow._model import FlowModel
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.targets import Targets
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.strict_json import StrictJSONError, read_bytes, read_json

logger = logging.getLogger(__name__)

_NO_TARGETS = Targets().model_dump(mode="json")


class MadeWith(FlowModel):
    """Versions of the packages that a graph was traced with."""

    grape_lc: str
    langgraph: str
    langchain_core: str

    @classmethod
    def here(cls) -> MadeWith:
        """Those of this process."""
        return cls(
            grape_lc=__version__,
            langgraph=_version("langgraph"),
            langchain_core=_version("langchain-core"),
        )


class Effect(FlowModel):
    """Something beyond its own memory that a program tried to do while it was traced.

    node: where in the graph, ``None`` at import or where that is not known.
    kind: one of ``sandbox_policy.KINDS``. event: Python's name of what was tried.
    what: its object, such as a path or ``host:port``; no content and no value of a variable.
    where: ``file:line`` of the user's code, else of the library that did it.
    """

    node: str | None
    kind: str
    event: str
    what: str
    where: str

    def __str__(self) -> str:
        place = "at import" if self.node is None else f"node {self.node!r}"
        return f"{place}: {self.kind}: {self.event} {self.what} ({self.where})"


class FlowFile(FlowModel):
    """A flow, and what it was found in.

    graph: ``module:attribute``. source_hash: ``source_hash`` of the graph. Both are ``None`` when
        the file is a bare TaskFlow, declared by hand.
    warnings: what the trace could not follow.
    denied: effects that were prevented; what a node did behind one is not in the flow.
    confined: effects that were let be, since they end with the traced process.
    """

    format: Literal[1] = 1
    graph: str | None = None
    source_hash: str | None = None
    made_with: MadeWith | None = None
    warnings: tuple[str, ...] = ()
    denied: tuple[Effect, ...] = ()
    confined: tuple[Effect, ...] = ()
    flow: TaskFlow

    def to_json(self) -> str:
        """Indented text that ``from_json`` reads; raises what ``TaskFlow.to_json`` raises."""
        data = self.model_dump(mode="json", exclude={"flow"})
        data["flow"] = _short(json.loads(self.flow.to_json()))
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> FlowFile:
        """The file's content; a bare TaskFlow's text is taken too.

        Raises FlowFormatError on text that is not JSON, another format, and unknown or missing
        fields, and otherwise what ``TaskFlow.from_json`` raises.
        """
        try:
            data = read_json(text)
        except StrictJSONError as error:
            raise FlowFormatError(f"a flow file is JSON: {error}") from error
        if not isinstance(data, Mapping):
            raise FlowFormatError(f"a flow file is a JSON object, not {type(data).__name__}")
        if "flow" not in data:
            if "tasks" not in data:
                raise FlowFormatError(
                    "neither a file of grape trace, which has a 'flow', nor a TaskFlow, which has "
                    f"'tasks'; its keys: {', '.join(map(repr, data)) or 'none':.300}"
                )
            return cls(flow=TaskFlow.from_json(text))
        if type(data.get("format")) is not int or data["format"] != 1:
            raise FlowFormatError(
                f"format {data.get('format')!r} of a flow file is not known; this version reads 1"
            )
        return cls(**{**data, "flow": TaskFlow.from_json(json.dumps(data["flow"]))})


def _short(flow: dict[str, Any]) -> dict[str, Any]:
    """A flow's data without what is not set, which reading puts back."""
    settings = {"sampling": Sampling().model_dump(mode="json"), "targets": _NO_TARGETS}
    for variable in flow["variables"]:
        for name in [name for name, value in variable.items() if value in ("", False)]:
            del variable[name]
    for task in flow["tasks"]:
        task["prompt"] = {name: part for name, part in task["prompt"].items() if part is not None}
        for name, unset in settings.items():
            _leave_out(task, name, unset)
    _leave_out(flow, "targets", _NO_TARGETS)
    return flow


def _leave_out(data: dict[str, Any], name: str, unset: Mapping[str, Any]) -> None:
    """Of ``data[name]`` the fields that are ``unset``, and all of it if nothing is left."""
    data[name] = {key: value for key, value in data[name].items() if value != unset[key]}
    if not data[name]:
        del data[name]


def load_flow_file(path: str | os.PathLike[str]) -> FlowFile:
    """Read a file of ``grape trace``, or a TaskFlow's JSON.

    Raises ConfigError when it cannot be read, and what ``FlowFile.from_json`` raises, with the
    file's name in front.
    """
    try:
        text = read_bytes(Path(path)).decode("utf-8-sig")  # some editors put a mark in front
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}; a flow's file is made by: "
            f"grape trace MODULE:GRAPH -o {path}"
        ) from error
    except UnicodeDecodeError as error:
        raise FlowFormatError(f"{path}: not UTF-8 text: {error.reason}") from error
    except StrictJSONError as error:
        raise FlowFormatError(f"{path}: {error}") from error
    except ValueError as error:  # such as a NUL
        raise ConfigError(f"{os.fspath(path)!r} is no path of a file: {error}") from error
    try:
        return FlowFile.from_json(text)
    except FlowError as error:
        raise type(error)(f"{path}: {error}") from error


def save_flow_file(file: FlowFile, path: str | os.PathLike[str]) -> None:
    """Write ``file`` as ``write_whole`` does: a link is followed, a device or a pipe written to.

    Raises ConfigError when it cannot be written, FlowFormatError as ``FlowFile.to_json``.
    """
    target = Path(path)
    text = file.to_json()
    try:
        write_whole(target, text, shared=True)
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"cannot write {os.fspath(path)!r}: {error}") from error


def check_fresh(file: FlowFile, graph: object, source: str, path: str | os.PathLike[str]) -> bool:
    """Whether a graph is as it was when it was traced; if not, a warning says how to refresh.

    graph: its name. source: its ``source_hash``.

    A flow of another state of the code may be used all the same: where its prompts are wrong,
    nothing is gained. A flow that was declared by hand is always taken as it is.
    """
    if file.source_hash is None or source == file.source_hash:
        return True
    logger.warning(
        "%s was traced from another state of the code of graph %r; prompts that have changed are "
        "not prepared. Refresh it with: grape trace %s -o %s",
        path,
        graph,
        file.graph or "MODULE:GRAPH",
        path,
    )
    return False


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
