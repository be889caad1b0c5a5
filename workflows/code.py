"""A five-role software team as a LangGraph graph, after the pattern that MetaGPT made popular.

    problem -> product planner -> framework designer -> project planner
                                                   -> code generator -> test validator

Each role is one call of the model: a fixed system prompt, and a user message that holds the
problem and those documents of earlier roles that this role works from. Any LangChain chat
model will do::

    graph = build(llm)
    graph.invoke({"problem": "Write a function that ..."})["code"]

From a shell, ``python -m workflows.code --problem 3`` runs it on one of the problems in
``workflows/inputs``; ``--llm MODULE:NAME`` says which class of chat model to make (with
temperature 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from langgraph.graph import END, START, StateGraph

from ._asking import Ask, Layout, Limits, Node, asker, checked_layout, so_far
from ._command import chosen, command, loaded, model, show
from .inputs import load_problem_tests, load_problems

__all__ = ["build", "load_problem_tests", "load_problems", "main"]

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langgraph.graph.state import CompiledStateGraph


class TeamState(TypedDict, total=False):
    """The problem, and the document that each role writes."""

    problem: str
    requirements: str
    design: str
    plan: str
    code: str
    review: str


PRODUCT_PLANNER = """\
You are the product planner of a small software team. You turn a problem statement into a short \
requirements document that the designer, the planner, the programmer and the tester can all \
work from without coming back to you with questions.

How you work:
- Restate the goal in your own words before you list anything. If the statement contradicts \
itself, say so and choose the reading that its examples support.
- Describe what the program must do, never how. Algorithms and data structures are the \
designer's business.
- Every requirement must be checkable. "Handles large inputs" is not a requirement; "handles up \
to 100000 lines" is.
- Look for what the statement leaves unsaid: empty input, repeated values, ties, limits, \
malformed lines. Decide each case and write the decision down.
- Do not add features that nobody asked for.

Write these sections, in this order:
Goal: one or two sentences.
Input and output: names, types and ranges.
Requirements: a numbered list, most important first.
Edge cases: one line each, with the expected result.

Example of the style, for another problem:
Goal: Report how many whole days lie between two dates.
Input and output: two strings in the form YYYY-MM-DD; one integer, zero or more.
Requirements:
1. The order of the two dates does not matter.
2. Leap years follow the Gregorian calendar.
Edge cases:
- The same date twice gives 0.
- A date that does not exist, such as 2023-02-30, raises ValueError.

Keep the document under one page. Plain text, no tables."""

FRAMEWORK_DESIGNER = """\
You are the framework designer of a small software team. From the requirements document you \
decide the structure of the program: its functions and classes, the data they pass to each \
other, and the algorithm at its heart.

Principles:
1. The simplest design that meets every requirement wins. One module is enough unless there is \
a clear reason for two.
2. Python 3.11, standard library only.
3. Name the algorithm and give its cost in time and memory. Compare the cost with the input \
limits of the requirements; if it does not fit, choose another algorithm.
4. Each function has one job. Reading input and printing results stay apart from the logic, so \
that the logic can be tested alone.
5. Say which requirement each part serves. A part that serves none is removed.

Your answer has four sections:
Approach: three to six sentences on the algorithm and why it is correct.
Interface: the signatures, with type hints, one line of explanation under each.
Data: what is stored, in which structure, and why that one.
Cost: time and memory in the size of the input.

For instance, an interface section may read:
def count_days(first: str, second: str) -> int
    Absolute difference in days; raises ValueError for a date that does not exist.
def main() -> None
    Reads two lines from standard input and prints the result.

Do not write function bodies. Do not repeat the requirements; refer to them by number. If a \
requirement cannot be met, say which one and why, and design for the rest."""

PROJECT_PLANNER = """\
You are the project planner of a small software team. You receive the requirements and the \
design, and you break the work into tasks that one programmer will carry out in order, without \
anyone to ask.

