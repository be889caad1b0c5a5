"""Base of the pydantic models of a flow: what pydantic finds wrong is raised as a FlowError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from grape_lc.errors import FlowError, FlowFormatError

_MOST_FAULTS = 20
"""Of one thing that are told."""


class FlowModel(BaseModel):
    """A frozen model without unknown fields whose constructor raises only FlowError.

    Pydantic turns any ValueError that a validator raises into a ValidationError. The
    constructor turns it back, so that a caller sees the FlowError that was meant.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            fault = as_flow_error(type(self).__name__, error)
            raise type(fault)(self._subject(data) + str(fault)) from None

    @classmethod
    def _subject(cls, data: dict[str, Any]) -> str:
        """What a message about this data begins with, to say which thing is at fault."""
        return ""


def as_flow_error(what: str, error: ValidationError) -> FlowError:
    """The FlowError inside ``error`` if a validator raised one, else a FlowFormatError.

    ``what`` names the thing that was built; the message lists every place and its fault.
    """
    faults: list[str] = []
    found = error.errors(include_url=False)
    for item in found:
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, FlowError):
            return cause
        if len(faults) == _MOST_FAULTS:
            continue  # one of those behind may be a FlowError
        place = ".".join(_shorten(part, str) for part in item["loc"]) or "value"
        faults.append(f"{place}: {item['msg']} (got {_shorten(item['input'])})")
    if len(found) > len(faults):
        faults.append(f"and {len(found) - len(faults)} more")
    return FlowFormatError(f"{what}: " + "; ".join(faults))


def _shorten(value: object, show: Callable[[object], str] = repr, limit: int = 60) -> str:
    text = show(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
