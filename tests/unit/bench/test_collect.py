import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from langchain_core.messages import HumanMessage

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.bench.collect import Live, MeasuredEngine, current_program
from grape_lc.engine.base import CallDelta, CallRequest, Usage
from grape_lc.errors import CallFailedError
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.flow.variables import InputVar, OutputVar
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock


class Replay(ScriptedEngine):
    """Delivers the deltas that it was given, whatever is asked."""

    def __init__(self, *deltas: CallDelta) -> None:
        super().__init__()
        self.replayed = deltas

    def stream(self, request: CallRequest) -> Iterator[CallDelta]:
        yield from self.replayed

    async def astream(self, request: CallRequest) -> AsyncIterator[CallDelta]:
        for delta in self.replayed:
            yield delta


@pytest.fixture
def program() -> Iterator[str]:
    token = current_program.set("p")
    yield "p"
    current_program.reset(token)


REQUEST = CallRequest(text="x", task="plan")
DELTAS = (
    CallDelta("a", (1,), 1.0),
    CallDelta("", (), 1.5),
    CallDelta("bc", (2, 3), 2.0, "stop", Usage(30, 3, 20, 10, "adopted")),
)


def test_a_call_is_recorded_with_times_counts_text_and_usage(program: str):
    engine = MeasuredEngine(Replay(*DELTAS), clock=lambda: 0.5)
    assert tuple(engine.stream(REQUEST)) == DELTAS
    (record,) = engine.calls(program)
    assert (record.task, record.submitted, record.text) == ("plan", 0.5, "abc")
    assert record.tokens == ((1.0, 1), (2.0, 2))
    assert record.prompt_tokens == 30
    assert record.cached_tokens == 20
    assert record.ahead_tokens == 10
    assert record.ahead_outcome == "adopted"


def test_async_calls_are_recorded_alike(program: str):
    async def run() -> tuple[CallDelta, ...]:
        return tuple([delta async for delta in engine.astream(REQUEST)])

    engine = MeasuredEngine(Replay(*DELTAS), clock=lambda: 0.5)
    assert asyncio.run(run()) == DELTAS
    other = MeasuredEngine(Replay(*DELTAS), clock=lambda: 0.5)
    assert tuple(other.stream(REQUEST)) == DELTAS
    assert engine.calls(program) == other.calls(program)


def test_programs_are_kept_apart_and_calls_without_one_left_out(program: str):
    engine = MeasuredEngine(Replay(*DELTAS))
    list(engine.stream(REQUEST))
    token = current_program.set("q")
    list(engine.stream(REQUEST))
    list(engine.stream(REQUEST))
    current_program.set(None)
    list(engine.stream(REQUEST))
    current_program.reset(token)
    assert [call.call_id for call in engine.calls("p")] == [1]
    assert [call.call_id for call in engine.calls("q")] == [2, 3]
    assert engine.live().tokens == 9


def test_the_running_agentic_itl_is_a_mean_over_programs(program: str):
    inner = Replay(CallDelta("", (1,), 1.0))
    engine = MeasuredEngine(inner)
    assert engine.live() == Live(0, None)
    list(engine.stream(REQUEST))
    assert engine.live() == Live(1, None)
    inner.replayed = (CallDelta("", (1, 2), 1.5),)  # gaps of 500 and 0 ms
    list(engine.stream(REQUEST))
    current_program.set("q")
    inner.replayed = (CallDelta("", (1,), 9.0),)  # the first token of another program: no gap
    list(engine.stream(REQUEST))
    current_program.set(program)
    inner.replayed = (CallDelta("", (1,), 2.5),)  # a task switch of 1000 ms
    list(engine.stream(REQUEST))
    assert engine.live() == pytest.approx((5, 500.0))
    engine.forget()
    assert engine.live() == Live(0, None)
    assert engine.calls(program) == ()


def test_threads_may_call_at_once():
    engine = MeasuredEngine(ScriptedEngine("word " * 50))

    def many(name: str) -> None:
        current_program.set(name)
        for _ in range(10):
            list(engine.stream(REQUEST))

    threads = [threading.Thread(target=many, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tokens = [sum(call.output_tokens for call in engine.calls(name)) for name in "abcd"]
    assert tokens == [tokens[0]] * 4
    assert engine.live().tokens == sum(tokens)
    ids = [call.call_id for name in "abcd" for call in engine.calls(name)]
    assert sorted(ids) == list(range(1, 41))


@pytest.mark.parametrize("is_async", [False, True])
def test_leaving_a_stream_cancels_the_call_inside(program: str, is_async: bool):
    inner = ScriptedEngine("one two three")
    engine = MeasuredEngine(inner)

    async def leave() -> None:
        deltas = engine.astream(REQUEST)
        await anext(deltas)
        await deltas.aclose()

    if is_async:
        asyncio.run(leave())
    else:
        deltas = engine.stream(REQUEST)
        next(deltas)
        deltas.close()
    assert inner.calls[0].outcome == "cancelled"
    assert engine.calls(program)[0].text == "one"


def test_errors_come_through_and_the_record_stays(program: str):
    engine = MeasuredEngine(ScriptedEngine({"x": CallFailedError("broken")}))
    with pytest.raises(CallFailedError, match="broken"):
        list(engine.stream(REQUEST))
    assert engine.calls(program)[0].tokens == ()


def test_a_chat_model_serves_through_it(program: str):
    clock = VirtualClock()
    engine = MeasuredEngine(
        ScriptedEngine("one two three", delay=0.5, clock=clock), clock=clock.now
    )
    assert ChatGrape(engine=engine).invoke([HumanMessage("go")]).text == "one two three"
    (record,) = engine.calls(program)
    assert record.submitted == 0.0
    assert record.tokens == ((0.5, 1), (1.0, 1), (1.5, 1))


def test_programs_and_questions_reach_the_inner_engine():
    inner = ScriptedEngine(model_name="inner")
    engine = MeasuredEngine(inner)
    flow = TaskFlow()
    flow.add_variable(InputVar("problem"))
    flow.add_task("Solve {problem}", flow.add_variable(OutputVar("code")))
    program_id = engine.open_program(flow, {"problem": "x"})
    assert list(inner.open_programs) == [program_id]
    engine.close_program(program_id)
    assert list(inner.open_programs) == []
    assert engine.count_tokens("two words") == inner.count_tokens("two words")
    assert engine.model_name == "inner"
