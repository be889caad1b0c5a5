"""Tenants that share a graph: who says whose a call is, and what no tenant learns of another."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from grape_lc.adapters.flow_file import FlowFile
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach, to_taskflow
from grape_lc.adapters.learning import MISSES
from grape_lc.adapters.llm import GrapeLLM
from grape_lc.adapters.templates import Templates
from grape_lc.adapters.tenant_templates import TenantTemplates
from grape_lc.errors import RequestError
from grape_lc.flow import OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock


def writer() -> ScriptedEngine:
    """Never gives the same answer twice."""
    number = itertools.count()
    return ScriptedEngine(lambda request: f"answer no. {next(number)}", clock=VirtualClock())


def handler_of(graph: Any) -> ProgramHandler:
    return next(h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler))


def of(tenant: object, **more: Any) -> Any:
    return {"metadata": {"tenant": tenant}, **more}


def tenants(engine: ScriptedEngine) -> list[str]:
    return [call.request.tenant for call in engine.calls]


# -- who says it --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [ChatGrape, GrapeLLM])
def test_every_kind_of_call_goes_by_its_config(model: Any) -> None:
    engine = ScriptedEngine("yes")
    llm = model(engine=engine, tenant="own")

    async def asynchronous() -> None:
        await llm.ainvoke("x", of("red"))
        async for _ in llm.astream("x", of("red")):
            pass
        await llm.abatch(["x", "y"], of("red"))
        async for _ in llm.with_config(of("red")).astream("x"):
            pass

    llm.invoke("x", of("red"))
    assert list(llm.stream("x", of("red")))
    llm.batch(["x", "y"], of("red"))
    llm.with_config(of("red")).invoke("x")
    asyncio.run(asynchronous())
    assert tenants(engine) == ["red"] * 10


def test_the_call_counts_more_than_its_config_and_that_more_than_the_model() -> None:
    engine = ScriptedEngine("yes")
    llm = ChatGrape(engine=engine, tenant="own")
    llm.invoke("x")
    llm.invoke("x", of("red"))
    llm.invoke("x", of("red"), tenant="blue")
    list(llm.bind(tenant="blue").stream("x", of("red")))
    llm.invoke("x", of(""))
    llm.invoke("x", of(7))
    llm.invoke("x", of(None))
    assert tenants(engine) == ["own", "red", "blue", "blue", "", "7", "own"]


def test_a_config_holds_for_everything_inside_of_it() -> None:
    engine = ScriptedEngine("yes")
    llm = ChatGrape(engine=engine)
    chain: Any = RunnableLambda(lambda x: [llm.invoke(x), *llm.stream(x)])
    chain.invoke("x", of("red"))
    assert tenants(engine) == ["red", "red"]


@pytest.mark.parametrize("bad", [["red"], {"name": "red"}, 1.5, True])
def test_what_is_no_name_is_an_error_and_not_nobody(bad: object) -> None:
    engine = ScriptedEngine("yes")
    with pytest.raises(RequestError, match="a tenant is named by a text or a whole number"):
        ChatGrape(engine=engine).invoke("x", of(bad))
    with pytest.raises(RequestError, match="a tenant is named by"):
        ChatGrape(engine=engine).invoke("x", tenant=bad)
    assert engine.calls == ()


def test_a_batch_of_plain_texts_is_one_tenants() -> None:
    engine = ScriptedEngine("yes")
    with pytest.raises(RequestError, match="several tenants"):
        GrapeLLM(engine=engine).batch(["x", "y"], [of("red"), of("blue")])
    ChatGrape(engine=engine).batch(["x", "y"], [of("red"), of("blue")])
    assert sorted(tenants(engine)) == ["blue", "red"]


@pytest.mark.parametrize("model", [ChatGrape, GrapeLLM])
def test_langchains_cache_of_answers_is_apart_for_each_tenant(model: Any) -> None:
    engine, cache = writer(), InMemoryCache()
    llm = model(engine=engine, cache=cache)
    said = [llm.invoke("x", of(tenant)) for tenant in ("red", "blue", "red")]
    other = model(engine=engine, cache=cache, tenant="green").invoke("x")
    texts = [getattr(one, "content", one) for one in [*said, other]]
    assert texts == ["answer no. 0", "answer no. 1", "answer no. 0", "answer no. 2"]


# -- programs -----------------------------------------------------------------------------------


def test_the_program_of_a_run_is_that_of_its_tenant(team: Any, team_flow: Any, engine: Any) -> None:
    app = attach(team, team_flow)
    for tenant in ("red", "blue", ""):
        app.invoke({"problem": "p"}, of(tenant))
        assert engine.programs[-1].tenant == tenant
        assert {call.program for call in engine.calls[-4:]} == {engine.programs[-1].program_id}
        assert set(tenants(engine)[-4:]) == {tenant}
    assert len(engine.programs) == 3


@pytest.mark.parametrize("named", [False, True])
def test_a_tenant_of_the_model_needs_no_config(
    make_team: Callable[..., Any], team_flow: Any, engine: Any, named: bool
) -> None:
    llm = ChatGrape(engine=engine, tenant="red")
    app = attach(make_team(llm), team_flow, model=llm if named else None)
    for _ in range(2):
        app.invoke({"problem": "p"})
    assert [program.tenant for program in engine.programs] == ["red", "red"]
    assert all(call.program is not None for call in engine.calls)


class Work(TypedDict, total=False):
    problem: str
    who: str
    plan: str
    code: str


def by_call(engine: ScriptedEngine, *, ask: bool = False, **compile_args: Any) -> Any:
    """plan, then code: each call says in its options whose it is."""

    def plan(state: Work) -> Work:
        llm = ChatGrape(engine=engine).bind(tenant=state["who"])
        return {"plan": str(llm.invoke(f"Plan a program: {state['problem']}").content)}

    def code(state: Work) -> Work:
        if ask:
            interrupt("go on?")
        llm = ChatGrape(engine=engine).bind(tenant=state["who"])
        return {"code": str(llm.invoke(f"Code of {state['problem']}: {state['plan']}").content)}

    builder = StateGraph(Work).add_node("plan", plan).add_node("code", code)
    builder.add_edge(START, "plan").add_edge("plan", "code")
    return builder.compile(**compile_args)


def test_tenants_that_only_calls_name_have_programs_of_their_own() -> None:
    """Nobody's text is announced for another, not even until the first call."""
    engine = writer()
    graph = by_call(engine)
    app = attach(graph, to_taskflow(graph, example={"problem": "p", "who": "w"}))
    for who in ("red", "blue", "red", ""):
        app.invoke({"problem": f"the problem of {who}", "who": who})
    assert [program.tenant for program in engine.programs] == ["red", "blue", "red", ""]
    for program in engine.programs:
        assert program.inputs["problem"] == f"the problem of {program.tenant}"
    assert all(call.program is not None for call in engine.calls)


