"""Prompts learned from the runs of a graph that declares none."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send

from grape_lc.adapters.agreement import agreement, symbolic
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.adapters.learning import Learner, SeenCall
from grape_lc.adapters.markers import Damaged, Found
from grape_lc.engine.base import CallRequest
from grape_lc.flow import Literal_, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock, prompt_text


class Pair(TypedDict, total=False):
    problem: str
    plan: str
    code: str


class Parts(TypedDict, total=False):
    topic: str
    part: str


PROBLEMS = ("sorting a list", "finding a path", "counting words", "drawing a tree")


def writer() -> ScriptedEngine:
    """Never gives the same answer twice."""
    number = itertools.count()
    return ScriptedEngine(
        lambda request: f"  answer {next(number)} to {len(prompt_text(request))} characters\n",
        clock=VirtualClock(),
    )


def learner_of(graph: Any) -> ProgramHandler:
    return next(h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler))


def rendered(flow: TaskFlow, task: str, values: dict[str, str]) -> str:
    """The prompt that ``flow`` expects, as ``prompt_text`` has it, up to what is not known."""
    messages: list[str] = []
    for role, segments in flow.task(task).prompt.sections:
        text = f"{role}: "
        for segment in segments:
            if isinstance(segment, Literal_):
                text += segment.text
            elif segment.variable in values:
                text += segment.transducer.apply(values[segment.variable])
            else:
                return "\n".join([*messages, text])
        messages.append(text)
    return "\n".join(messages)


def opened(engine: ScriptedEngine) -> int:
    return len(engine.programs)


def sent(engine: ScriptedEngine) -> dict[str, str]:
    """The text of the latest run's prompts, by task."""
    program = engine.programs[-1].program_id
    return {
        str(call.request.task): prompt_text(call.request)
        for call in engine.calls
        if call.request.program == program
    }


# ------------------------------------------------------------------ graphs


def test_from_the_third_run_on_prompts_are_known_beforehand(make_team: Callable[..., Any]) -> None:
    engine = writer()
    attached = attach(make_team(ChatGrape(engine=engine)))
    for problem in PROBLEMS[:2]:
        attached.invoke({"problem": problem})
    assert opened(engine) == 0
    state = attached.invoke({"problem": PROBLEMS[2]})
    program = engine.programs[-1]
    assert program.inputs == {"problem": PROBLEMS[2]}
    values = {"problem": PROBLEMS[2], **{f"{name}_text": state[name] for name in state}}
    prompts = sent(engine)
    assert set(prompts) == {"prd", "design", "risks", "code"}
    for task, prompt in prompts.items():
        assert rendered(program.flow, task, values) == prompt, task
    assert program.flow.upstream("code") == ("design", "risks")


@pytest.mark.parametrize("use_async", [False, True])
def test_the_graph_does_what_it_does_without(
    make_team: Callable[..., Any], use_async: bool
) -> None:
    def run(graph: Any) -> list[Any]:
        async def arun() -> list[Any]:
            return [
                [part async for part in graph.astream({"problem": p}, stream_mode="updates")]
                for p in PROBLEMS
            ]

        if use_async:
            return asyncio.run(arun())
        return [list(graph.stream({"problem": p}, stream_mode="updates")) for p in PROBLEMS]

    def steps(graph: Any) -> list[Any]:
        # Branches end in any order.
        return [sorted(map(repr, parts)) for parts in run(graph)]

    def echo(request: CallRequest) -> str:
        return f"<{prompt_text(request)[:60]}>"

    graphs = [
        make_team(ChatGrape(engine=ScriptedEngine(echo, clock=VirtualClock())), use_async=use_async)
        for _ in range(2)
    ]
    assert steps(attach(graphs[0])) == steps(graphs[1])


def test_what_changes_from_run_to_run_ends_a_prompt(make_team: Callable[..., Any]) -> None:
    clock = itertools.count(100)

    engine = writer()
    llm = ChatGrape(engine=engine)

    def plan(state: Pair) -> Pair:
        return {"plan": str(llm.invoke(f"Plan {state['problem']}. It is {next(clock)}.").content)}

    def code(state: Pair) -> Pair:
        first = state["plan"].split()[0]
        prompt = [("system", "You code."), ("user", f"Do {state['plan']} and mind {first}!")]
        return {"code": str(llm.invoke(prompt).content)}

    builder = StateGraph(Pair).add_node("plan", plan).add_node("code", code)
    graph = attach(builder.add_edge(START, "plan").add_edge("plan", "code").compile())
    state = [graph.invoke({"problem": problem}) for problem in PROBLEMS[:3]][-1]
    flow = engine.programs[-1].flow
    values = {"problem": PROBLEMS[2], "plan_text": state["plan"], "code_text": state["code"]}
    assert rendered(flow, "plan", values) == f"user: Plan {PROBLEMS[2]}. It is 10"
    assert sent(engine)["code"].startswith(rendered(flow, "code", values))
    assert rendered(flow, "code", values).startswith(
        f"system: You code.\nuser: Do {state['plan']} and mind "
    )
    flow.validate_flow()


