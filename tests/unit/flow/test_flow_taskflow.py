"""TaskFlow: what it refuses, and what it says about its tasks."""

from __future__ import annotations

import copy
import pickle

import pytest

from grape_lc.errors import (
    CycleError,
    DuplicateNameError,
    FlowError,
    FlowFormatError,
    FlowInputError,
    NeverReadError,
    NeverWrittenError,
    PromptSyntaxError,
    UnknownVariableError,
    WrittenTwiceError,
)
from grape_lc.flow import (
    InputVar,
    IntermediateVar,
    OutputVar,
    PromptTemplate,
    Sampling,
    Task,
    TaskFlow,
    Variable,
)


def flow_of(inputs="", intermediates="", outputs="", **tasks) -> TaskFlow:
    """A flow with variables by their letters; ``x="{a} {b}"`` is a task that writes x."""
    flow = TaskFlow(name="f")
    for cls, names in ((InputVar, inputs), (IntermediateVar, intermediates), (OutputVar, outputs)):
        for name in names:
            flow.add_variable(cls(name))
    for output, prompt in tasks.items():
        flow.add_task(prompt, output, name=f"T{output}")
    return flow


def diamond() -> TaskFlow:
    """``a -> x -> (y, z) -> o``, where the task of ``o`` reads ``z`` before ``y``."""
    return flow_of("a", "xyz", "o", x="{a}", y="{x}", z="{x} {a}", o="{z} {y} {z}")


# -- building -------------------------------------------------------------------------------


def test_a_task_is_named_after_its_output_and_samples_as_it_was_told():
    flow = TaskFlow()
    problem = flow.add_variable(InputVar("problem"))
    code = flow.add_variable(OutputVar("code"))
    task = flow.add_task(f"{{{problem.name}}}", code, max_tokens=5, stop=("\n",))
    assert task == Task(
        name="code",
        prompt=PromptTemplate(text="{problem}"),
        output="code",
        sampling=Sampling(max_tokens=5, stop=("\n",)),
    )
    assert flow.tasks == (task,)
    assert flow.task("code") is task
    assert flow.variable("problem") is problem


def test_a_task_takes_a_ready_prompt_and_a_ready_sampling():
    flow = flow_of(outputs="o")
    prompt, sampling = PromptTemplate.of([("user", "hi")]), Sampling(seed=1)
    task = flow.add_task(prompt, "o", name="greet", sampling=sampling)
    assert (task.name, task.prompt, task.sampling) == ("greet", prompt, sampling)


def test_a_variable_may_be_read_before_its_task_is_declared():
    flow = flow_of(intermediates="x", outputs="o", o="{x}", x="go")
    flow.validate_flow()
    assert [task.name for task in flow.order()] == ["Tx", "To"]


@pytest.mark.parametrize("wrong", ["x", None, Variable("x", kind="input")])
def test_add_variable_takes_one_of_its_classes(wrong):
    with pytest.raises(FlowFormatError, match="OutputVar or NewestVar, not"):
        TaskFlow().add_variable(wrong)


def refused_tasks():
    two = "T1 {a}"
    yield "{q} {a}", "y", {}, UnknownVariableError, ["'y'", "reads 'q'", "input variable 'a'"]
    yield "{a}", "q", {}, UnknownVariableError, ["'q'", "writes 'q'", "output variable 'o'"]
    yield two, "x", {}, WrittenTwiceError, ["'x'", "which task 'Tx' writes", "writer: 'y', 'o'"]
    yield two, "a", {}, WrittenTwiceError, ["'a'", "which every run gives", "writer: 'y', 'o'"]
    yield two, "y", {"name": "Tx"}, DuplicateNameError, ["'Tx' is declared twice", "use: 'Tx'"]
    yield two, "y", {"name": ""}, FlowFormatError, ["task ''", "blank"]
    yield "{y}", "y", {"name": "L"}, CycleError, ["task 'L' writes 'y' -> task 'L' reads it"]
    yield "", "y", {}, PromptSyntaxError, ["task 'y'", "no text at all"]
    yield [], "y", {}, PromptSyntaxError, ["task 'y'", "no messages"]
    yield "{a", "y", {}, PromptSyntaxError, ["task 'y'", "line 1, column 1"]
    yield [("user", "{a|up}")], "y", {}, PromptSyntaxError, ["task 'y'", "message 1", "lstrip"]
    yield "a", "y", {"max_token": 3}, FlowFormatError, ["task 'y'", "max_token:", "'max_tokens'"]
    yield "a", "y", {"top_p": 2}, FlowFormatError, ["task 'y'", "top_p", "(got 2)"]
    both = {"sampling": Sampling(), "seed": 1}
    yield "a", "y", both, FlowFormatError, ["task 'y'", "not both", "'seed'"]
    yield "a", 7, {}, FlowFormatError, ["task_output is 7"]
    yield "a", IntermediateVar("o"), {}, UnknownVariableError, ["IntermediateVar", "OutputVar"]


