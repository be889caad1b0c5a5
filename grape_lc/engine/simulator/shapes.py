"""The shapes that can be simulated by name.

Sizes in tokens are assumptions of the order that such agents have: roles of about a thousand
tokens, as in multi-agent programming frameworks; problems of a few hundred; documents in chunks
of a thousand; retrieved passages of about as much. Targets are those that the literature on
agentic serving uses for these three kinds.
"""

from __future__ import annotations

from grape_lc.engine.simulator.programs import (
    Answer,
    Input,
    Length,
    Shape,
    Static,
    Targets,
    TaskShape,
)

_ROLE = 1024  # tokens of a role's instructions


def _code(role: int, answer: Length) -> tuple[TaskShape, ...]:
    """Five roles in a chain; each reads the problem and some of the documents before it."""
    problem = Input("problem", Length(450, 0.4, 2000))

    def task(name: str, *reads: Input | Answer) -> TaskShape:
        parts: list[Static | Input | Answer] = [Static(name, role)]
        for read in reads:
            parts += [read, Static("heading", 12)]
        return TaskShape(name, tuple(parts), answer)

    return (
        task("product_planner", problem),
        task("framework_designer", problem, Answer("product_planner")),
        task("project_planner", Answer("product_planner"), Answer("framework_designer")),
        task("code_generator", problem, Answer("framework_designer"), Answer("project_planner")),
        task("test_validator", problem, Answer("product_planner"), Answer("code_generator")),
    )


def _summary(chunks: int, *, summary_first: bool) -> tuple[TaskShape, ...]:
    """A document in chunks; each call refines the summary of the one before."""
    tasks = []
    for number in range(chunks):
        chunk = Input(f"chunk {number}", Length(1000))
        parts: list[Static | Input | Answer] = [Static("refine", 256), chunk]
        if number:
            summary = Answer(f"refine_{number - 1}")
            parts = [parts[0], summary, chunk] if summary_first else [*parts, summary]
        tasks.append(
            TaskShape(f"refine_{number}", (*parts, Static("closing", 16)), Length(200, 0.3, 512))
        )
    return tuple(tasks)


def _search() -> tuple[TaskShape, ...]:
    """Short calls on long instructions; what is retrieved comes from a tool."""
    question = Input("question", Length(30, 0.3, 200))
    found = Input("passages", Length(1200, 0.2, 4000), late=True)
    return (
        TaskShape("query_rewriter", (Static("rewrite", 512), question), Length(40, 0.3, 128)),
        TaskShape(
            "searcher",
            (Static("search", 512), question, Answer("query_rewriter")),
            Length(40, 0.3, 128),
        ),
        TaskShape(
            "answer_generator",
            (Static("answer", 768), question, Answer("searcher"), found),
            Length(120, 0.4, 512),
            tool_s=0.5,
        ),
        TaskShape(
            "safety_checker",
            (Static("safety", 768), question, Answer("answer_generator")),
            Length(20, 0.3, 64),
        ),
    )


def _map_reduce(width: int) -> tuple[TaskShape, ...]:
    """One plan, ``width`` workers at a time, one report."""
    plan = TaskShape(
        "plan",
        (Static("plan", 512), Input("request", Length(800, 0.3, 4000))),
        Length(150, 0.3, 512),
    )
    workers = tuple(
        TaskShape(
            f"worker_{number}",
            (
                Static("work", 512),
                Input(f"part {number}", Length(600, 0.3, 4000)),
                Answer("plan"),
            ),
            Length(200, 0.4, 1024),
        )
        for number in range(width)
    )
    answers = tuple(Answer(worker.name) for worker in workers)
    report = TaskShape("report", (Static("report", 512), *answers), Length(300, 0.3, 1024))
    return (plan, *workers, report)


_LONG = Targets(ttft_s=1.5, tbt_s=0.06)
_SHORT = Targets(ttft_s=1.0, tbt_s=0.04)

SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("code", (_code(_ROLE, Length(256, 0.5, 1024)),), _LONG),
        Shape("code-short", (_code(4 * _ROLE, Length(32, 0.5, 128)),), _LONG),
        Shape(
            "summary",
            tuple(_summary(chunks, summary_first=False) for chunks in range(4, 13)),
            _LONG,
        ),
        Shape(
            "summary-first",
            tuple(_summary(chunks, summary_first=True) for chunks in range(4, 13)),
            _LONG,
        ),
        Shape("search", (_search(),), _SHORT),
        Shape("mapreduce", (_map_reduce(4),), _LONG),
    )
}
"""By name. ``code-short`` is the regime in which early work pays least: short answers on long
static texts; ``summary-first`` the layout that lets least stream in."""