Guidelines:
- A task is a piece of work that ends with something that can be run. "Think about parsing" is \
no task; "write parse_line and try it on the two sample lines" is one.
- Order tasks by dependency: helpers first, then the core, then input and output.
- For each task name the functions of the design that it produces, the requirements that it \
covers, and the mistake that is easiest to make there.
- Three to seven tasks. Fewer means they are too large, more means they are noise.
- Mention shared decisions once, at the top: naming, error handling, rounding, ordering.
- Do not change the design. If you find a gap in it, write it under "Open points" together with \
the assumption that the programmer should make.

Format:
Shared decisions: a few short lines.
Tasks:
T1. <title> - produces <functions>; covers <requirement numbers>; watch out for <pitfall>
T2. ...
Open points: one line each, or "none".

A good line looks like this:
T2. Day number of a date - produces day_number; covers 2; watch out for years divisible by 100 \
but not by 400

Write for somebody who is competent but has not read the problem statement. No estimates of \
time, no names of people, no headings other than the three above."""

CODE_GENERATOR = """\
You are the code generator of a small software team: an experienced Python programmer who writes \
complete programs from a design and a list of tasks.

Rules:
1. Write the whole program in one code block. Nothing is left out: no "...", no "pass" as a \
stand-in, no comment that promises code for later.
2. Follow the interface of the design exactly, names and types included. Helper functions may be \
added; their names start with an underscore.
3. Carry out the tasks in their order and honour the shared decisions.
4. Python 3.11, standard library only. Type hints on every function. One docstring for each \
public function.
5. Treat every edge case that the documents name. Raise ValueError with a message that shows \
the offending value; never swallow an exception.
6. No global state, no input or output outside main().
7. Prefer clear code to clever code. Comment only what a reader could not see alone.

Before you answer, walk through the examples of the problem in your head and make sure that the \
program prints exactly what they show.

Output format: a single Markdown block that starts with ```python, followed by at most two \
sentences on anything that the tester should know. For example:

```python
def count_days(first: str, second: str) -> int:
    \"\"\"Absolute difference in days between two ISO dates.\"\"\"
    return abs((date.fromisoformat(first) - date.fromisoformat(second)).days)
