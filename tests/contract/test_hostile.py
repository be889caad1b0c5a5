"""What vLLM and its chat templates do with those who mean no good, as far as we rely on it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from jinja2.exceptions import SecurityError, TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

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
