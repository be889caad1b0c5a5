"""to_taskflow: graphs of many styles, and what it does with those that cannot be followed."""

from __future__ import annotations

import asyncio
import json
import logging
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from string import Template
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableParallel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Send, interrupt
from pydantic import BaseModel, Field

from grape_lc.adapters.inputs import input_texts
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach, to_taskflow
from grape_lc.adapters.llm import GrapeLLM
from grape_lc.errors import TraceError
from grape_lc.flow import Sampling, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, prompt_text


class State(TypedDict, total=False):
    topic: str
    plan: str
    draft: str
    poem: str


Node = Any


def answer(request: Any) -> str:
    """White space at both ends, and braces: what a real answer may have."""
    return f"\n  Re {{{len(prompt_text(request))}}}: {prompt_text(request)[-40:]} \n"


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(answer)


@pytest.fixture
def llm(engine: ScriptedEngine) -> ChatGrape:
    return ChatGrape(engine=engine)


def chain(schema: Any, *nodes: tuple[str, Node], **compile_args: Any) -> Any:
    builder = StateGraph(schema)
    previous = START
    for name, node in nodes:
        builder.add_node(name, node).add_edge(previous, name)
        previous = name
    return builder.compile(**compile_args)


def prompts(flow: TaskFlow) -> dict[str, Any]:
    return {
        task.name: [(m.role, m.content) for m in task.prompt.messages or ()] for task in flow.tasks
    }


def check_foreseen(flow: TaskFlow, graph: Any, engine: Any, graph_input: Any) -> None:
    """A run with other texts sends exactly the prompts that the flow's templates give."""
    assert not engine.calls, "the trace has called the engine"
    attached = attach(graph, flow)
    try:
        attached.invoke(graph_input)
    except TypeError:
        asyncio.run(attached.ainvoke(graph_input))
    (program,) = engine.programs
    assert set(program.inputs) == {v.name for v in flow.variables if v.kind == "input"}
    values = dict(program.inputs)
    sent = {call.request.task: call for call in engine.calls}
    assert set(sent) == {task.name for task in flow.tasks}
    for foreseen in flow.order():
        call = sent[foreseen.name]
        expected = foreseen.prompt.render_messages(values)
        assert [dict(m) for m in call.request.messages or ()] == expected
        assert call.request.sampling == foreseen.sampling
        values[foreseen.output] = call.text


# -- styles of writing a node -----------------------------------------------------------------


Llm = Any
LCEL = ChatPromptTemplate.from_messages(
    [("system", "You {{write}}."), ("human", "{topic}: {plan}"), ("ai", "{plan}")]
)


def plan_it(llm: Llm, state: State) -> State:
    return {"plan": llm.invoke(f"Plan {{x}} for {state['topic']}!").content}


async def aplan_it(llm: Llm, state: State) -> State:
    return {"plan": (await llm.ainvoke(f"Plan {state['topic']}")).content}


def f_string(llm: Llm, state: State) -> State:
    return {"poem": llm.invoke(f"{state['plan']}{state['topic']}\n").content}


def stripped(llm: Llm, state: State) -> State:
    a, b, c = state["plan"].strip(), state["plan"].lstrip(), state["plan"].rstrip()
    return {"poem": llm.invoke(f"1 {a} 2 {b} 3 {c} 4 {state['topic'].strip()}").content}


def stripped_as_a_whole(llm: Llm, state: State) -> State:
    prompt = f"""
        {state["plan"]}, please: {state["topic"]}
    """
    return {"poem": llm.invoke(prompt.strip()).content}


def formatted(llm: Llm, state: State) -> State:
    template = "Topic {topic}, {{braces}}, plan {plan:s}"
    return {"poem": llm.invoke(template.format(**state)).content}


def percent(llm: Llm, state: State) -> State:
    return {"poem": llm.invoke("%s %% %s" % (state["topic"], state["plan"])).content}  # noqa: UP031


def dollar(llm: Llm, state: State) -> State:
    text = Template("$topic costs $$5 and {$plan}").substitute(state)
    return {"poem": llm.invoke(text).content}


def joined(llm: Llm, state: State) -> State:
    text = "\n\n".join(["Plan:", state["plan"], *[f"- {state['topic']}"] * 2])
    return {"poem": llm.invoke(text).content}


