"""How much of each prompt a flow foresaw: ``python -m tests.shapes.coverage``.

Every app is attached, with a flow that was traced or that two runs taught it, and runs on inputs
that it has not seen. Of each call of such a run:

    foreseen    the template of its task, with the values that were known when the call came, up to
                the first that was not
    real        the prompt that the node sent
    known       characters of the real prompt that the foreseen one begins with

Characters stand for tokens. The role of a message and its end count as text; tools that a call
shows to the model stand at the head of its prompt, as chat templates put them. A call without a
program, or whose task the flow does not have, has 0 known characters; a call from a bare thread
has the program and the task that it is found to belong to by its content.

What a tool or a retriever answered and what a person said in between cannot be known before. It
counts as not known, and the share *of the knowable part* says how it is with the prompts cut in
front of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from langgraph.types import Command

from grape_lc import ChatGrape, ScriptedEngine, TaskFlow, attach, to_taskflow
from grape_lc.engine.base import CallRequest
from grape_lc.errors import GrapeError, TraceError
from grape_lc.flow import Literal_
from grape_lc.flow.template import PromptTemplate
from grape_lc.runtime.scripted import ScriptedCall
from tests.shapes import SHAPES, UNSEEN, Run, Shape

Source = Literal["traced", "learned"]
LEARNING = 2
"""Runs that a graph learns from; the others are held out."""
ENOUGH = 0.95
"""Share of a prompt that has to be known for a call to count as foreseen."""


@dataclass(frozen=True)
class Foreseen:
    """A call of a held-out run.

    call: its node and number. real, known: characters, see above.
    knowable: characters in front of what cannot be known.
    """

    shape: str
    call: str
    real: int
    known: int
    knowable: int

    @property
    def share(self) -> float:
        """Of the whole prompt, 0 to 1."""
        return self.known / self.real

    @property
    def share_of_knowable(self) -> float:
        """Of the knowable part; 1 if there is none."""
        return min(1.0, self.known / self.knowable) if self.knowable else 1.0


@dataclass(frozen=True)
class Summary:
    """Of some calls.

    enough, mean: share of calls of which ENOUGH was known, and the mean share.
    enough_knowable, mean_knowable: the same of the knowable parts.
    """

    calls: int
    enough: float
    mean: float
    enough_knowable: float
    mean_knowable: float

    @classmethod
    def of(cls, calls: Sequence[Foreseen]) -> Summary:
        """Raises ZeroDivisionError when there are none."""
        n = len(calls)
        return cls(
            n,
            sum(call.share >= ENOUGH for call in calls) / n,
            sum(call.share for call in calls) / n,
            sum(call.share_of_knowable >= ENOUGH for call in calls) / n,
            sum(call.share_of_knowable for call in calls) / n,
        )


def measure(shape: Shape, source: Source | TaskFlow) -> list[Foreseen]:
    """The calls of the held-out runs. Each run starts from what the first runs taught.

    source: where the flow comes from, or the flow.
    """
    return [
        foreseen
        for number in range(LEARNING, len(shape.runs))
        for foreseen in _held_out(shape, source, number)
    ]


def _held_out(shape: Shape, source: Source | TaskFlow, number: int) -> list[Foreseen]:
    engine = Watched(shape)
    graph = shape.build(ChatGrape(engine=engine.scripted))
    if source == "learned":
        # Kept nowhere: what another held-out run taught is not to be known.
        graph = attach(graph, learned="memory")
        for earlier in range(LEARNING):
            play(graph, shape, shape.runs[earlier], thread=str(earlier))
    else:
        # A graph that cannot be traced foresees nothing.
        with contextlib.suppress(TraceError):
            flow = to_taskflow(graph, example=shape.example) if source == "traced" else source
            graph = attach(graph, flow, learn=False)
    before = len(engine.scripted.calls)
    run = shape.runs[number]
    play(graph, shape, run, thread=str(number))
    said = [str(turn.resume) for turn in run.turns if isinstance(turn, Command)]
    said += [shape.outside] if shape.outside else []
    calls = engine.scripted.calls[before:]
    return [engine.foreseen(call, said) for call in calls]


def play(graph: Any, shape: Shape, run: Run, *, thread: str) -> list[Any]:
    """The states after each turn of a run."""
    config = {"configurable": {"thread_id": thread}}
    if shape.sync:
        return [graph.invoke(turn, config) for turn in run.turns]

    async def play() -> list[Any]:
        return [await graph.ainvoke(turn, config) for turn in run.turns]

    return asyncio.run(play())


class Watched:
    """An engine that notes which answers were complete when a call came."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._known: dict[int, dict[str, str]] = {}
        self.scripted = ScriptedEngine(self._answer)

    def _answer(self, request: CallRequest) -> str:
        calls = self.scripted.calls
        mine = next(call for call in reversed(calls) if call.request is request)
        self._known[mine.call_id] = {
            str(call.task): call.text
            for call in calls
            if call.outcome == "finished" and call.program == mine.program
        }
        return self._shape.answer(request)

    def foreseen(self, call: ScriptedCall, said: Iterable[str]) -> Foreseen:
        """What was foreseen of a call. said: what came from outside in the run."""
        real = "".join(text_of(call.request))
        program = next((p for p in self.scripted.programs if p.program_id == call.program), None)
        task = None
        if program is not None:
            task = next((t for t in program.flow.tasks if t.name == call.task), None)
        known = 0
        if program is not None and task is not None:
            answers = self._known[call.call_id]
            tasks = {t.name: t for t in program.flow.tasks}
            outputs: dict[str, str] = {}
            for name, text in answers.items():  # in the order in which they were asked for
                if name in tasks:
                    outputs |= dict.fromkeys(program.flow.written_by(tasks[name]), text)
            expected = "".join(expected_text(task.prompt, {**program.inputs, **outputs}))
            known = _common(real, expected)
        return Foreseen(
            self._shape.name,
            call.task or call.request.label or "a bare thread",
            len(real),
            known,
            _knowable(call.request, real, said),
        )


