"""attach: programs for the runs of a graph, and nothing changed about the graph."""

from __future__ import annotations

import asyncio
import logging
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.callbacks.manager import CallbackManager
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send

from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.engine.base import CallRequest
from grape_lc.errors import FlowError, NeverWrittenError
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock, prompt_text

MakeTeam = Callable[..., Any]


def handlers(graph: Any) -> list[ProgramHandler]:
    callbacks = (graph.config or {}).get("callbacks") or []
    callbacks = getattr(callbacks, "handlers", callbacks)
    return [handler for handler in callbacks if isinstance(handler, ProgramHandler)]


def check_idle(graph: Any, engine: ScriptedEngine) -> None:
    """No run and no program is left behind."""
    assert [handler.running for handler in handlers(graph)] == [0]
    assert engine.open_programs == ()


def tasks(engine: ScriptedEngine) -> dict[tuple[str | None, str | None], str]:
    return {(c.request.program, c.request.task): c.prompt for c in engine.calls}


def chain_flow(*names: str, inputs: tuple[str, ...] = ()) -> TaskFlow:
    """Tasks of these names, each reading the one before."""
    flow = TaskFlow(name="chain")
    for name in inputs:
        flow.add_variable(InputVar(name))
    variables = [f"v{number}" for number in range(len(names))]
    for variable in variables[:-1]:
        flow.add_variable(IntermediateVar(variable))
    flow.add_variable(OutputVar(variables[-1]))
    previous = inputs[0] if inputs else None
    for name, variable in zip(names, variables, strict=True):
        flow.add_task(f"{name} {{{previous}}}" if previous else f"{name}", variable, name=name)
        previous = variable
    return flow


# -- what a run tells the engine --------------------------------------------------------------


def test_a_run_is_a_program_and_its_calls_name_their_tasks(
    team: Any, team_flow: TaskFlow, engine: ScriptedEngine
) -> None:
    attached = attach(team, team_flow)
    attached.invoke({"problem": "sorting"})
    (program,) = engine.programs
    assert program.flow == team_flow
    assert program.inputs == {"problem": "sorting"}
    assert {(c.request.program, c.request.task) for c in engine.calls} == {
        (program.program_id, name) for name in ("prd", "design", "risks", "code")
    }
    assert {task: "".join(pieces) for task, pieces in program.fed.items()} == {
        task.name: call.text
        for task in team_flow.tasks
        for call in engine.calls
        if call.request.task == task.name
    }
    check_idle(attached, engine)


def test_the_flow_foresees_the_prompts(team: Any, team_flow: TaskFlow, engine: Any) -> None:
    attach(team, team_flow).invoke({"problem": "sorting"})
    values = {"problem": "sorting"}
    texts = {call.request.task: call.text for call in engine.calls}
    for task in team_flow.order():
        values[task.output] = texts[task.name]
    for call in engine.calls:
        prompt = team_flow.task(call.request.task).prompt
        assert list(call.request.messages) == prompt.render_messages(values)


def opened_before_the_first_call(attach_model: bool) -> list[tuple[str, ...]]:
    engine = ScriptedEngine("ok")
    llm = ChatGrape(engine=engine)
    seen = []

    class State(TypedDict, total=False):
        topic: str
        poem: str

    def prepare(state: State) -> State:
        seen.append(engine.open_programs)
        return {}

    def write(state: State) -> State:
        answer = llm.invoke(state["topic"]).content
        seen.append(engine.open_programs)
        return {"poem": str(answer)}

    builder = StateGraph(State).add_node("prepare", prepare).add_node("write", write)
    builder.add_edge(START, "prepare").add_edge("prepare", "write")
    flow = chain_flow("write", inputs=("topic",))
    attached = attach(builder.compile(), flow, model=engine if attach_model else None)
    for _ in range(2):
        attached.invoke({"topic": "rain"})
    check_idle(attached, engine)
    return seen


def test_the_engine_is_learned_from_the_first_call() -> None:
    assert opened_before_the_first_call(False) == [
        (),
        ("program-1",),
        ("program-2",),
        ("program-2",),
    ]


def test_with_a_model_the_first_run_opens_its_program_at_once() -> None:
    assert opened_before_the_first_call(True) == [
        ("program-1",),
        ("program-1",),
        ("program-2",),
        ("program-2",),
    ]


