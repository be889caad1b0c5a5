"""Graphs whose paths, inputs and threads a trace has to find."""

from __future__ import annotations

import json
import logging
import operator
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.output_parsers import JsonOutputParser
from langchain_core.runnables import RunnableParallel
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send
from pydantic import BaseModel

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach, to_taskflow
from grape_lc.errors import ConfigError
from grape_lc.flow import TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine


class Case(TypedDict, total=False):
    topic: str
    kind: str
    text: str
    grade: str
    final: str


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine("an answer")


@pytest.fixture
def llm(engine: ScriptedEngine) -> ChatGrape:
    return ChatGrape(engine=engine)


def prompts(flow: TaskFlow) -> dict[str, Any]:
    return {
        task.name: [(m.role, m.content) for m in task.prompt.messages or ()] for task in flow.tasks
    }


def say(llm: Any, prompt: Any) -> str:
    return str(llm.invoke(prompt).content)


def graph_of(schema: Any, *nodes: Any, edges: dict[str, Any] | None = None) -> Any:
    """Nodes in a row; ``edges`` are conditional ones, in the place of those that leave a node."""
    builder = StateGraph(schema)
    previous = START
    for node in nodes:
        builder.add_node(node)
        if previous not in (edges or {}):
            builder.add_edge(previous, node.__name__)
        previous = node.__name__
    for start, edge in (edges or {}).items():
        builder.add_conditional_edges(start, *edge)
    return builder.compile()


# -- forks ------------------------------------------------------------------------------------


class Kind(BaseModel):
    kind: Literal["poem", "joke"]
    why: str


def test_each_value_of_a_field_is_followed(llm: ChatGrape) -> None:
    router = llm.with_structured_output(Kind)

    def route(state: Case) -> Case:
        found: Any = router.invoke(f"Which kind is {state['topic']}?")
        return {"kind": found.kind, "text": found.why}

    def poem(state: Case) -> Case:
        return {"text": say(llm, f"A poem on {state['topic']}")}

    def joke(state: Case) -> Case:
        return {"text": say(llm, f"A joke on {state['topic']}, as {state['text']}")}

    def check(state: Case) -> Case:
        return {"final": say(llm, f"Is this a {state['kind']}? {state['topic']}: {state['text']}")}

    builder = StateGraph(Case)
    for node in (route, poem, joke, check):
        builder.add_node(node)
    builder.add_edge(START, "route").add_edge("poem", "check").add_edge("joke", "check")
    graph = builder.add_conditional_edges("route", lambda state: state["kind"]).compile()
    found = prompts(to_taskflow(graph))
    assert found["poem"] == [("user", "A poem on {topic}")]
    assert found["joke"] == [("user", "A joke on {topic}, as {route_text|json:why}")]
    # The kind is a field of the answer, the text that of whichever was written.
    text = "{poem_text_or_joke_text}"
    assert found["check"] == [("user", f"Is this a {{route_text|json:kind}}? {{topic}}: {text}")]


def test_commands_go_wherever_they_can(llm: ChatGrape) -> None:
    def triage(state: Case) -> Command[Literal["expert", "answer"]]:
        text = say(llm, f"Is it hard? {state['topic']}")
        return Command(goto="expert" if "hard" in text else "answer", update={"text": text})

    def expert(state: Case) -> Command[Literal["answer"]]:
        return Command(goto="answer", update={"final": say(llm, f"Expert: {state['text']}")})

    def answer(state: Case) -> Case:
        return {"final": say(llm, f"Answer {state['topic']}")}

    builder = StateGraph(Case)
    for node in (triage, expert, answer):
        builder.add_node(node)
    found = prompts(to_taskflow(builder.add_edge(START, "triage").compile()))
    assert found["expert"] == [("user", "Expert: {triage_text}")]
    assert found["answer"] == [("user", "Answer {topic}")]


def test_an_edge_that_calls_the_model(llm: ChatGrape) -> None:
    def write(state: Case) -> Case:
        return {"text": say(llm, f"Write on {state['topic']}")}

    def mend(state: Case) -> Case:
        return {"text": say(llm, f"Mend {state['text']}")}

    def good(state: Case) -> str:
        return "mend" if "no" in say(llm, f"Is it good? {state['text']}") else END

    found = prompts(to_taskflow(graph_of(Case, write, mend, edges={"write": (good,)})))
    assert found == {
        "write": [("user", "Write on {topic}")],
        "write#2": [("user", "Is it good? {write_text}")],
        "mend": [("user", "Mend {write_text}")],
    }


