"""Open prompts with a slot for the newest of several answers."""

from __future__ import annotations

from grape_lc.flow import InputVar, IntermediateVar, NewestVar, OutputVar, TaskFlow
from grape_lc.runtime.programs import PromptTable
from tests.unit.flow.test_flow_newest import branches
from tests.unit.runtime.tables import CharacterText, Engine, finish


def opened(flow: TaskFlow, inputs: dict[str, str]) -> tuple[PromptTable, Engine]:
    table, engine = PromptTable(CharacterText(), chunk=2), Engine()
    engine.apply(table.open_program("p", flow, inputs))
    return table, engine


def test_the_branch_that_is_taken_fills_the_slot() -> None:
    table, engine = opened(branches(), {"topic": "rain"})
    finish(table, engine, "kind", "joke")
    assert engine.text("title") == "<user>A t"
    engine.apply(table.call_started("p", "joke"))
    engine.apply(table.call_text("p", "joke", " two more words here", 3))
    assert engine.text("title").startswith("<user>A title for two more")
    assert engine.hints["grape/p/title/2"].source is None
    engine.apply(table.call_finished("p", "joke", complete=True))
    assert engine.text("title") == "<user>A title for two more words here!</><ai>"
    table.validate()


def rounds() -> TaskFlow:
    flow = TaskFlow()
    flow.add_variable(InputVar("topic"))
    for name in ("write", "mend", "grade"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("publish"))
    flow.add_variable(NewestVar("text", of=("write", "mend")))
    flow.add_task([("user", "Write {topic}")], "write")
    flow.add_task([("user", "Grade {write}")], "grade")
    flow.add_task([("user", "Mend {grade}")], "mend")
    flow.add_task([("user", "Publish {text}: {write}")], "publish")
    flow.validate_flow()
    return flow


def test_a_newer_answer_takes_the_place_of_the_older() -> None:
    table, engine = opened(rounds(), {"topic": "rain"})
    finish(table, engine, "write", "old text")
    engine.apply(table.catch_up("p"))
    assert engine.text("publish") == "<user>Publish old text: old text</><ai>"
    finish(table, engine, "grade", "bad")
    engine.apply(table.call_started("p", "mend"))
    engine.apply(table.call_text("p", "mend", "new text for it", 2))
    assert engine.text("publish").startswith("<user>Publish new")
    engine.apply(table.call_finished("p", "mend", complete=True))
    engine.apply(table.catch_up("p"))
    assert engine.text("publish") == "<user>Publish new text for it: old text</><ai>"
    assert table.take("p", "publish") is not None
    engine.apply(table.close_program("p"))


def test_prompts_that_read_the_older_one_by_its_name_stay() -> None:
    table, engine = opened(rounds(), {"topic": "rain"})
    finish(table, engine, "write", "old text")
    before = set(engine.open)
    finish(table, engine, "mend", "new text")
    gone = {key.split("/")[2] for key in before - set(engine.open)}
    assert gone == {"publish"}


def test_an_input_stands_there_until_it_is_written_anew() -> None:
    flow = TaskFlow()
    flow.add_variable(InputVar("draft"))
    flow.add_variable(IntermediateVar("better"))
    flow.add_variable(OutputVar("end"))
    flow.add_variable(NewestVar("text", of=("draft", "better")))
    flow.add_task([("user", "Mend it")], "better")
    flow.add_task([("user", "Use {text}!")], "end")
    table, engine = opened(flow, {"draft": "D"})
    assert engine.text("end") == "<user>Use D!</><ai>"
    finish(table, engine, "better", "B")
    assert engine.text("end") == "<user>Use B!</><ai>"