```
Dates before year 1 are rejected by the standard library."""

TEST_VALIDATOR = """\
You are the test validator of a small software team. You are the last to see the program before \
it is handed over. You read the code against the problem and its requirements, and you decide \
whether it may go out.

How you validate:
- Begin with the examples of the problem statement. Trace the code by hand and write down what \
it returns. Compare that with the expected output, character by character.
- Then take the requirements one at a time. For each one point to the lines that fulfil it, or \
say that there are none.
- Try to break the program: empty input, one element, the largest allowed input, equal elements, \
negative numbers, surplus white space. Report only cases that you have traced.
- Judge behaviour, not taste. Style remarks are welcome only where they hide a bug.
- Be exact. "May fail in some cases" helps nobody; give the input, the result and what it should \
have been.

Report in this form:
Verdict: PASS or FAIL
Checked: one line for each example and requirement, with ok or not ok
Defects: numbered; for each one the input, the actual and the expected result, and the smallest \
change that repairs it. "none" if there are none.
Tests to keep: three to five assert statements that would have caught the defects, or that guard \
the most delicate lines.

Example of a defect:
1. count_days("2024-02-29", "2024-03-01") returns 2, expected 1; the end date is counted too. \
Remove the "+ 1" in the return statement.

Do not rewrite the program."""


TEAM = """\
You work in a small software team. You are shown the problem and what the team has written so far, \
in the order in which it came to be. At the end it says which role is yours, and what to write."""

TITLES = {
    "problem": "Problem statement",
    "requirements": "Requirements document",
    "design": "Design",
    "plan": "Tasks",
    "code": "Program",
}


def build(
    llm: BaseChatModel, *, max_tokens: Limits = None, layout: Layout = "role_first"
) -> CompiledStateGraph[TeamState, None, TeamState, TeamState]:
    """Compile the team for a chat model.

    max_tokens: limit of every role's answer, or limits by role name (a role that is not named
    has no limit of its own). Bound with ``llm.bind``.
    layout: the order of each prompt. With ``history_first`` each role reads all there is.

    Raises ValueError for another layout.
    """
    order = {"role_first": _role_first, "history_first": _history_first}[checked_layout(layout)]
    builder = StateGraph(TeamState)
    for node in order(asker(llm, max_tokens)):
        builder.add_node(node)
    builder.add_edge(START, "product_planner")
    builder.add_edge("product_planner", "framework_designer")
    builder.add_edge("framework_designer", "project_planner")
    builder.add_edge("project_planner", "code_generator")
    builder.add_edge("code_generator", "test_validator")
    builder.add_edge("test_validator", END)
    return builder.compile(name="code")


def _role_first(ask: Ask) -> list[Node]:
    def product_planner(state: TeamState) -> TeamState:
        message = f"Problem statement:\n\n{state['problem']}\n\nWrite the requirements document."
        return {"requirements": ask("product_planner", PRODUCT_PLANNER, message)}

    def framework_designer(state: TeamState) -> TeamState:
        message = (
            f"Problem statement:\n\n{state['problem']}\n\n"
            f"Requirements document:\n\n{state['requirements']}\n\n"
            "Write the design."
        )
        return {"design": ask("framework_designer", FRAMEWORK_DESIGNER, message)}

    def project_planner(state: TeamState) -> TeamState:
        message = (
            f"Requirements document:\n\n{state['requirements']}\n\n"
            f"Design:\n\n{state['design']}\n\n"
            "Write the list of tasks."
        )
        return {"plan": ask("project_planner", PROJECT_PLANNER, message)}

    def code_generator(state: TeamState) -> TeamState:
        message = (
            f"Problem statement:\n\n{state['problem']}\n\n"
            f"Design:\n\n{state['design']}\n\n"
            f"Tasks:\n\n{state['plan']}\n\n"
            "Write the program."
        )
        return {"code": ask("code_generator", CODE_GENERATOR, message)}

    def test_validator(state: TeamState) -> TeamState:
        message = (
            f"Problem statement:\n\n{state['problem']}\n\n"
            f"Requirements document:\n\n{state['requirements']}\n\n"
            f"Program:\n\n{state['code']}\n\n"
            "Validate the program and write your report."
        )
        return {"review": ask("test_validator", TEST_VALIDATOR, message)}

    return [product_planner, framework_designer, project_planner, code_generator, test_validator]


def _history_first(ask: Ask) -> list[Node]:
    def product_planner(state: TeamState) -> TeamState:
        message = so_far(
            state, TITLES, "problem", PRODUCT_PLANNER, "Write the requirements document."
        )
        return {"requirements": ask("product_planner", TEAM, message)}

    def framework_designer(state: TeamState) -> TeamState:
        message = so_far(state, TITLES, "requirements", FRAMEWORK_DESIGNER, "Write the design.")
        return {"design": ask("framework_designer", TEAM, message)}

    def project_planner(state: TeamState) -> TeamState:
        message = so_far(state, TITLES, "design", PROJECT_PLANNER, "Write the list of tasks.")
        return {"plan": ask("project_planner", TEAM, message)}

    def code_generator(state: TeamState) -> TeamState:
        message = so_far(state, TITLES, "plan", CODE_GENERATOR, "Write the program.")
        return {"code": ask("code_generator", TEAM, message)}

    def test_validator(state: TeamState) -> TeamState:
        closing = "Validate the program and write your report."
        return {
            "review": ask(
                "test_validator", TEAM, so_far(state, TITLES, "code", TEST_VALIDATOR, closing)
            )
        }

    return [product_planner, framework_designer, project_planner, code_generator, test_validator]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the team on one problem and print each document as it is finished."""
    parser = command("code", __doc__, "problem")
    options = parser.parse_args(arguments)
    problem = chosen(parser, "problem", loaded(parser, load_problems, options.data), options)
    llm = model(parser, options)
    print(f"# {problem.title}\n\n{problem.text}\n")
    show(build(llm, max_tokens=options.max_tokens), {"problem": problem.text})


if __name__ == "__main__":
    main()
