from __future__ import annotations

from typing import Any

import pytest

from grape_lc.bench import ranking
from grape_lc.engine.simulator.ahead import Feeding
from grape_lc.engine.simulator.host import Host, HostSettings, priority
from grape_lc.engine.simulator.messages import Append, Message, Submit
from grape_lc.engine.simulator.programs import Graph, Program, Workload
from grape_lc.engine.simulator.runs import Run
from grape_lc.engine.simulator.statistics import Statistics
from tests.unit.engine.simulator.scenes import chain, fan

SETTINGS = HostSettings(
    entry_s=0.5, hop_s=1.0, feeding=Feeding(feed_s=0.25, catch_up_s=2.0, chunk=4, hold_back=2)
)


class Ear:
    """An engine that only listens."""

    number = 0
    block_size = 4

    def __init__(self) -> None:
        self.heard: list[tuple[float, Message]] = []

    def send(self, at: float, message: Message) -> None:
        self.heard.append((at, message))

    def new(self) -> list[tuple[float, Message]]:
        heard, self.heard = self.heard, []
        return heard


class Play:
    """A host, its engine, and one program."""

    def __init__(
        self, shape: Any, *, settings: HostSettings = SETTINGS, differ: float = 0.0
    ) -> None:
        self.ear, self.statistics = Ear(), Statistics()
        self.ended: list[tuple[Run, float]] = []
        self.host = Host(settings, self.statistics, lambda run, now: self.ended.append((run, now)))
        program = Workload(shape, 0, differ=differ).program(0)
        self.run = self.host.begin(program, self.ear, 10.0)

    def decode(self, place: int, count: int, now: float) -> float:
        """The call of a task gets tokens, a second apart."""
        for _ in range(count):
            self.host.sampled([self.run.calls[place]], now)
            now += 1.0
        return now - 1.0


def kinds(heard: list[tuple[float, Message]]) -> list[tuple[float, str, str]]:
    return [(at, type(m).__name__, m.request.view.id) for at, m in heard]


def test_a_program_opens_the_prompts_of_later_tasks_and_makes_its_first_call():
    play = Play(chain(3, static=30, own=12, answer=10, spread=0.0))
    assert kinds(play.ear.new()) == [
        (10.25, "Open", "p0/task_1/open"),
        (10.25, "Open", "p0/task_2/open"),
        (10.5, "Submit", "p0/task_0"),
    ]
    near, far = (play.run.prompts[place].request.view for place in (1, 2))
    assert near.tokens == near.static == 42
    assert (near.hint.hops, near.hint.source, far.hint.hops) == (1, "task_0", 2)
    assert near.hint.after == ("task_2",)


def test_an_answer_streams_in_by_chunks_and_its_end_is_held_back():
    play = Play(chain(2, answer=10, spread=0.0))
    play.ear.new()
    play.decode(0, 3, 20.0)
    assert play.ear.new() == []
    play.decode(0, 1, 23.0)
    ((at, message),) = play.ear.new()
    assert isinstance(message, Append)
    assert at == 23.25
    assert message.pieces == ((play.run.program.tasks[1].parts[2].source, 2),)
    assert not message.final
    play.decode(0, 4, 24.0)
    ((_, message),) = play.ear.new()
    assert isinstance(message, Append)
    assert message.pieces[0][1] == 4


def test_at_its_end_the_prompt_is_completed_and_taken_over_by_the_next_call():
    play = Play(chain(2, answer=6, spread=0.0))
    play.ear.new()
    last = play.decode(0, 6, 20.0)
    (_, first), (at, rest), (call_at, call) = play.ear.new()
    assert isinstance(first, Append)
    assert isinstance(rest, Append)
    assert isinstance(call, Submit)
    assert (at, rest.final) == (last + 0.25, True)
    assert [tokens for _, tokens in rest.pieces] == [4, 3]
    assert call_at == last + 1.0
    assert call.adopt is rest.request
    assert call.request.known.length == sum(p.tokens for p in play.run.program.tasks[1].parts)


