"""The code in docs/chat.md runs as it stands, on a scripted engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from grape_lc import ChatGrape, ScriptedEngine
from grape_lc.engine.base import CallRequest

GUIDE = Path(__file__).parents[3] / "docs" / "chat.md"
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "cat"}}\n</tool_call>'
PLAN = '{"title": "Parse", "steps": ["write", "run"]}'


def answer(request: CallRequest) -> str:
    if request.text is not None:
        return "    return n"
    if request.tools:
        return CALL
    return PLAN if "json" in (request.sampling.structured_outputs or {}) else "yes"


def test_the_guide_runs(capsys: Any) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    engine = ScriptedEngine(answer)
    names: dict[str, Any] = {"engine": engine, "llm": ChatGrape(engine=engine)}
    for number, block in enumerate(blocks):
        # dont_inherit: annotations of the tools have to be types, not texts.
        exec(compile(block, f"chat.md, block {number}", "exec", dont_inherit=True), names)  # noqa: S102
    assert names["chain"].invoke("again")["raw"].tool_calls[0]["name"] == "look_up"
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("content='cat: a thing'")
    assert printed[1] == "Parse 2"
    assert printed[-1] == "    return n"