@pytest.mark.parametrize(("prompt", "output", "options", "error", "said"), list(refused_tasks()))
def test_a_task_that_can_never_be_right_is_refused_at_once(prompt, output, options, error, said):
    flow = flow_of("a", "xy", "o", x="{a}")
    before = flow.model_copy()
    with pytest.raises(error) as caught:
        flow.add_task(prompt, output, **options)
    assert type(caught.value) is error
    for words in said:
        assert words in str(caught.value)
    assert flow == before, "a refused task leaves no trace"


def test_a_task_that_closes_a_cycle_is_refused_at_once():
    flow = flow_of("a", "xyz", "o", x="{z} {a}", y="{x}", o="{y}")
    with pytest.raises(CycleError) as caught:
        flow.add_task("{y}", "z", name="last")
    assert str(caught.value) == (
        "tasks wait for each other's output: task 'Tx' writes 'x' -> task 'Ty' writes 'y' -> "
        "task 'last' writes 'z' -> task 'Tx' reads it"
    )
    assert len(flow.tasks) == 3


def test_a_variable_is_declared_once():
    flow = flow_of("a", outputs="o")
    with pytest.raises(DuplicateNameError) as caught:
        flow.add_variable(OutputVar("a"))
    assert "input variable 'a' exists; names in use: 'a', 'o'" in str(caught.value)


# -- the same checks on data ----------------------------------------------------------------


def task(name, prompt, output):
    return Task(name=name, prompt=PromptTemplate.of(prompt), output=output)


VARIABLES = (InputVar("a"), IntermediateVar("x"), OutputVar("o"))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"variables": [*VARIABLES, InputVar("a")]}, DuplicateNameError),
        ({"tasks": [task("t", "a", "x"), task("t", "b", "o")]}, DuplicateNameError),
        ({"tasks": [task("t", "a", "x"), task("u", "b", "x")]}, WrittenTwiceError),
        ({"tasks": [task("t", "x", "a")]}, WrittenTwiceError),
        ({"tasks": [task("t", "{q}", "x")]}, UnknownVariableError),
        ({"tasks": [task("t", "{a}", "q")]}, UnknownVariableError),
        ({"tasks": [task("t", "{x}", "x")]}, CycleError),
        ({"flavour": "x"}, FlowFormatError),
        ({"version": 2}, FlowFormatError),
    ],
)
def test_the_constructor_checks_as_the_methods_do(fields, error):
    with pytest.raises(FlowError) as caught:
        TaskFlow(**{"variables": VARIABLES, **fields})
    assert type(caught.value) is error


def test_assigned_parts_are_checked_by_validate_flow():
    flow = flow_of("a", outputs="o", o="{a}")
    flow.tasks = (*flow.tasks, task("again", "{a}", "o"))
    with pytest.raises(WrittenTwiceError, match="'again'"):
        flow.validate_flow()


# -- validate_flow --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flow", "error", "said"),
    [
        (flow_of("a", outputs="o"), FlowError, "flow 'f' has no task"),
        (
            flow_of("a", "x", "o", o="{a} {x}"),
            NeverWrittenError,
            "no task writes intermediate variable 'x'; the tasks write: 'o' ('To')",
        ),
        (
            flow_of("a", "x", "op", x="{a}", o="{x}"),
            NeverWrittenError,
            "no task writes output variable 'p'; the tasks write: 'x' ('Tx'), 'o' ('To')",
        ),
        (
            flow_of("ab", outputs="o", o="{a}"),
            NeverReadError,
            "no prompt reads input variable 'b': read it as {b}, or remove it; the prompts read",
        ),
        (
            flow_of("a", "x", "o", x="{a}", o="{a}"),
            NeverReadError,
            "no prompt reads intermediate variable 'x': read it as {x}, or remove it; the prompts",
        ),
    ],
)
def test_what_only_the_whole_flow_shows(flow, error, said):
    with pytest.raises(error) as caught:
        flow.validate_flow()
    assert type(caught.value) is error
    assert said in str(caught.value)