def test_a_program_that_changes_is_learned_anew() -> None:
    learner = Learner("f")
    for topic in ("first topic", "other topic"):
        learner.watch({"topic": topic}, [call("a", f"Write about {topic}, please.")])
    assert learner.flow is not None
    for topic in ("third topic", "fourth topic", "fifth topic", "sixth topic"):
        learner.watch({"topic": topic}, [call("a", f"A poem on {topic} in four lines.")])
    assert rendered(learner.flow, "a", {"topic": "x y z"}) == (
        "user: A poem on x y z in four lines."
    )


def test_the_limit_that_all_calls_had_is_known(make_team: Callable[..., Any]) -> None:
    graph = attach(make_team(ChatGrape(engine=writer(), max_tokens=24)), learned="memory")
    for problem in PROBLEMS[:2]:
        graph.invoke({"problem": problem})
    flow = learner_of(graph).flow
    assert flow is not None
    assert {task.sampling.max_tokens for task in flow.tasks} == {24}


@pytest.mark.parametrize(("limits", "known"), [((9, 9, 9), 9), ((9, 9, 8), None)])
def test_a_limit_that_changes_is_none(limits: tuple[int, ...], known: int | None) -> None:
    learner = Learner("g")
    for limit in limits:
        prompt = [{"role": "user", "content": "Always the same."}]
        learner.watch({}, [SeenCall("a", prompt, "answer", max_tokens=limit)])
    assert learner.flow is not None
    assert learner.flow.task("a").sampling.max_tokens == known


def test_what_never_agrees_is_looked_at_ever_more_rarely() -> None:
    learner = Learner("f")

    def run(number: int, *, alike: bool) -> bool:
        head = "" if alike else f"{chr(97 + number % 26)}{number} "
        return learner.watch({"topic": f"topic {number}"}, [call("a", f"{head}Write on it.")])

    assert sum(run(number, alike=False) for number in range(100)) > 8
    assert sum(run(number, alike=False) for number in range(100, 900)) <= 3 * 800 / 34 + 3
    for number in range(900, 970):
        run(number, alike=True)
    assert learner.flow is not None
    assert rendered(learner.flow, "a", {}) == "user: Write on it."


def test_calls_of_other_models_are_not_prepared(make_team: Callable[..., Any]) -> None:
    attached = attach(make_team(FakeListChatModel(responses=["an answer"])))
    for problem in PROBLEMS:
        attached.invoke({"problem": problem})
    assert learner_of(attached).flow is None


def test_runs_that_fail_or_are_cancelled_teach_nothing(make_team: Callable[..., Any]) -> None:
    def fail(request: CallRequest) -> str:
        if "Code" in prompt_text(request):
            raise OSError("no")
        return "fine, thank you"

    attached = attach(make_team(ChatGrape(engine=ScriptedEngine(fail, clock=VirtualClock()))))
    for problem in PROBLEMS:
        with pytest.raises(OSError, match="no"):
            attached.invoke({"problem": problem})
    handler = learner_of(attached)
    assert handler.flow is None
    assert handler.running == 0
    assert handler._watcher.waiting == 0


def test_fan_out_and_several_calls_of_a_node() -> None:
    engine = writer()
    llm = ChatGrape(engine=engine)

    def split(state: Parts) -> list[Send]:
        return [Send("work", {"part": f"{state['topic']} part {n}"}) for n in range(2)]

    def work(state: Parts) -> Parts:
        first = llm.invoke(f"Draft of {state['part']}").content
        llm.invoke(f"Better: {first}")
        return {}

    builder = StateGraph(Parts).add_node("work", work).add_conditional_edges(START, split)
    graph = attach(builder.compile())
    for topic in PROBLEMS[:3]:
        graph.invoke({"topic": topic})
    flow = engine.programs[-1].flow
    assert {task.name for task in flow.tasks} == {
        *("work[0]", "work[1]", "work[0]#2", "work[1]#2"),
    }
    assert flow.upstream("work[1]#2") == ("work[1]",)


