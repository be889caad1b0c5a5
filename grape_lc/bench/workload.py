"""What is run: problems, and the times at which they arrive."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grape_lc.errors import ConfigError
from grape_lc.workflow_package import load_workflow


class Arrival(NamedTuple):
    """One program of a workload: its name, its input, and when it arrives (seconds from start)."""

    name: str
    problem: str
    at: float


def poisson_arrivals(problems: Sequence[tuple[str, str]], rate: float, seed: int) -> list[Arrival]:
    """Give each (name, text) an arrival time of a Poisson process; the first arrives at zero.

    rate: arrivals a second. The same seed gives the same times on every machine.
    Raises ConfigError unless ``rate`` is positive.
    """
    if not rate > 0:
        raise ConfigError(f"the arrival rate must be positive, not {rate}")
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    arrivals, at = [], 0.0
    for name, text in problems:
        arrivals.append(Arrival(name, text, at))
        at += draw.expovariate(rate)
    return arrivals


def load_problems(source: Path | None, count: int, seed: int) -> list[tuple[str, str]]:
    """``count`` different problems as (name, text), drawn with ``seed``, in random order.

    source: a JSONL file or a directory of such files with ``question_content`` fields; None
    for the problems that come with the example workflows.
    Raises ConfigError when the source cannot be read or holds too few problems.
    """
    workflow: Any = load_workflow("code")
    if count < 1:
        raise ConfigError(f"a workload needs at least one program, not {count}")
    try:
        problems = workflow.load_problems(source)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no problems to run: {error}") from error
    if count > len(problems):
        place = source if source is not None else "the built-in collection"
        raise ConfigError(f"{count} programs asked for, but {place} has {len(problems)} problems")
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    return [(problem.id, problem.text) for problem in draw.sample(problems, count)]