def _common(one: str, other: str) -> int:
    """Length of the longest text that both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def text_of(request: CallRequest) -> Iterator[str]:
    """The prompt as one text, in parts."""
    if request.text is not None:
        yield request.text
        return
    yield _tools(request.tools)
    for message in request.messages or ():
        yield f"<{message['role']}>"
        yield str(message["content"])
        if "tool_calls" in message:
            yield json.dumps(message["tool_calls"])
        yield "\n"


def expected_text(prompt: PromptTemplate, values: dict[str, str]) -> Iterator[str]:
    """The same of a template, up to the first slot without a value."""
    yield _tools(prompt.tools)
    for role, segments in prompt.sections:
        if role is not None:
            yield f"<{role}>"
        for segment in segments:
            if isinstance(segment, Literal_):
                yield segment.text
                continue
            if segment.variable not in values:
                return
            try:
                yield segment.transducer.apply(values[segment.variable])
            except GrapeError:  # the value has no such part
                return
        if role is not None:
            yield "\n"


def _tools(tools: Sequence[Any]) -> str:
    return f"<tools>{json.dumps(tools, sort_keys=True)}\n" if tools else ""


def _knowable(request: CallRequest, real: str, said: Iterable[str]) -> int:
    """Characters in front of the first tool's answer, or of what else came from outside."""
    ends = [at for text in said if (at := real.find(text)) >= 0]
    for message in request.messages or ():
        if message["role"] == "tool":
            ends.append(real.index("<tool>"))
            break
    return min(ends, default=len(real))


def table(source: Source, calls: dict[str, list[Foreseen]]) -> str:
    """A line for each shape, and one for all."""
    lines = [
        f"{source:16} calls  >={ENOUGH:.0%}   mean   knowable: >={ENOUGH:.0%}   mean",
    ]
    everything = [call for some in calls.values() for call in some]
    for name, some in [*calls.items(), ("all", everything)]:
        s = Summary.of(some)
        lines.append(
            f"{name:16} {s.calls:5} {s.enough:6.1%} {s.mean:6.3f}   "
            f"{s.enough_knowable:14.1%} {s.mean_knowable:6.3f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Names of sources and shapes choose among them; ``-v`` shows each call.

    ``unseen`` stands for the shapes that were written last.
    """
    names = [argument for argument in arguments if argument != "-v"]
    sources = [s for s in get_args(Source) if s in names] or list(get_args(Source))
    every = UNSEEN if "unseen" in names else SHAPES
    shapes = [s for s in every if s.name in names] or list(every)
    with tempfile.TemporaryDirectory() as folder:
        # What these runs save is of no interest to anybody else.
        os.environ["GRAPE_LC_GRAPHS"] = folder
        for source in sources:
            calls = {shape.name: measure(shape, source) for shape in shapes}
            sys.stdout.write(table(source, calls) + "\n\n")
            for call in [c for some in calls.values() for c in some] if "-v" in arguments else ():
                sys.stdout.write(f"{call.share:6.1%} {call.shape:16} {call.call}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
