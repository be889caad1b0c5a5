"""Graphs with models of others: attached without harm, and it is known what was called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import pytest
from langchain_core.language_models import FakeListChatModel, FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph

from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach, to_taskflow
from grape_lc.errors import TraceError
from grape_lc.flow import InputVar, OutputVar, TaskFlow
from grape_lc.runtime.client import GrapeEngine
from grape_lc.runtime.process import HostProcess
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock

ANSWERS = ["first answer", "second answer", "third answer"]


class State(TypedDict, total=False):
    topic: str
    plan: str
    text: str


def forever() -> Iterator[AIMessage]:
    while True:
        yield from (AIMessage(answer) for answer in ANSWERS)


MODELS: list[Callable[[], Any]] = [
    lambda: FakeListChatModel(responses=ANSWERS),
    lambda: GenericFakeChatModel(messages=forever()),
    lambda: FakeListLLM(responses=ANSWERS),
]
NAMES = ["FakeListChatModel", "GenericFakeChatModel", "FakeListLLM"]


def text_of(answer: Any) -> str:
    return str(getattr(answer, "content", answer))


def make_graph(first: Any, second: Any | None = None) -> Any:
    """Two calls, the second of which reads the first one's answer."""
    second = first if second is None else second

    async def plan(state: State) -> State:
        return {"plan": text_of(await first.ainvoke(f"Plan {state['topic']}"))}

    def text(state: State) -> State:
        return {"text": text_of(second.invoke(f"Write {state['plan']}"))}

    builder = StateGraph(State).add_node("plan", plan).add_node("text", text)
    return builder.add_edge(START, "plan").add_edge("plan", "text").compile()


def make_flow() -> TaskFlow:
    flow = TaskFlow(name="two")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(OutputVar("out"))
    flow.add_task([("user", "Write about {topic}")], "out", name="text")
    return flow


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting one fails the test."""

    def start(*_: Any) -> None:
        raise AssertionError("an engine is started")

    monkeypatch.setattr(HostProcess, "__init__", start)


def handler_of(app: Any) -> ProgramHandler:
    (handler,) = [h for h in app.config["callbacks"] if isinstance(h, ProgramHandler)]
    return handler


@pytest.mark.parametrize(("make", "name"), [*zip(MODELS, NAMES, strict=True)], ids=NAMES)
@pytest.mark.parametrize("flow", [None, make_flow()], ids=["learned", "declared"])
async def test_results_are_the_same_and_no_engine_starts(
    make: Callable[[], Any], name: str, flow: TaskFlow | None
) -> None:
    plain, app = make_graph(make()), attach(make_graph(make()), flow)
    for topic in ("bees", "ants", "wasps", "flies"):
        assert await app.ainvoke({"topic": topic}) == await plain.ainvoke({"topic": topic})
    modes = ["values", "updates", "messages"]
    streams = [
        [
            (mode, part[0].content if mode == "messages" else part)
            async for mode, part in graph.astream({"topic": "bees"}, stream_mode=modes)
        ]
        for graph in (plain, app)
    ]
    assert streams[0] == streams[1]
    assert handler_of(app).foreign_calls == {name: 10}
    assert handler_of(app).running == 0
    assert GrapeEngine.loaded() == ()


async def test_batches_and_failures_are_the_same() -> None:
    broken = FakeListChatModel(responses=ANSWERS, error_on_chunk_number=0)
    plain, app = make_graph(broken), attach(make_graph(broken))
    inputs: list[State] = [{"topic": "bees"}, {"topic": "ants"}]
    assert len(await app.abatch(inputs)) == len(await plain.abatch(inputs))
    for graph in (plain, app):
        with pytest.raises(KeyError, match="topic"):
            await graph.ainvoke({"plan": "no topic"})
    assert handler_of(app).running == 0


async def test_calls_of_ours_are_none_of_theirs() -> None:
    """Nothing of a prompt that reads another model's answer can be known beyond it."""
    engine = ScriptedEngine("ours", clock=VirtualClock())
    foreign = FakeListChatModel(responses=ANSWERS)
    app = attach(make_graph(foreign, ChatGrape(engine=engine)))
    for _ in range(3):
        result = await app.ainvoke({"topic": "bees"})
        assert result["text"] == "ours"
    assert handler_of(app).foreign_calls == {"FakeListChatModel": 3}
    assert len(engine.calls) == 3


def test_nothing_is_said_of_calls_outside_the_graph() -> None:
    foreign = FakeListChatModel(responses=ANSWERS)
    app = attach(make_graph(foreign))
    foreign.invoke("by itself")
    assert handler_of(app).foreign_calls == {}


def test_a_trace_says_that_it_saw_no_call_of_ours() -> None:
    with pytest.raises(TraceError, match=r"no call of ChatGrape .* calls FakeListChatModel \(2\)"):
        attach(make_graph(FakeListChatModel(responses=ANSWERS)), trace=True)


def test_a_trace_says_which_calls_are_not_ours(caplog: pytest.LogCaptureFixture) -> None:
    ours = ChatGrape(engine=ScriptedEngine("ours", clock=VirtualClock()))
    flow = to_taskflow(make_graph(FakeListChatModel(responses=ANSWERS), ours), paths=1)
    assert len(flow.tasks) == 1
    assert "models of others" in caplog.text
    assert "FakeListChatModel (1)" in caplog.text


async def test_explain_names_them() -> None:
    app: Any = attach(make_graph(FakeListChatModel(responses=ANSWERS)))
    await app.ainvoke({"topic": "bees"})
    assert "2 calls of FakeListChatModel" in str(app.explain())
