"""The agent whose structure is set by axes."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from grape_lc.workflow_package import load_workflow
from tests.unit.workflows import recorder

synthetic = load_workflow("synthetic")
from grape_lc._workflows import _lookup as lookup  # type: ignore[import-not-found]  # noqa: E402
from grape_lc._workflows.inputs import words  # type: ignore[import-not-found]  # noqa: E402

RECORDER = "tests.unit.workflows.recorder:Recorder"
STATE = {"task": "<task>"}


class Recorder(recorder.Recorder):
    """Enough answers for many stages."""

    responses: list[str] = Field(default_factory=lambda: [f"<{n}>" for n in range(1, 300)])


def run(task: str = "<task>", **axes: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The final state, and the prompts in their order."""
    llm = Recorder()
    state = synthetic.build(llm, **{"static": 30, **axes}).invoke({"task": task})
    return state, llm.prompts


def roles(prompts: list[tuple[str, str]]) -> list[str]:
    return [system.partition("the note of ")[2].partition(".")[0] for system, _ in prompts]


# -- structure ------------------------------------------------------------------------------------


def test_stages_follow_each_other_and_read_the_one_before():
    state, prompts = run(depth=3)
    assert roles(prompts) == ["stage_1", "stage_2", "stage_3"]
    assert [message for _, message in prompts] == [
        "Task:\n\n<task>\n\nWrite your note.",
        "Task:\n\n<task>\n\nNotes:\n\n<1>\n\nWrite your note.",
        "Task:\n\n<task>\n\nNotes:\n\n<2>\n\nWrite your note.",
    ]
    assert state["answer"] == "<3>"
    assert state["answers"] == {"stage_1": "<1>", "stage_2": "<2>", "stage_3": "<3>"}
    assert not state.get("tool_calls")


def test_every_second_stage_that_another_follows_fans_out():
    state, prompts = run(depth=4, fan_out=3)
    assert len(prompts) == 1 + 3 + 1 + 1
    assert sorted(roles(prompts)[1:4]) == ["stage_2_1", "stage_2_2", "stage_2_3"]
    siblings = [state["answers"][f"stage_2_{n}"] for n in (1, 2, 3)]
    assert prompts[4][1] == "Task:\n\n<task>\n\nNotes:\n\n{}\n\nWrite your note.".format(
        "\n\n".join(siblings)
    )
    assert roles(prompts)[4:] == ["stage_3", "stage_4"]


def test_all_siblings_run_side_by_side():
    barrier = threading.Barrier(16)

    class Together(Recorder):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if "the note of stage_2" in messages[0].content:
                barrier.wait(20)
            return super()._generate(messages, *args, **kwargs)

    synthetic.build(Together(), depth=3, fan_out=16, static=20).invoke(STATE)
    assert not barrier.broken


def test_answers_stand_at_the_head_or_at_the_end():
    _, last = run(depth=2)
    _, first = run(depth=2, variable="first")
    assert first[0] == last[0]
    assert first[1] == (f"Notes:\n\n<1>\n\n{last[1][0]}", "Task:\n\n<task>\n\nWrite your note.")


@pytest.mark.parametrize("depth", [1, 32])
def test_the_shortest_and_the_longest_run(depth: int):
    _, prompts = run(depth=depth)
    assert len(prompts) == depth


def test_the_same_program_goes_past_the_same_stages():
    ways = Counter(
        tuple(roles(run(f"p{number}", depth=5, branch=0.5, fan_out=2)[1])) for number in range(12)
    )
    stages = {tuple(sorted({role.split("_")[1] for role in way})) for way in ways}
    assert len(stages) > 1
    assert all({"1", "3", "5"} <= set(way) for way in stages)
    assert run("p3", depth=5, branch=0.5)[1] == run("p3", depth=5, branch=0.5)[1]
    for number in range(12):
        program = f"p{number}"
        gone = [stage for stage in (2, 4) if synthetic.skips(program, stage, 0.5)]
        _, prompts = run(program, depth=5, branch=0.5)
        assert roles(prompts) == [f"stage_{n}" for n in range(1, 6) if n not in gone]


def test_a_stage_that_was_gone_past_is_not_read():
    _, prompts = run(depth=3, branch=1.0, fan_out=2)
    assert roles(prompts) == ["stage_1", "stage_3"]
    assert prompts[1][1] == "Task:\n\n<task>\n\nNotes:\n\n<1>\n\nWrite your note."