def test_prompts_further_down_are_completed_later():
    play = Play(chain(3, answer=2, spread=0.0))
    play.ear.new()
    last = play.decode(0, 2, 20.0)
    play.ear.new()
    assert play.run.prompts[2].part == 2, "it waits for the second answer"
    assert not play.run.prompts[2].complete
    last = play.decode(1, 2, last + 5)
    appended = [at for at, m in play.ear.new() if isinstance(m, Append)]
    assert appended == [last + 0.25]


def test_a_call_with_a_tool_waits_for_it_and_a_late_text_is_never_predicted():
    play = Play(fan(2, answer=3, spread=0.0))
    play.ear.new()
    last = play.decode(0, 3, 20.0)
    calls = [(at, m) for at, m in play.ear.new() if isinstance(m, Submit)]
    tools = [play.run.program.tasks[place].tool_s for place in (1, 2)]
    assert [at for at, _ in calls] == [last + 1.0 + tool for tool in tools]
    assert min(tools) > 0
    for place in (1, 2):
        last = play.decode(place, 3, last + 9)
    report = [m for _, m in play.ear.new() if m.request.view.id.startswith("p0/report")]
    assert all(not m.final for m in report if isinstance(m, Append))
    call = report[-1]
    assert isinstance(call, Submit)
    assert call.adopt is not None
    assert (
        call.request.known.length
        == call.adopt.known.length
        + sum(tokens for m in report if isinstance(m, Append) for _, tokens in m.pieces)
        + 7
    )


def test_a_call_that_differs_differs_from_the_first_answer_on():
    play = Play(chain(2, static=30, own=12, answer=6, spread=0.0), differ=1.0)
    play.ear.new()
    play.decode(0, 6, 20.0)
    call = play.ear.new()[-1][1]
    assert isinstance(call, Submit)
    assert call.adopt is not None
    assert call.request.known.common(call.adopt.known) == 42


def test_what_no_call_took_is_released_and_nothing_is_opened_without_open_prompts():
    play = Play(chain(2, answer=2, spread=0.0))
    spare = play.run.prompts[1]
    play.decode(0, 2, 20.0)
    play.run.prompts[1] = spare
    play.ear.new()
    last = play.decode(1, 2, 30.0)
    assert kinds(play.ear.new()) == [(last + 0.25, "Release", "p0/task_1/open")]
    assert [(run is play.run, now) for run, now in play.ended] == [(True, last)]

    plain = Play(chain(2, answer=2, spread=0.0), settings=HostSettings(ahead=False))
    plain.decode(0, 2, 20.0)
    assert [type(m) for _, m in plain.ear.new()] == [Submit, Submit]


def test_priorities_are_ordered_as_those_of_the_bench():
    #  0 -> 1 -> 3,  0 -> 2, of three programs
    graph = Graph.of(((), (0,), (0,), (1,)))
    ours, theirs = {}, {}
    for number in range(3):
        program = Program(number, "s", (), graph)
        for place in range(4):
            ours[number, place] = priority(program, place)
            standing = ranking.Standing(graph.depth[place], graph.awaited[place])
            theirs[number, place] = ranking.priority(standing, number)
    assert len(set(ours.values())) == 12
    assert sorted(ours, key=ours.__getitem__) == sorted(theirs, key=theirs.__getitem__)


def test_targets_are_judged_call_by_call():
    slow = Play(chain(1, answer=3, spread=0.0))
    slow.host.sampled([slow.run.calls[0]], 10.6)  # 0.5 s were the target
    slow.decode(0, 2, 11.0)
    assert (slow.statistics.calls, slow.statistics.calls_met) == (1, 0)
    quick = Play(chain(1, answer=3, spread=0.0))
    for now in (10.4, 10.44, 10.48):
        quick.host.sampled([quick.run.calls[0]], now)
    assert (quick.statistics.calls_met, quick.statistics.programs_met) == (1, 1)
    assert quick.statistics.ttft.mean == pytest.approx(0.4)
    assert quick.statistics.itl.max == pytest.approx(0.04)
