"""``grape demo``: the example workflow on plain vLLM and on grape, side by side.

Both engines have the same settings and the same client; the only differences are the scheduler
and ``attach``. The runs alternate (by default vllm, grape, grape, vllm), so that a machine that
grows slower or faster favours neither. Every run gets the same programs at the same arrival
times and begins with an empty prefix cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from grape_lc.bench.chrome import chrome_trace
from grape_lc.bench.collect import MeasuredEngine
from grape_lc.bench.engines import WARM_UP_TOKENS, MeasurableEngine, empty_cache
from grape_lc.bench.examples import load_example
from grape_lc.bench.metrics import Metrics, RunRecord, measure
from grape_lc.bench.progress import RunProgress
from grape_lc.bench.report import (
    ARMS,
    OURS,
    Equal,
    compare_arms,
    compare_base,
    comparison_table,
    raw_run,
    write_text,
)
from grape_lc.bench.runner import Graph, RunResult, run_programs
from grape_lc.bench.settings import DemoSettings, settings_record
from grape_lc.bench.workload import Arrival, poisson_arrivals
from grape_lc.engine.base import EngineClient
from grape_lc.workflow_package import load_workflow

_ANSWER_LINES = 24


EngineOf = Callable[[str], MeasurableEngine]
GraphOf = Callable[[str, EngineClient, int], Graph]


class DemoResult(NamedTuple):
    """Figures of both arms, equality of their answers, and what they were computed from.

    answer: name of a program, and the code that it wrote.
    """

    metrics: dict[str, Metrics]
    equal: Equal
    base_equal: Equal
    runs: tuple[RunRecord, ...]
    answer: tuple[str, str]

    def to_json(self, raw: Mapping[str, Any]) -> str:
        """The file that ``--json`` writes; ``raw`` is added to the runs."""
        document = {
            "metrics": self.metrics,
            "equal": self.equal._asdict(),
            "raw": {
                **raw,
                "vllm_against_itself": self.base_equal._asdict(),
                "runs": [raw_run(run) for run in self.runs],
            },
        }
        return json.dumps(document, indent=1) + "\n"


def grape_engine(arm: str, settings: DemoSettings, device: str) -> MeasurableEngine:
    """The real engine of an arm."""
    from grape_lc.runtime.client import GrapeEngine

    scheduler: Any = "grape" if arm == OURS else "stock"
    return GrapeEngine(settings.model, scheduler=scheduler, **settings.engine_args(device))


def workflow_graph(arm: str, engine: EngineClient, max_tokens: int) -> Graph:
    """The example workflow on an engine; on our arm with its flow attached."""
    from grape_lc.adapters.langchain import ChatGrape
    from grape_lc.adapters.langgraph import attach, to_taskflow

    workflow: Any = load_workflow("code")
    graph = workflow.build(ChatGrape(engine=engine, temperature=0.0), max_tokens=max_tokens)
    served: Graph = graph
    if arm == OURS:
        # As it is for its first user: what earlier runs taught, or saved, has no part in it.
        served = attach(graph, to_taskflow(graph), learn=False, learned="memory")
    return served


def run_demo(
    settings: DemoSettings,
    console: Console,
    *,
    engine_of: EngineOf,
    graph_of: GraphOf = workflow_graph,
) -> DemoResult:
    """Run all arms and return their figures.

    engine_of: makes the engine of an arm. graph_of: makes the graph of an arm from its engine
    and a limit of tokens an answer.

    Raises ConfigError (problems), and whatever engines and graphs raise; engines are closed in
    every case.
    """
    example = load_example("code", settings.data)
    cases = example.draw(settings.programs, settings.seed)
    arrivals = poisson_arrivals(cases, settings.rate, settings.seed)
    with ExitStack() as stack:
        engines: dict[str, MeasurableEngine] = {}
        for arm in ARMS:
            console.print(f"starting the {arm} engine", highlight=False)
            engines[arm] = stack.enter_context(engine_of(arm))
        for arm in ARMS:
            console.print(f"warming up {arm}", highlight=False)
            graph_of(arm, engines[arm], WARM_UP_TOKENS).invoke(dict(example.warm_up))
        results = _run_all(settings, arrivals, engines, graph_of, console)
    runs = tuple(result.record for result in results)
    shown = next(result for result in results if result.record.arm == OURS)
    first = arrivals[0].name
    return DemoResult(
        metrics={arm: measure([run for run in runs if run.arm == arm]) for arm in ARMS},
        equal=compare_arms(runs),
        base_equal=compare_base(runs),
        runs=runs,
        answer=(first, str(shown.states[first].get("code", ""))),
    )


def _run_all(
    settings: DemoSettings,
    arrivals: Sequence[Arrival],
    engines: Mapping[str, MeasurableEngine],
    graph_of: GraphOf,
    console: Console,
) -> list[RunResult]:
    measured = {arm: MeasuredEngine(engine) for arm, engine in engines.items()}
    graphs = {arm: graph_of(arm, measured[arm], settings.max_tokens) for arm in ARMS}
    titles = [f"run {number} {arm}" for number, arm in enumerate(settings.order, start=1)]
    results = []
    with RunProgress(console, titles, len(arrivals)) as progress:
        for index, arm in enumerate(settings.order):
            empty_cache(arm, engines[arm])
            measured[arm].forget()

            def tick(done: int, index: int = index, engine: MeasuredEngine = measured[arm]) -> None:
                progress.tick(index, done, engine.live())

            progress.begin(index)
            graph, engine = graphs[arm], measured[arm]
            results.append(
                run_programs(graph, arrivals, engine, arm=arm, number=index + 1, on_tick=tick)
            )
            progress.end(index)
    return results


def show(settings: DemoSettings, result: DemoResult, console: Console) -> None:
    """Print one answer, the table, and how many answers are equal."""
    name, code = result.answer
    lines = code.splitlines()
    text = "\n".join(lines[:_ANSWER_LINES]) + ("\n..." if len(lines) > _ANSWER_LINES else "")
    console.print(Panel(Text(text or "(empty)"), title=f"{name}: code_generator", expand=False))
    console.print(comparison_table(result.metrics))
    compared, identical = result.equal
    console.print(f"answers equal: {identical} of {compared}", highlight=False)
    if result.base_equal.compared and result.base_equal.identical < result.base_equal.compared:
        compared, identical = result.base_equal
        console.print(
            f"plain vLLM with itself, between its runs: {identical} of {compared}", highlight=False
        )
    if settings.draft:
        console.print("n-gram drafting was on in both arms", highlight=False)


def write_outputs(
    settings: DemoSettings,
    result: DemoResult,
    device: str,
    json_file: Path | None,
    trace_file: Path | None,
) -> None:
    """Write the files that were asked for. Raises ConfigError if one cannot be written."""
    if json_file is not None:
        write_text(json_file, result.to_json(settings_record(settings, device)))
    if trace_file is not None:
        write_text(trace_file, json.dumps(chrome_trace(result.runs)) + "\n")