def test_chat_histories() -> None:
    engine = writer()
    llm = ChatGrape(engine=engine)

    def chat(state: MessagesState) -> Any:
        return {"messages": [llm.invoke([("system", "Be brief."), *state["messages"]])]}

    def check(state: MessagesState) -> Any:
        return {"messages": [llm.invoke([*state["messages"], ("user", "Is that so?")])]}

    builder = StateGraph(MessagesState).add_node("chat", chat).add_node("check", check)
    graph = attach(builder.add_edge(START, "chat").add_edge("chat", "check").compile())
    state = [graph.invoke({"messages": [HumanMessage(text)]}) for text in PROBLEMS[:3]][-1]
    flow = engine.programs[-1].flow
    values = {"messages_0": PROBLEMS[2], "chat_text": state["messages"][1].content}
    assert rendered(flow, "check", values) == sent(engine)["check"]


# ------------------------------------------------------------------ parts


def call(task: str, text: str, answer: str = "an answer") -> SeenCall:
    return SeenCall(task, ({"role": "user", "content": text},), answer)


def test_longer_texts_are_found_first_and_stripped_ones_too() -> None:
    forms = [("the whole text", Found(1, "identity")), ("whole", Found(2, "strip"))]
    assert symbolic("Is the whole text whole?", forms) == (
        *("Is ", Found(1, "identity"), " ", Found(2, "strip"), "?"),
    )
    assert symbolic("", forms) == ()


def test_a_prompt_ends_where_two_differ() -> None:
    one = (("system", ("Be brief.",)), ("user", ("Now: ", Found(1, "identity"), " and go")))
    other = (("system", ("Be brief.",)), ("user", ("Now: ", Found(1, "identity"), " and wait")))
    (system, (role, parts)) = agreement(one, other)
    assert system == ("system", ("Be brief.",))
    assert (role, parts[:3]) == ("user", ("Now: ", Found(1, "identity"), " and "))
    assert isinstance(parts[3], Damaged)
    assert len(parts) == 4


texts = st.text("ab ", max_size=4)
parts = st.one_of(texts.filter(bool), st.builds(Found, st.integers(0, 2), st.just("identity")))


def joined(parts: list[Any]) -> tuple[Any, ...]:
    """Two texts never stand side by side."""
    result: list[Any] = []
    for part in parts:
        if result and isinstance(part, str) and isinstance(result[-1], str):
            result[-1] += part
        else:
            result.append(part)
    return tuple(result)


prompts = st.lists(
    st.tuples(st.sampled_from(["system", "user"]), st.lists(parts, max_size=3).map(joined)),
    min_size=1,
    max_size=3,
).map(tuple)


@given(prompts, prompts, prompts)
def test_agreement_is_a_common_beginning(one: Any, two: Any, three: Any) -> None:
    def flat(messages: Any) -> list[Any]:
        out: list[Any] = []
        for role, parts in messages:
            out.append(("role", role))
            for part in parts:
                if isinstance(part, Damaged):
                    return out
                out += list(part) if isinstance(part, str) else [part]
        return [*out, "end"]

    both = agreement(one, two)
    for prompt in (one, two):
        known = flat(both)
        if known and known[-1] != "end" and isinstance(known[-1], tuple):
            known.pop()  # the role at which they differ is that of one of them
        assert flat(prompt)[: len(known)] == known
    assert agreement(one, one) == one
    assert agreement(both, one) == both
    again = agreement(both, three)
    assert agreement(again, both) == again


def test_messages_about_tools_end_a_prompt() -> None:
    learner = Learner("f")
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "What is a cat?"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "an animal", "tool_call_id": "1"},
    ]
    for _ in range(2):
        learner.watch({}, [SeenCall("agent", history, "A cat is an animal.")])
    assert learner.flow is not None
    assert rendered(learner.flow, "agent", {}).startswith("user: What is a cat?")


def test_tasks_that_read_each_other_are_left_out() -> None:
    """In two runs they ran in different orders."""
    learner = Learner("f")
    one, two = "the first answer", "the second answer"
    for _ in range(2):
        learner.watch({}, [call("a", "Begin.", one), call("b", f"After: {one}", two)])
    assert learner.flow is not None
    assert learner.flow.upstream("b") == ("a",)
    for _ in range(2):
        learner.watch({}, [call("b", "Begin b.", two), call("a", f"Behind: {two}", one)])
    learner.flow.validate_flow()


def test_tool_agents_are_learned_up_to_the_tool() -> None:
    engine = writer()
    llm = ChatGrape(engine=engine)

    def ask(state: MessagesState) -> Any:
        history = [
            *state["messages"],
            AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "1"}]),
            ToolMessage("seen", tool_call_id="1"),
        ]
        return {"messages": [llm.invoke(history)]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
    attached = attach(graph)
    for text in PROBLEMS[:3]:
        attached.invoke({"messages": [HumanMessage(text)]})
    flow = engine.programs[-1].flow
    assert rendered(flow, "ask", {"messages_0": PROBLEMS[2]}).startswith(f"user: {PROBLEMS[2]}")
