"""Tools as text, for chat templates that know of none."""

from __future__ import annotations

from typing import Any

import pytest

from grape_lc.engine.vllm_tools import template_reads, tools_text, with_calls, with_tools

TOOLS = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "g", "description": "übt"}},
]
SYSTEM = """\
You can call these tools. Each line between the tags is one of them:
<tools>
{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
{"type": "function", "function": {"name": "g", "description": "übt"}}
</tools>
To call a tool, write its name and its arguments as JSON, like this:
<tool_call>
{"name": "the tool", "arguments": {"argument": "value"}}
</tool_call>"""


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", set()),
        ("{% if tools %}{{ tools | tojson }}{% endif %}", {"tools"}),
        ("{% set tools = 1 %}{{ tools }}", set()),
        (
            "{% for m in messages %}{% if m.tool_calls %}x{% break %}{% endif %}{% endfor %}",
            {"tool_calls"},
        ),
        ("{% unknown %}", {"tools", "tool_calls"}),
    ],
)
def test_what_a_template_makes_use_of(template: str, expected: set[str]) -> None:
    assert template_reads(template) == expected


def test_tools_stand_in_the_system_message() -> None:
    user = {"role": "user", "content": "hi"}
    assert with_tools([user], TOOLS) == [{"role": "system", "content": SYSTEM}, user]
    system: dict[str, Any] = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    assert with_tools([system, user], TOOLS)[0]["content"] == f"Be brief.\n\n{SYSTEM}"
    assert with_tools([user], []) == [user]
    assert tools_text(TOOLS) == tools_text(TOOLS)


def test_calls_and_results_become_text() -> None:
    def call(name: str, arguments: object) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "arguments": arguments}}

    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [call("f", '{"x": 1}'), call("g", {})],
        },
        {"role": "tool", "content": "one", "tool_call_id": "1"},
        {"role": "tool", "content": [{"type": "text", "text": "two"}], "tool_call_id": "2"},
        {"role": "assistant", "content": None, "tool_calls": [call("g", "")]},
        {"role": "tool", "content": "three"},
        {"role": "user", "content": "and?"},
    ]
    assert with_calls(messages) == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": 'I look.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>\n'
            '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
        },
        {
            "role": "user",
            "content": "<tool_response>\none\n</tool_response>\n"
            "<tool_response>\ntwo\n</tool_response>",
        },
        {
            "role": "assistant",
            "content": '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
        },
        {"role": "user", "content": "<tool_response>\nthree\n</tool_response>"},
        {"role": "user", "content": "and?"},
    ]