def replaced(llm: Llm, state: State) -> State:
    text = "T: <topic> P: <plan>".replace("<topic>", state["topic"])
    return {"poem": llm.invoke(text.replace("<plan>", state["plan"])).content}


def lcel_chain(llm: Llm, state: State) -> State:
    return {"poem": (LCEL | llm | StrOutputParser()).invoke({**state})}


async def lcel_async(llm: Llm, state: State) -> State:
    return {"poem": await (LCEL | llm | StrOutputParser()).ainvoke({**state})}


def tuples(llm: Llm, state: State) -> State:
    return {"poem": llm.invoke([("system", state["plan"]), ("user", "go")]).content}


def dicts(llm: Llm, state: State) -> State:
    return {"poem": llm.invoke([{"role": "user", "content": state["plan"]}]).content}


def messages(llm: Llm, state: State) -> State:
    history = [SystemMessage("s"), HumanMessage(state["topic"]), AIMessage(state["plan"])]
    return {"poem": llm.invoke([*history, HumanMessage("go on")]).content}


def message_text(llm: Llm, state: State) -> State:
    return {"poem": llm.invoke([HumanMessage(HumanMessage(state["plan"]).text)]).content}


def streamed(llm: Llm, state: State) -> State:
    return {"poem": "".join(chunk.content for chunk in llm.stream(state["plan"]))}


async def streamed_async(llm: Llm, state: State) -> State:
    return {"poem": "".join([chunk.content async for chunk in llm.astream(state["plan"])])}


def bound(llm: Llm, state: State) -> State:
    other = llm.bind(temperature=0.5, stop=["END"], max_tokens=2000)
    return {"poem": other.invoke(state["plan"], seed=5).content}


@pytest.mark.parametrize(
    "write",
    [
        f_string,
        stripped,
        stripped_as_a_whole,
        formatted,
        percent,
        dollar,
        joined,
        replaced,
        lcel_chain,
        lcel_async,
        tuples,
        dicts,
        messages,
        message_text,
        streamed,
        streamed_async,
        bound,
    ],
)
def test_the_flow_foresees_what_a_node_of_this_style_sends(
    write: Any, llm: ChatGrape, engine: ScriptedEngine
) -> None:
    plan = aplan_it if iscoroutinefunction(write) else plan_it
    graph = chain(State, ("plan", partial(plan, llm)), ("write", partial(write, llm)))
    flow = to_taskflow(graph)
    assert [task.name for task in flow.tasks] == ["plan", "write"]
    assert flow.upstream("write") == ("plan",)
    check_foreseen(flow, graph, engine, {"topic": " the {sea} "})


def test_the_flow_of_a_chain_in_full(llm: ChatGrape) -> None:
    short = llm.bind(max_tokens=9)
    nodes = ("plan", partial(plan_it, short)), ("write", partial(stripped_as_a_whole, short))
    flow = to_taskflow(chain(State, *nodes), name="poet")
    assert flow.name == "poet"
    assert prompts(flow) == {
        "plan": [("user", "Plan {{x}} for {topic}!")],
        "write": [("user", "{plan_text|lstrip}, please: {topic|rstrip}")],
    }
    assert [(v.kind, v.name) for v in flow.variables] == [
        ("input", "topic"),
        ("intermediate", "plan_text"),
        ("output", "write_text"),
    ]
    assert [task.sampling for task in flow.tasks] == [Sampling(max_tokens=9)] * 2


# -- shapes of graphs -------------------------------------------------------------------------


@pytest.mark.parametrize("use_async", [False, True])
def test_fan_out_and_fan_in(
    use_async: bool, llm: ChatGrape, engine: ScriptedEngine, make_team: Callable[..., Any]
) -> None:
    graph = make_team(llm, use_async=use_async)
    flow = to_taskflow(graph)
    assert prompts(flow) == {
        "prd": [("user", "Requirements of {problem}.")],
        "design": [("user", "Design this:\n{prd_text|strip}")],
        "risks": [("user", "Risks of {problem}: {prd_text}")],
        "code": [("user", "Code: {design_text}; mind {risks_text}.")],
    }
    check_foreseen(flow, graph, engine, {"problem": "sorting"})


def test_the_same_graph_gives_the_same_flow(llm: ChatGrape, make_team: Any) -> None:
    flows = {to_taskflow(make_team(llm)).to_json() for _ in range(8)}
    assert len(flows) == 1


