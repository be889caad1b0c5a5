"""What stands in front of the engine: programs that make calls, and the table of open prompts.

It sends the engine the same messages, at the same moments, as the runtime does: the prompts of
all tasks that wait for others are opened when a program arrives, grow by chunks while their
upstream decodes, are completed when it ends, and are taken over by their call.

    upstream's last token              next call's arrival
            |--- feed_s: the rest of its text -->|
            |------------ hop_s + tool ----------|
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from grape_lc.engine.simulator.ahead import Ahead, Feeding
from grape_lc.engine.simulator.messages import Submit
from grape_lc.engine.simulator.programs import Program, answer_source
from grape_lc.engine.simulator.requests import Request
from grape_lc.engine.simulator.runs import Call, Engine, Run, hints_of
from grape_lc.engine.simulator.statistics import LATE_SHARE, Statistics
from grape_lc.engine.simulator.tokens import Text
from grape_lc.scheduler.types import RequestView, Stage

_OTHER = 2048  # added to a source: the text that stands there instead of what was predicted


_STAGES = 1 << 16
_PROGRAMS = 1 << 32


def priority(program: Program, place: int) -> int:
    """vLLM's priority of a task's call, smaller first; the order of ``grape_lc.bench.ranking``.

    First what the final answer needs, of that later stages, of these programs that came earlier. So
    calls that are siblings are admitted together, and none of another program between them.
    """
    aside = 0 if program.graph.awaited[place] else _STAGES
    return (aside - program.graph.depth[place]) * _PROGRAMS + program.number


@dataclass(frozen=True)
class HostSettings:
    """Delays in seconds.

    entry_s: from a program's arrival to its first calls' in the engine. hop_s: from a call's last
    token to the next call's arrival. ahead: open prompts are kept at all; feeding: how.
    """

    entry_s: float = 0.005
    hop_s: float = 0.010
    ahead: bool = True
    feeding: Feeding = field(default_factory=Feeding)


class Host:
    """All programs in front of one or more engines.

    statistics: what is counted. finished: told of every run that ended. keep: remember the time
    of every token (``Run.history``), which memory then grows with.
    """

    def __init__(
        self,
        settings: HostSettings,
        statistics: Statistics,
        finished: Callable[[Run, float], None],
        *,
        keep: bool = False,
    ) -> None:
        self._settings = settings
        self._stats = statistics
        self._finished = finished
        self._keep = keep
        self._ahead = Ahead(settings.feeding) if settings.ahead else None

    # ------------------------------------------------------------------ programs

    def begin(self, program: Program, engine: Engine, now: float) -> Run:
        """A program arrives."""
        count = len(program.tasks)
        name = f"p{program.number}"
        run = Run(program, now, engine, name, hints_of(program, name), count, [False] * count)
        if self._keep:
            run.history = []
        self._stats.begun = min(self._stats.begun, now)
        if self._ahead is not None:
            self._ahead.begin(run, now)
        for place, reads in enumerate(program.graph.reads):
            if not reads:
                self._call(run, place, now, now + self._settings.entry_s)
        return run

    def _call(self, run: Run, place: int, now: float, at: float) -> None:
        """A task's call is made at ``now`` and arrives at ``at``."""
        task = run.program.tasks[place]
        text = Text(run.engine.block_size)
        number = run.program.number
        for part in task.parts:
            differs = task.differs and part.answer is not None
            text.append(part.source + (_OTHER if differs else 0), part.tokens)
        adopt = None if self._ahead is None else self._ahead.take(run, place)
        hint = run.hints[place]
        feeds = bool(run.fed.get(place))
        if feeds != hint.feeds:
            hint = replace(hint, feeds=feeds)
        view = RequestView(
            id=f"{run.name}/{task.name}",
            seq=0,
            arrived=at,
            stage=Stage.WAITING,
            tokens=text.length,
            hint=hint,
            program_arrived=run.arrived,
            max_output=task.limit,
        )
        request = Request(
            view,
            text,
            prompt=text.length,
            answer=task.output,
            source=answer_source(number, place),
            priority=priority(run.program, place),
        )
        call = Call(run, place, now, run.ended, request)
        request.owner = call
        if run.history is not None:
            call.times = []
            run.history.append(call)
        run.calls[place] = call
        run.moves += 1
        run.engine.send(at, Submit(request, adopt))

    # ------------------------------------------------------------------ tokens

    def sampled(self, calls: list[Call], now: float) -> None:
        """Each of these calls got one more token."""
        stats = self._stats
        gaps: dict[float, int] = {}
        ended: list[Call] = []
        for call in calls:
            run = call.run
            last = run.last
            if last is None:
                stats.ttft.add(now - run.arrived)
            else:
                gap = now - last
                gaps[gap] = gaps.get(gap, 0) + 1
            run.last = now
            count = call.count + 1
            call.count = count
            if count == 1:
                call.first = now
                if call.before is not None:
                    stats.switch.add(now - call.before)
            else:
                target = run.program.targets.tbt_s
                if target is not None and now - call.last > target:
                    call.late += 1
            call.last = now
            if call.times is not None:
                call.times.append(now)
            if count == call.request.answer:
                ended.append(call)
            elif call.place in run.fed and self._ahead is not None:
                self._ahead.sampled(call, now)
        for gap, times in gaps.items():
            stats.itl.add(gap, times)
        for call in ended:
            self._ended(call, now)

    def _ended(self, call: Call, now: float) -> None:
        """A call got its last token."""
        run, place = call.run, call.place
        stats, settings = self._stats, self._settings
        task, targets = run.program.tasks[place], run.program.targets
        ttft = call.first - call.made
        met = (targets.ttft_s is None or ttft <= targets.ttft_s) and (
            call.late <= LATE_SHARE * (call.count - 1)
        )
        run.met &= met
        stats.calls += 1
        stats.calls_met += met
        stats.output_tokens += call.count
        stats.prompt_tokens += task.prompt
        del run.calls[place]
        run.done[place] = True
        run.moves += 1
        run.left -= 1
        run.ended = now
        if self._ahead is not None:
            self._ahead.ended(run, place, now)
        for follower in run.program.graph.read_by[place]:
            if all(run.done[read] for read in run.program.graph.reads[follower]):
                at = now + settings.hop_s + run.program.tasks[follower].tool_s
                self._call(run, follower, now, at)
        if not run.left:
            self._end(run, now)

    def _end(self, run: Run, now: float) -> None:
        stats, deadline_s = self._stats, run.program.targets.deadline_s
        seconds = now - run.arrived
        stats.programs += 1
        stats.programs_met += run.met and (deadline_s is None or seconds <= deadline_s)
        stats.program.add(seconds)
        stats.ended = max(stats.ended, now)
        if self._ahead is not None:
            self._ahead.close(run, now)
        self._finished(run, now)
