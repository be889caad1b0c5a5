"""How soon answers are wanted: what the scheduler orders and sizes its steps by."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from grape_lc.flow._model import FlowModel

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Targets(FlowModel):
    """Targets of a call or of all calls of a program, seconds; None: no target.

    ttft_s: from a call's arrival to its first token. tbt_s: between two of its tokens.
    deadline_s: from the arrival of a program's first call to the end of the program. Nothing is
    cancelled when one is missed.
    """

    ttft_s: Seconds | None = None
    tbt_s: Seconds | None = None
    deadline_s: Seconds | None = None

    def over(self, others: Targets) -> Targets:
        """These targets, and those of ``others`` where there is none."""
        return others.model_copy(update=self.model_dump(exclude_none=True))
