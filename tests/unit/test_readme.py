"""What the README shows is there, and its example of a flow runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import grape_lc
from grape_lc import ScriptedEngine, TaskFlow
from grape_lc.flow.events import ProgramFinished

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_python_blocks_parse_and_import_public_names():
    found = blocks("python")
    assert len(found) >= 3
    for block in found:
        compile(block, "README.md", "exec")
        for names in re.findall(r"^from grape_lc import (.*)$", block, re.MULTILINE):
            assert {name.strip() for name in names.split(",")} <= set(grape_lc.__all__)


def test_the_example_flow_is_well_formed_and_runs():
    declaration = next(block for block in blocks("python") if "TaskFlow()" in block)
    names: dict[str, object] = {}
    exec(declaration.partition("if __name__")[0], names)  # noqa: S102
    flow = names["flow"]
    assert isinstance(flow, TaskFlow)
    flow.validate_flow()
    engine = ScriptedEngine(["first count, then print", "print(42)"])
    *_, last = flow.stream_sync(engine, {"problem": "count the words of a file"})
    assert isinstance(last, ProgramFinished)
    assert last.outputs == {"code": "print(42)"}


def test_every_make_target_that_it_names_exists():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text()))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []
