"""Runs that go on after an interruption: a program of what is left."""

from __future__ import annotations

import itertools
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.adapters.resuming import Past, Threads, left_of
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock


class Work(TypedDict, total=False):
    problem: str
    plan: str
    word: str
    code: str
    check: str


def work_flow() -> TaskFlow:
    flow = TaskFlow(name="work")
    flow.add_variable(InputVar("problem"))
    flow.add_variable(IntermediateVar("plan_text"))
    flow.add_variable(IntermediateVar("code_text"))
    flow.add_variable(OutputVar("check_text"))
    flow.add_task([("user", "Plan {problem}")], "plan_text", name="plan")
    flow.add_task([("user", "Code {plan_text|strip}")], "code_text", name="code")
    flow.add_task([("user", "Check {code_text} for {problem}")], "check_text", name="check")
    flow.validate_flow()
    return flow


def writer() -> ScriptedEngine:
    number = itertools.count()
    return ScriptedEngine(lambda request: f" answer no. {next(number)}\n", clock=VirtualClock())


def work_graph(llm: Any, *, ask_in_code: bool = False, **options: Any) -> Any:
    """plan -> ask -> code -> check; asks in a node of its own, or behind the call of code."""

    def plan(state: Work) -> Work:
        return {"plan": str(llm.invoke(f"Plan {state['problem']}").content)}

    def ask(state: Work) -> Work:
        return {} if ask_in_code else {"word": interrupt("go on?")}

    def code(state: Work) -> Work:
        answer = str(llm.invoke(f"Code {state['plan'].strip()}").content)
        word = interrupt("good?") if ask_in_code else state["word"]
        return {"code": answer, "word": word}

    def check(state: Work) -> Work:
        prompt = f"Check {state['code']} for {state['problem']}"
        return {"check": str(llm.invoke(prompt).content)}

    builder = StateGraph(Work)
    names = (START, "plan", "ask", "code", "check")
    for name, run in zip(names[1:], (plan, ask, code, check), strict=True):
        builder.add_node(name, run)
    for before, after in itertools.pairwise(names):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=InMemorySaver(), **options)


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}}


def handler_of(graph: Any) -> ProgramHandler:
    return next(h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler))


def check_foreseen(engine: ScriptedEngine) -> None:
    """Every call of the last program was sent what its flow says."""
    program = engine.programs[-1]
    values = dict(program.inputs)
    calls = [c for c in engine.calls if c.request.program == program.program_id]
    assert calls
    for call in calls:
        task = program.flow.task(str(call.request.task))
        assert list(call.request.messages or ()) == task.prompt.render_messages(values)
        values[task.output] = call.text
    assert engine.open_programs == ()


@pytest.mark.parametrize("resume", [Command(resume="yes"), None])
def test_a_resumed_run_is_a_program_of_what_is_left(resume: Any) -> None:
    engine = writer()
    graph = work_graph(ChatGrape(engine=engine), interrupt_before=["ask"] if resume is None else [])
    attached = attach(graph, work_flow())
    attached.invoke({"problem": "sorting"}, config())
    assert [c.request.task for c in engine.calls] == ["plan"]
    if resume is None:
        attached.invoke(None, config())
        resume = Command(resume="yes")
    state = attached.invoke(resume, config())
    assert state["word"] == "yes"
    program = engine.programs[-1]
    assert [task.name for task in program.flow.tasks] == ["code", "check"]
    assert program.inputs == {"problem": "sorting", "plan_text": state["plan"]}
    check_foreseen(engine)
    assert handler_of(attached).running == 0


def test_a_node_that_was_interrupted_calls_again_under_its_name() -> None:
    engine = writer()
    attached = attach(work_graph(ChatGrape(engine=engine), ask_in_code=True), work_flow())
    attached.invoke({"problem": "sorting"}, config())
    attached.invoke(Command(resume="yes"), config())
    assert [c.request.task for c in engine.calls] == ["plan", "code", "code", "check"]
    assert [task.name for task in engine.programs[-1].flow.tasks] == ["code", "check"]
    check_foreseen(engine)


