"""What the example workflows run on in a comparison: their inputs, and a short one to warm up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from grape_lc.bench.names import separate
from grape_lc.bench.quality import Scorer, answer_scorer, program_scorer
from grape_lc.bench.synthetic import count_tool_calls, parse_axes, synthetic_axes
from grape_lc.errors import ConfigError
from grape_lc.workflow_package import load_workflow

PARTS = 4
"""Parts that ``summary`` reads a document in, unless its axis ``parts`` says another number."""

MOST_PARTS = 64
"""The most that ``parts`` may say, and the most calls of a program that run side by side."""

LONGEST = 8000
"""Characters of a built-in document: its parts then have some 500 tokens. Others are not cut."""


_Axes = Mapping[str, Any]


class Case(NamedTuple):
    """One program of a workload: its name, and the state that its graph begins with."""

    name: str
    state: dict[str, Any]


class Example(NamedTuple):
    """An example workflow, and what it can be run on.

    name: as ``parse_workloads`` gives it. warm_up: a short input. options: further arguments of
    its ``build``. scorer: judges its answers, which may take time; None where nothing is known
    of them. counter: counts what its programs did, which takes none; None where there is
    nothing to count.
    """

    name: str
    cases: tuple[Case, ...]
    warm_up: dict[str, Any]
    options: dict[str, Any]
    scorer: Scorer | None = None
    counter: Scorer | None = None

    def build(self, llm: object, max_tokens: int) -> Any:
        """Its compiled graph, all of whose siblings run side by side.

        max_tokens: limit of each answer.
        """
        module = load_workflow(self.name.partition(":")[0])
        graph = module.build(llm, max_tokens=max_tokens, **self.options)
        # LangGraph's own limit depends on the machine: its cores, and four more.
        return graph.with_config(max_concurrency=MOST_PARTS)

    def draw(self, count: int, seed: int) -> list[Case]:
        """``count`` different cases, drawn with ``seed``, in random order.

        Raises ConfigError when ``count`` is less than one or there are too few.
        """
        if count < 1:
            raise ConfigError(f"a workload needs at least one program, not {count}")
        if count > len(self.cases):
            raise ConfigError(
                f"{count} programs asked for, but there are {len(self.cases)} inputs for "
                f"{self.name}"
            )
        draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
        return draw.sample(self.cases, count)


def parse_workloads(text: str) -> tuple[str, ...]:
    """Workloads separated by commas, in this order: names, each with its axes if it has any.

    Since no name holds an equals sign, ``synthetic:depth=8,fan_out=2,search`` are two. Raises
    ConfigError when there is none, when one stands there twice, for an unknown one, and for
    axes that it cannot have.
    """
    found = separate(text, "workload", ", ".join(_LOADERS))
    for workload in found:
        _name_and_axes(workload)
    return tuple(found)


def load_example(workload: str, source: Path | None = None) -> Example:
    """A workload as ``parse_workloads`` gives it, with its inputs.

    source: a JSONL file or a directory of such files; None for what comes with the workflow.
    Raises ConfigError when there is no such workload, its inputs cannot be read, or a library
    that it needs is missing.
    """
    name, axes = _name_and_axes(workload)
    try:
        example = _LOADERS[name](load_workflow(name), source, axes)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        raise ConfigError(f"no inputs to run {name} on: {error}") from error
    return example._replace(name=workload)


def _name_and_axes(workload: str) -> tuple[str, dict[str, Any]]:
    """The name of a workload's workflow, and its axes, checked."""
    name, _, rest = workload.partition(":")
    if name not in _LOADERS:
        raise ConfigError(f"no workflow {name!r}; there are: {', '.join(_LOADERS)}")
    try:
        return name, _AXES.get(name, _no_axes)(rest)
    except ValueError as error:
        raise ConfigError(f"workload {workload!r}: {error}") from error


def _no_axes(text: str) -> dict[str, Any]:
    if text:
        raise ValueError(f"it has no axes; there are some of: {', '.join(_AXES)}")
    return {}


def _summary_axes(text: str) -> dict[str, Any]:
    """How a document is summarised, and in how many parts."""
    axes = parse_axes(text)
    unknown = sorted(axes.keys() - {"mode", "parts"})
    if unknown:
        raise ValueError(f"no axis {unknown[0]!r}; there are: mode, parts")
    modes, parts = load_workflow("summary").MODES, axes.get("parts", PARTS)
    if axes.get("mode", modes[0]) not in modes:
        raise ValueError(f"mode={axes['mode']}: {' or '.join(modes)}")
    if type(parts) is not int or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"parts={parts}: a whole number from 1 to {MOST_PARTS}")
    return axes


def _file_for(source: Path | None, name: str) -> Path | None:
    """The file of a folder that is meant for a workload, if it has that name; else the source."""
    if source is not None and (source / name).is_file():
        return source / name
    return source


def _code(module: Any, source: Path | None, axes: _Axes) -> Example:
    source = _file_for(source, "livecode.jsonl")
    problems = module.load_problems(source)
    cases = tuple(Case(problem.id, {"problem": problem.text}) for problem in problems)
    scorer = program_scorer(module.load_problem_tests(source), "code")
    return Example("code", cases, {"problem": "Add two numbers."}, {}, scorer)


def _summary(module: Any, source: Path | None, axes: _Axes) -> Example:
    source = _file_for(source, "papers.jsonl")
    options, parts = dict(axes), axes.get("parts", PARTS)
    options.pop("parts", None)
    documents = module.load_documents(source, longest=LONGEST if source is None else None)
    cases = tuple(
        Case(document.id, {"chunks": module.split_document(document.text, parts)})
        for document in documents
    )
    return Example("summary", cases, {"chunks": ["Two parts.", "Short ones."]}, options)


def _search(module: Any, source: Path | None, axes: _Axes) -> Example:
    source = _file_for(source, "hotpotqa.jsonl")
    questions = module.load_questions(source)
    cases = tuple(Case(question.id, {"question": question.text}) for question in questions)
    expected = {q.id: q.answer for q in questions if q.answer is not None}
    retriever = module.PassageRetriever.of(module.load_passages(source))
    warm_up = {"question": "Which statement ends a loop?"}
    scorer = answer_scorer(expected, "answer", module.short_answer)
    return Example("search", cases, warm_up, {"retriever": retriever}, scorer)


def _synthetic(module: Any, source: Path | None, axes: _Axes) -> Example:
    found = _file_for(source, "synthetic.jsonl")
    # A folder for the other workloads need not have tasks: there are always the built-in ones.
    tasks = module.load_tasks(None if found is not None and found.is_dir() else found)
    cases = tuple(Case(task.id, {"task": task.text}) for task in tasks)
    warm_up = {"task": "Write about a harbour."}
    return Example("synthetic", cases, warm_up, dict(axes), counter=count_tool_calls)


_AXES: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "summary": _summary_axes,
    "synthetic": synthetic_axes,
}

_LOADERS: Mapping[str, Callable[[Any, Path | None, _Axes], Example]] = {
    "code": _code,
    "search": _search,
    "summary": _summary,
    "synthetic": _synthetic,
}
