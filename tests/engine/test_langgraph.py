"""LangGraph graphs on a real engine: the same answers attached or not, and work done ahead."""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from grape_lc import ChatGrape, GrapeEngine, attach, to_taskflow
from tests.engine.runs import prefilled, taken_over


class Team(TypedDict, total=False):
    problem: str
    prd: str
    design: str
    tests: str
    code: str


def team(engine: GrapeEngine, seen: dict[str, dict[str, Any]], *, max_tokens: int = 24) -> Any:
    """prd -> (design, tests) -> code; ``seen`` gets what each node's call reports."""
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=max_tokens, ignore_eos=True)

    def node(name: str, prompt: Any) -> Any:
        async def run(state: Team) -> Any:
            answer = await llm.ainvoke(prompt(state))
            seen[name] = answer.response_metadata["grape"]
            return {name: answer.content}

        return run

    def design(state: Team) -> list[tuple[str, str]]:
        return [
            ("system", "You design software that others will write, read and repair for years."),
            ("user", f"Requirements:\n{state['prd'].strip()}\nProblem: {state['problem']}"),
        ]

    builder = StateGraph(Team)
    builder.add_node("prd", node("prd", lambda s: f"Write requirements for {s['problem']}."))
    builder.add_node("design", node("design", design))
    builder.add_node("tests", node("tests", lambda s: f"{s['prd']}\n\nName some tests for that."))
    builder.add_node("code", node("code", lambda s: f"{s['design']}\n{s['tests']}\nWrite it."))
    builder.add_edge(START, "prd").add_edge("prd", "design").add_edge("prd", "tests")
    builder.add_edge(["design", "tests"], "code")
    return builder.compile(checkpointer=InMemorySaver())


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


PROBLEMS = ("sorting numbers", "a word counter", "parsing dates", "a map", "a calendar", "chess")
"""One after the other until each prompt was prefilled: how far that gets is up to the machine."""

TRIES = 6
AHEAD = {"design", "tests", "code"}


def prefilled_in(seen: dict[str, dict[str, Any]]) -> set[str]:
    """Nodes whose prompts were prefilled; never the first one's."""
    assert seen["prd"]["ahead_tokens"] == 0
    return {name for name in AHEAD if prefilled(seen[name])}


@pytest.mark.parametrize("declared_by", ["trace", "flow"])
def test_an_attached_graph_answers_the_same_and_is_prefilled_ahead(
    declared_by: str, engine: GrapeEngine, quiet: object
) -> None:
    seen: dict[str, dict[str, Any]] = {}
    graph = team(engine, seen)
    attached = (
        attach(graph, trace=True)
        if declared_by == "trace"
        else attach(graph, to_taskflow(graph), model=engine)
    )
    done = set[str]()
    for problem in PROBLEMS:
        engine.reset_prefix_cache()
        plain = asyncio.run(graph.ainvoke({"problem": problem}, config(f"plain {problem}")))
        assert {report["ahead_tokens"] for report in seen.values()} == {0}
        engine.reset_prefix_cache()
        ahead = asyncio.run(attached.ainvoke({"problem": problem}, config(f"ahead {problem}")))
        assert ahead == plain
        done |= prefilled_in(seen)
        if done == AHEAD:
            return
    pytest.fail(f"only {done} prefilled; the last run: {seen}")


def test_prompts_are_learned_from_two_runs(engine: GrapeEngine, quiet: object) -> None:
    seen: dict[str, dict[str, Any]] = {}
    graph = team(engine, seen)
    attached = attach(graph)
    done = set[str]()
    for number, problem in enumerate(PROBLEMS):
        engine.reset_prefix_cache()
        ahead = asyncio.run(attached.ainvoke({"problem": problem}, config(f"ahead {problem}")))
        if number < 2:
            assert {report["ahead_tokens"] for report in seen.values()} == {0}
            continue
        done |= prefilled_in(seen)
        engine.reset_prefix_cache()
        assert ahead == asyncio.run(graph.ainvoke({"problem": problem}, config(f"p {problem}")))
        if done == AHEAD:
            return
    pytest.fail(f"only {done} prefilled; the last run: {seen}")


async def test_concurrent_runs(engine: GrapeEngine, quiet: object) -> None:
    """Same answers, and each run takes over something: which prompts get room is up to the load."""
    problems = PROBLEMS[:4]
    plain_graph = team(engine, {})
    plain = [await plain_graph.ainvoke({"problem": p}, config(p)) for p in problems]
    left = set(problems)
    reports: list[dict[str, dict[str, Any]]] = []
    for attempt in range(TRIES):
        engine.reset_prefix_cache()
        reports = [{} for _ in problems]
        graphs = [attach(team(engine, seen), trace=True, model=engine) for seen in reports]
        ahead = await asyncio.gather(
            *(
                g.ainvoke({"problem": p}, config(f"{p} {attempt}"))
                for g, p in zip(graphs, problems, strict=True)
            )
        )
        assert ahead == plain
        for problem, seen in zip(problems, reports, strict=True):
            if any(taken_over(seen[name]) for name in AHEAD):
                left.discard(problem)
        if not left:
            return
    pytest.fail(f"nothing was ever taken over in {left}; the last runs: {reports}")


async def test_streaming_token_by_token(engine: GrapeEngine, quiet: object) -> None:
    seen: dict[str, dict[str, Any]] = {}
    attached = attach(team(engine, seen), trace=True)
    for problem in PROBLEMS:
        texts: dict[str, str] = {}
        async for chunk, metadata in attached.astream(
            {"problem": problem}, config(problem), stream_mode="messages"
        ):
            node = metadata["langgraph_node"]
            texts[node] = texts.get(node, "") + chunk.content
        values = attached.get_state(config(problem)).values
        assert texts == {k: v for k, v in values.items() if k in texts}
        assert len(texts) == 4
        if prefilled_in(seen):
            return
    pytest.fail(f"nothing was prefilled; the last run: {seen}")


@pytest.mark.parametrize("ending", ["cancelled", "closed"])
async def test_an_abandoned_run_leaves_nothing(
    ending: str, engine: GrapeEngine, quiet: dict[str, Any]
) -> None:
    attached = attach(team(engine, {}, max_tokens=400), trace=True, model=engine)
    stream = attached.astream({"problem": "sorting"}, config("a"), stream_mode="messages")

    begun = asyncio.Event()

    async def consume() -> None:
        async for _ in stream:
            begun.set()

    if ending == "closed":
        for _ in range(5):
            await anext(stream)
        assert engine.stats()["programs"] == 1
        await stream.aclose()
    else:
        task = asyncio.create_task(consume())
        await begun.wait()
        assert engine.stats()["programs"] == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    # The engine hears of it with its next step.
    end = time.monotonic() + 120
    while time.monotonic() < end:
        now = engine.stats()
        if now["open_prompts"] == now["requests"] == 0:
            break
        await asyncio.sleep(0.02)


def test_stop_strings_and_usage(engine: GrapeEngine, quiet: object) -> None:
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=40, ignore_eos=True)
    full = str(llm.invoke("Count from one to twenty in words.").content)
    word = full.split()[3]
    cut = llm.invoke("Count from one to twenty in words.", stop=[word])
    assert cut.content == full[: full.index(word)]
    assert cut.response_metadata["finish_reason"] == "stop"
    usage = cut.usage_metadata
    assert usage is not None
    assert 0 < usage["output_tokens"] < 40
    chunks = list(llm.stream("Count from one to twenty in words."))
    assert "".join(str(chunk.content) for chunk in chunks) == full
    assert [c.usage_metadata is not None for c in chunks] == [False] * (len(chunks) - 1) + [True]
