"""Programs that the driver runs from call to call make the calls of their graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from grape_lc.bench.arms import parse_arm
from grape_lc.bench.examples import Case, Example
from grape_lc.bench.metrics import RunRecord
from grape_lc.bench.ranking import priority, standings
from grape_lc.bench.released import ReleasedProgram
from grape_lc.bench.server import ArmServer
from grape_lc.bench.twins import code_flow
from grape_lc.bench.workload import Arrival
from grape_lc.engine.base import CallRequest
from grape_lc.errors import ConfigError, FlowInputError, UnknownVariableError
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.flow.events import ProgramFinished
from grape_lc.runtime.driver import ToolStep, run_events_sync
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock
from tests.unit.bench.fakes import TestBed


class Library(BaseRetriever):
    """Finds a passage that tells what was asked for."""

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return [Document(f"About {query}.", metadata={"title": query.upper()})]


EXAMPLES = [
    Example("code", (Case("c", {"problem": "Sort {these}."}),), {"problem": "Add."}, {}),
    Example("summary", (Case("s", {"chunks": ["one", "two", "three"]}),), {"chunks": ["a"]}, {}),
    Example(
        "summary",
        (Case("m", {"chunks": ["one", "two", "three"]}),),
        {"chunks": ["a"]},
        {"mode": "map_reduce"},
    ),
    Example(
        "search",
        (Case("q", {"question": "Which one?"}),),
        {"question": "What?"},
        {"retriever": Library()},
    ),
]


def answer(request: CallRequest) -> str:
    """Depends on the whole prompt."""
    assert request.messages is not None
    texts = [str(message["content"]) for message in request.messages]
    return f"{{answer}} {sum(map(ord, ''.join(texts)))}\nto {len(texts[-1])} characters"


def run(arm: str, example: Example, **options: Any) -> tuple[RunRecord, ScriptedEngine, Any]:
    bed = TestBed()
    bed.answers[arm] = answer  # type: ignore[assignment]
    states: dict[str, Any] = {}

    def scorer(found: Mapping[str, Any]) -> dict[str, float]:
        states.update(found)
        return {}

    server = ArmServer(
        parse_arm(arm),
        example._replace(scorer=scorer),
        9,
        lambda of: bed.engine_of(of, {}),
        30.0,
        **options,
    )
    try:
        case = example.cases[0]
        record, _ = server.run([Arrival(case.name, case.state, 0.0)], 1)
    finally:
        server.close()
    [engine] = bed.engines
    return record, engine, states


def sent(engine: ScriptedEngine) -> set[Any]:
    """What decides an answer, of each call of the run; the warm-up has a limit of its own."""
    return {
        (str(call.request.messages), repr(call.request.sampling))
        for call in engine.calls
        if call.request.sampling.max_tokens == 9
    }


@pytest.mark.parametrize("fixed", [False, True], ids=["end-of-text", "fixed"])
@pytest.mark.parametrize("kind", ["vllm", "vllm-opt", "grape"])
@pytest.mark.parametrize("example", EXAMPLES, ids=["code", "refine", "map_reduce", "search"])
def test_calls_and_answers_are_those_of_the_graph(example: Example, kind: str, fixed: bool):
    graph, engine, states = run(kind, example, fixed_lengths=fixed)
    released, without, ends = run(f"{kind}+release", example, fixed_lengths=fixed)
    assert sent(engine) == sent(without)
    assert len(sent(engine)) == len(graph.programs[0].calls) == len(released.programs[0].calls)
    assert {call.request.sampling.ignore_eos for call in without.calls} == {fixed}
    assert {call.text for call in graph.programs[0].calls} == {
        call.text for call in released.programs[0].calls
    }
    [state], [end] = states.values(), ends.values()
    for key in set(state) & {"code", "review", "summary", "passages", "answer", "verdict"}:
        assert end[key] == state[key]


def test_calls_of_a_released_program_are_recorded_and_ranked_by_their_tasks():
    record, engine, _ = run("vllm-opt+release", EXAMPLES[0])
    flow = code_flow()
    assert [call.task for call in record.programs[0].calls] == [task.name for task in flow.tasks]
    known = standings(flow)
    for call in engine.calls[len(flow.tasks) :]:
        assert call.request.priority == priority(known[str(call.request.task)], 0)


def test_the_engine_is_told_of_the_program_before_its_tool_was_used():
    _, engine, _ = run("grape+release", EXAMPLES[-1])
    program = engine.programs[-1]
    assert program.inputs == {"question": "Which one?"}
    assert "passages" in {variable.name for variable in program.flow.variables}


def test_a_workflow_without_a_flow_is_refused():
    unknown = Example("poem:lines=3", (), {}, {})
    with pytest.raises(ConfigError, match=r"\+release: no flow is written out for 'poem:lines=3'"):
        ReleasedProgram(ScriptedEngine({"": "ok"}), unknown, 4, fixed_lengths=False)


def tool_flow() -> TaskFlow:
    flow = TaskFlow(name="f")
    flow.add_variable(InputVar("x"))
    flow.add_variable(InputVar("found", opaque=True))
    flow.add_variable(IntermediateVar("query"))
    flow.add_variable(OutputVar("end"))
    flow.add_task("Ask {x}", "query")
    flow.add_task("Read {found}, asked {query}", "end")
    return flow


def test_a_tool_reads_answers_and_writes_an_input():
    engine = ScriptedEngine({"Ask": "who", "Read": "nobody"}, clock=VirtualClock())
    tool = ToolStep(("x", "query"), "found", lambda given: f"<{given['x']}|{given['query']}>")
    events = list(run_events_sync(engine, tool_flow(), {"x": "1"}, [tool]))
    assert [call.prompt for call in engine.calls] == ["Ask 1", "Read <1|who>, asked who"]
    assert isinstance(events[-1], ProgramFinished)
    assert events[-1].values["found"] == "<1|who>"


def test_what_a_tool_raises_ends_the_run():
    def fail(given: Mapping[str, str]) -> str:
        raise OSError(f"no library for {given['query']}")

    engine = ScriptedEngine({"Ask": "who", "Read": "nobody"}, clock=VirtualClock())
    with pytest.raises(OSError, match="no library for who"):
        list(
            run_events_sync(engine, tool_flow(), {"x": "1"}, [ToolStep(("query",), "found", fail)])
        )
    assert not engine.programs[0].open


def test_tools_that_do_not_fit_the_flow_are_refused_before_any_call():
    engine = ScriptedEngine({"": "ok"}, clock=VirtualClock())
    other = ToolStep(("query",), "lost", lambda given: "")
    with pytest.raises(FlowInputError, match="missing: 'found'; unknown: 'lost'"):
        list(run_events_sync(engine, tool_flow(), {"x": "1"}, [other]))
    blind = ToolStep(("nothing",), "found", lambda given: "")
    with pytest.raises(UnknownVariableError, match="nothing"):
        list(run_events_sync(engine, tool_flow(), {"x": "1"}, [blind]))
    assert engine.calls == ()