class Fan(TypedDict, total=False):
    topic: str
    notes: Annotated[list[str], operator.add]
    log: Annotated[str, operator.add]


def test_sends_and_a_reducer(llm: ChatGrape, engine: ScriptedEngine) -> None:
    def work(state: Any) -> Fan:
        return {"notes": [str(llm.invoke(f"{state['view']} of {state['topic']}").content)]}

    def merge(state: Fan) -> Fan:
        llm.invoke("\n".join(f"- {note.strip()}" for note in state["notes"]) + state["log"])
        return {}

    def views(state: Fan) -> list[Send]:
        return [Send("work", {"topic": state["topic"], "view": view}) for view in ("pro", "con")]

    builder = StateGraph(Fan).add_node("work", work).add_node("merge", merge)
    builder.add_conditional_edges(START, views).add_edge("work", "merge")
    graph = builder.compile()
    flow = to_taskflow(graph)
    assert prompts(flow) == {
        "work[0]": [("user", "pro of {topic}")],
        "work[1]": [("user", "con of {topic}")],
        "merge": [("user", "- {work_0_text|strip}\n- {work_1_text|strip}")],
    }
    check_foreseen(flow, graph, engine, {"topic": "t"})


def test_subgraphs_and_several_calls_in_a_node(llm: ChatGrape, engine: ScriptedEngine) -> None:
    plan, write = partial(plan_it, llm), partial(f_string, llm)

    def review(state: State) -> State:
        first = llm.invoke(f"Review {state['poem']}").content
        return {"poem": str(llm.invoke(f"Shorten {first}").content)}

    inner = chain(State, ("plan", plan), ("write", write))
    graph = chain(State, ("inner", inner), ("plan", review))
    flow = to_taskflow(graph)
    assert prompts(flow) == {
        "inner/plan": [("user", "Plan {{x}} for {topic}!")],
        "inner/write": [("user", "{inner_plan_text}{topic}\n")],
        "plan": [("user", "Review {inner_write_text}")],
        "plan#2": [("user", "Shorten {plan_text}")],
    }
    check_foreseen(flow, graph, engine, {"topic": "t"})


def test_a_chat_with_history(llm: ChatGrape, engine: ScriptedEngine) -> None:
    def ask(role: str) -> Node:
        def run(state: MessagesState) -> Any:
            return {"messages": [llm.invoke([SystemMessage(role), *state["messages"]])]}

        return run

    graph = chain(MessagesState, ("write", ask("writer")), ("edit", ask("editor")))
    flow = to_taskflow(graph)
    assert prompts(flow) == {
        "write": [("system", "writer"), ("user", "{messages_0}")],
        "edit": [
            ("system", "editor"),
            ("user", "{messages_0}"),
            ("assistant", "{write_text}"),
        ],
    }
    check_foreseen(flow, graph, engine, {"messages": [("user", "a poem on rain")]})


class PydanticState(BaseModel):
    topic: str
    poem: str = ""


@dataclass
class DataclassState:
    topic: str
    poem: str = ""


@pytest.mark.parametrize("schema", [PydanticState, DataclassState])
@pytest.mark.parametrize("with_example", [False, True])
def test_states_with_attributes(
    schema: Any, with_example: bool, llm: ChatGrape, engine: ScriptedEngine
) -> None:
    def write(state: Any) -> Any:
        return {"poem": llm.invoke(f"On {state.topic}").content}

    graph = chain(schema, ("write", write))
    flow = to_taskflow(graph, example=schema(topic="x") if with_example else None)
    assert prompts(flow) == {"write": [("user", "On {topic}")]}
    check_foreseen(flow, graph, engine, schema(topic="the sea"))


def test_the_functional_api(llm: ChatGrape, engine: ScriptedEngine) -> None:
    @task
    def plan(topic: str) -> str:
        return str(llm.invoke(f"Plan {topic}").content)

    @entrypoint()
    def poet(topic: str) -> str:
        return str(llm.invoke(f"Write {plan(topic).result()}").content)

    flow = to_taskflow(poet, example="x")
    assert prompts(flow) == {
        "poet/plan": [("user", "Plan {input}")],
        "poet": [("user", "Write {poet_plan_text}")],
    }
    check_foreseen(flow, poet, engine, "the sea")


