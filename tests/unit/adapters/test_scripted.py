"""ScriptedEngine: the fake that users test their graphs with."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.base import CallDelta, CallRequest
from grape_lc.errors import CallFailedError, EmptyPromptError, EngineClosedError
from grape_lc.flow import InputVar, OutputVar, Sampling, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, SystemClock, VirtualClock, prompt_text


def ask(text: str = "hello", **fields: object) -> CallRequest:
    return CallRequest.model_validate({"text": text, **fields})


def text_of(engine: ScriptedEngine, request: CallRequest) -> str:
    return "".join(delta.text for delta in engine.stream(request))


def one_task_flow() -> TaskFlow:
    flow = TaskFlow()
    flow.add_variable(InputVar("topic"))
    flow.add_variable(OutputVar("poem"))
    flow.add_task("A poem on {topic}", "poem", name="write")
    return flow


@given(st.text(max_size=60))
def test_the_pieces_of_a_text_join_to_it_and_the_last_one_alone_ends_it(answer: str) -> None:
    deltas = list(ScriptedEngine(answer).stream(ask()))
    assert "".join(delta.text for delta in deltas) == answer
    assert [d.finish_reason for d in deltas] == [None] * (len(deltas) - 1) + ["stop"]
    assert [d.usage is None for d in deltas[:-1]] == [True] * (len(deltas) - 1)
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.completion_tokens == sum(len(delta.token_ids) for delta in deltas)


def test_a_sequence_answers_in_order_of_arrival_and_then_no_more() -> None:
    engine = ScriptedEngine(["first", "second"])
    assert [text_of(engine, ask()), text_of(engine, ask())] == ["first", "second"]
    with pytest.raises(CallFailedError, match="call 2 came after the script's 2 answers"):
        text_of(engine, ask())


def test_a_mapping_goes_by_task_then_label_then_longest_key_in_the_prompt() -> None:
    engine = ScriptedEngine({"plan": "a plan", "the plan": "longer", "code": "code"})
    assert text_of(engine, ask("follow the plan", task="code", label="plan")) == "code"
    assert text_of(engine, ask("follow the plan", task="other", label="plan")) == "a plan"
    assert text_of(engine, ask("follow the plan")) == "longer"
    with pytest.raises(CallFailedError, match=r"none of its keys \['code', 'plan', 'the plan'\]"):
        text_of(engine, ask("hello"))


def test_a_callable_sees_the_request_and_may_give_pieces_or_an_error() -> None:
    def script(request: CallRequest) -> list[str] | Exception:
        text = request.text or ""
        return ValueError("no such topic") if text == "bad" else [text[:2], text[2:]]

    engine = ScriptedEngine(script)
    assert [delta.text for delta in engine.stream(ask("abcd"))] == ["ab", "cd"]
    with pytest.raises(ValueError, match="no such topic"):
        text_of(engine, ask("bad"))
    assert [call.outcome for call in engine.calls] == ["finished", "failed"]


@pytest.mark.parametrize(
    ("stop", "max_tokens", "text", "reason"),
    [
        ((), None, "one two three four", "stop"),
        ((), 2, "one two", "length"),
        ((), 4, "one two three four", "stop"),
        (("three",), None, "one two ", "stop"),
        (("three",), 2, "one two", "length"),
        (("two three", "wo"), None, "one t", "stop"),
    ],
)
def test_stop_strings_and_max_tokens_cut_an_answer(
    stop: tuple[str, ...], max_tokens: int | None, text: str, reason: str
) -> None:
    engine = ScriptedEngine("one two three four")
    request = ask(sampling=Sampling(stop=stop, max_tokens=max_tokens))
    deltas = list(engine.stream(request))
    assert "".join(delta.text for delta in deltas) == text
    assert deltas[-1].finish_reason == reason


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(EmptyPromptError, match="call 0"):
        text_of(ScriptedEngine(), CallRequest(messages=()))


def test_prompt_text_of_each_kind_of_prompt() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    chat = ({"role": "system", "content": "be brief"}, {"role": "user", "content": blocks})
    assert prompt_text(CallRequest(messages=chat)) == "system: be brief\nuser: a\nb"
    assert prompt_text(ask("plain")) == "plain"
    assert prompt_text(CallRequest(token_ids=(5, 6))) == "5 6"


def test_the_clock_is_slept_on_before_each_piece_and_stamps_it() -> None:
    clock = VirtualClock(start=10.0)
    deltas = list(ScriptedEngine("a b c", delay=0.5, clock=clock).stream(ask()))
    assert [delta.at for delta in deltas] == [10.5, 11.0, 11.5]


async def test_the_default_clock_waits_and_lets_the_loop_go_on() -> None:
    engine = ScriptedEngine("a b", delay=0.02)
    assert isinstance(engine.clock, SystemClock)
    begin = time.monotonic()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    task = asyncio.create_task(others())
    deltas = [delta async for delta in engine.astream(ask())]
    task.cancel()
    assert time.monotonic() - begin >= 0.04
    assert deltas[1].at - deltas[0].at >= 0.02
    assert turns >= 2  # one at least while each piece was waited for


def test_closing_the_iterator_cancels_the_call() -> None:
    engine = ScriptedEngine("one two three")
    deltas = engine.stream(ask())
    assert next(deltas).text == "one"
    deltas.close()  # type: ignore[attr-defined]
    assert (engine.calls[0].outcome, engine.calls[0].text) == ("cancelled", "one")


async def test_cancelling_the_task_cancels_the_call() -> None:
    engine = ScriptedEngine("one two three", delay=3600)

    async def consume() -> list[CallDelta]:
        return [delta async for delta in engine.astream(ask())]

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.calls[0].outcome == "cancelled"


def test_close_refuses_new_calls_and_fails_running_ones() -> None:
    with ScriptedEngine("one two three") as engine:
        program = engine.open_program(one_task_flow(), {})
        running = engine.stream(ask())
        next(running)
        assert [engine.is_open, engine.open_programs] == [True, (program,)]
    assert [engine.is_open, engine.open_programs] == [False, ()]
    with pytest.raises(EngineClosedError, match="call 0"):
        next(running)
    assert engine.calls[0].outcome == "failed"
    for refused in (
        lambda: next(engine.stream(ask())),
        lambda: engine.open_program(one_task_flow(), {}),
    ):
        with pytest.raises(EngineClosedError, match="'scripted'"):
            refused()


def test_a_program_records_what_its_open_prompts_would_be_fed() -> None:
    engine = ScriptedEngine("one two")
    flow = one_task_flow()
    program = engine.open_program(flow, {"topic": "rain"})
    text_of(engine, ask(program=program, task="write"))
    text_of(engine, ask(program=program))
    text_of(engine, ask(program="unknown", task="write"))
    engine.close_program(program)
    engine.close_program("unknown")
    text_of(engine, ask(program=program, task="write"))
    (record,) = engine.programs
    assert (record.flow, record.inputs, record.open) == (flow, {"topic": "rain"}, False)
    assert record.fed == {"write": ["one", " two"]}


def test_observers_see_every_delta_until_they_unsubscribe() -> None:
    engine = ScriptedEngine("one two")
    seen: list[tuple[int, str]] = []
    unsubscribe = engine.observe(lambda call, request, delta: seen.append((call, delta.text)))
    text_of(engine, ask())
    unsubscribe()
    unsubscribe()
    text_of(engine, ask())
    assert seen == [(0, "one"), (0, " two")]


def test_many_threads_get_their_own_answers() -> None:
    engine = ScriptedEngine(lambda request: f"answer to {request.text} " * 20)
    with ThreadPoolExecutor(8) as pool:
        questions = [f"q{n}" for n in range(64)]
        answers = list(pool.map(lambda q: text_of(engine, ask(q)), questions))
    assert answers == [f"answer to {q} " * 20 for q in questions]
    assert sorted(call.call_id for call in engine.calls) == list(range(64))
    assert {call.outcome for call in engine.calls} == {"finished"}