def test_a_call_of_another_tenant_is_no_part_of_the_run() -> None:
    engine = writer()
    graph = by_call(engine)
    app = attach(graph, to_taskflow(graph, example={"problem": "p", "who": "w"}))
    for _ in range(3):
        app.invoke({"problem": "secret", "who": "blue"}, of("red"))
    assert {program.tenant for program in engine.programs} == {"red"}
    assert {call.request.program for call in engine.calls} == {None}
    assert {call.program for call in engine.calls} == {None}


def test_a_run_with_a_call_of_another_tenant_teaches_nothing() -> None:
    engine = writer()
    app = attach(by_call(engine), learned="memory")
    for _ in range(4):
        app.invoke({"problem": "secret", "who": "blue"}, of("red"))
    for tenant in ("red", "blue", ""):
        assert handler_of(app).lore(tenant).templates.flow is None


def test_a_call_from_a_bare_thread_finds_its_own_tenants_program_only() -> None:
    engine = writer()

    def plan(state: Work) -> Work:
        llm = ChatGrape(engine=engine, temperature=0)
        llm.invoke("warm")
        with ThreadPoolExecutor() as pool:
            say = [pool.submit(llm.bind(tenant=who).invoke, "Plan it") for who in ("red", "blue")]
        return {"plan": str([one.result().content for one in say])}

    graph = StateGraph(Work).add_node("plan", plan).add_edge(START, "plan").compile()
    app = attach(graph, to_taskflow(graph, example={"problem": "p"}))
    app.invoke({"problem": "p"}, of("red"))
    found = {call.request.tenant: call.found_by for call in engine.calls if "Plan" in call.prompt}
    assert found["blue"] == "none"


