"""What passes between ``grape trace`` and the process that it traces a graph in: two JSON files."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from grape_lc.adapters.flow_file import Effect

REQUEST, RESULT = "request.json", "result.json"
"""Their names in the scratch folder."""

NODE_SHARE = 0.25
"""Part of the time for the whole trace that one visit of a node may take."""


def readable(text: str) -> str:
    """``text`` as UTF-8 can hold it: halves of surrogate pairs, as in odd file names, escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class Request(BaseModel):
    """What is to be traced.

    target: ``module:graph``. folder: the user's, an absolute path. timeout_s: seconds for all,
    imports included. memory_bytes: of data, on top of the code. allowed: kinds of effects that
    are not denied.
    """

    model_config = ConfigDict(extra="forbid")

    target: str
    folder: str
    example: Any = None
    name: str | None = None
    timeout_s: float
    memory_bytes: int
    allowed: tuple[str, ...] = ()


class Result(BaseModel):
    """What was found: a flow file's text, or an error.

    error: the name of the class, one of ``ConfigError``, ``TraceError``, ``FlowError``.
    whole: as JSON, the flow together with what the code declares, as ``attach`` would have it;
        sources: of its tasks.
    """

    model_config = ConfigDict(extra="forbid")

    flow_file: str | None = None
    whole: str | None = None
    sources: dict[str, str] = Field(default_factory=dict)
    error: Literal["ConfigError", "FlowError", "TraceError"] | None = None
    message: str = ""
    denied: tuple[Effect, ...] = ()
