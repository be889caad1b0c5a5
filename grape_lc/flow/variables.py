"""Variables of a flow: the texts that its tasks read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from grape_lc.errors import FlowFormatError
from grape_lc.flow._model import FlowModel

VariableKind = Literal["input", "intermediate", "output"]


class Variable(FlowModel):
    """A named text. Use InputVar, IntermediateVar or OutputVar.

    name: an identifier; ``{name}`` in a prompt reads the variable.
    kind: ``input`` is given with each run; ``intermediate`` and ``output`` are each written
        by one task. An intermediate must be read by some prompt; an output is part of the
        result and may be read too.
    description: free text for readers of the flow.

    Raises FlowFormatError when ``name`` is not an identifier.
    """

    name: str
    kind: VariableKind
    description: str = ""

    # A missing name is left to pydantic, which reports it with the place where it is missing.
    # The subclasses declare for type checkers what a caller may write.
    def __init__(self, /, name: str | None = None, **data: Any) -> None:
        super().__init__(**data if name is None else {"name": name, **data})

    @field_validator("name")
    @classmethod
    def _name_is_identifier(cls, name: str) -> str:
        if not name.isidentifier():
            raise FlowFormatError(
                f"variable name {name!r} is not an identifier: use letters, digits and "
                "underscores, and no digit first"
            )
        return name


class InputVar(Variable):
    """A text that is given with each run."""

    kind: Literal["input"] = "input"

    if TYPE_CHECKING:

        def __init__(self, name: str, *, description: str = "") -> None: ...


class IntermediateVar(Variable):
    """A text that one task writes and others read."""

    kind: Literal["intermediate"] = "intermediate"

    if TYPE_CHECKING:

        def __init__(self, name: str, *, description: str = "") -> None: ...


class OutputVar(Variable):
    """A text that one task writes and that is part of the result."""

    kind: Literal["output"] = "output"

    if TYPE_CHECKING:

        def __init__(self, name: str, *, description: str = "") -> None: ...


AnyVariable = Annotated[InputVar | IntermediateVar | OutputVar, Field(discriminator="kind")]