# -- what runs teach ----------------------------------------------------------------------------


HOUSES = {"A": "Acme", "Z": "Zoo!", "C": "Club"}


def secrets_graph(llm: Any) -> Any:
    """Prompts with a literal text that hangs on the tenant, as a system prompt of its own would."""

    def plan(state: Work) -> Work:
        asked = f"House rules of {HOUSES[state['who']]}. Plan a program: {state['problem']}"
        return {"plan": str(llm.invoke(asked).content)}

    def code(state: Work) -> Work:
        asked = f"House rules of {HOUSES[state['who']]}. Code this: {state['plan']}"
        return {"code": str(llm.invoke(asked).content)}

    builder = StateGraph(Work).add_node("plan", plan).add_node("code", code)
    builder.add_edge(START, "plan").add_edge("plan", "code")
    return builder.compile()


def texts_of(engine: ScriptedEngine, tenant: str) -> str:
    """All that was announced for a tenant."""
    return "".join(
        program.flow.to_json() + json.dumps(program.inputs)
        for program in engine.programs
        if program.tenant == tenant
    )


def test_no_learned_literal_crosses_tenants() -> None:
    engine = writer()
    app = attach(secrets_graph(ChatGrape(engine=engine)), learned="memory")
    for _ in range(4):
        app.invoke({"problem": "sorting", "who": "A"}, of("red"))
    assert len(engine.programs) == 2, "learned from the first two"
    assert "Acme" in texts_of(engine, "red")
    for number in range(4):
        app.invoke({"problem": "counting", "who": "Z"}, of("blue"))
        app.invoke({"problem": "drawing", "who": "C"})
        assert len(engine.programs) == 2 + 2 * max(0, number - 1), "each learns for itself"
    for tenant, own in (("red", "Acme"), ("blue", "Zoo!"), ("", "Club")):
        text = texts_of(engine, tenant)
        assert own in text
        assert [word for word in ("Acme", "Zoo!", "Club") if word in text] == [own]
    assert "Acme" not in str(app.explain())
    assert "Acme" not in str(app.explain(tenant="blue").to_dict())


def test_runs_with_calls_of_several_tenants_teach_nothing() -> None:
    engine = writer()
    inner = by_call(engine)

    def outer(state: Work) -> Work:
        for who in ("red", "blue"):
            inner.invoke({"problem": "p", "who": who})
        return {}

    graph = StateGraph(Work).add_node("outer", outer).add_edge(START, "outer").compile()
    app = attach(graph, learned="memory", model=engine)
    for _ in range(4):
        app.invoke({"problem": "p"})
    assert engine.programs == ()


def test_a_run_whose_calls_name_one_tenant_teaches_that_one() -> None:
    engine = writer()
    app = attach(by_call(engine), learned="memory")
    for problem in ("sorting", "counting"):
        app.invoke({"problem": problem, "who": "red"})
    handler = handler_of(app)
    assert handler.flow is None
    assert handler.lore("red").templates.flow is not None
    app.invoke({"problem": "drawing", "who": "red"})
    app.invoke({"problem": "drawing", "who": "blue"})
    assert [program.tenant for program in engine.programs] == ["red"]


