"""docs/explain.md: its code runs, and its sample and its words are those of the code."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from grape_lc.adapters import explain_edges
from grape_lc.adapters.explain_text import WIDTH
from grape_lc.adapters.explain_words import CALL_HEADS, EDGE_HEADS
from grape_lc.cli import app
from grape_lc.flow.layout import LEAST_TOKENS

GUIDE = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()


def test_the_code_runs(team: Any) -> None:
    [block] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "explain.md", "exec"), {"graph": team})  # noqa: S102
    assert "4 calls" in out.getvalue()


def test_the_sample_has_this_version_s_form() -> None:
    [sample] = re.findall(r"```text\n(Graph .*?)```", GUIDE, re.DOTALL)
    lines = sample.splitlines()
    assert max(map(len, lines)) <= WIDTH
    for heads in (CALL_HEADS, EDGE_HEADS):
        assert any(re.split(r"\s{2,}", line) == list(heads) for line in lines)


@pytest.mark.parametrize(
    "phrase",
    re.findall(r"^\| ([^|]+) \|", GUIDE.partition("| why not more |")[2], re.MULTILINE)[:11],
)
def test_every_reason_is_one_that_is_told(phrase: str) -> None:
    told = " ".join(Path(explain_edges.__file__).read_text().split())
    told = re.sub(r'" "', "", told)
    for part in phrase.replace("{opaque_1}", "...").split("..."):
        assert part.strip(" ,") in told


def test_options_and_bounds_are_those_of_the_command() -> None:
    group: Any = app
    [command] = [c for c in group.registered_commands if c.callback.__name__ == "explain"]
    source = Path(command.callback.__code__.co_filename).read_text()
    for option in re.findall(r"grape explain [^\n]*", GUIDE):
        for flag in re.findall(r"--([a-z]+)", option):
            assert f"{flag}:" in source or f'"--{flag}"' in source
    assert f"from {LEAST_TOKENS} static tokens" in " ".join(GUIDE.split())
