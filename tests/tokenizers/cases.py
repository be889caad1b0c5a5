"""One prompt, prepared while its values arrive, against the prompt that the call then sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grape_lc.engine.vllm_adoption import fit
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.flow.template import PromptTemplate
from grape_lc.runtime.commands import AppendPrompt, Command, OpenPrompt
from grape_lc.runtime.programs import APPEND_CHUNK, PromptTable
from grape_lc.runtime.splicer import Splicer
from tests.tokenizers.engines import Engine

BLOCK = 16
NOTICED = ("template_rewrote_slot", "splice_broken", "slot_stopped", "failed")


@dataclass(frozen=True)
class Case:
    """A prompt and what is put into it.

    prompt: reads ``a``, ``b`` ... (answers of other calls, in the order in which they are
    written: ``order``) and ``x`` (an input). values: all of them, in the pieces in which they come.
    """

    prompt: PromptTemplate
    values: Mapping[str, Sequence[str]]
    order: Sequence[str]

    @property
    def real(self) -> list[dict[str, Any]] | str:
        """What the application sends."""
        texts = {name: "".join(pieces) for name, pieces in self.values.items()}
        if self.prompt.messages is None:
            return self.prompt.render_text(texts)
        return self.prompt.render_messages(texts)


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    tokens: of the call's prompt. certain: of these, sent before the last value had ended.
    sent: ids sent in all. agree: how many of the first of them are the prompt's.
    reasons: what the table counted as a reason to stop.
    """

    tokens: int
    certain: int
    sent: int
    agree: int
    reasons: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether all that was sent is the beginning of the call's prompt."""
        return self.agree == self.sent

    @property
    def silent(self) -> bool:
        """Whether wrong ids were sent and nobody noticed before the call came."""
        return not self.exact and not self.reasons


class _Sent:
    """The ids of the open prompt that is looked at."""

    def __init__(self, task: str) -> None:
        self._task = task
        self.ids: list[int] = []

    def apply(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, OpenPrompt | AppendPrompt) and f"/{self._task}/" in command.key:
                self.ids += command.ids


def flow_of(case: Case) -> TaskFlow:
    """Calls that write each value, and the one that reads them."""
    flow = TaskFlow(name="case")
    reads = case.prompt.variables
    for name in case.values:
        if name in reads:
            flow.add_variable(InputVar(name) if name == "x" else IntermediateVar(name))
    flow.add_variable(OutputVar("end"))
    for name in case.order:
        if name in reads:
            flow.add_task("Go", name)
    flow.add_task(case.prompt, "end")
    return flow


def run(engine: Engine, case: Case) -> Outcome:
    """Prepare and send the prompt of a case."""
    real = engine.ids(case.real)
    table, sent = PromptTable(engine), _Sent("end")
    writers = [name for name in case.order if name in case.prompt.variables]
    inputs = {"x": "".join(case.values["x"])} if "x" in case.values else {}
    sent.apply(table.open_program("p", flow_of(case), inputs))
    certain = len(sent.ids)
    for name in writers:
        sent.apply(table.call_started("p", name))
        for piece in case.values[name]:
            sent.apply(table.call_text("p", name, piece, APPEND_CHUNK))
        certain = len(sent.ids)
        sent.apply(table.call_finished("p", name, complete=True))
        sent.apply(table.catch_up("p"))
        table.validate()
    agree = common(sent.ids, real)
    _check_adoption(sent.ids, real, agree)
    return Outcome(
        tokens=len(real),
        certain=certain,
        sent=len(sent.ids),
        agree=agree,
        reasons=tuple(why for why in NOTICED if table.counts[why]),
    )


def splice(engine: Engine, rendered: str, pieces: Sequence[str]) -> tuple[bool, bool]:
    """A rendered chat that arrives in pieces: whether what was committed was right at any time,
    and whether the splicer broke, which it must say of itself when it was wrong.
    """
    real = list(engine.encode(rendered, chat=True)[0])
    splicer = Splicer(lambda text: engine.encode(text, chat=True), markers=engine.markers)
    for piece in pieces:
        splicer.feed(piece)
        splicer.commit()
        splicer.validate()
    splicer.commit(final=True)
    right = list(splicer.committed) == real[: len(splicer.committed)]
    return right and (splicer.broken or len(splicer.committed) == len(real)), splicer.broken


def common(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many of the first ids are the same."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))


def _check_adoption(opened: list[int], real: list[int], agree: int) -> None:
    """The engine takes over nothing that differs, and says why."""
    for computed in {len(opened), len(opened) - 1, len(opened) // 2}:
        if computed > 0:
            hashed = computed - computed % BLOCK
            outcome, taken = fit(real, opened, computed, hashed, BLOCK)
            assert taken <= agree, f"{taken} tokens taken over, {agree} are right"
            wrong = agree < min(computed, len(real) - 1)
            assert not wrong or outcome in {"truncated", "mismatch"}, (outcome, taken)
