import threading
import time
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.bench.collect import MeasuredEngine
from grape_lc.bench.metrics import measure
from grape_lc.bench.runner import run_programs
from grape_lc.bench.workload import Arrival
from grape_lc.engine.base import EngineClient
from grape_lc.errors import CallFailedError, EngineClosedError
from grape_lc.runtime.scripted import ScriptedEngine


class State(TypedDict, total=False):
    problem: str
    plan: str
    code: str


def two_stages(engine: EngineClient) -> Any:
    llm = ChatGrape(engine=engine)
    builder = StateGraph(State)
    builder.add_node("plan", lambda s: {"plan": llm.invoke("Plan: " + s["problem"]).text})
    builder.add_node("code", lambda s: {"code": llm.invoke("Code: " + s["plan"]).text})
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "code")
    builder.add_edge("code", END)
    return builder.compile()


def test_every_program_is_run_and_recorded():
    engine = MeasuredEngine(ScriptedEngine({"Plan": "first second", "Code": "done"}, delay=0.001))
    arrivals = [Arrival(f"p{n}", {"problem": f"problem {n}"}, 0.02 * n) for n in range(4)]
    ticks: list[int] = []
    result = run_programs(
        two_stages(engine), arrivals, engine, arm="vllm", number=1, on_tick=ticks.append
    )
    programs = result.record.programs
    assert [program.program for program in programs] == ["p0", "p1", "p2", "p3"]
    assert [[call.text for call in program.calls] for program in programs] == [
        ["first second", "done"]
    ] * 4
    assert result.states["p2"]["code"] == "done"
    assert ticks[-1] == 4
    offsets = [program.arrived - programs[0].arrived for program in programs]
    assert offsets == pytest.approx([0.0, 0.02, 0.04, 0.06], abs=0.05)
    metrics = measure([result.record])
    assert metrics["switch_gap_ms"]["mean"] is not None
    assert metrics["makespan_s"] is not None
    assert metrics["tokens_per_s"] == pytest.approx(12 / metrics["makespan_s"])


def test_runs_on_one_engine_do_not_mix():
    engine = MeasuredEngine(ScriptedEngine({"Plan": "a", "Code": "b"}))
    arrivals = [Arrival("p", {"problem": "x"}, 0.0)]
    first = run_programs(two_stages(engine), arrivals, engine, arm="vllm", number=1)
    second = run_programs(two_stages(engine), arrivals, engine, arm="vllm", number=2)
    for result in (first, second):
        assert len(result.record.programs[0].calls) == 2


def test_a_failing_program_ends_the_run_before_later_arrivals():
    inner = ScriptedEngine({"Plan: good": "a", "Code": "b"})
    engine = MeasuredEngine(inner)
    arrivals = [
        Arrival("bad", {"problem": "unknown"}, 0.0),
        Arrival("late", {"problem": "good"}, 60.0),
    ]
    begin = time.monotonic()
    with pytest.raises(CallFailedError, match="no answer"):
        run_programs(two_stages(engine), arrivals, engine, arm="vllm", number=1)
    assert time.monotonic() - begin < 10
    assert len(inner.calls) == 1


def test_an_interrupt_lets_running_programs_end_with_their_engine():
    release = threading.Event()

    class Blocked:
        def invoke(self, state: dict[str, Any], /) -> dict[str, Any]:
            release.wait(30)
            raise EngineClosedError("closed")

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_programs(
            Blocked(),
            [Arrival("p", {"problem": "x"}, 0.0), Arrival("never", {"problem": "x"}, 60.0)],
            MeasuredEngine(ScriptedEngine()),
            arm="grape",
            number=1,
            on_tick=interrupt,
        )
    threads = [t for t in threading.enumerate() if t.name.startswith("program")]
    release.set()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