def test_rounds_of_a_loop(llm: ChatGrape) -> None:
    class Grade(BaseModel):
        accept: bool
        feedback: str

    grader = llm.with_structured_output(Grade, method="function_calling")

    def write(state: Case) -> Case:
        if state.get("grade"):
            return {"text": say(llm, f"Again, but mind: {state['grade'].strip()}")}
        return {"text": say(llm, f"Write on {state['topic']}")}

    def grade(state: Case) -> Case:
        found: Any = grader.invoke(f"Grade this: {state['text']}")
        return {"grade": found.feedback, "kind": "good" if found.accept else "bad"}

    def done(state: Case) -> str:
        return END if state["kind"] == "good" else "write"

    found = prompts(to_taskflow(graph_of(Case, write, grade, edges={"grade": (done,)})))
    assert sorted(found) == ["grade", "grade#2", "grade#3", "write", "write#2", "write#3"]
    feedback = "{grade_text|json:arguments.feedback|strip}"
    assert found["write#2"] == [("user", f"Again, but mind: {feedback}")]
    assert found["grade#2"] == [("user", "Grade this: {write_2_text}")]


def test_paths_that_are_too_many_are_told(llm: ChatGrape, caplog: pytest.LogCaptureFixture) -> None:
    class Many(BaseModel):
        a: Literal["1", "2", "3"]
        b: Literal["1", "2", "3"]

    def ask(state: Case) -> Case:
        return {"text": str(llm.with_structured_output(Many).invoke(f"Ask {state['topic']}"))}

    graph = graph_of(Case, ask)
    assert prompts(to_taskflow(graph, paths=3)) == {"ask": [("user", "Ask {topic}")]}
    assert "not every path was followed in 3 runs" in caplog.text
    caplog.clear()
    to_taskflow(graph)
    assert caplog.text == ""
    with pytest.raises(ConfigError, match="paths=0"):
        to_taskflow(graph, paths=0)


# -- tools ------------------------------------------------------------------------------------


@tool
def look_up(name: str) -> str:
    """Look up a number."""
    raise AssertionError("a tool was executed in a trace")


def test_an_agent_with_tools(llm: ChatGrape, engine: ScriptedEngine) -> None:
    bound = llm.bind_tools([look_up])

    def agent(state: MessagesState) -> Any:
        return {"messages": [bound.invoke([SystemMessage("Use tools."), *state["messages"]])]}

    builder = StateGraph(MessagesState).add_node("agent", agent)
    builder.add_node("tools", ToolNode([look_up])).add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition).add_edge("tools", "agent")
    graph: Any = builder.compile()
    flow = to_taskflow(graph)
    head = [("system", "Use tools."), ("user", "{messages_0}")]
    assert prompts(flow) == {
        "agent": head,
        "agent#2": [*head, ("assistant", "{opaque_1}")],
        "agent#3": [*head, ("assistant", "{opaque_2}")],
    }
    (shown,) = flow.task("agent#2").prompt.tools
    assert shown["function"]["name"] == "look_up"
    attach(graph, flow).invoke({"messages": [("user", "hi")]})
    assert engine.calls[0].request.tools == flow.task("agent").prompt.tools
    assert TaskFlow.from_json(flow.to_json()) == flow


# -- lists ------------------------------------------------------------------------------------


class Files(TypedDict, total=False):
    files: list[str]
    meta: dict[str, Any]
    notes: Annotated[list[str], operator.add]