def test_the_layout_history_first_repeats_what_was_sent_before():
    axes: dict[str, Any] = {"depth": 4, "fan_out": 2, "tool_ms": 0.01, "shared": 0.5}
    llm = Recorder()
    graph = synthetic.build(llm, layout="history_first", static=60, **axes)
    state = graph.invoke(STATE)
    common = words.text_of(30, "all roles")
    assert {system for system, _ in llm.prompts} == {f"You write notes.\n\n{common}"}
    first, *siblings, third, fourth = [message for _, message in llm.prompts]
    history = f"Task:\n\n<task>\n\nNotes:\n\n<1>\n\nLooked up:\n\n{state['found']['2']}\n\n"
    assert first.startswith("Task:\n\n<task>\n\nYou write the note of stage_1.")
    assert all(message.startswith(f"{history}You write the note") for message in siblings)
    answers = [state["answers"][f"stage_2_{n}"] for n in (1, 2)]
    history += "Notes:\n\n{}\n\nLooked up:\n\n{}\n\n".format(
        "\n\n".join(answers), state["found"]["3"]
    )
    assert third.startswith(f"{history}You write the note of stage_3.")
    assert fourth.startswith(history)
    assert all(message.endswith("\n\nWrite your note.") for _, message in llm.prompts)


def test_history_first_leaves_out_what_was_gone_past_and_other_layouts_are_refused():
    llm = Recorder()
    synthetic.build(llm, layout="history_first", depth=3, branch=1.0, static=0).invoke(STATE)
    assert [message for _, message in llm.prompts] == [
        "Task:\n\n<task>\n\nYou write the note of stage_1.\n\nWrite your note.",
        "Task:\n\n<task>\n\nNotes:\n\n<1>\n\nYou write the note of stage_3.\n\nWrite your note.",
    ]
    with pytest.raises(ValueError, match=r"'upside_down'.*role_first, history_first"):
        synthetic.build(llm, layout="upside_down")


# -- limits and texts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_tokens", "output", "expected"),
    [
        (None, None, [{}, {}]),
        (9, None, [{"max_tokens": 9}] * 2),
        (None, 5, [{"max_tokens": 5}] * 2),
        (9, 5, [{"max_tokens": 5}] * 2),
        (4, 5, [{"max_tokens": 4}] * 2),
        ({"stage_1": 3}, 5, [{"max_tokens": 3}, {"max_tokens": 5}]),
        ({"stage_2": 3}, None, [{}, {"max_tokens": 3}]),
    ],
)
def test_the_lower_limit_holds(max_tokens: Any, output: int | None, expected: Any):
    llm = Recorder()
    graph = synthetic.build(llm, max_tokens=max_tokens, depth=2, output=output)
    graph.invoke(STATE)
    assert [options for _, options in llm.seen] == expected


@given(st.integers(0, 3000), st.sampled_from(["a", "stage_2"]))
def test_texts_have_the_wanted_length(tokens: int, seed: str):
    text = words.text_of(tokens, seed)
    assert abs(len(text.split()) * words.TOKENS_PER_WORD - tokens) <= 12
    assert words.text_of(tokens + 100, seed).startswith(text)


@pytest.mark.parametrize("shared", [0.0, 0.25, 0.5, 1.0])
def test_the_shared_part_stands_at_the_head_of_all_roles(shared: float):
    axes = synthetic.Axes(static=400, shared=shared)
    texts = [synthetic.instructions(f"stage_{n}", axes) for n in (1, 2)]
    common = words.text_of(400 * shared, "all roles")
    assert all(text.startswith(common) for text in texts)
    own = [text.removeprefix(common).partition(".")[2].split() for text in texts]
    if shared < 1:
        assert own[0][:12] != own[1][:12]
    else:
        assert own == [[], []]
    for text in texts:
        assert abs(len(text.split()) * words.TOKENS_PER_WORD - 400) <= 30


def test_texts_are_the_same_everywhere():
    # Written down: another Python must not make others.
    assert words.text_of(20, "a") == GOLDEN
    assert words.text_of(0, "a") == ""


GOLDEN = "Explain the name of the table from the beginning even if it looks right."


# -- tools ----------------------------------------------------------------------------------------


def test_tools_are_called_between_stages_and_what_they_find_is_read():
    state, prompts = run(depth=3, tool_ms=0.01)
    assert [call["query"] for call in state["tool_calls"]] == [
        "<task> (stage 2)",
        "<task> (stage 3)",
    ]
    assert all(call["tool"] == "look_up" and not call["failed"] for call in state["tool_calls"])
    assert "Looked up" not in prompts[0][1]
    for stage in (2, 3):
        found = state["found"][str(stage)]
        assert len(found.split()) > 5
        assert prompts[stage - 1][1].endswith(f"\n\nLooked up:\n\n{found}\n\nWrite your note.")
    assert state["found"]["2"] != state["found"]["3"]


def test_failures_are_those_of_the_program_and_are_made_up_for():
    def log(program: str) -> list[Any]:
        calls: list[Any] = run(program, depth=6, tool_failure=0.5)[0]["tool_calls"]
        return calls

    logs = [log(f"p{number}") for number in range(6)]
    assert logs[2] == log("p2")
    assert len({tuple(call["failed"] for call in calls) for calls in logs}) > 1
    for calls in logs:
        queries = [call["query"] for call in calls if not call["failed"]]
        assert len(queries) == len(set(queries)) == 5
    failed = sum(call["failed"] for calls in logs for call in calls)
    assert 12 <= failed <= 60


