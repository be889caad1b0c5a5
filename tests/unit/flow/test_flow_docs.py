"""The guide's examples run, and print what it says they print."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import grape_lc.flow

GUIDE = Path(grape_lc.flow.__file__).parents[2] / "docs" / "taskflow.md"


def test_the_guide_is_true():
    blocks = re.findall(r"(?ms)^```(python|text)\n(.*?)^```$", GUIDE.read_text())
    names: dict[str, object] = {}
    ran = compared = 0
    printed = ""
    for language, block in blocks:
        if language == "text":
            assert printed == block
            compared += 1
        elif "GrapeEngine" not in block:  # needs a model; the driver's own tests run flows
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(block, names)  # noqa: S102
            printed = out.getvalue()
            ran += 1
    assert (ran, compared) == (7, 2)