def test_lists_are_unrolled(llm: ChatGrape, engine: ScriptedEngine) -> None:
    def read(state: Any) -> Files:
        return {"notes": [say(llm, f"Read {state['file']}")]}

    def sum_up(state: Files) -> Files:
        say(llm, "Sum up:\n" + "\n".join(f"- {note.strip()}" for note in state["notes"]))
        return {}

    builder = StateGraph(Files).add_node("read", read).add_node("sum_up", sum_up)
    spread = lambda s: [Send("read", {"file": file}) for file in s["files"]]  # noqa: E731
    builder.add_conditional_edges(START, spread, ["read"]).add_edge("read", "sum_up")
    graph = builder.compile()
    flow = to_taskflow(graph)
    found = prompts(flow)
    assert found["read[7]"] == [("user", "Read {files_7}")]
    items = "".join(f"\n- {{read_{n}_text|strip}}" for n in range(8))
    assert found["sum_up"] == [("user", f"Sum up:{items}")]
    attach(graph, flow).invoke({"files": ["one", "two"]})
    (program,) = engine.programs
    assert program.inputs == {"files_0": "one", "files_1": "two"}
    assert {"read[0]", "read[1]"} < set(program.fed)


def test_texts_inside_of_an_example(llm: ChatGrape, engine: ScriptedEngine) -> None:
    def ask(state: Files) -> Files:
        author = state["meta"]["author"]
        say(llm, f"{author['name']} ({author['age']}) in {state['meta']['places'][0]}")
        return {}

    given = {"meta": {"author": {"name": "Ann", "age": 7}, "places": ["Rome"]}}
    graph = graph_of(Files, ask)
    flow = to_taskflow(graph, example=given)
    assert prompts(flow) == {"ask": [("user", "{meta_author_name} (7) in {meta_places_0}")]}
    attach(graph, flow).invoke(given)
    assert engine.programs[0].inputs == {"meta_author_name": "Ann", "meta_places_0": "Rome"}


# -- inputs that nobody gave ------------------------------------------------------------------


def test_keys_that_nodes_write_are_no_inputs(llm: ChatGrape) -> None:
    def write(state: Case) -> Case:
        again = f" Mind {state['grade']}." if state.get("grade") else ""
        return {"text": say(llm, f"Write on {state['topic']}.{again}")}

    def grade(state: Case) -> Case:
        return {"grade": say(llm, f"Grade {state['text']}")}

    graph = graph_of(Case, write, grade)
    assert prompts(to_taskflow(graph))["write"] == [("user", "Write on {topic}.")]
    # With one run there is no other to learn it from.
    once = prompts(to_taskflow(graph, paths=1))
    assert once["write"] == [("user", "Write on {topic}. Mind {grade}.")]


def test_a_key_that_is_read_and_written_is_given(llm: ChatGrape) -> None:
    def tidy(state: Case) -> Case:
        return {"topic": state["topic"].strip()}

    def write(state: Case) -> Case:
        return {"text": say(llm, f"Write on {state['topic']}")}

    assert prompts(to_taskflow(graph_of(Case, tidy, write))) == {
        "write": [("user", "Write on {topic|strip}")]
    }


def test_numbers_that_a_node_asks_for(llm: ChatGrape) -> None:
    class Counted(TypedDict, total=False):
        topic: str
        left: int

    def write(state: Counted) -> Counted:
        say(llm, f"On {state['topic']}, {state['left']} lines")
        return {"left": state["left"] - 1}

    assert prompts(to_taskflow(graph_of(Counted, write))) == {
        "write": [("user", "On {topic}, {opaque_1}")]
    }


def test_answers_that_are_read_as_json(llm: ChatGrape, engine: ScriptedEngine) -> None:
    def plan(state: Case) -> Case:
        found = json.loads(say(llm, f"Plan {state['topic']} as JSON: goal, steps"))
        return {"kind": found["goal"], "text": found["steps"]}

    parse = llm | JsonOutputParser()

    def check(state: Case) -> Case:
        found = parse.invoke(f"Check {state['text'].strip()} for {state['kind']}, in JSON: grade")
        return {"final": say(llm, f"Graded {found['grade']}")}

    assert prompts(to_taskflow(graph_of(Case, plan, check))) == {
        "plan": [("user", "Plan {topic} as JSON: goal, steps")],
        "check": [
            ("user", "Check {plan_text|json:steps|strip} for {plan_text|json:goal}, in JSON: grade")
        ],
        "check#2": [("user", "Graded {check_text|json:grade}")],
    }


