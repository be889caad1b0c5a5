from typing import Any

import pytest

from grape_lc.bench.arms import parse_arm
from grape_lc.bench.examples import load_example
from grape_lc.bench.server import ArmServer
from grape_lc.bench.twins import code_flow, search_flow, summary_flow
from grape_lc.bench.warming import static_heads, warm
from grape_lc.bench.workload import Arrival
from grape_lc.flow import InputVar, OutputVar, TaskFlow
from grape_lc.flow.template import Literal_
from grape_lc.runtime.scripted import ScriptedEngine
from tests.unit.bench.fakes import TestBed, requests


def flow_of(*prompts: Any) -> TaskFlow:
    flow = TaskFlow(name="f")
    flow.add_variable(InputVar("x"))
    for number, prompt in enumerate(prompts):
        flow.add_variable(OutputVar(f"y{number}"))
        flow.add_task(prompt, f"y{number}", name=f"t{number}")
    return flow


def test_a_head_ends_where_the_first_value_begins():
    prompt = [("system", "Be {{brief}}."), ("user", "Q: {x}\nA:"), ("user", "more")]
    (head,) = static_heads(flow_of(prompt))
    assert head.messages == (
        {"role": "system", "content": "Be {brief}."},
        {"role": "user", "content": "Q: "},
    )
    assert head.sampling.max_tokens == 1


def test_a_message_that_begins_with_a_value_is_begun():
    (head,) = static_heads(flow_of([("system", "S"), ("user", "{x}")]))
    assert head.messages == (
        {"role": "system", "content": "S"},
        {"role": "user", "content": ""},
    )


def test_texts_have_heads_too_and_each_is_sent_once():
    heads = static_heads(flow_of("Say {x}", "Say {x} again", "Tell {x}"))
    assert [head.text for head in heads] == ["Say ", "Tell "]


def test_what_begins_with_a_value_has_no_head():
    assert static_heads(flow_of([("user", "{x} is what?")])) == []


def test_warming_waits_for_every_answer():
    engine = ScriptedEngine({"Say": "one", "Tell": "two"})
    warm(engine, static_heads(flow_of("Say {x}", "Tell {x}")))
    assert [call.prompt for call in engine.calls] == ["Say ", "Tell "]


def test_a_warmed_arm_sends_the_heads_before_each_run_and_measures_none():
    bed = TestBed()
    server = ArmServer(
        parse_arm("warm"), load_example("code"), 16, lambda arm: bed.engine_of(arm, {}), 60.0
    )
    try:
        record, _ = server.run([Arrival("p", {"problem": "One problem."}, 0.0)], 1)
    finally:
        server.close()
    sent = requests(bed.engines[0])
    heads = sent[5:10]  # between the short program of the start and the measured one
    assert len(sent) == 15
    assert [head.label for head in heads] == ["warming"] * 5
    assert len(record.programs[0].calls) == 5
    for head, real in zip(heads, sent[10:], strict=True):
        assert head.messages is not None
        assert real.messages is not None
        assert head.messages[0] == real.messages[0]
        assert real.messages[1]["content"].startswith(head.messages[1]["content"])


@pytest.mark.parametrize("flow", [code_flow(), search_flow(), summary_flow(4)])
def test_the_example_workflows_put_static_text_first(flow: TaskFlow):
    """So what a role is told is computed once for all programs."""
    heads = static_heads(flow)
    for task in flow.tasks:
        static = sum(
            len(segment.text)
            for _, segments in task.prompt.sections
            for segment in segments
            if isinstance(segment, Literal_)
        )
        system = task.prompt.render_partial(lambda slot: "")[0]
        (head,) = [h for h in heads if h.messages is not None and h.messages[0] == system]
        assert head.messages is not None
        assert sum(len(m["content"]) for m in head.messages) >= 0.94 * static