def test_a_template_that_is_wrong_for_one_tenant_stays_for_the_others(
    make_team: Callable[..., Any], engine: Any
) -> None:
    flow = TaskFlow(name="wrong", variables=(OutputVar("prd"),))
    flow.add_task([("user", "Something else")], "prd")
    handler = handler_of(app := attach(make_team(ChatGrape(engine=engine)), flow))
    for number in range(MISSES):
        app.invoke({"problem": f"problem {number}"}, of("red"))
    assert handler.lore("red").templates.sources["prd"] == "learned"
    assert handler.lore("blue").templates.sources == handler.sources == {"prd": "declared"}


def test_the_tenants_that_are_remembered_are_bounded() -> None:
    known = TenantTemplates(Templates("flow"), most=2)
    red, blue = known.of("red"), known.of("blue")
    assert known.of("red") is red
    known.of("green")
    assert len(known) == 2
    assert known.of("red") is red
    assert known.of("blue") is not blue
    assert known.of("") is known.nobodys


# -- threads and conversations -----------------------------------------------------------------


@pytest.mark.parametrize("by_config", [True, False])
def test_a_thread_of_one_tenant_is_no_thread_of_another(by_config: bool) -> None:
    """The same thread id, resumed by another tenant: its run gets no program of the first's."""
    engine = writer()
    graph = by_call(engine, ask=True, checkpointer=InMemorySaver())
    app = attach(graph, to_taskflow(by_call(engine), example={"problem": "p", "who": "w"}))

    def config(tenant: str) -> Any:
        thread = {"configurable": {"thread_id": "t"}}
        return of(tenant, **thread) if by_config else thread

    app.invoke({"problem": "the secret of red", "who": "red"}, config("red"))
    app.invoke(Command(resume="yes", update={"who": "blue"}), config("blue"))
    assert "secret" not in texts_of(engine, "blue")
    assert "secret" in texts_of(engine, "red")


def test_the_own_thread_goes_on() -> None:
    engine = writer()
    graph = by_call(engine, ask=True, checkpointer=InMemorySaver())
    app = attach(graph, to_taskflow(by_call(engine), example={"problem": "p", "who": "w"}))
    config = of("red", configurable={"thread_id": "t"})
    app.invoke({"problem": "the secret of red", "who": "red"}, config)
    app.invoke(Command(resume="yes"), config)
    assert [program.tenant for program in engine.programs] == ["red", "red"]
    assert [task.name for task in engine.programs[1].flow.tasks] == ["code"]


# -- files --------------------------------------------------------------------------------------


def test_no_file_holds_what_tenants_runs_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one's own, with texts, nor those of the cache; figures have no texts at all."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("GRAPE_LC_GRAPHS", str(cache))
    for place in (str(tmp_path / "prompts.json"), "cache"):
        engine = writer()
        app = attach(secrets_graph(ChatGrape(engine=engine)), learned=place)
        for who, tenant in (("A", "red"), ("C", "")) * 4:
            app.invoke({"problem": "sorting", "who": who}, of(tenant))
        store = handler_of(app).lore("").templates._store
        assert store is not None
        store.wait()
        handler_of(app).savings.flush()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    written = {path: path.read_text() for path in files}
    assert "Club" in written[tmp_path / "prompts.json"]
    assert sum(path.suffix == ".json" for path in cache.rglob("*")) >= 2
    for text in written.values():
        for secret in ("Acme", "red", "answer no."):
            assert secret not in text
    for path, text in written.items():
        if path.is_relative_to(cache):
            assert "Club" not in text
            assert "sorting" not in text


def test_a_flow_file_holds_no_texts_of_runs(make_team: Callable[..., Any]) -> None:
    app = attach(make_team(ChatGrape(engine=writer())), learned="memory")
    for tenant in ("red", "red", "", ""):
        app.invoke({"problem": "the secret problem"}, of(tenant))
    assert handler_of(app).flow is not None, "the runs taught something"
    text = FlowFile(flow=to_taskflow(app)).to_json()
    assert "Requirements of" in text
    for word in ("secret", "answer no.", "tenant"):
        assert word not in text
