"""Programs whose answers are compared: the example workflows on shortened inputs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from grape_lc.bench.examples import Case, Example, load_example
from grape_lc.bench.released import ReleasedProgram
from grape_lc.engine.base import EngineClient
from grape_lc.errors import ConfigError
from grape_lc.runtime.driver import run_events
from grape_lc.workflow_package import load_workflow

WORKLOADS = ("code", "summary:parts=3", "summary:mode=map_reduce,parts=3", "search")
"""A program of each in turn."""

_LONGEST_PROBLEM = 200  # characters
_LONGEST_PART = 260
_LONGEST_PASSAGE = 120
_PARTS = 3


class Program(NamedTuple):
    """One program: its workflow with short inputs, and the case that it runs on."""

    example: Example
    case: Case

    @property
    def name(self) -> str:
        """Workload and case."""
        return f"{self.example.name} {self.case.name}"


def draw_programs(count: int, seed: int) -> list[Program]:
    """``count`` different programs, of the workloads in turn, drawn with ``seed``.

    Raises ConfigError if there are fewer.
    """
    examples = [shortened(load_example(workload)) for workload in WORKLOADS]
    each = -(-count // len(examples))
    most = min(len(example.cases) for example in examples)
    if not 1 <= each <= most:
        raise ConfigError(f"{count} programs: there are 1 to {most * len(examples)}")
    # Both modes of the summary would else read the same documents.
    drawn = [(example, example.draw(each, seed + n)) for n, example in enumerate(examples)]
    rounds = [Program(example, cases[turn]) for turn in range(each) for example, cases in drawn]
    return rounds[:count]


def shortened(example: Example) -> Example:
    """The same workflow on inputs of a few sentences, so that many programs take little time."""
    name = example.name.partition(":")[0]
    module: Any = load_workflow(name)
    if name == "code":
        cases = [
            Case(case.name, {"problem": case.state["problem"][:_LONGEST_PROBLEM]})
            for case in example.cases
        ]
        return example._replace(cases=tuple(cases))
    if name == "summary":
        documents = module.load_documents(None, longest=_PARTS * _LONGEST_PART)
        cases = [
            Case(document.id, {"chunks": module.split_document(document.text, _PARTS)})
            for document in documents
        ]
        return example._replace(cases=tuple(cases))
    passages = [
        passage._replace(text=passage.text[:_LONGEST_PASSAGE]) for passage in module.load_passages()
    ]
    return example._replace(options={"retriever": module.PassageRetriever.of(passages)})


Job = Callable[[], Awaitable[object]]
"""Runs one program to its end, or up to where it is cancelled: then its result is ``CANCELLED``."""

CANCELLED = object()


def flow_job(
    engine: EngineClient,
    program: Program,
    max_tokens: int,
    *,
    stop_after: int | None = None,
    logprobs: int | None = None,
) -> Job:
    """A run of the program's flow by the driver.

    stop_after: it is cancelled when so many events (calls sent, tokens, calls ended) were seen.
    """
    runner = ReleasedProgram(
        engine, program.example, max_tokens, fixed_lengths=False, logprobs=logprobs
    )

    async def run() -> object:
        flow, inputs, tools = runner.run_of(program.case.state)
        seen = 0
        events = run_events(engine, flow, inputs, tools)
        async with aclosing(events):  # type: ignore[type-var]
            async for _ in events:
                seen += 1
                if seen == stop_after:
                    return CANCELLED
        return None

    return run


def graph_jobs(engine: EngineClient, programs: Sequence[Program], max_tokens: int) -> list[Job]:
    """Runs of the LangGraph graphs themselves, each workflow attached once with its traced flow."""
    from grape_lc.adapters.langchain import ChatGrape
    from grape_lc.adapters.langgraph import attach, to_taskflow

    attached: dict[str, Any] = {}

    def job(program: Program) -> Job:
        name = program.example.name
        if name not in attached:
            graph = program.example.build(ChatGrape(engine=engine, temperature=0.0), max_tokens)
            attached[name] = attach(graph, to_taskflow(graph), learn=False, learned="memory")
        graph = attached[name]
        return lambda: asyncio.to_thread(graph.invoke, dict(program.case.state))

    return [job(program) for program in programs]


def run_jobs(
    jobs: Sequence[Job], *, at_once: int, rate: float | None = None, seed: int = 0
) -> list[object]:
    """Run all of them and return their results. Raises what one of them raises first.

    at_once: most of them that run at a time. rate: they arrive at random, so many a second on the
    average, drawn with ``seed``; None: as soon as there is room.
    """
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    delays, at = [], 0.0
    for _ in jobs:
        delays.append(at)
        at += draw.expovariate(rate) if rate else 0.0

    async def all_of_them() -> list[object]:
        room = asyncio.Semaphore(at_once)

        async def one(job: Job, delay: float) -> object:
            await asyncio.sleep(delay)
            async with room:
                return await job()

        return await asyncio.gather(*map(one, jobs, delays))

    return asyncio.run(all_of_them())