def test_the_model_may_be_a_chat_model(team: Any, team_flow: TaskFlow, engine: Any) -> None:
    attached = attach(team, team_flow, model=ChatGrape(engine=engine))
    attached.invoke({"problem": "p"})
    assert len(engine.programs) == 1


def test_inputs_are_the_texts_that_the_flow_reads(engine: ScriptedEngine) -> None:
    class State(MessagesState, total=False):
        topic: str
        secret: str
        count: int

    def write(state: State) -> State:
        ChatGrape(engine=engine).invoke("code")
        return {"count": 1}  # type: ignore[typeddict-item]

    graph = StateGraph(State).add_node("write", write).add_edge(START, "write").compile()
    flow = TaskFlow()
    for name in ("topic", "messages_0", "messages_1", "count"):
        flow.add_variable(InputVar(name))
    flow.add_variable(OutputVar("poem"))
    flow.add_task("{topic}{messages_0}{messages_1}{count}", "poem", name="write")
    messages = [{"role": "system", "content": "be brief"}, ("user", "hello"), ("user", "more")]
    state: Any = {"topic": "t", "secret": "s", "count": 3, "messages": messages}
    attach(graph, flow).invoke(state)
    (program,) = engine.programs
    assert program.inputs == {"topic": "t", "messages_0": "be brief", "messages_1": "hello"}


# -- results are LangGraph's ------------------------------------------------------------------


@pytest.mark.parametrize("use_async", [False, True])
@pytest.mark.parametrize("stream_mode", ["values", "updates", "messages", "debug"])
async def test_streams_are_the_same_attached_or_not(
    use_async: bool, stream_mode: str, team_flow: TaskFlow, make_team: MakeTeam
) -> None:
    runs = []
    for flow in (None, team_flow):
        engine = ScriptedEngine(
            lambda r: f"answer to {prompt_text(r)}", clock=VirtualClock(), model_name="m"
        )
        graph = make_team(ChatGrape(engine=engine), use_async=use_async)
        graph = attach(graph, flow) if flow else graph
        if use_async:
            items = [i async for i in graph.astream({"problem": "p"}, stream_mode=stream_mode)]
        else:
            items = list(graph.stream({"problem": "p"}, stream_mode=stream_mode))
        runs.append(comparable(items, stream_mode))
        assert len(engine.programs) == (flow is not None)
        assert engine.open_programs == ()
    assert len(runs[0]) > 3
    assert runs[0] == runs[1]


def as_unattached(metadata: dict[str, Any]) -> dict[str, Any]:
    """What an answer says of itself, but for how its open prompt was found."""
    grape = metadata.get("grape")
    return metadata if grape is None else {**metadata, "grape": {**grape, "found_by": "none"}}


def comparable(items: list[Any], stream_mode: str) -> list[Any]:
    """Items of a stream without what differs between any two runs; parallel nodes in order."""
    if stream_mode == "messages":
        by_node: dict[str, list[Any]] = {}
        for chunk, metadata in items:
            by_node.setdefault(metadata["langgraph_node"], []).append(
                (chunk.content, chunk.usage_metadata, as_unattached(chunk.response_metadata))
            )
        assert len(by_node) == 4
        return sorted(by_node.items())
    if stream_mode == "debug":
        kept = [(i["step"], i["type"], i["payload"]["name"]) for i in items]
        return sorted(kept)
    if stream_mode == "updates":
        return sorted(items, key=str)
    return items


@pytest.mark.parametrize("use_async", [False, True])
async def test_checkpointers_work(
    use_async: bool, team_flow: TaskFlow, engine: ScriptedEngine, make_team: MakeTeam
) -> None:
    graph = make_team(ChatGrape(engine=engine), use_async=use_async, checkpointer=InMemorySaver())
    attached = attach(graph, team_flow)
    config = {"configurable": {"thread_id": "t"}}
    if use_async:
        result = await attached.ainvoke({"problem": "p"}, config)
    else:
        result = attached.invoke({"problem": "p"}, config)
    assert attached.get_state(config).values == result
    assert len(list(attached.get_state_history(config))) == 5
    check_idle(attached, engine)


