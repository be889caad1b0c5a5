"""Templates from several sources become one flow; the first source wins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters.merging import Layer, Origin, Source, Template, merge, templates_of
from grape_lc.flow import InputVar, IntermediateVar, NewestVar, OutputVar, TaskFlow
from grape_lc.flow.targets import Targets
from grape_lc.flow.template import PromptTemplate

SOURCES: tuple[Source, ...] = ("declared", "traced", "learned")


def flow_of(name: str, **tasks: str) -> TaskFlow:
    """Tasks and their prompts; ``{a_text}`` is the answer of task a, other names are inputs."""
    prompts = {task: PromptTemplate.of([("user", text)]) for task, text in tasks.items()}
    read = dict.fromkeys(name for prompt in prompts.values() for name in prompt.variables)
    flow = TaskFlow(name=name)
    for variable in read:
        if variable.removesuffix("_text") not in tasks:
            flow.add_variable(InputVar(variable, opaque=variable.startswith("opaque")))
    for task in tasks:
        kind = IntermediateVar if f"{task}_text" in read else OutputVar
        flow.add_variable(kind(f"{task}_text"))
    for task, prompt in prompts.items():
        flow.add_task(prompt, f"{task}_text", name=task)
    flow.validate_flow()
    return flow


def contents(flow: TaskFlow | None) -> dict[str, str]:
    assert flow is not None
    return {task.name: str((task.prompt.messages or ())[0].content) for task in flow.tasks}


def test_of_each_task_the_first_source_that_has_it() -> None:
    declared = flow_of("mine", code="Code it: {plan_text}", plan="Plan")
    traced = flow_of("t", plan="Another plan", check="Check {code_text|strip}", code="no")
    learned = flow_of("l", plan="no", check="no", more="More of {problem}")
    merged = merge(
        "all",
        [
            Layer.of("declared", declared),
            Layer.of("traced", traced),
            Layer.of("learned", learned),
        ],
    )
    assert contents(merged.flow) == {
        "code": "Code it: {plan_text}",
        "plan": "Plan",
        "check": "Check {code_text|strip}",
        "more": "More of {problem}",
    }
    assert merged.sources == {
        "code": "declared",
        "plan": "declared",
        "check": "traced",
        "more": "learned",
    }
    assert merged.flow is not None
    assert merged.flow.upstream("check") == ("code",)


def test_a_flow_that_says_it_all_stays_as_it_is() -> None:
    flow = flow_of("mine", plan="Plan", code="Code {plan_text}")
    other = flow_of("other", plan="Different")
    merged = merge("x", [Layer.of("declared", flow), Layer.of("learned", other)])
    assert merged.flow is flow
    assert merge("x", [Layer.of("declared", other), Layer.of("learned", flow)]).flow is not flow
    assert merge("x", []).flow is None
    assert merge("x", []).sources == {}


def test_answers_are_found_by_their_task_whatever_their_variable_is_called() -> None:
    declared = TaskFlow(name="mine")
    declared.add_variable(InputVar("plan_text"))  # an input that is called like an answer
    declared.add_variable(OutputVar("result"))
    declared.add_task([("user", "Plan {plan_text}")], "result", name="plan")
    traced = flow_of("t", plan="no", code="Code {plan_text|strip} {{}}", check="{code_text}")
    merged = merge("x", [Layer.of("declared", declared), Layer.of("traced", traced)])
    assert contents(merged.flow) == {
        "plan": "Plan {plan_text}",
        "code": "Code {result|strip} {{}}",
        "check": "{code_text}",
    }
    assert merged.flow is not None
    assert merged.flow.variable("result").kind == "output"


def test_names_that_two_flows_give_to_different_answers() -> None:
    one = flow_of("one", a="A", b="After {a_text}")
    other = TaskFlow(name="other")
    other.add_variable(IntermediateVar("a_text"))
    other.add_variable(OutputVar("d_text"))
    other.add_task([("user", "C")], "a_text", name="c")
    other.add_task([("user", "After {a_text}")], "d_text", name="d")
    merged = merge("x", [Layer.of("traced", one), Layer.of("learned", other)]).flow
    assert contents(merged) == {"a": "A", "b": "After {a_text}", "c": "C", "d": "After {a_text_2}"}
    assert merged is not None
    assert merged.upstream("d") == ("c",)


def test_an_answer_that_nobody_describes_is_not_known() -> None:
    template = Template(
        "code",
        PromptTemplate.of([("user", "Do {plan} and {opaque_1}")]),
        {"plan": Origin("answer", "plan"), "opaque_1": Origin("unknown", "a date")},
        "code_text",
    )
    merged = merge("x", [Layer("declared", [template])]).flow
    assert contents(merged) == {"code": "Do {opaque_1} and {opaque_2}"}
    assert merged is not None
    first, second = (v for v in merged.variables if isinstance(v, InputVar))
    assert first.opaque
    assert "no template of 'plan'" in first.description
    assert (second.name, second.opaque, second.description) == ("opaque_2", True, "a date")


def test_of_a_circle_the_template_of_the_weaker_source_is_left_out() -> None:
    declared = flow_of("d", a="After {b_text}", b="B")
    traced = flow_of("t", c="After {a_text}", a="A")
    # b would wait for c, c waits for a, and a, as declared, for b.
    late = Template(
        "b",
        PromptTemplate.of([("user", "After {c}")]),
        {"c": Origin("answer", "c")},
        "b_text",
    )
    merged = merge(
        "x",
        [
            Layer("declared", [t for t in templates_of(declared) if t.task == "a"]),
            Layer("traced", [*(t for t in templates_of(traced) if t.task == "c"), late]),
            Layer.of("learned", flow_of("l", b="Another B")),
        ],
    )
    assert merged.sources == {"a": "declared", "c": "traced", "b": "learned"}
    assert contents(merged.flow)["b"] == "Another B"


def test_targets_go_with_their_tasks() -> None:
    flow = flow_of("mine", plan="Plan")
    flow = flow.model_copy(update={"targets": Targets(ttft_s=1.5)})
    other = flow_of("t", code="Code {plan_text}", plan="no")
    merged = merge("x", [Layer.of("declared", flow), Layer.of("traced", other)]).flow
    assert merged is not None
    assert merged.task("plan").targets == Targets(ttft_s=1.5)
    assert merged.task("code").targets == Targets()


def test_without_leaves_tasks_out() -> None:
    layer = Layer.of("traced", flow_of("t", a="A", b="After {a_text}"))
    assert layer.without(set()) is layer
    assert [t.task for t in layer.without({"a"}).templates] == ["b"]


NAMES = ("a", "b", "c", "d")


@st.composite
def flows(draw: st.DrawFn) -> TaskFlow:
    """Tasks that read inputs, unknown texts and those declared before them in a random order."""
    order = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
    tasks: dict[str, str] = {}
    for name in order:
        readable = [f"{{{task}_text}}" for task in tasks]
        slots = draw(
            st.lists(st.sampled_from([*readable, "{problem}", "{a_text_2}", "{opaque_1}"]))
        )
        tasks[name] = f"task {name}: {' '.join(slots)}"
    return flow_of("f", **tasks)


@given(st.lists(flows(), min_size=1, max_size=3))
def test_whatever_is_merged_is_well_formed(found: list[TaskFlow]) -> None:
    layers = [Layer.of(SOURCES[number], flow) for number, flow in enumerate(found)]
    merged = merge("x", layers)
    assert merged.flow is not None
    merged.flow.validate_flow()
    assert set(merged.sources) == {task.name for task in merged.flow.tasks}
    # Nothing of the first source is lost, and no other's word stands in its place.
    for task in found[0].tasks:
        assert merged.sources[task.name] == SOURCES[0]
    for template in templates_of(merged.flow):
        layer = found[SOURCES.index(merged.sources[template.task])]
        own = next(t for t in templates_of(layer) if t.task == template.task)
        assert len(own.prompt.slots) == len(template.prompt.slots)
        for was, now in zip(own.prompt.slots, template.prompt.slots, strict=True):
            before, after = own.origins[was.variable], template.origins[now.variable]
            if before.kind == "answer" and before.name in merged.sources:
                assert (after.kind, after.name) == ("answer", before.name)
            elif before.kind == "input":
                assert (after.kind, after.name) == ("input", before.name)
            else:
                assert after.kind == "unknown"


def test_the_newest_of_several_answers_keeps_its_meaning() -> None:
    traced = TaskFlow(name="t")
    for name in ("a_text", "b_text"):
        traced.add_variable(IntermediateVar(name))
    traced.add_variable(OutputVar("c_text"))
    traced.add_variable(NewestVar("a_or_b", of=("a_text", "b_text")))
    for task, prompt in (("a", "A"), ("b", "B"), ("c", "Join {a_or_b|strip}")):
        traced.add_task([("user", prompt)], f"{task}_text", name=task)
    declared = flow_of("mine", b="My B", a_or_b="x {a_or_b_text_2}", d="{b_text}")
    both = merge("all", [Layer.of("declared", declared), Layer.of("traced", traced)])
    assert both.flow is not None
    both.flow.validate_flow()
    assert both.flow.upstream("c") == ("a", "b")
    assert contents(both.flow)["c"] == "Join {a_or_b|strip}"
    # Without one of the branches the other one is left, and without both nothing is.
    layer = Layer.of("traced", traced)
    one = merge("one", [layer.without({"a"})]).flow
    assert contents(one)["c"] == "Join {b_text|strip}"
    none = merge("none", [layer.without({"a", "b"})]).flow
    assert contents(none) == {"c": "Join {opaque_1|strip}"}
