"""Tools in the prompt of a model whose chat template knows of none.

Pure text, so that the same request always makes the same prompt. The form is that of the Hermes
models, which most templates with tools use as well:

    system     the caller's own system message, a blank line, and ``tools_text``
    assistant  content, and each call as <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    user       <tool_response>result</tool_response> for each message of a tool
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import meta
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = dict[str, Any]


def template_reads(template: str) -> frozenset[str]:
    """Which of ``tools`` and ``tool_calls`` a chat template makes use of.

    A template that cannot be parsed here counts as one that uses both: it renders itself.
    """
    environment = ImmutableSandboxedEnvironment(extensions=[loopcontrols])
    try:
        names = meta.find_undeclared_variables(environment.parse(template))
    except Exception:  # noqa: BLE001 - extensions of a tokenizer's own, for one
        return frozenset({"tools", "tool_calls"})
    used = {"tools"} & names
    return frozenset(used | ({"tool_calls"} if "tool_calls" in template else set()))


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """What a model is told about its tools."""
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        f"You can call these tools. Each line between the tags is one of them:\n"
        f"<tools>\n{lines}\n</tools>\n"
        "To call a tool, write its name and its arguments as JSON, like this:\n"
        '<tool_call>\n{"name": "the tool", "arguments": {"argument": "value"}}\n</tool_call>'
    )


def with_tools(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages with the tools described in the system message, made if there is none."""
    if not tools:
        return list(messages)
    text = tools_text(tools)
    first = messages[0] if messages else None
    if first is None or first.get("role") != "system":
        return [{"role": "system", "content": text}, *messages]
    own = _text(first.get("content"))
    return [{**first, "content": f"{own}\n\n{text}" if own else text}, *messages[1:]]


def with_calls(messages: Sequence[Message]) -> list[Message]:
    """The messages with calls of tools, and what came of them, as text."""
    out: list[Message] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            parts = [_text(message.get("content")), *map(_call_text, calls)]
            rest = {key: value for key, value in message.items() if key != "tool_calls"}
            out.append({**rest, "content": "\n".join(part for part in parts if part)})
        elif message.get("role") == "tool":
            text = f"<tool_response>\n{_text(message.get('content'))}\n</tool_response>"
            if out and out[-1].get("answers"):
                out[-1]["content"] += f"\n{text}"
            else:
                out.append({"role": "user", "content": text, "answers": True})
        else:
            out.append(message)
    return [{key: value for key, value in m.items() if key != "answers"} for m in out]


def _call_text(call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments or "{}"}}}\n</tool_call>'


def _text(content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping))
    return str(content)