def test_batches(team_flow: TaskFlow, make_team: MakeTeam) -> None:
    engine = ScriptedEngine(prompt_text)
    graph = make_team(ChatGrape(engine=engine))
    attached = attach(graph, team_flow)
    inputs = [{"problem": f"p{n}"} for n in range(5)]
    assert attached.batch(inputs) == graph.batch(inputs)
    assert sorted(p.inputs["problem"] for p in engine.programs) == [f"p{n}" for n in range(5)]
    check_idle(attached, engine)


def test_the_given_graph_is_left_as_it_was(
    team: Any, team_flow: TaskFlow, engine: ScriptedEngine
) -> None:
    attached = attach(team, team_flow)
    assert isinstance(attached, type(team))
    assert type(attached).__name__ == type(team).__name__
    assert handlers(team) == []
    team.invoke({"problem": "p"})
    assert engine.programs == ()
    assert {(c.request.program, c.request.task) for c in engine.calls} == {(None, None)}
    assert {c.request.label for c in engine.calls} == {"prd", "design", "risks", "code"}


class Seen(BaseCallbackHandler):
    def __init__(self) -> None:
        self.chains = 0

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self.chains += 1


def test_callbacks_of_the_user_go_on_working(
    team: Any, team_flow: TaskFlow, engine: ScriptedEngine
) -> None:
    own, later = Seen(), Seen()
    attached = attach(team.with_config(callbacks=[own]), team_flow)
    attached.invoke({"problem": "p"}, {"callbacks": [later]})
    assert own.chains == later.chains > 4
    assert len(engine.programs) == 1


# -- runs side by side ------------------------------------------------------------------------


def check_apart(engine: ScriptedEngine, count: int) -> None:
    """Every call's prompt is of the run whose program it names."""
    problems = {p.program_id: p.inputs["problem"] for p in engine.programs}
    assert sorted(problems.values()) == sorted(f"<p{n}>" for n in range(count))
    assert len(engine.calls) == 4 * count
    for call in engine.calls:
        assert call.request.program is not None
        assert problems[call.request.program] in call.prompt


async def test_concurrent_runs_do_not_mix(team_flow: TaskFlow, make_team: MakeTeam) -> None:
    engine = ScriptedEngine(lambda r: f"so: {prompt_text(r)}", clock=VirtualClock())
    attached = attach(make_team(ChatGrape(engine=engine), use_async=True), team_flow)
    inputs = [{"problem": f"<p{n}>"} for n in range(12)]
    await asyncio.gather(*(attached.ainvoke(state) for state in inputs))
    check_apart(engine, 12)
    check_idle(attached, engine)


def test_runs_in_threads_do_not_mix(team_flow: TaskFlow, make_team: MakeTeam) -> None:
    engine = ScriptedEngine(lambda r: f"so: {prompt_text(r)}")
    attached = attach(make_team(ChatGrape(engine=engine)), team_flow)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(attached.invoke, [{"problem": f"<p{n}>"} for n in range(12)]))
    check_apart(engine, 12)
    check_idle(attached, engine)


async def test_two_graphs_do_not_mix(team_flow: TaskFlow, make_team: MakeTeam) -> None:
    engine = ScriptedEngine(prompt_text, clock=VirtualClock())
    llm = ChatGrape(engine=engine)
    other_flow = team_flow.model_copy(update={"name": "other"})
    one = attach(make_team(llm, use_async=True), team_flow)
    other = attach(make_team(llm, use_async=True), other_flow)
    await asyncio.gather(
        *(graph.ainvoke({"problem": f"<{graph is one}>"}) for graph in [one, other] * 4)
    )
    names = {p.program_id: (p.flow.name, p.inputs["problem"]) for p in engine.programs}
    assert sorted(names.values()) == [("other", "<False>")] * 4 + [("team", "<True>")] * 4
    for call in engine.calls:
        assert names[call.request.program or ""][1] in call.prompt


