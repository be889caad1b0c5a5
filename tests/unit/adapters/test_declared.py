"""Prompts that are declared at the nodes which send them."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any, TypedDict

import pytest
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph

import grape_lc
from grape_lc.adapters.declared import declaration_of, declared_layer, declares_prompt
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.errors import CycleError, FlowError, FlowFormatError, PromptSyntaxError
from grape_lc.flow import InputVar, OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, prompt_text


class Pair(TypedDict, total=False):
    problem: str
    plan: str
    code: str


PLAN = "Plan a program: {problem}"
CODE = [("system", "You write Python."), ("user", "Plan:\n{plan|strip}")]


def handler_of(graph: Any) -> ProgramHandler:
    return next(h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler))


def coder(llm: Any, *, use_async: bool = False) -> Any:
    @declares_prompt(PLAN)
    async def aplan(state: Pair) -> Pair:
        answer = await llm.ainvoke(f"Plan a program: {state['problem']}")
        return {"plan": answer.content}

    @declares_prompt(PLAN)
    def plan(state: Pair) -> Pair:
        return {"plan": llm.invoke(f"Plan a program: {state['problem']}").content}

    class Code:
        @declares_prompt(CODE, reads=["plan"])
        def __call__(self, state: Pair) -> Pair:
            messages = [
                ("system", "You write Python."),
                ("user", f"Plan:\n{state['plan'].strip()}"),
            ]
            return {"code": llm.invoke(messages).content}

    builder = StateGraph(Pair)
    builder.add_node("plan", aplan if use_async else plan).add_node("code", Code())
    return builder.add_edge(START, "plan").add_edge("plan", "code").compile()


@pytest.mark.parametrize("use_async", [False, True])
def test_the_first_run_is_foreseen(use_async: bool) -> None:
    engine = ScriptedEngine({"plan": " first this \n", "code": "print(42)"})
    attached = attach(coder(ChatGrape(engine=engine), use_async=use_async))
    handler = handler_of(attached)
    assert handler.sources == {"plan": "declared", "code": "declared"}
    state = {"problem": "sorting"}
    if use_async:
        asyncio.run(attached.ainvoke(state))
    else:
        attached.invoke(state)
    (program,) = engine.programs
    flow = program.flow
    assert flow is handler.flow
    assert flow.upstream("code") == ("plan",)
    values = {**program.inputs, "plan_text": " first this \n"}
    for call in engine.calls:
        assert call.request.program == program.program_id
        prompt = flow.task(str(call.request.task)).prompt
        assert list(call.request.messages or ()) == prompt.render_messages(values)


def test_a_flow_wins_over_nodes_and_both_over_a_trace() -> None:
    engine = ScriptedEngine("ok")
    flow = TaskFlow(name="mine")
    flow.add_variable(grape_lc.OutputVar("x"))
    flow.add_task([("user", "Something else")], "x", name="code")
    attached = attach(coder(ChatGrape(engine=engine)), flow, trace=True)
    handler = handler_of(attached)
    assert handler.flow is not None
    assert handler.flow.name == "mine"
    assert handler.sources == {"code": "declared", "plan": "declared"}
    assert prompt_text_of(handler.flow, "code") == "user: Something else"


def prompt_text_of(flow: TaskFlow, task: str) -> str:
    return "\n".join(f"{m.role}: {m.content}" for m in flow.task(task).prompt.messages or ())


def graph_of(**nodes: Any) -> Any:
    builder = StateGraph(Pair)
    for name, node in nodes.items():
        builder.add_node(name, node).add_edge(START, name)
    return builder.compile()


def node(*prompts: Any, **options: Any) -> Any:
    @declares_prompt(*prompts, **options)
    def run(state: Pair) -> Pair:
        return {}

    return run


def test_several_calls_of_a_node() -> None:
    write = node("Draft {problem}", "Better: {draft}", reads={"draft": "write"})
    check = node("Check {text}", reads={"text": "write#2"})
    layer = declared_layer(graph_of(write=write, check=check))
    assert {t.task: {o.kind: o.name for o in t.origins.values()} for t in layer.templates} == {
        "write": {"input": "problem"},
        "write#2": {"answer": "write"},
        "check": {"answer": "write#2"},
    }


def test_nodes_of_subgraphs_look_around_themselves_first() -> None:
    first = node("First {problem}")
    inner = graph_of(first=first, second=node("{a} {b}", reads={"a": "first", "b": "outside"}))
    layer = declared_layer(graph_of(first=first, outside=first, sub=inner))
    origins = {t.task: t.origins for t in layer.templates}
    assert set(origins) == {"first", "outside", "sub/first", "sub/second"}
    assert origins["sub/second"]["a"].name == "sub/first"
    assert origins["sub/second"]["b"].name == "outside"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        functools.partial,
        RunnableLambda,
        lambda f: functools.wraps(f)(lambda state: {}),
    ],
    ids=["function", "partial", "runnable", "wrapped"],
)
def test_it_is_found_in_what_functions_are_wrapped_in(wrap: Any) -> None:
    graph = graph_of(plan=wrap(node(PLAN)))
    assert [t.task for t in declared_layer(graph).templates] == ["plan"]
    assert declaration_of(len) is None


def test_methods_and_instances() -> None:
    class Writer:
        @declares_prompt(PLAN)
        def plan(self, state: Pair) -> Pair:
            return {}

        def __call__(self, state: Pair) -> Pair:
            return {}

    class Heir(Writer):
        pass

    writer = declares_prompt("Code {problem}")(Writer())
    graph = graph_of(plan=Heir().plan, code=writer)
    assert [t.task for t in declared_layer(graph).templates] == ["plan", "code"]
    assert declaration_of(Writer()) is None


def test_a_chain_may_be_a_node() -> None:
    engine = ScriptedEngine("a plan")
    chain = ChatPromptTemplate.from_template(PLAN) | ChatGrape(engine=engine)
    marked = declares_prompt(PLAN)(chain | (lambda message: {"plan": message.content}))
    graph = graph_of(plan=marked)
    assert [t.task for t in declared_layer(graph).templates] == ["plan"]
    attached = attach(graph)
    assert attached.invoke({"problem": "p"}) == {"problem": "p", "plan": "a plan"}
    (call,) = engine.calls
    flow = engine.programs[0].flow
    assert list(call.request.messages or ()) == flow.task("plan").prompt.render_messages(
        engine.programs[0].inputs
    )


def test_what_is_wrong_is_said_at_the_function() -> None:
    with pytest.raises(FlowFormatError, match="without a prompt"):
        declares_prompt()
    with pytest.raises(PromptSyntaxError, match="does not name a variable"):
        declares_prompt("{a b}")
    with pytest.raises(FlowFormatError, match=r"'plam', which no prompt has; variables: 'plan'"):
        declares_prompt("{plan}", reads=["plam"])
    with pytest.raises(FlowFormatError, match=r"write \['plan'\]"):
        declares_prompt("{plan}", reads="plan")
    with pytest.raises(FlowFormatError, match=r"reads\['plan'\] is 3"):
        declares_prompt("{plan}", reads={"plan": 3})
    with pytest.raises(FlowFormatError, match=r"run are declared twice"):
        declares_prompt("again")(node(PLAN))
    with pytest.raises(FlowFormatError, match="cannot be marked"):
        declares_prompt("x")(len)


def test_what_does_not_fit_the_graph_is_said_by_attach() -> None:
    with pytest.raises(FlowError, match=r"'code': 'plan' reads the answer of 'plam', which is no"):
        attach(graph_of(plan=node(PLAN), code=node("{plan}", reads={"plan": "plam"})))
    with pytest.raises(FlowError, match="did you mean 'plan'"):
        attach(graph_of(plan=node(PLAN), code=node("{plan}", reads={"plan": "plam"})))
    with pytest.raises(FlowError, match=r"reads 'plan#3', but 'plan' declares 1 prompts"):
        attach(graph_of(plan=node(PLAN), code=node("{x}", reads={"x": "plan#3"})))
    with pytest.raises(CycleError, match="would close a circle"):
        attach(graph_of(a=node("{b}", reads=["b"]), b=node("{a}", reads=["a"])))


def test_a_node_that_sends_something_else_runs_as_ever() -> None:
    engine = ScriptedEngine(prompt_text)

    @declares_prompt("Hello {problem}")
    def plan(state: Pair) -> Pair:
        return {"plan": str(ChatGrape(engine=engine).invoke("Goodbye").content)}

    graph = graph_of(plan=plan)
    assert attach(graph).invoke({"problem": "p"}) == graph.invoke({"problem": "p"})


def test_an_undeclared_node_may_be_read_and_is_learned() -> None:
    engine = ScriptedEngine({"plan": "a first plan", "code": "print(42)"})
    llm = ChatGrape(engine=engine)

    def plan(state: Pair) -> Pair:
        return {"plan": str(llm.invoke(f"Plan {state['problem']}").content)}

    @declares_prompt("Code: {plan}", reads=["plan"])
    def code(state: Pair) -> Pair:
        return {"code": str(llm.invoke(f"Code: {state['plan']}").content)}

    builder = StateGraph(Pair).add_node("plan", plan).add_node("code", code)
    attached = attach(builder.add_edge(START, "plan").add_edge("plan", "code").compile())
    handler = handler_of(attached)
    assert handler.flow is not None
    assert handler.flow.upstream("code") == ()
    for problem in ("sorting", "counting"):
        attached.invoke({"problem": problem})
    assert handler.sources == {"plan": "learned", "code": "declared"}
    assert handler.flow.upstream("code") == ("plan",)


@pytest.mark.parametrize("prompt", [5, None, print])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(FlowFormatError, match=r"declares_prompt\(.*a prompt is a text"):
        declares_prompt(prompt)


def attached_with(prompt: str, caplog: pytest.LogCaptureFixture, **options: Any) -> str:
    @declares_prompt(prompt, **options)
    def code(state: Pair) -> Pair:
        return {}

    builder = StateGraph(Pair).add_node("planner", lambda state: {}).add_node("code", code)
    graph = builder.add_edge(START, "planner").add_edge("planner", "code").compile()
    with caplog.at_level(logging.WARNING, "grape_lc"):
        attach(graph, learned="memory")
    return caplog.text


def test_an_input_that_no_run_gives_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    said = attached_with("Code {problemo} by {planner|strip} or {plan} of {problem_0}", caplog)
    assert said.count("WARNING") == 1
    assert "'problemo', 'planner'; the keys of its state: problem, plan, code" in said
    assert "reads=['planner']" in said


def test_inputs_and_answers_that_there_are_are_not(caplog: pytest.LogCaptureFixture) -> None:
    assert attached_with("{problem} {planner|strip}", caplog, reads=["planner"]) == ""


def test_an_input_of_a_flow_that_no_run_gives_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = TaskFlow(name="f")
    flow.add_variable(InputVar("problemo"))
    flow.add_task("Plan {problemo}", flow.add_variable(OutputVar("p")), name="plan")
    with caplog.at_level(logging.WARNING, "grape_lc"):
        attach(coder(ChatGrape(engine=None)), flow, learned="memory")
    assert "'problemo'; the keys of its state: problem, plan, code" in caplog.text