def test_a_cycle_in_data_is_named_from_the_task_declared_first():
    flow = TaskFlow(
        variables=(*(IntermediateVar(name) for name in "wxyz"), OutputVar("o")),
        tasks=(
            task("before", "{z}", "o"),  # behind the cycle, not on it
            task("b", "{z}", "x"),
            task("c", "{w} {x}", "y"),
            task("a", "{w} {y}", "z"),
            task("free", "go", "w"),
        ),
    )
    with pytest.raises(CycleError) as caught:
        flow.validate_flow()
    assert str(caught.value).endswith(
        "task 'b' writes 'x' -> task 'c' writes 'y' -> task 'a' writes 'z' -> task 'b' reads it"
    )


def test_an_output_may_be_read_and_a_flow_needs_no_input():
    flow_of(outputs="op", o="go", p="{o}").validate_flow()


# -- asking ---------------------------------------------------------------------------------


def test_neighbours_order_and_depth():
    flow = diamond()
    flow.validate_flow()
    assert [t.name for t in flow.order()] == ["Tx", "Ty", "Tz", "To"]
    assert flow.upstream("To") == ("Tz", "Ty"), "as the prompt reads them"
    assert flow.downstream("Tx") == ("Ty", "Tz"), "as they were declared"
    assert flow.upstream("Tx") == flow.downstream("To") == ()
    assert [flow.depth(t) for t in flow.tasks] == [0, 1, 1, 2]
    assert flow.ancestors("To") == {"Tx", "Ty", "Tz"}


def test_depth_takes_the_longest_path():
    flow = flow_of("a", "xy", "o", x="{a}", y="{x}", o="{x} {y}")
    assert flow.depth("To") == 2


def test_ties_go_to_the_task_declared_first_even_when_it_is_free_later():
    flow = flow_of("a", "xy", "op", o="{y}", x="{a}", y="{a}", p="{x}")
    # o was declared first, and comes as soon as y is there; p could have come before y.
    assert [t.output for t in flow.order()] == ["x", "y", "o", "p"]


def test_answers_follow_a_flow_that_grows():
    flow = flow_of("a", "x", "op", x="{a}", o="{x}")
    assert flow.downstream("Tx") == ("To",)
    flow.add_task("{x} {o}", "p", name="Tp")
    assert flow.downstream("Tx") == ("To", "Tp")
    assert flow.depth("Tp") == 2
    shorter = flow.model_copy(update={"tasks": flow.tasks[:2]})
    assert shorter.downstream("Tx") == ("To",)


def test_asking_leaves_a_flow_equal_to_one_that_was_not_asked():
    asked, fresh = diamond(), diamond()
    asked.order()
    assert asked == fresh
    assert asked.model_dump() == fresh.model_dump()
    assert copy.deepcopy(asked) == pickle.loads(pickle.dumps(asked)) == fresh  # noqa: S301
    assert copy.deepcopy(asked).order() == fresh.order()


@pytest.mark.parametrize("method", ["task", "upstream", "downstream", "depth", "ancestors"])
def test_asking_for_an_unknown_task_names_those_there_are(method):
    with pytest.raises(FlowError, match=r"no task 'q'; tasks: 'Tx', 'Ty', 'Tz', 'To'"):
        getattr(diamond(), method)("q")


def test_asking_for_an_unknown_variable_names_those_there_are():
    with pytest.raises(UnknownVariableError, match=r"no variable 'q'; declared: 'a', 'x'"):
        flow_of("a", "x").variable("q")


# -- inputs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"a": "1"}, "missing: 'b'"),
        ({"a": "1", "b": "2", "x": "3"}, "unknown: 'x'"),
        ({"a": "1", "b": None}, "'b' is NoneType, not a string"),
        ({"b": 1, "c": ""}, "missing: 'a'; unknown: 'c'; 'b' is int, not a string"),
    ],
)
def test_inputs_that_do_not_fit(inputs, said):
    flow = flow_of("ab", "x", "o", x="{a}", o="{x} {b}")
    with pytest.raises(FlowInputError) as caught:
        flow.check_inputs(inputs)
    assert f"flow 'f': {said}; its inputs are 'a', 'b'" in str(caught.value)


def test_partial_inputs_may_lack_values_but_not_be_wrong():
    flow = flow_of("ab", outputs="o", o="{a} {b}")
    flow.check_inputs({"a": ""}, partial=True)
    with pytest.raises(FlowInputError, match="unknown: 'c'"):
        flow.check_inputs({"c": ""}, partial=True)


def test_a_flow_without_inputs_says_so():
    with pytest.raises(FlowInputError, match="its inputs are none"):
        flow_of(outputs="o", o="go").check_inputs({"a": ""})