def test_parallel_first_calls_share_one_program(engine: ScriptedEngine) -> None:
    class State(TypedDict, total=False):
        out: Annotated[list[str], operator.add]

    def branch(state: State) -> State:
        return {"out": [str(ChatGrape(engine=engine).invoke("code").content)]}

    builder = StateGraph(State)
    names = [f"b{n}" for n in range(6)]
    for name in names:
        builder.add_node(name, branch).add_edge(START, name)
    attached = attach(builder.compile(), chain_flow(*names))
    attached.invoke({})
    assert len(engine.programs) == 1
    assert {c.request.program for c in engine.calls} == {"program-1"}
    assert {c.request.task for c in engine.calls} == set(names)


# -- names of tasks ---------------------------------------------------------------------------


class Topic(TypedDict, total=False):
    topic: str
    done: Annotated[list[str], operator.add]


def ask_node(engine: ScriptedEngine, text: str = "code") -> Any:
    def run(state: Topic) -> Topic:
        return {"done": [str(ChatGrape(engine=engine).invoke(text).content)]}

    return run


def test_further_calls_of_a_node_are_numbered_within_each_run(engine: ScriptedEngine) -> None:
    def twice(state: Topic) -> Topic:
        llm = ChatGrape(engine=engine)
        llm.invoke("code one")
        (ChatPromptTemplate.from_template("code {x}") | llm | StrOutputParser()).invoke({"x": "2"})
        return {}

    builder = StateGraph(Topic).add_node("write", twice).add_edge(START, "write")
    attached = attach(builder.compile(), chain_flow("write", "write#2"))
    for _ in range(2):
        attached.invoke({})
    assert tasks(engine) == {
        (program, task): prompt
        for program in ("program-1", "program-2")
        for task, prompt in (("write", "user: code one"), ("write#2", "user: code 2"))
    }


def test_a_loop_numbers_its_rounds(engine: ScriptedEngine) -> None:
    builder = StateGraph(Topic).add_node("write", ask_node(engine)).add_edge(START, "write")
    builder.add_conditional_edges("write", lambda s: "write" if len(s["done"]) < 3 else "__end__")
    attached = attach(builder.compile(), chain_flow("write", "write#2"))
    attached.invoke({})
    assert [c.request.task for c in engine.calls] == ["write", "write#2", "write#3"]
    check_idle(attached, engine)


def test_nodes_of_subgraphs_are_known_by_their_path(engine: ScriptedEngine) -> None:
    inner = StateGraph(Topic).add_node("write", ask_node(engine)).add_edge(START, "write")
    inner_graph = inner.compile()

    def call_twice(state: Topic) -> Topic:
        inner_graph.invoke({"done": []})
        inner_graph.invoke({"done": []})
        return {}

    builder = StateGraph(Topic)
    builder.add_node("write", ask_node(engine)).add_edge(START, "write")
    builder.add_node("nested", inner_graph).add_edge("write", "nested")
    builder.add_node("called", call_twice).add_edge("nested", "called")
    attached = attach(builder.compile(), chain_flow("write", "nested/write"))
    attached.invoke({})
    assert [c.request.task for c in engine.calls] == [
        "write",
        "nested/write",
        "called/write",
        "called/write#2",
    ]
    assert {c.request.program for c in engine.calls} == {"program-1"}
    check_idle(attached, engine)


def test_sends_are_known_by_their_number() -> None:
    engine = ScriptedEngine(prompt_text)

    def work(state: Topic) -> Topic:
        return {"done": [str(ChatGrape(engine=engine).invoke(state["topic"]).content)]}

    builder = StateGraph(Topic).add_node("work", work)
    builder.add_conditional_edges(START, lambda s: [Send("work", {"topic": t}) for t in "abc"])
    attached = attach(builder.compile(), chain_flow("work[0]", "work[1]", "work[2]"))
    attached.invoke({"topic": "x"})
    assert tasks(engine) == {
        ("program-1", f"work[{number}]"): f"user: {topic}" for number, topic in enumerate("abc")
    }


def test_calls_from_tools_belong_to_the_run(engine: ScriptedEngine) -> None:
    @tool
    def summarise(text: str) -> str:
        """Make it short."""
        return str(ChatGrape(engine=engine).invoke(f"code {text}").content)

    builder = StateGraph(Topic).add_node("use", lambda s: {"done": [summarise.invoke("long")]})
    attached = attach(builder.add_edge(START, "use").compile(), chain_flow("use"))
    attached.invoke({})
    assert tasks(engine) == {("program-1", "use"): "user: code long"}
    check_idle(attached, engine)