def test_an_example_says_what_the_input_is(llm: ChatGrape, engine: ScriptedEngine) -> None:
    class Full(TypedDict, total=False):
        topic: str
        feedback: str
        count: int

    def write(state: Full) -> Any:
        again = f" Mind: {state['feedback']}" if state.get("feedback") else ""
        llm.invoke(f"{state['count']} lines on {state['topic']}.{again}")
        return {}

    graph = chain(Full, ("write", write))
    flow = to_taskflow(graph, example={"topic": "x", "count": 3})
    assert prompts(flow) == {"write": [("user", "3 lines on {topic}.")]}
    check_foreseen(flow, graph, engine, {"topic": "t", "count": 3})
    both = to_taskflow(graph, example={"topic": "x", "feedback": "y", "count": 3})
    assert prompts(both) == {"write": [("user", "3 lines on {topic}. Mind: {feedback}")]}


def test_names_of_inputs_and_nodes_that_are_no_identifiers(
    llm: ChatGrape, engine: ScriptedEngine
) -> None:
    Odd = TypedDict("Odd", {"user-topic": str, "2nd": str}, total=False)

    def write(state: Any) -> Any:
        llm.invoke(f"{state['user-topic']} {state['2nd']}")
        return {}

    graph = chain(Odd, ("write poem/a#1[0]", write))
    flow = to_taskflow(graph)
    assert prompts(flow) == {"write poem/a#1[0]": [("user", "{user_topic} {_2nd}")]}
    assert [v.name for v in flow.variables] == ["user_topic", "_2nd", "write_poem_a_1_0_text"]
    check_foreseen(flow, graph, engine, {"user-topic": "a", "2nd": "b"})


def test_names_that_are_taken(llm: ChatGrape, engine: ScriptedEngine) -> None:
    class Taken(TypedDict, total=False):
        write_text: str

    def write(state: Taken) -> Any:
        llm.invoke(f"Again: {state['write_text']}")
        return {}

    graph = chain(Taken, ("write", write))
    flow = to_taskflow(graph)
    assert [(v.kind, v.name) for v in flow.variables] == [
        ("input", "write_text"),
        ("output", "write_text_2"),
    ]
    check_foreseen(flow, graph, engine, {"write_text": "a"})


def test_unread_inputs_and_answers_make_no_trouble(llm: ChatGrape) -> None:
    def ignore(state: State) -> State:
        llm.invoke("Say something.")
        return {"plan": "fixed"}

    flow = to_taskflow(chain(State, ("first", ignore), ("second", ignore)))
    assert [(v.kind, v.name) for v in flow.variables] == [
        ("output", "first_text"),
        ("output", "second_text"),
    ]


# -- what cannot be followed ------------------------------------------------------------------


OPAQUE: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "a slice": lambda text: text[:40],
    "the first line": lambda text: text.strip().splitlines()[0],
    "title case": str.title,
    "a part of JSON": lambda text: json.dumps(text)[:50],
    "other white space": lambda text: " ".join(text.split()),
}


@pytest.mark.parametrize("change", OPAQUE)
def test_a_changed_text_is_opaque_and_ends_its_message(
    change: str, llm: ChatGrape, engine: ScriptedEngine
) -> None:
    plan = partial(plan_it, llm)

    def write(state: State) -> State:
        text = f"For {state['topic']}: {OPAQUE[change](state['plan'])} and {state['topic']}"
        llm.invoke([("system", text), ("user", state["plan"])])
        return {}

    graph = chain(State, ("plan", plan), ("write", write))
    flow = to_taskflow(graph)
    assert flow.upstream("write") == ("plan",)
    (variable,) = [v for v in flow.variables if v.name.startswith("opaque")]
    assert (variable.name, variable.kind) == ("opaque_1", "input")
    assert "'write'" in variable.description
    (system, content), user = prompts(flow)["write"]
    assert system == "system"
    assert content.startswith("For {topic}: ")
    assert content.endswith("{opaque_1}")
    assert user == ("user", "{plan_text}")
    # No run gives the opaque variable, so that nothing is prefilled beyond it.
    attach(graph, flow).invoke({"topic": "rain"})
    assert engine.programs[0].inputs == {"topic": "rain"}