def test_a_node_that_failed_may_be_tried_again() -> None:
    engine = writer()
    fails = [True]

    def plan(state: Work) -> Work:
        return {"plan": str(ChatGrape(engine=engine).invoke(f"Plan {state['problem']}").content)}

    def code(state: Work) -> Work:
        answer = ChatGrape(engine=engine).invoke(f"Code {state['plan'].strip()}").content
        if fails.pop():
            fails.append(False)
            raise OSError("no disk")
        return {"code": str(answer)}

    builder = StateGraph(Work).add_node("plan", plan).add_node("code", code)
    builder.add_node("check", lambda state: {}).add_edge("code", "check")
    builder.add_edge(START, "plan").add_edge("plan", "code")
    attached = attach(builder.compile(checkpointer=InMemorySaver()), work_flow())
    with pytest.raises(OSError, match="no disk"):
        attached.invoke({"problem": "sorting"}, config())
    attached.invoke(None, config())
    assert [c.request.task for c in engine.calls] == ["plan", "code", "code"]
    check_foreseen(engine)


def test_several_interruptions_in_a_loop() -> None:
    engine = writer()

    def write(state: Work) -> Work:
        answer = ChatGrape(engine=engine).invoke(f"Write {state['problem']}").content
        return {"plan": str(answer)}

    def ask(state: Work) -> Work:
        return {"word": interrupt("good?")}

    builder = StateGraph(Work).add_node("write", write).add_node("ask", ask)
    builder.add_edge(START, "write").add_edge("write", "ask")
    builder.add_conditional_edges("ask", lambda s: "write" if s["word"] == "no" else "__end__")
    flow = TaskFlow(name="loop")
    flow.add_variable(InputVar("problem"))
    for task in ("write", "write#2", "write#3"):
        flow.add_variable(OutputVar(f"text_{task[-1]}"))
        flow.add_task([("user", "Write {problem}")], f"text_{task[-1]}", name=task)
    attached = attach(builder.compile(checkpointer=InMemorySaver()), flow)
    attached.invoke({"problem": "a poem"}, config())
    for word in ("no", "no", "yes"):
        attached.invoke(Command(resume=word), config())
    assert [c.request.task for c in engine.calls] == ["write", "write#2", "write#3"]
    assert [[t.name for t in p.flow.tasks] for p in engine.programs] == [
        ["write", "write#2", "write#3"],
        ["write#2", "write#3"],
        ["write#3"],
    ]


def test_interrupted_runs_are_learned_from_once() -> None:
    engine = writer()
    attached = attach(work_graph(ChatGrape(engine=engine), ask_in_code=True))
    handler = handler_of(attached)
    for number in range(2):
        thread = config(str(number))
        attached.invoke({"problem": f"problem number {number}"}, thread)
        attached.invoke(Command(resume="yes"), thread)
        # The call that an interruption makes a node repeat is no second run.
        assert (handler.flow is None) == (number == 0)
    assert handler.flow is not None
    assert {task.name for task in handler.flow.tasks} == {"plan", "code", "check"}
    assert handler.flow.upstream("check") == ("code",)
    attached.invoke({"problem": "the last problem"}, config("last"))
    attached.invoke(Command(resume="yes"), config("last"))
    assert [task.name for task in engine.programs[-1].flow.tasks] == ["code", "check"]
    check_foreseen(engine)