def test_a_thread_without_context_is_known_if_it_was_given_the_config(
    engine: ScriptedEngine,
) -> None:
    llm = ChatGrape(engine=engine)

    def write(state: Topic, config: Any) -> Topic:
        with ThreadPoolExecutor() as pool:
            pool.submit(llm.invoke, "code known", config).result()
            pool.submit(llm.invoke, "code unknown").result()
        return {}

    from langchain_core.runnables import RunnableConfig

    write.__annotations__["config"] = RunnableConfig
    builder = StateGraph(Topic).add_node("write", write).add_edge(START, "write")
    attach(builder.compile(), chain_flow("write")).invoke({})
    assert [(c.request.program, c.request.task) for c in engine.calls] == [
        ("program-1", "write"),
        (None, None),
    ]


def test_of_nested_attached_graphs_the_inner_one_answers(engine: ScriptedEngine) -> None:
    inner = StateGraph(Topic).add_node("write", ask_node(engine)).add_edge(START, "write")
    attached_inner = attach(inner.compile(), chain_flow("write", inputs=("topic",)))

    def call(state: Topic) -> Topic:
        ChatGrape(engine=engine).invoke("code outer")
        attached_inner.invoke({"topic": "inner"})
        return {}

    outer = StateGraph(Topic).add_node("call", call).add_edge(START, "call").compile()
    attached = attach(outer, chain_flow("call", inputs=("topic",)))
    attached.invoke({"topic": "outer"})
    first, second = engine.calls
    programs = {p.program_id: p.inputs["topic"] for p in engine.programs}
    assert (programs[first.request.program or ""], first.request.task) == ("outer", "call")
    assert (programs[second.request.program or ""], second.request.task) == ("inner", "write")
    check_idle(attached, engine)
    check_idle(attached_inner, engine)


def test_an_attached_graph_may_be_a_node(engine: ScriptedEngine) -> None:
    inner = StateGraph(Topic).add_node("write", ask_node(engine)).add_edge(START, "write")
    attached = attach(inner.compile(), chain_flow("write"))
    outer = StateGraph(Topic).add_node("first", ask_node(engine)).add_node("sub", attached)
    outer.add_edge(START, "first").add_edge("first", "sub")
    outer.compile().invoke({"topic": "t"})
    assert [(c.request.program, c.request.task) for c in engine.calls] == [
        (None, None),
        ("program-1", "write"),
    ]
    check_idle(attached, engine)


# -- when there is nothing to gain ------------------------------------------------------------


def test_without_a_flow_the_graph_runs_as_ever(
    team: Any, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="grape_lc"):
        attached = attach(team, learn=False)
    assert "without a flow" in caplog.text
    assert attached.invoke({"problem": "p"}) == team.invoke({"problem": "p"})
    assert engine.programs == ()


class UnstartedEngine(ScriptedEngine):
    """Not running yet; counts attempts to start it."""

    starts = 0
    is_open = False

    def start(self) -> None:
        self.starts += 1


def test_a_graph_with_a_foreign_model_starts_no_engine(
    team_flow: TaskFlow, make_team: MakeTeam, caplog: pytest.LogCaptureFixture
) -> None:
    engine = UnstartedEngine()
    foreign = make_team(FakeListChatModel(responses=["an answer"]))
    for model in (None, engine):
        attached = attach(foreign, team_flow, model=model)
        assert attached.invoke({"problem": "p"})["code"] == "an answer"
        check_idle(attached, engine)
    assert engine.starts == 0
    assert engine.programs == ()
    assert caplog.text == ""


def test_calls_on_another_engine_than_the_programs_are_plain(
    team_flow: TaskFlow, engine: ScriptedEngine
) -> None:
    other = ScriptedEngine("other")

    def first(state: Topic) -> Topic:
        ChatGrape(engine=engine).invoke("code")
        return {}

    builder = StateGraph(Topic).add_node("first", first).add_node("second", ask_node(other))
    builder.add_edge(START, "first").add_edge("first", "second")
    attach(builder.compile(), chain_flow("first", "second")).invoke({})
    assert [c.request.program for c in engine.calls] == ["program-1"]
    assert [(c.request.program, c.request.task) for c in other.calls] == [(None, None)]
    assert other.programs == ()