def test_a_tool_that_fails_too_often_is_done_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lookup, "fails", lambda *_: True)
    state, prompts = run(depth=2, tool_failure=0.1)
    assert [call["failed"] for call in state["tool_calls"]] == [True] * lookup.MOST_ATTEMPTS
    assert lookup.NOTHING in prompts[1][1]


def test_an_event_loop_runs_the_same():
    axes: dict[str, Any] = {
        "depth": 4,
        "fan_out": 2,
        "tool_failure": 0.5,
        "tool_ms": 0.01,
        "static": 30,
    }
    graph = synthetic.build(Recorder(), **axes)
    found = asyncio.run(graph.ainvoke(STATE))
    state, _ = run(**axes)
    assert {key: found[key] for key in ("found", "tool_calls")} == {
        key: state[key] for key in ("found", "tool_calls")
    }
    assert any(call["failed"] for call in found["tool_calls"])


def test_latencies_spread_around_their_median():
    taken = sorted(lookup.latency_s(100, f"p{n}, stage 2", 1) for n in range(999))
    assert taken[0] > 0
    assert 0.09 < taken[499] < 0.11
    assert 0.15 < taken[839] < 0.18  # one sigma above
    assert lookup.latency_s(0, "p", 1) == 0
    assert lookup.latency_s(100, "p", 1) != lookup.latency_s(100, "p", 2)


# -- axes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"width": 2}, "no axis 'width'; there are: depth, fan_out, shared"),
        ({"depth": 0}, "depth=0: a whole number from 1 to 32"),
        ({"depth": 33}, "depth=33"),
        ({"depth": 2.5}, "depth=2.5: a whole number"),
        ({"depth": 3.0}, "depth=3.0: written without a fraction"),
        ({"depth": "3"}, "depth=3: a whole number"),
        ({"depth": True}, "depth=True"),
        ({"fan_out": 17}, "fan_out=17: a whole number from 1 to 16"),
        ({"fan_out": 2, "depth": 2}, "fan_out=2 needs depth=3 at least, not 2"),
        ({"branch": 0.5, "depth": 1}, "branch=0.5 needs depth=3"),
        ({"shared": 1.1}, "shared=1.1: a number from 0 to 1"),
        ({"shared": float("nan")}, "shared=nan"),
        ({"static": -1}, "static=-1"),
        ({"variable": "middle"}, "variable=middle: first or last"),
        ({"output": 0}, "output=0: a whole number from 1"),
        ({"tool_ms": -1}, "tool_ms=-1"),
        ({"tool_failure": 1}, "tool_failure=1: a number from 0 to 0.9"),
        ({"branch": 2}, "branch=2"),
    ],
)
def test_axes_out_of_bounds_are_refused(axes: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        synthetic.build(Recorder(), **axes)


def test_axes_are_read_from_text():
    text = " depth=8, shared=0.5 ,variable=first,output=null,"
    assert synthetic.parse_axes(text) == {
        "depth": 8,
        "shared": 0.5,
        "variable": "first",
        "output": None,
    }
    assert synthetic.parse_axes("") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("depth", "'depth' sets no axis"),
        ("=3", "sets no axis"),
        ("depth=", "sets no axis"),
        ("depth=1,depth=2", "depth is set twice"),
    ],
)
def test_texts_that_set_no_axes_are_refused(text: str, said: str):
    with pytest.raises(ValueError, match=said):
        synthetic.parse_axes(text)


# -- tasks and the command ------------------------------------------------------------------------


def test_tasks_are_many_and_begin_differently(tmp_path: Path):
    tasks = synthetic.load_tasks()
    assert len({task.id for task in tasks}) == len({task.text[:8] for task in tasks}) == 200
    assert tasks == synthetic.load_tasks()
    (tmp_path / "t.jsonl").write_text('{"task": "T", "id": "a"}\n{"x": 1}\n{"task": "U"}\n')
    assert synthetic.load_tasks(tmp_path) == [("a", "T"), ("t/3", "U")]


def test_the_command_prints_every_note(capsys: pytest.CaptureFixture[str]):
    axes = "depth=3,tool_ms=0.01,static=20"
    synthetic.main(["--llm", RECORDER, "--task", "1", "--axes", axes])
    out = capsys.readouterr().out
    assert synthetic.load_tasks()[1].text in out
    for stage in (1, 2, 3):
        assert out.count(f"## stage_{stage}\n\n<{stage}>\n\n") == 1
    assert out.count("## look_up_") == 2
    assert out.endswith("## stage_3\n\n<3>\n\n")


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]):
    for arguments, said in (
        (["--axes", "width=2"], "no axis 'width'"),
        (["--axes", "depth=99"], "depth=99"),
        (["--task", "999"], "there are tasks 0 to 199"),
    ):
        with pytest.raises(SystemExit) as stop:
            synthetic.main(arguments)
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