def test_an_interruption_inside_a_subgraph() -> None:
    """Nodes of the subgraph that have ended are not run again, the node around it is."""
    engine = writer()
    llm = ChatGrape(engine=engine)

    def calls(name: str) -> Any:
        def run(state: Work) -> Work:
            llm.invoke(f"{name} {state['problem']}")
            return {}

        return run

    inner = StateGraph(Work).add_node("first", calls("first")).add_node("last", calls("last"))
    inner.add_node("ask", lambda state: {"word": interrupt("go on?")}).add_edge(START, "first")
    inner_graph = inner.add_edge("first", "ask").add_edge("ask", "last").compile()

    def outer(state: Work) -> Work:
        llm.invoke(f"before {state['problem']}")
        inner_graph.invoke(state)
        return {}

    builder = StateGraph(Work).add_node("outer", outer).add_node("end", calls("end"))
    builder.add_edge(START, "outer").add_edge("outer", "end")
    flow = TaskFlow(name="nested")
    flow.add_variable(InputVar("problem"))
    texts = {"outer": "before", "outer/first": "first", "outer/last": "last", "end": "end"}
    for number, (task, word) in enumerate(texts.items()):
        flow.add_variable(OutputVar(f"text_{number}"))
        flow.add_task([("user", f"{word} {{problem}}")], f"text_{number}", name=task)
    attached = attach(builder.compile(checkpointer=InMemorySaver()), flow)
    attached.invoke({"problem": "sorting"}, config())
    assert [c.request.task for c in engine.calls] == ["outer", "outer/first"]
    attached.invoke(Command(resume="yes"), config())
    later = [c.request.task for c in engine.calls[2:]]
    assert later == ["outer", "outer/last", "end"]
    assert [task.name for task in engine.programs[-1].flow.tasks] == later
    check_foreseen(engine)


def test_what_another_process_began_has_no_program() -> None:
    engine = writer()
    graph = work_graph(ChatGrape(engine=engine))
    attach(graph, work_flow()).invoke({"problem": "sorting"}, config())
    state = attach(graph, work_flow()).invoke(Command(resume="yes"), config())
    assert state["word"] == "yes"
    assert len(engine.programs) == 1
    assert [c.request.program for c in engine.calls][1:] == [None, None]


def test_threads_do_not_mix() -> None:
    engine = writer()
    attached = attach(work_graph(ChatGrape(engine=engine)), work_flow())
    for thread in ("a", "b"):
        attached.invoke({"problem": f"problem of {thread}"}, config(thread))
    for thread in ("a", "b"):
        state = attached.invoke(Command(resume="yes"), config(thread))
        assert engine.programs[-1].inputs == {
            "problem": f"problem of {thread}",
            "plan_text": state["plan"],
        }


def test_results_are_the_same_attached_or_not() -> None:
    def results(attached: bool) -> list[Any]:
        graph = work_graph(ChatGrape(engine=writer()), ask_in_code=True)
        graph = attach(graph, work_flow()) if attached else graph
        starts: list[Any] = [{"problem": "sorting"}, Command(resume="yes")]
        return [[list(graph.stream(s, config(), stream_mode="updates"))] for s in starts]

    def plain(items: list[Any]) -> str:
        # Ids of interrupts differ from run to run.
        return repr([[sorted(part) for part in parts] for [parts] in items])

    assert plain(results(True)) == plain(results(False))


# ------------------------------------------------------------------ parts


def test_only_the_threads_used_last_are_remembered() -> None:
    threads = Threads(most=2, most_of_one=10, most_of_all=15)
    for name in ("a", "b"):
        threads.remember(name, Past({"x": name}))
    assert threads.past("a") == Past({"x": "a"})
    threads.remember("c", Past({"x": "c"}))
    assert threads.past("b") is None
    assert threads.past("a") == Past({"x": "a"})
    # Too long by itself, or together with others.
    threads.remember("a", Past({"x": "a" * 11}))
    assert threads.past("a") is None
    assert len(threads) == 1
    threads.remember("a", Past({"x": "a" * 5}, {"task": "a" * 5}))
    threads.remember("b", Past({}, before={"messages": (("user", "b" * 3),)}))
    assert threads.past("c") is None
    assert len(threads) == 2
    threads.remember("c", Past({}, after={"messages": (("user", "c" * 3),)}))
    assert threads.past("a") is None
    assert len(threads) == 2


@given(st.sets(st.sampled_from(["plan", "code", "check", "other", "plan#2"])))
def test_what_is_left_is_well_formed(done: set[str]) -> None:
    flow = work_flow()
    left, values = left_of(flow, {task: f"answer of {task}" for task in done})
    names = [task.name for task in flow.tasks if task.name not in done]
    if left is None:
        assert names == []
        return
    left.validate_flow()
    assert [task.name for task in left.tasks] == names
    assert {task.name: task.prompt for task in left.tasks} == {
        name: flow.task(name).prompt for name in names
    }
    left.check_inputs(values, partial=True)
    assert set(values.values()) <= {f"answer of {task}" for task in done}
