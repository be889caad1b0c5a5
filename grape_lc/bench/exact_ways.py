"""The ways in which programs are run to see whether any of them changes an answer."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from grape_lc.bench.exact_runs import CANCELLED, Job, Program, flow_job, graph_jobs, run_jobs
from grape_lc.bench.exactness import Comparison, Expected, Observable, chunk_sizes, recorded
from grape_lc.engine.base import EngineClient

LARGEST_CHUNK = 512
_EVENTS = 80
"""A program has about so many events; a cancelled one ends at one of them."""

_NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}
_SHORT = {"num_gpu_blocks_override": 80, "max_num_batched_tokens": 512}


class ComparedEngine(EngineClient, Observable, Protocol):
    """What is needed of an engine."""

    def stats(self) -> dict[str, Any]:
        """Counters of its scheduler."""
        ...

    def records(self) -> list[str]:
        """Records of its last steps."""
        ...

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes."""
        ...


class EngineOf(Protocol):
    """Makes engines."""

    def __call__(
        self, scheduler: str, args: Mapping[str, Any]
    ) -> AbstractContextManager[ComparedEngine]:
        """An engine with these arguments beside those that all have."""
        ...


@dataclass(frozen=True)
class Way:
    """One way to run programs.

    scheduler, args: of the engine. share: of the programs, how many are run. at_once: programs at
    a time. rate: as in ``run_jobs``. cancelled: for each program that is compared whole, so many
    others run beside it and are cancelled. graphs: LangGraph graphs instead of flows. must:
    counters that must have risen, or the way shows nothing.
    """

    name: str
    scheduler: str = "grape"
    args: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    at_once: int = 24
    rate: float | None = None
    cancelled: float = 0.0
    graphs: bool = False
    must: tuple[str, ...] = ()


def ways(seed: int) -> list[Way]:
    """All of them, those that use the same engine side by side.

    The sizes of chunks are drawn with ``seed``: one from each of three ranges between 1 and 512.
    """
    draw = random.Random(seed)  # noqa: S311 - sizes, not a secret
    caps = [draw.randint(*span) for span in ((1, 16), (17, 128), (129, LARGEST_CHUNK))]
    chunked = [
        Way(f"chunks of at most {cap}", args={"grape": chunk_settings(cap)}, share=1 / 3)
        for cap in caps
    ]
    taken = ("adopted",)
    return [
        Way("stock, one at a time", "stock", share=1 / 6, at_once=1),
        Way("KV short", args=_SHORT, share=2 / 3, must=("preemptions",)),
        Way("drafting", args={"speculative_config": _NGRAM}, share=2 / 3, must=taken),
        Way(
            "all together",
            args={
                **_SHORT,
                "speculative_config": _NGRAM,
                "grape": chunk_settings(draw.randint(9, 128)),
            },
            share=2 / 3,
            rate=2.0,
            cancelled=0.5,
            must=("preemptions", "cancelled"),
        ),
        Way("plain", must=taken),
        Way("random arrival", rate=2.0, must=taken),
        Way("neighbours cancelled", cancelled=0.5, must=(*taken, "cancelled")),
        Way("attached graphs", graphs=True, must=taken),
        *chunked,
    ]


def chunk_settings(cap: int) -> dict[str, Any]:
    """Settings with which no more than ``cap`` tokens of prompts go into a step with decodes.

    Open prompts grow by as few tokens as one.
    """
    return {"constraint": "cap", "prefill_cap": cap, "open_cap": cap, "chunk": 1, "lump": 1}


class Outcome(NamedTuple):
    """What a way showed.

    counters: by how much those of the scheduler rose, and programs that were cancelled. chunks: how
    often a piece of a prompt had so many tokens, in the last steps. missing: counters that did not
    rise and had to.
    """

    way: Way
    programs: int
    comparison: Comparison
    counters: Mapping[str, int]
    chunks: Mapping[int, int]
    seconds: float
    missing: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether all answers were the expected ones, and the way was what it claims to be."""
        return self.comparison.equal and not self.missing


def expected_answers(
    engine: ComparedEngine, programs: Sequence[Program], max_tokens: int, at_once: int
) -> Expected:
    """Answers of an engine, to which others are compared, with the leads of their tokens."""
    with recorded(engine) as recorder:
        jobs = [flow_job(engine, program, max_tokens, logprobs=2) for program in programs]
        run_jobs(jobs, at_once=at_once)
    return Expected(recorder.answers())


def try_way(
    way: Way,
    engine: ComparedEngine,
    programs: Sequence[Program],
    max_tokens: int,
    expected: Expected,
    seed: int,
) -> Outcome:
    """Run the programs, from an empty prefix cache, and compare every answer."""
    engine.reset_prefix_cache()
    chosen = programs[: max(round(way.share * len(programs)), 1)]
    before = engine.stats()
    begin = time.monotonic()
    with recorded(engine) as recorder:
        if way.graphs:
            jobs = graph_jobs(engine, chosen, max_tokens)
        else:
            jobs = [flow_job(engine, program, max_tokens) for program in chosen]
        mixed = _with_neighbours(way, engine, programs, max_tokens, jobs, seed)
        results = run_jobs(mixed, at_once=way.at_once, rate=way.rate, seed=seed)
    seconds = time.monotonic() - begin
    after = engine.stats()
    names = ("preemptions", "dropped", "adopted", "stripped", "mismatch", "cold")
    counters = {name: int(after.get(name, 0) - before.get(name, 0)) for name in names}
    counters["cancelled"] = sum(result is CANCELLED for result in results)
    return Outcome(
        way,
        len(chosen),
        expected.compare(recorder.answers()),
        counters,
        chunk_sizes(engine.records()),
        seconds,
        tuple(name for name in way.must if not counters[name]),
    )


def _with_neighbours(
    way: Way,
    engine: EngineClient,
    programs: Sequence[Program],
    max_tokens: int,
    jobs: Sequence[Job],
    seed: int,
) -> list[Job]:
    """The jobs, and among them programs that are cancelled at moments drawn with ``seed``."""
    draw = random.Random(seed)  # noqa: S311 - moments, not a secret
    mixed = list(jobs)
    for _ in range(round(way.cancelled * len(jobs))):
        job = flow_job(
            engine, draw.choice(programs), max_tokens, stop_after=draw.randint(1, _EVENTS)
        )
        mixed.insert(draw.randint(0, len(mixed)), job)
    return mixed
