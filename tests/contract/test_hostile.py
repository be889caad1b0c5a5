"""What vLLM and its chat templates do with those who mean no good, as far as we rely on it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2.exceptions import SecurityError, TemplateError
from transformers.utils.chat_template_utils import render_jinja_template
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams

from tests.contract.simulation import Simulation, answer
from tests.fuzz.hostile import mutated
from tests.fuzz.test_calls import CONTROL, HINTED

PROMPT = list(range(100, 400))


def test_no_more_prompts_are_open_than_the_limit(simulate, monkeypatch):
    monkeypatch.setenv("GRAPE_MOST_ENGINE_PROMPTS", "2")
    s = simulate()
    for number in range(3):
        s.open(f"o{number}", PROMPT[: 40 + number])
    s.idle()
    assert s.counters["opened"] == 2
    assert s.counters["refused"] == 1
    s.call("r", PROMPT[:80], adopt="o2")
    s.idle()
    assert s.outcomes["r"] == {"outcome": "refused:too many prompts are open", "tokens": 0}


MESSAGES = st.one_of(
    *map(mutated, CONTROL),
    mutated({**HINTED, "adopt": "m0"}),
    mutated({"v": 1, "op": "append", "key": "m0", "hops": 1, "final": True}),
)


def taken(message: object) -> bool:
    """Whether vLLM lets it through to the scheduler."""
    try:
        SamplingParams(extra_args={"grape": message})
    except VLLMValidationError:
        return False
    return True


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(st.lists(MESSAGES, max_size=5))
def test_no_message_stops_the_scheduler(kind, model_config_dir, messages):
    """Whatever stands in ``extra_args``, the call behind is answered and all blocks come back."""
    s = Simulation(model_config_dir, kind)
    for number, message in enumerate(filter(taken, messages)):
        sampling = {"extra_args": {"grape": message}}
        s.add(f"m{number}", PROMPT[: 40 + number], None, sampling=sampling)
        s.step()
    s.plain("r", PROMPT[:80])
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:80], 8)
    s.close()


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ raise_exception.__globals__ }}",
        "{% set x = messages.append(1) %}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ (messages|attr('__class__')).__mro__ }}",
    ],
)
def test_a_chat_template_reaches_nothing_of_python(template):
    """Rendered as vLLM renders it: by transformers, in jinja's immutable sandbox."""
    try:
        (rendered,), _ = render_jinja_template(
            [[{"role": "user", "content": "x"}]], chat_template=template
        )
    except (SecurityError, TemplateError, AttributeError):
        rendered = ""
    assert rendered == ""


def test_a_chat_template_has_no_long_ranges():
    with pytest.raises(OverflowError, match="Range too big"):
        render_jinja_template(
            [[{"role": "user", "content": "x"}]],
            chat_template="{% for i in range(10**9) %}{% endfor %}",
        )


def test_what_stands_in_a_message_is_text_for_the_template():
    """No second rendering: a message that is a template stays what it is."""
    hostile = "{{ 7 * 7 }}{% for i in range(3) %}x{% endfor %}"
    (rendered,), _ = render_jinja_template(
        [[{"role": "user", "content": hostile}]],
        chat_template="{% for m in messages %}{{ m.content }}{% endfor %}",
    )
    assert rendered == hostile


def test_looking_at_a_template_does_not_run_it():
    code = (
        "from grape_lc.engine.vllm_tools import template_reads\n"
        "print(sorted(template_reads(\"{{ 'x' * 10**12 }}{% for i in range(10**5) %}"
        '{% for j in range(10**5) %}{{ tools }}{% endfor %}{% endfor %}")))\n'
        "print(sorted(template_reads('{% for' * 1000)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "['tools']\n['tool_calls', 'tools']\n"