def test_conversations(llm: ChatGrape) -> None:
    class Chat(MessagesState):
        summary: str

    def answer(state: Chat) -> Any:
        return {"messages": [llm.invoke(state["messages"])]}

    def sum_up(state: Chat) -> Any:
        return {"summary": say(llm, [*state["messages"], HumanMessage("Sum up.")])}

    assert prompts(to_taskflow(graph_of(Chat, answer, sum_up))) == {
        "answer": [("user", "{messages_0}")],
        "sum_up": [("user", "{messages_0}"), ("assistant", "{answer_text}"), ("user", "Sum up.")],
    }


# -- what changes with each run ---------------------------------------------------------------


def test_what_changes_is_opaque_and_told(llm: ChatGrape, caplog: pytest.LogCaptureFixture) -> None:
    def write(state: Case) -> Case:
        return {"text": say(llm, f"Write on {state['topic']}. Id: {uuid.uuid4()}. Be short.")}

    def check(state: Case) -> Case:
        say(llm, f"Today is {datetime.now().astimezone():%Y-%m-%d}: {state['text']}")
        return {}

    graph = graph_of(Case, write, check)
    found = prompts(to_taskflow(graph))
    assert found["write"] == [("user", "Write on {topic}. Id: {opaque_1}")]
    assert found["check"][0][1].endswith(": {write_text}")
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == 2
    assert "prompt of 'write' has something in it that is not known before a run" in told[0]
    assert "an input that is no text" in told[0]
    assert "--example" in told[0]
    assert "message 1, behind '. Id: '" in told[0]
    assert "prompt of 'check' has the date of today" in told[1]


def test_thoughts_that_a_node_cuts_off(llm: ChatGrape) -> None:
    def think(state: Case) -> Case:
        return {"text": say(llm, f"Think of {state['topic']}")}

    def go_on(state: Case) -> Case:
        text = state["text"].split("</think>")[-1].strip()
        say(llm, [("user", text), ("user", state["text"].strip())])
        return {}

    def keep(state: Case) -> Case:
        say(llm, f"Keep {state['text'].strip()}")
        return {}

    found = prompts(to_taskflow(graph_of(Case, think, keep, go_on)))
    assert found["keep"] == [("user", "Keep {think_text|strip}")]
    # A prompt with both is told apart by neither kind of run.
    assert found["go_on"][1] == ("user", "{think_text|strip}")
    found = prompts(to_taskflow(graph_of(Case, think, _cut(llm))))
    assert found["cut"] == [("user", "Cut {think_text|after_think|strip}")]


def _cut(llm: Any) -> Any:
    def cut(state: Case) -> Case:
        say(llm, f"Cut {state['text'].split('</think>')[-1].strip()}")
        return {}

    return cut


# -- threads ----------------------------------------------------------------------------------


def test_threads_of_a_node_are_named_in_the_order_of_their_start(llm: ChatGrape) -> None:
    def side(text: str, wait: float) -> str:
        time.sleep(wait)
        return say(llm, text)

    def argue(state: Case) -> Case:
        with ThreadPoolExecutor(2) as pool:
            slow = pool.submit(side, f"For {state['topic']}", 0.03)
            fast = pool.submit(side, f"Against {state['topic']}", 0.0)
            return {"text": f"{slow.result()} {fast.result()}"}

    def judge(state: Case) -> Case:
        say(llm, f"Judge {state['text']}")
        return {}

    assert prompts(to_taskflow(graph_of(Case, argue, judge))) == {
        "argue": [("user", "For {topic}")],
        "argue#2": [("user", "Against {topic}")],
        "judge": [("user", "Judge {argue_text} {argue_2_text}")],
    }


def test_parallel_chains_of_a_node_always_have_the_same_names(llm: ChatGrape) -> None:
    def write(state: Case) -> Case:
        chains = {name: (lambda text, n=name: f"{n} {text}") | llm for name in ("a", "b", "c")}
        RunnableParallel(chains).invoke(state["topic"])
        llm.batch(["d", "e", "f"])
        return {}

    flows = {to_taskflow(graph_of(Case, write)).to_json() for _ in range(5)}
    assert len(flows) == 1
    found = prompts(TaskFlow.from_json(flows.pop()))
    assert "".join(messages[0][1][0] for _, messages in sorted(found.items())) == "abcdef"
