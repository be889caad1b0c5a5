"""The example workflows as TaskFlows, written out by hand.

Each makes the prompts of the graph of the same name, word for word, and its tasks and inputs have
the names by which ``attach`` knows the graph's calls and inputs. So a twin is a declared flow for
its graph, a measure for what tracing finds, and the same program without LangGraph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grape_lc.errors import ConfigError
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow, literal_to_template
from grape_lc.flow.sampling import Sampling
from grape_lc.workflow_package import load_workflow

Limits = int | Mapping[str, int] | None
"""Limit of every role's answer in tokens, or limits by role name; None: no limit."""


def code_flow(*, max_tokens: Limits = None, sampling: Sampling | None = None) -> TaskFlow:
    """The software team. Input: ``problem``. Outputs: ``code`` and ``review``.

    sampling: of every call, but for ``max_tokens``.
    """
    roles = _Roles("code", max_tokens, sampling)
    flow = TaskFlow(name="code")
    flow.add_variable(InputVar("problem"))
    for name in ("requirements", "design", "plan"):
        flow.add_variable(IntermediateVar(name))
    for name in ("code", "review"):
        flow.add_variable(OutputVar(name))
    problem = "Problem statement:\n\n{problem}\n\n"
    requirements = "Requirements document:\n\n{requirements}\n\n"
    design = "Design:\n\n{design}\n\n"
    roles.add(flow, "product_planner", problem + "Write the requirements document.", "requirements")
    roles.add(flow, "framework_designer", problem + requirements + "Write the design.", "design")
    roles.add(flow, "project_planner", requirements + design + "Write the list of tasks.", "plan")
    roles.add(
        flow,
        "code_generator",
        problem + design + "Tasks:\n\n{plan}\n\nWrite the program.",
        "code",
    )
    roles.add(
        flow,
        "test_validator",
        problem
        + requirements
        + "Program:\n\n{code}\n\nValidate the program and write your report.",
        "review",
    )
    return flow


def summary_flow(
    chunks: int,
    *,
    mode: str = "refine",
    max_tokens: Limits = None,
    sampling: Sampling | None = None,
) -> TaskFlow:
    """The summary of a document of ``chunks`` parts, in either mode of the workflow.

    Inputs: ``chunks_0`` and so on. Output: ``summary``.
    Raises ConfigError unless there is at least one part and the mode is a known one.
    """
    if chunks < 1:
        raise ConfigError(f"chunks={chunks}: a document has at least one part")
    modes = {"refine": _refine_flow, "map_reduce": _map_reduce_flow}
    if mode not in modes:
        raise ConfigError(f"mode {mode!r}: there are {', '.join(modes)}")
    return modes[mode](chunks, _Roles("summary", max_tokens, sampling))


def search_flow(*, max_tokens: Limits = None, sampling: Sampling | None = None) -> TaskFlow:
    """The search team. Input: ``question``. Outputs: ``queries``, ``answer`` and ``verdict``.

    ``passages``, what the searcher has found, is an opaque input: nobody knows it when the
    program starts, and who runs the flow without its graph has to give it.
    """
    roles = _Roles("search", max_tokens, sampling)
    flow = TaskFlow(name="search")
    flow.add_variable(InputVar("question"))
    flow.add_variable(
        InputVar("passages", opaque=True, description="known when the retriever has searched")
    )
    flow.add_variable(OutputVar("queries"))
    flow.add_variable(IntermediateVar("notes"))
    for name in ("answer", "verdict"):
        flow.add_variable(OutputVar(name))
    question = "Question:\n\n{question}\n\n"
    notes = "Notes:\n\n{notes}\n\n"
    roles.add(flow, "query_rewriter", question + "Write the queries.", "queries")
    roles.add(flow, "searcher", question + "Passages:\n\n{passages}\n\nWrite your notes.", "notes")
    roles.add(flow, "answer_generator", question + notes + "Write the answer.", "answer")
    roles.add(
        flow,
        "safety_checker",
        question + notes + "Answer:\n\n{answer}\n\nWrite your report.",
        "verdict",
    )
    return flow


class _Roles:
    """Adds the calls of a workflow's roles to a flow: their system prompts and limits.

    The system prompt of a role is the constant of its workflow with its name, in capitals.
    """

    def __init__(self, workflow: str, max_tokens: Limits, sampling: Sampling | None) -> None:
        self._workflow: Any = load_workflow(workflow)
        self._max_tokens = max_tokens
        self._sampling = Sampling() if sampling is None else sampling

    def add(
        self,
        flow: TaskFlow,
        role: str,
        message: str,
        output: str,
        *,
        system: str | None = None,
        task: str | None = None,
    ) -> None:
        """Add one call. task: its name where that is not the role's."""
        prompt = getattr(self._workflow, (system or role).upper())
        limits = self._max_tokens
        limit = limits.get(role) if isinstance(limits, Mapping) else limits
        flow.add_task(
            [("system", literal_to_template(prompt)), ("user", message)],
            output,
            name=task or role,
            sampling=self._sampling.model_copy(update={"max_tokens": limit}),
        )


_ONE_PART = "Part of the document:\n\n{%s}\n\nWrite the summary of this part."


def _refine_flow(chunks: int, roles: _Roles) -> TaskFlow:
    flow = TaskFlow(name="summary")
    summaries = [*(f"summary_{number}" for number in range(1, chunks)), "summary"]
    for index in range(chunks):
        flow.add_variable(InputVar(f"chunks_{index}"))
    for name in summaries[:-1]:
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar(summaries[-1]))
    roles.add(flow, "summarise", _ONE_PART % "chunks_0", summaries[0], system="summariser")
    for index in range(1, chunks):
        message = (
            f"Next part of the document:\n\n{{chunks_{index}}}\n\n"
            f"Summary of everything before it:\n\n{{{summaries[index - 1]}}}\n\n"
            "Write the new summary."
        )
        # The first call of a node has the node's name, later ones are counted.
        task = "refine" if index == 1 else f"refine#{index}"
        roles.add(flow, "refine", message, summaries[index], system="refiner", task=task)
    return flow


def _map_reduce_flow(chunks: int, roles: _Roles) -> TaskFlow:
    flow = TaskFlow(name="summary_map_reduce")
    for index in range(chunks):
        flow.add_variable(InputVar(f"chunks_{index}"))
        flow.add_variable(IntermediateVar(f"part_{index}"))
    flow.add_variable(OutputVar("summary"))
    for index in range(chunks):
        roles.add(
            flow,
            "summarise_part",
            _ONE_PART % f"chunks_{index}",
            f"part_{index}",
            system="summariser",
            task=f"summarise_part[{index}]",
        )
    parts = "\n\n".join(f"Part {index + 1}:\n\n{{part_{index}}}" for index in range(chunks))
    message = f"{parts}\n\nWrite the summary of the whole document."
    roles.add(flow, "merge", message, "summary", system="merger")
    return flow