def test_a_prompt_that_begins_opaque_still_makes_a_task(llm: ChatGrape) -> None:
    plan = partial(plan_it, llm)

    def write(state: State) -> State:
        return {"poem": str(llm.invoke(state["plan"].upper()).content)}

    def last(state: State) -> State:
        return {"poem": str(llm.invoke(f"{state['poem']}{state['topic']}\n").content)}

    flow = to_taskflow(chain(State, ("plan", plan), ("shout", write), ("write", last)))
    assert prompts(flow)["shout"] == [("user", "{opaque_1}")]
    assert prompts(flow)["write"] == [("user", "{shout_text}{topic}\n")]
    assert [(v.kind, v.name) for v in flow.variables][-3:] == [
        ("output", "plan_text"),
        ("intermediate", "shout_text"),
        ("output", "write_text"),
    ]


def test_messages_about_tools_or_without_text_are_opaque(llm: ChatGrape) -> None:
    call = {"name": "look_up", "args": {}, "id": "1", "type": "tool_call"}

    def write(state: State) -> State:
        llm.invoke([("user", state["topic"]), AIMessage("", tool_calls=[call]), ("user", "on")])
        llm.invoke([AIMessage("", tool_calls=[call])])
        llm.invoke([HumanMessage("")])
        return {}

    assert prompts(to_taskflow(chain(State, ("write", write)))) == {
        "write": [("user", "{topic}"), ("assistant", "{opaque_1}")],
        "write#2": [("assistant", "{opaque_2}")],
        "write#3": [("user", "{opaque_3}")],
    }


def test_both_ends_of_a_decision_on_a_text(llm: ChatGrape) -> None:
    plan, write = partial(plan_it, llm), partial(f_string, llm)
    builder = StateGraph(State).add_node("plan", plan).add_node("write", write)
    builder.add_node("apologise", plan).add_edge(START, "plan")
    builder.add_conditional_edges(
        "plan", lambda s: "apologise" if "SORRY" in s["plan"] else "write"
    )
    flow = to_taskflow(builder.compile())
    assert list(prompts(flow)) == ["apologise", "plan", "write"]
    assert list(prompts(to_taskflow(builder.compile(), paths=1))) == ["plan", "write"]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_loop_is_followed_for_some_rounds(
    llm: ChatGrape, caplog: pytest.LogCaptureFixture
) -> None:
    plan, write = partial(plan_it, llm), partial(f_string, llm)
    builder = StateGraph(State).add_node("plan", plan).add_node("write", write)
    builder.add_edge(START, "plan").add_edge("plan", "write")
    builder.add_conditional_edges("write", lambda s: "__end__" if "OK" in s["poem"] else "plan")
    flow = to_taskflow(builder.compile())
    names = [f"{node}{number}" for number in ("", "#2", "#3") for node in ("plan", "write")]
    assert sorted(prompts(flow)) == sorted(names)
    assert prompts(flow)["write#2"] == [("user", "{plan_2_text}{topic}\n")]
    assert warnings_of(caplog) == []


def test_a_node_without_end_is_stopped(llm: ChatGrape, caplog: pytest.LogCaptureFixture) -> None:
    def write(state: State) -> State:
        while True:
            try:
                if "DONE" in str(llm.invoke(f"On {state['topic']}").content):
                    return {}
            except Exception:  # noqa: BLE001, S110 - as careless programs do
                pass

    flow = to_taskflow(chain(State, ("write", write)))
    assert prompts(flow) == {
        name: [("user", "On {topic}")] for name in ("write", "write#2", "write#3")
    }
    assert "TooManyCallsError" in warnings_of(caplog)[0]


def test_a_node_that_fails_ends_the_flow(llm: ChatGrape, caplog: pytest.LogCaptureFixture) -> None:
    plan, write = partial(plan_it, llm), partial(f_string, llm)

    def parse(state: State) -> State:
        return {"draft": str(int(state["plan"]))}

    flow = to_taskflow(chain(State, ("plan", plan), ("parse", parse), ("write", write)))
    assert list(prompts(flow)) == ["plan"]
    (warning,) = warnings_of(caplog)
    assert "node 'parse' failed on symbolic text with ValueError" in warning
    assert "the 1 tasks seen: plan" in warning


