"""The code in docs/langgraph.md runs as it stands, on a scripted engine."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from grape_lc.runtime.client import GrapeEngine
from grape_lc.runtime.scripted import ScriptedEngine

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = DOCS / "langgraph.md"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScriptedEngine]:
    """Engines that ``GrapeEngine.shared`` would start, by what it was asked for."""
    engines: dict[str, ScriptedEngine] = {}

    def make(model: str | None = None, **engine_args: Any) -> ScriptedEngine:
        return engines.setdefault(f"{model} {engine_args}", ScriptedEngine("ok"))

    monkeypatch.setattr(GrapeEngine, "shared", make)
    return engines


def test_the_guide_runs(
    shared: dict[str, ScriptedEngine], caplog: pytest.LogCaptureFixture
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    own = ScriptedEngine("ok")
    names: dict[str, Any] = {"engine": own}
    with caplog.at_level(logging.WARNING):
        for number, block in enumerate(blocks):
            exec(compile(block, f"langgraph.md, block {number}", "exec"), names)  # noqa: S102
    assert caplog.text == ""
    # The first block's run, on the default engine; the third's call, on the engine given.
    assert list(shared) == ["None {}"]
    (default,) = shared.values()
    assert [call.request.task for call in default.calls] == ["plan", "code"]
    assert [call.prompt for call in own.calls] == ["user: Hello"]
    flow = names["flow"]
    traced = default.programs[0].flow
    for task in flow.tasks:
        assert traced.task(task.name).prompt == task.prompt


def test_the_page_on_templates_runs(shared: dict[str, ScriptedEngine]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "templates.md").read_text(), re.DOTALL)
    combined, declared = blocks
    names: dict[str, Any] = {}
    exec(compile(declared, "templates.md, declared", "exec"), names)  # noqa: S102
    (engine,) = shared.values()
    assert [call.request.task for call in engine.calls] == ["plan", "code", "code#2"]
    (program,) = engine.programs
    values = dict(program.inputs)
    for call in engine.calls:
        task = program.flow.task(str(call.request.task))
        assert list(call.request.messages or ()) == task.prompt.render_messages(values)
        values[task.output] = call.text
    names |= {"graph": names["builder"].compile(), "flow": program.flow}
    exec(compile(combined, "templates.md, combined", "exec"), names)  # noqa: S102
