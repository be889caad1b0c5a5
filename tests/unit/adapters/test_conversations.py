"""Conversations that a checkpointer continues: one template holds for all turns."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from grape_lc.adapters.conversations import Conversations, histories_of
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.adapters.learning import SeenCall
from grape_lc.flow import InputVar, OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock

WORDS = (
    "Good morning!",
    "What is a cat?",
    "And what is a dog?",
    "Which of them barks?",
    "Bye now.",
)


def writer() -> ScriptedEngine:
    """Never gives the same answer twice."""
    number = itertools.count()
    return ScriptedEngine(lambda request: f"answer no. {next(number)}", clock=VirtualClock())


def handler_of(graph: Any) -> ProgramHandler:
    return next(h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler))


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}}


def talk_graph(llm: Any, *, asks: bool = False) -> Any:
    """chat, which is sent the conversation; title, only the last message; check, all and more."""

    def chat(state: MessagesState) -> Any:
        return {"messages": [llm.invoke([SystemMessage("Be brief."), *state["messages"]])]}

    def title(state: MessagesState) -> Any:
        if asks:
            interrupt("go on?")
        llm.invoke([SystemMessage("A title for this."), state["messages"][-2]])
        return {}

    def check(state: MessagesState) -> Any:
        llm.invoke([*state["messages"], HumanMessage("Is that so?")])
        return {}

    builder = StateGraph(MessagesState)
    names = (START, "chat", "title", "check")
    for name, node in zip(names[1:], (chat, title, check), strict=True):
        builder.add_node(name, node)
    for before, after in itertools.pairwise(names):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=InMemorySaver())


def talk_flow() -> TaskFlow:
    flow = TaskFlow(name="talk")
    flow.add_variable(InputVar("messages_0"))
    for name in ("chat", "title", "check"):
        flow.add_variable(OutputVar(f"{name}_text"))
    flow.add_task([("system", "Be brief."), ("user", "{messages_0}")], "chat_text", name="chat")
    flow.add_task(
        [("system", "A title for this."), ("user", "{messages_0}")], "title_text", name="title"
    )
    flow.add_task(
        [("user", "{messages_0}"), ("assistant", "{chat_text}"), ("user", "Is that so?")],
        "check_text",
        name="check",
    )
    return flow


def foreseen(engine: ScriptedEngine) -> dict[str, bool]:
    """Whether each call of the last program was sent what its flow says."""
    program = engine.programs[-1]
    values = dict(program.inputs)
    result = {}
    for call in engine.calls:
        if call.request.program != program.program_id:
            continue
        task = program.flow.task(str(call.request.task))
        sent = list(call.request.messages or ())
        result[task.name] = sent == task.prompt.render_messages(values)
        values[task.output] = call.text
    program.flow.validate_flow()
    program.flow.check_inputs(program.inputs, partial=True)
    return result


ALL = {"chat": True, "title": True, "check": True}


def test_every_turn_is_foreseen() -> None:
    engine = writer()
    attached = attach(talk_graph(ChatGrape(engine=engine)), talk_flow())
    for turn, word in enumerate(WORDS):
        attached.invoke({"messages": [HumanMessage(word)]}, config())
        # That title is not sent what was said before shows in the second turn.
        assert foreseen(engine) == (ALL | {"title": False} if turn == 1 else ALL)
    program = engine.programs[-1]
    assert program.inputs["messages_0"] == WORDS[-1]
    assert [program.inputs[f"messages_before_{n}"] for n in (0, 2, 4, 6)] == list(WORDS[:4])
    assert handler_of(attached).flow == talk_flow()
    assert set(handler_of(attached).sources.values()) == {"declared"}


def test_turns_are_learned_from_alike() -> None:
    engine = writer()
    attached = attach(talk_graph(ChatGrape(engine=engine)))
    for word in WORDS[:3]:
        attached.invoke({"messages": [("user", word)]}, config())
    assert foreseen(engine) == ALL
    # Another thread begins anew.
    attached.invoke({"messages": [HumanMessage(WORDS[3])]}, config("other"))
    assert foreseen(engine) == ALL
    assert set(engine.programs[-1].inputs) == {"messages_0"}
    attached.invoke({"messages": [HumanMessage(WORDS[4])]}, config())
    assert foreseen(engine) == ALL
    assert len(engine.programs[-1].inputs) == 7


def test_a_turn_that_is_interrupted_goes_on() -> None:
    engine = writer()
    attached = attach(talk_graph(ChatGrape(engine=engine), asks=True), talk_flow())
    for word in WORDS[:3]:
        attached.invoke({"messages": [HumanMessage(word)]}, config())
        attached.invoke(Command(resume="yes"), config())
    assert foreseen(engine) == {"title": True, "check": True}
    assert engine.programs[-1].inputs["messages_before_0"] == WORDS[0]


def test_results_are_the_same_attached_or_not() -> None:
    def talk(attached: bool) -> list[Any]:
        graph = talk_graph(ChatGrape(engine=writer()))
        graph = attach(graph, talk_flow()) if attached else graph
        states = [graph.invoke({"messages": [HumanMessage(w)]}, config()) for w in WORDS]
        return [[(m.type, m.content) for m in state["messages"]] for state in states]

    assert talk(True) == talk(False)


# ------------------------------------------------------------------ parts


@pytest.mark.parametrize(
    "state",
    [
        None,
        "text",
        {"messages": []},
        {"messages": ["text"]},
        {"messages": [AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}])]},
        {"messages": [HumanMessage("Hi"), ToolMessage("seen", tool_call_id="1")]},
        {"messages": [HumanMessage([{"type": "image_url", "image_url": "x"}])]},
    ],
)
def test_what_is_no_conversation_of_texts(state: Any) -> None:
    assert histories_of(state) == {}


def test_a_conversation_under_each_key() -> None:
    state = {"messages": [("user", "Hi"), AIMessage("Hello")], "notes": [HumanMessage("x")], "n": 3}
    assert histories_of(state) == {
        "messages": (("user", "Hi"), ("assistant", "Hello")),
        "notes": (("user", "x"),),
    }


HISTORY = {"messages": (("user", "Hi"), ("assistant", "Hello"))}


def seen(*messages: tuple[str, str], task: str = "chat") -> SeenCall:
    return SeenCall(task, tuple({"role": r, "content": text} for r, text in messages), "x")


def test_only_the_whole_history_is_taken_out() -> None:
    conversations = Conversations()
    whole = seen(("system", "S"), ("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"))
    trimmed = seen(("system", "S"), ("assistant", "Hello"), ("user", "Bye"), task="other")
    told = conversations.told([whole, trimmed], HISTORY)
    assert told == [seen(("system", "S"), ("user", "Bye")), trimmed]
    assert conversations.told([whole], {}) == [whole]
    # A prompt that is nothing but the history is left as it is.
    bare = seen(("user", "Hi"), ("assistant", "Hello"))
    assert conversations.told([bare], HISTORY) == [bare]


def test_names_that_are_taken_leave_a_flow_as_it_is() -> None:
    flow = talk_flow()
    again, said = Conversations().continued(flow, HISTORY)
    assert said == {"messages_before_0": "Hi", "messages_before_1": "Hello"}
    again.validate_flow()
    assert Conversations().continued(again, HISTORY) == (again, {})
    assert Conversations().continued(flow, {}) == (flow, {})
    assert Conversations().continued(flow, {"other": HISTORY["messages"]}) == (flow, {})