def test_an_interrupt_is_answered_with_an_unknown_text(
    llm: ChatGrape, caplog: pytest.LogCaptureFixture
) -> None:
    plan, write = partial(plan_it, llm), partial(f_string, llm)

    def ask(state: State) -> State:
        return {"topic": interrupt("which topic?")}

    nodes = ("plan", plan), ("ask", ask), ("write", write)
    graph = chain(State, *nodes, checkpointer=InMemorySaver())
    assert prompts(to_taskflow(graph)) == {
        "plan": [("user", "Plan {{x}} for {topic}!")],
        "write": [("user", "{plan_text}{opaque_1}\n")],
    }
    assert warnings_of(caplog) == []
    assert list(prompts(to_taskflow(graph, paths=1))) == ["plan"]
    assert "the graph was interrupted" in warnings_of(caplog)[0]


def test_a_node_that_fails_before_any_call(llm: ChatGrape) -> None:
    plan = partial(plan_it, llm)

    def parse(state: State) -> State:
        return {"plan": json.loads(state["topic"])}

    with pytest.raises(TraceError, match=r"node 'parse' failed .*JSONDecodeError") as caught:
        to_taskflow(chain(State, ("parse", parse), ("plan", plan)))
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


def test_a_graph_without_chat_grape() -> None:
    plan = partial(plan_it, FakeListChatModel(responses=["x"]))
    with pytest.raises(
        TraceError, match=r"no call of ChatGrape .*nodes: .*plan; input texts: topic"
    ):
        to_taskflow(chain(State, ("plan", plan)))


def test_a_graph_whose_input_is_not_text(llm: ChatGrape) -> None:
    class Numbers(TypedDict, total=False):
        count: int

    def write(state: Numbers) -> Any:
        llm.invoke(f"{state['count']} lines")
        return {}

    graph = chain(Numbers, ("write", write))
    # A number that the node asked for: it differs from run to run, for all that is known.
    assert prompts(to_taskflow(graph)) == {"write": [("user", "{opaque_1}")]}
    assert prompts(to_taskflow(graph, example={"count": 3})) == {"write": [("user", "3 lines")]}


def test_an_uncompiled_graph() -> None:
    with pytest.raises(TypeError, match=r"call \.compile\(\) first"):
        to_taskflow(StateGraph(State))  # type: ignore[arg-type]


# -- what a trace does and leaves alone -------------------------------------------------------


class Seen(BaseCallbackHandler):
    def __init__(self) -> None:
        self.chains = 0

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self.chains += 1


def test_nodes_run_once_and_nothing_is_kept(llm: ChatGrape, engine: ScriptedEngine) -> None:
    runs: list[str] = []
    saver, store, seen = InMemorySaver(), InMemoryStore(), Seen()
    plan = partial(plan_it, llm)

    def note(state: State, *, store: Any) -> State:
        runs.append("note")
        store.put(("notes",), "1", {"text": state["plan"]})
        return {}

    from langgraph.store.base import BaseStore

    note.__annotations__["store"] = BaseStore
    graph = chain(
        State,
        ("plan", plan),
        ("note", note),
        checkpointer=saver,
        store=store,
        interrupt_before=["note"],
    ).with_config(callbacks=[seen], configurable={"thread_id": "t"})
    flow = to_taskflow(graph, paths=1)
    assert list(prompts(flow)) == ["plan"]
    assert runs == ["note"]
    assert list(saver.list(None)) == []
    assert store.search(("notes",)) == []
    assert seen.chains == 0
    assert engine.calls == ()


async def test_in_a_running_loop_and_inside_of_another_graph(llm: ChatGrape) -> None:
    plan = partial(plan_it, llm)
    graph = chain(State, ("plan", plan))
    flows = [to_taskflow(graph)]

    def trace(state: State) -> State:
        flows.append(to_taskflow(graph))
        return {}

    await chain(State, ("trace", trace)).ainvoke({"topic": "t"})
    assert prompts(flows[0]) == prompts(flows[1]) == {"plan": [("user", "Plan {{x}} for {topic}!")]}


async def test_other_calls_go_on_while_a_trace_runs(llm: ChatGrape, engine: ScriptedEngine) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def plan(state: State) -> State:
        loop.call_soon_threadsafe(started.set)
        while not go_on.is_set():  # noqa: ASYNC110 - the event is of another loop
            await asyncio.sleep(0.001)
        await llm.ainvoke("traced")
        return {}

    trace = asyncio.create_task(asyncio.to_thread(to_taskflow, chain(State, ("plan", plan))))
    await started.wait()
    assert "Re {" in str((await llm.ainvoke("real")).content)
    go_on.set()
    assert prompts(await trace) == {"plan": [("user", "traced")]}
    assert [call.prompt for call in engine.calls] == ["user: real"]