def test_a_graph_may_change_its_engine_between_runs() -> None:
    engines = [ScriptedEngine("one"), ScriptedEngine("two")]
    current = [*engines]

    def write(state: Topic) -> Any:
        return ask_node(current.pop(0))(state)

    builder = StateGraph(Topic).add_node("write", write)
    attached = attach(builder.add_edge(START, "write").compile(), chain_flow("write"))
    attached.invoke({})
    attached.invoke({})
    # The second run was announced where the first had gone, and moved at its first call.
    assert [len(e.programs) for e in engines] == [2, 1]
    assert [c.request.program for e in engines for c in e.calls] == ["program-1", "program-1"]
    for engine in engines:
        check_idle(attached, engine)


class RefusingEngine(ScriptedEngine):
    """Serves calls, but no programs."""

    def open_program(self, flow: TaskFlow, inputs: Any, tenant: str = "") -> str:
        raise RuntimeError("no room for programs")


def test_trouble_with_programs_never_reaches_the_graph(
    team_flow: TaskFlow, make_team: MakeTeam, caplog: pytest.LogCaptureFixture
) -> None:
    engine = RefusingEngine(prompt_text)
    graph = make_team(ChatGrape(engine=engine))
    attached = attach(graph, team_flow)
    for _ in range(2):
        assert attached.invoke({"problem": "p"}) == graph.invoke({"problem": "p"})
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [record.name for record in warnings] == ["grape_lc.adapters.handler"]
    assert "flow 'team'" in warnings[0].getMessage()
    assert "no room for programs" in warnings[0].getMessage()
    check_idle(attached, engine)


# -- arguments --------------------------------------------------------------------------------


def test_a_flow_that_does_not_fit_the_graph_is_refused(team: Any) -> None:
    with pytest.raises(FlowError, match=r"'chain': task 'codes' names no node .*prd, design"):
        attach(team, chain_flow("prd", "codes"))
    for name in ("code#2", "code[3]", "code/inner", "code/inner#2"):
        attach(team, chain_flow("prd", name))


def test_a_flow_that_is_not_well_formed_is_refused(team: Any) -> None:
    flow = chain_flow("prd")
    flow.add_variable(OutputVar("never"))
    with pytest.raises(NeverWrittenError):
        attach(team, flow)


def test_what_is_no_compiled_graph_is_refused() -> None:
    with pytest.raises(TypeError, match=r"StateGraph: call \.compile\(\) first"):
        attach(StateGraph(Topic))  # type: ignore[type-var]
    with pytest.raises(TypeError, match="not a compiled LangGraph graph but str"):
        attach("graph")  # type: ignore[type-var]


def test_attaching_again_replaces_the_flow(
    team: Any, team_flow: TaskFlow, engine: ScriptedEngine
) -> None:
    once = attach(team.with_config(callbacks=CallbackManager([Seen()])), team_flow)
    twice = attach(once, chain_flow("prd"))
    assert [h.flow and h.flow.name for h in handlers(once)] == ["team"]
    assert [h.flow and h.flow.name for h in handlers(twice)] == ["chain"]
    twice.invoke({"problem": "p"})
    assert [program.flow.name for program in engine.programs] == ["chain"]
    assert handlers(attach(twice, learn=False)) == []
    (learning,) = handlers(attach(twice))
    assert learning.flow is None


def test_message_graphs(engine: ScriptedEngine) -> None:
    class Chat(TypedDict):
        messages: list[AnyMessage]

    seen: list[CallRequest] = []
    engine.observe(lambda call, request, delta: seen.append(request))

    def write(state: Chat) -> Any:
        prompt = [SystemMessage("You write code."), *state["messages"]]
        return {"messages": [ChatGrape(engine=engine).invoke(prompt)]}

    graph = StateGraph(Chat).add_node("write", write).add_edge(START, "write").compile()
    attach(graph, chain_flow("write")).invoke({"messages": [HumanMessage("hi")]})
    assert seen[0].messages == (
        {"role": "system", "content": "You write code."},
        {"role": "user", "content": "hi"},
    )
