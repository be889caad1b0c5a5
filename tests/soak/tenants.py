"""An engine as one tenant's TaskFlows see it, who may be wrong about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

from grape_lc import GrapeEngine, TaskFlow
from grape_lc.engine.base import CallDelta, CallRequest
from grape_lc.runtime.driver import RunsFlows


@dataclass(frozen=True, slots=True)
class TenantEngine(RunsFlows):
    """Calls of an engine with what a flow does not say of them.

    foretold: the inputs that a program is announced with, whatever it is run with.
    """

    engine: GrapeEngine
    tenant: str = ""
    timeout_s: float | None = None
    foretold: Mapping[str, str] | None = None

    @property
    def model_name(self) -> str:
        return self.engine.model_name

    def stream(self, request: CallRequest) -> Iterator[CallDelta]:
        return self.engine.stream(self._of(request))

    def astream(self, request: CallRequest) -> AsyncIterator[CallDelta]:
        return self.engine.astream(self._of(request))

    def open_program(self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = "") -> str:
        foretold = inputs if self.foretold is None else self.foretold
        return self.engine.open_program(flow, foretold, tenant or self.tenant)

    def close_program(self, program_id: str) -> None:
        self.engine.close_program(program_id)

    def count_tokens(self, text: str) -> int:
        return self.engine.count_tokens(text)

    def _of(self, request: CallRequest) -> CallRequest:
        return request.model_copy(update={"tenant": self.tenant, "timeout_s": self.timeout_s})