def test_parallel_chains_in_a_node(llm: ChatGrape) -> None:
    def write(state: State) -> State:
        both = RunnableParallel(a=llm, b=llm)
        both.invoke(f"On {state['topic']}")
        return {}

    assert prompts(to_taskflow(chain(State, ("write", write)))) == {
        "write": [("user", "On {topic}")],
        "write#2": [("user", "On {topic}")],
    }


def test_attach_traces_when_asked_to(
    llm: ChatGrape, engine: ScriptedEngine, make_team: Any
) -> None:
    attached = attach(make_team(llm), trace=True)
    assert not engine.calls
    attached.invoke({"problem": "sorting"})
    (program,) = engine.programs
    assert program.flow.to_json() == to_taskflow(make_team(llm)).to_json()
    assert {c.request.program for c in engine.calls} == {program.program_id}


# -- inputs -----------------------------------------------------------------------------------


def test_texts_of_an_input() -> None:
    messages = [("user", "hello"), AIMessage("hi"), HumanMessage(["a list"])]
    assert input_texts({"a": "x", "b-c": "y", "n": 1, "l": ["s"], "m": messages, "e": []}) == {
        "a": "x",
        "b_c": "y",
        "m_0": "hello",
        "m_1": "hi",
        "l_0": "s",
    }
    assert input_texts("text") == {"input": "text"}
    assert input_texts(DataclassState("x")) == {"topic": "x", "poem": ""}
    assert input_texts(PydanticState(topic="x")) == {"topic": "x", "poem": ""}
    assert input_texts(None) == input_texts(3) == {}
    assert input_texts({"odd": [{"no": "message"}]}) == {"odd_0_no": "message"}


def test_prompts_that_are_no_chat(engine: ScriptedEngine, llm: ChatGrape) -> None:
    completion = GrapeLLM(engine=engine)

    def plan(state: State) -> State:
        return {"plan": completion.invoke(f"A plan of {state['topic']}:")}

    def draft(state: State) -> State:
        return {"draft": str(llm.invoke(f"Write: {state['plan']}").content)}

    builder = StateGraph(State).add_node("plan", plan).add_node("draft", draft)
    graph = builder.add_edge(START, "plan").add_edge("plan", "draft").compile()
    flow = to_taskflow(graph)
    assert flow.task("plan").prompt.text == "A plan of {topic}:"
    assert prompts(flow)["draft"] == [("user", "Write: {plan_text}")]


class Summed(TypedDict, total=False):
    topic: str
    line: str
    text: str


def bounded_graph(schema: Any, **options: Any) -> Any:
    llm = ChatGrape(engine=None)

    def sum_up(state: Summed) -> Summed:
        answer = llm.with_structured_output(schema, **options).invoke(f"Sum up {state['topic']}")
        line = answer["summary"] if isinstance(answer, dict) else answer.summary
        return {"line": line}

    def write(state: Summed) -> Summed:
        return {"text": str(llm.invoke(f"Write of {state['line'].strip()}, please").content)}

    builder = StateGraph(Summed).add_node("sum_up", sum_up).add_node("write", write)
    return builder.add_edge(START, "sum_up").add_edge("sum_up", "write").compile()


@pytest.mark.parametrize("most", [40, 80, 128])
@pytest.mark.parametrize(
    ("method", "path"), [("json_schema", "summary"), ("function_calling", "arguments.summary")]
)
def test_a_text_with_a_bound_is_followed(
    most: int, method: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Line(BaseModel):
        summary: str = Field(max_length=most)

    schema = {
        "title": "Line",
        "description": "A line.",
        "type": "object",
        "properties": {"summary": {"type": "string", "maxLength": most}},
        "required": ["summary"],
    }
    for kind in (Line, schema):
        with caplog.at_level(logging.WARNING, logger="grape_lc"):
            flow = to_taskflow(bounded_graph(kind, method=method))
        assert caplog.text == ""
        (slot,) = flow.task("write").prompt.slots
        assert str(slot) == f"{{sum_up_text|json:{path}|strip}}", kind
