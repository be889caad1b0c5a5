from __future__ import annotations

import asyncio

import pytest

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.runtime.scripted import ScriptedEngine
from grape_lc.workflow_package import load_workflow
from tests.unit.workflows.recorder import Recorder

summary = load_workflow("summary")
RECORDER = "tests.unit.workflows.recorder:Recorder"


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_each_step_reads_the_next_part_and_the_summary_so_far(count: int):
    llm = Recorder(responses=[f"<summary {n}>" for n in range(1, count + 1)])
    chunks = [f"<part {n}>" for n in range(1, count + 1)]
    state = summary.build(llm).invoke({"chunks": chunks})
    assert state == {"chunks": chunks, "read": count, "summary": f"<summary {count}>"}
    systems, messages = zip(*llm.prompts, strict=True)
    assert systems == (summary.SUMMARISER, *[summary.REFINER] * (count - 1))
    for number, message in enumerate(messages, start=1):
        assert message.count("<part") == 1
        assert f"<part {number}>" in message
        assert message.count("<summary") == (number > 1)
        if number > 1:
            assert message.index(f"<part {number}>") < message.index(f"<summary {number - 1}>")


@pytest.mark.parametrize("use_async", [False, True])
def test_parts_are_summarised_side_by_side_and_merged_in_their_order(use_async: bool):
    script = {f"<part {n}>": f"<sum {n}>" for n in range(1, 5)} | {"<sum 1>": "<whole>"}
    engine = ScriptedEngine(script)
    graph = summary.build(ChatGrape(engine=engine), mode="map_reduce")
    given = {"chunks": [f"<part {n}>" for n in range(1, 5)]}
    state = asyncio.run(graph.ainvoke(given)) if use_async else graph.invoke(given)
    assert state["partial_summaries"] == [f"<sum {n}>" for n in range(1, 5)]
    assert state["summary"] == "<whole>"
    assert len(engine.calls) == 5
    labels = {call.request.label for call in engine.calls[:4]}
    assert labels == {f"summarise_part[{n}]" for n in range(4)}
    merged = engine.calls[-1].prompt
    assert summary.MERGER in merged
    places = [merged.index(f"Part {n}:\n\n<sum {n}>") for n in range(1, 5)]
    assert places == sorted(places)
    assert "<part" not in merged


def test_limits_are_bound_for_all_roles_or_by_role():
    llm = Recorder()
    summary.build(llm, max_tokens=7).invoke({"chunks": ["a", "b"]})
    assert [options for _, options in llm.seen] == [{"max_tokens": 7}] * 2
    llm = Recorder()
    summary.build(llm, max_tokens={"refine": 9}).invoke({"chunks": ["a", "b", "c"]})
    assert [options for _, options in llm.seen] == [{}, {"max_tokens": 9}, {"max_tokens": 9}]


def test_an_unknown_mode_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'tree'.*refine, map_reduce"):
        summary.build(Recorder(), mode="tree")


def test_system_prompts_have_the_length_of_real_ones():
    for prompt in (summary.SUMMARISER, summary.REFINER, summary.MERGER):
        assert 200 <= len(prompt.split()) <= 400


@pytest.mark.parametrize("mode", ["refine", "map_reduce"])
def test_the_command_prints_every_summary(mode: str, capsys: pytest.CaptureFixture[str]):
    arguments = ["--llm", RECORDER, "--document", "2", "--chunks", "3", "--mode", mode]
    summary.main([*arguments, "--longest", "3000"])
    out = capsys.readouterr().out
    document = summary.load_documents(longest=3000)[2]
    assert f"# {document.title}: {len(document.text)} characters in 3 parts" in out
    names = {"refine": ["summarise", "refine"], "map_reduce": ["summarise_part", "merge"]}
    assert all(f"## {name}\n\n<" in out for name in names[mode])
    assert out.count("## ") == {"refine": 3, "map_reduce": 4}[mode]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--document", "999"], "there are documents 0 to"),
        (["--chunks", "0"], "cannot be cut into 0 parts"),
        (["--data", "missing"], "missing"),
        (["--mode", "tree"], "map_reduce"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stop:
        summary.main(arguments)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
