"""The open prompts of programs: begun, fed while their upstream decodes, completed, released.

The rules are those of the runtime's ``PromptTable``: what is known of a prompt up to the first
unknown text is open; an answer streams in by chunks, all but its last few tokens; when it is
complete, so is everything up to the next unknown text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from grape_lc.engine.simulator.messages import Append, Open, Release
from grape_lc.engine.simulator.requests import Request
from grape_lc.engine.simulator.runs import Call, Prompt, Run
from grape_lc.engine.simulator.tokens import Text
from grape_lc.scheduler.types import RequestView, Stage


@dataclass(frozen=True)
class Feeding:
    """How text is fed.

    feed_s: from a token to the append that brings it. catch_up_s: how much later prompts are
    completed whose call does not come next. chunk: answer tokens that make one append.
    hold_back: of a text that goes on, tokens that are not certain yet.
    """

    feed_s: float = 0.001
    catch_up_s: float = 0.020
    chunk: int = 8
    hold_back: int = 4


class Ahead:
    """Sends the engines what is known ahead."""

    def __init__(self, feeding: Feeding) -> None:
        self._feeding = feeding

    def begin(self, run: Run, now: float) -> None:
        """Open the prompt of every task that waits for another one."""
        at = now + self._feeding.feed_s
        for place, reads in enumerate(run.program.graph.reads):
            if reads:
                view = RequestView(
                    id=f"{run.name}/{run.program.tasks[place].name}/open",
                    seq=0,
                    arrived=at,
                    stage=Stage.OPEN,
                    tokens=0,
                    program_arrived=run.arrived,
                    hold_back=1,
                )
                prompt = Prompt(place, Request(view, Text(run.engine.block_size), prompt=0))
                run.prompts[place] = prompt
                self._grow(run, prompt, at)

    def take(self, run: Run, place: int) -> Request | None:
        """A task's call is made: the open prompt that it may take over, if there is one."""
        prompt = run.prompts.pop(place, None)
        if prompt is None:
            return None
        self._unfeed(run, prompt)
        return None if prompt.sent_at is None else prompt.request

    def sampled(self, call: Call, now: float) -> None:
        """A call that goes on got a token."""
        for prompt in call.run.fed.get(call.place, ()):
            prompt.fresh += 1
            if prompt.fresh >= self._feeding.chunk:
                self._stream(call.run, prompt, call, now + self._feeding.feed_s)

    def ended(self, run: Run, place: int, now: float) -> None:
        """A call's answer is complete; the calls that read it are not made yet."""
        # Prompts whose call comes next are completed first; the others when it had its turn.
        for prompt in list(run.fed.get(place, ())):
            later = 0.0 if self._hops(run, prompt.place) == 1 else self._feeding.catch_up_s
            self._grow(run, prompt, now + self._feeding.feed_s + later)

    def close(self, run: Run, now: float) -> None:
        """A program ended: release what no call took."""
        for prompt in run.prompts.values():
            if prompt.sent_at is not None:
                run.engine.send(now + self._feeding.feed_s, Release(prompt.request))

    def _stream(self, run: Run, prompt: Prompt, call: Call, at: float) -> None:
        """Send what is certain of an answer that goes on."""
        prompt.fresh = 0
        part = run.program.tasks[prompt.place].parts[prompt.part]
        more = call.count - self._feeding.hold_back - prompt.filled
        if more > 0:
            prompt.filled += more
            self._emit(run, prompt, [(part.source, more)], part.answer, at)

    def _grow(self, run: Run, prompt: Prompt, at: float) -> None:
        """Send what became known of a prompt's text."""
        if prompt.complete:
            return
        task = run.program.tasks[prompt.place]
        prompt.fresh = 0
        self._unfeed(run, prompt)
        pieces: list[tuple[int, int]] = []
        source = None
        while prompt.part < len(task.parts):
            part = task.parts[prompt.part]
            if part.late:
                break
            known = part.tokens
            if part.answer is not None and not run.done[part.answer]:
                upstream = run.calls.get(part.answer)
                so_far = upstream.count if upstream is not None else 0
                known = max(prompt.filled, so_far - self._feeding.hold_back)
                source = part.answer
            if known > prompt.filled:
                pieces.append((part.source, known - prompt.filled))
                prompt.filled = known
            if source is not None:
                run.fed.setdefault(source, []).append(prompt)
                break
            prompt.part, prompt.filled = prompt.part + 1, 0
        prompt.complete = prompt.part == len(task.parts)
        self._emit(run, prompt, pieces, source, at)

    def _emit(
        self,
        run: Run,
        prompt: Prompt,
        pieces: list[tuple[int, int]],
        source: int | None,
        at: float,
    ) -> None:
        if prompt.hinted != (run.moves, source):
            prompt.hinted = (run.moves, source)
            prompt.hint = replace(
                run.hints[prompt.place],
                hops=self._hops(run, prompt.place),
                source=None if source is None else run.program.tasks[source].name,
            )
        hint, request = prompt.hint, prompt.request
        if prompt.sent_at is None:
            if not pieces:
                return
            for piece in pieces:
                request.known.append(*piece)
            request.prompt = request.view.tokens = request.view.static = request.known.length
            request.view.hint = hint
            request.view.arrived = request.view.touched = at
            prompt.sent_at = at
            run.engine.send(at, Open(request))
        elif pieces or prompt.complete:
            # What was put off must not be overtaken by what comes later.
            prompt.sent_at = at = max(at, prompt.sent_at)
            run.engine.send(at, Append(request, tuple(pieces), hint, prompt.complete))

    def _unfeed(self, run: Run, prompt: Prompt) -> None:
        """It no longer waits for the answer that it waited for."""
        task = run.program.tasks[prompt.place]
        if prompt.part < len(task.parts):
            source = task.parts[prompt.part].answer
            if source is not None and prompt in run.fed.get(source, ()):
                run.fed[source].remove(prompt)
                if not run.fed[source]:
                    del run.fed[source]

    def _hops(self, run: Run, place: int) -> int:
        """Calls that must still end before this task's call can begin, at least 1."""
        reads = run.program.graph.reads
        wait: dict[int, int] = {}
        for other in range(place):
            if run.done[other]:
                wait[other] = 0
            elif other in run.calls:
                wait[other] = 1
            else:
                wait[other] = 1 + max((wait[read] for read in reads[other]), default=0)
        return max((wait[read] for read in reads[place]), default=1) or 1
