"""Variables of a flow: the texts that its tasks read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from grape_lc.errors import FlowFormatError
from grape_lc.flow._model import FlowModel
from grape_lc.limits import NAME_CHARS

VariableKind = Literal["input", "intermediate", "output", "newest"]


class Variable(FlowModel):
    """A named text. Use InputVar, IntermediateVar, OutputVar or NewestVar.

    name: an identifier; ``{name}`` in a prompt reads the variable.
    kind: ``input`` is given with each run; ``intermediate`` and ``output`` are each written
        by one task. An intermediate must be read by some prompt; an output is part of the
        result and may be read too. ``newest`` is one of several others.
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
        NAME_CHARS.check(len(name), "the name of a variable", FlowFormatError)
        if not name.isidentifier():
            raise FlowFormatError(
                f"variable name {name!r} is not an identifier: use letters, digits and "
                "underscores, and no digit first"
            )
        return name


class InputVar(Variable):
    """A text that is given with each run.

    opaque: no run gives it: it stands for text that only the call itself shows, such as a date.
        What stands behind it in a prompt is not prepared. ``description`` says why.
    """

    kind: Literal["input"] = "input"
    opaque: bool = Field(default=False, exclude_if=lambda opaque: not opaque)

    if TYPE_CHECKING:

        def __init__(self, name: str, *, description: str = "", opaque: bool = False) -> None: ...


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


class NewestVar(Variable):
    """Of several texts the one that came last: the answer of whichever branch was taken.

    of: names of two or more inputs, intermediates and outputs. Of inputs that a run gives the last
        one named here counts, until a task writes one of the others.

    Raises FlowFormatError when ``of`` has fewer than two names, or one twice.
    """

    kind: Literal["newest"] = "newest"
    of: tuple[str, ...] = ()

    @field_validator("of")
    @classmethod
    def _of_is_several(cls, of: tuple[str, ...]) -> tuple[str, ...]:
        if len(of) < 2 or len(set(of)) < len(of):
            raise FlowFormatError(f"of={of!r}: name two or more variables, each once")
        return of

    if TYPE_CHECKING:

        def __init__(self, name: str, *, of: tuple[str, ...], description: str = "") -> None: ...


AnyVariable = Annotated[
    InputVar | IntermediateVar | OutputVar | NewestVar, Field(discriminator="kind")
]
