"""Markers: found again after what leaves a value whole, noticed after what does not."""

from __future__ import annotations

import html
import json
import re
import string
import textwrap
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters.markers import Damaged, Found, Part, marker, split

literals = st.text(
    st.characters(exclude_categories=("Cs", "Co"), exclude_characters="\u2002\u2003"), max_size=30
)
STRIPS: dict[str, Callable[[str], str]] = {
    "identity": lambda text: text,
    "strip": lambda text: text.strip(),
    "lstrip": lambda text: text.lstrip(),
    "rstrip": lambda text: text.rstrip(),
}


def joined(parts: list[Part]) -> list[Part]:
    """The parts with neighbouring literals joined and empty ones left out."""
    result: list[Part] = []
    for part in parts:
        if isinstance(part, str) and result and isinstance(result[-1], str):
            result[-1] += part
        elif part != "":
            result.append(part)
    return result


@given(
    st.lists(
        st.one_of(
            literals,
            st.builds(Found, st.integers(0, 500), st.sampled_from(sorted(STRIPS))),
        ),
        max_size=8,
    )
)
def test_values_are_found_wherever_they_stand(parts: list[Part]) -> None:
    text = "".join(
        STRIPS[part.edges](marker(part.number)) if isinstance(part, Found) else str(part)
        for part in parts
    )
    assert list(split(text)) == joined(parts)


@given(literals, literals, st.sampled_from(sorted(STRIPS)))
def test_stripping_the_whole_text_is_seen_at_its_ends_only(a: str, b: str, strip: str) -> None:
    text = STRIPS[strip](f"{marker(0)}{a}|{b}{marker(1)}")
    left = "lstrip" if strip in ("strip", "lstrip") else "identity"
    right = "rstrip" if strip in ("strip", "rstrip") else "identity"
    assert list(split(text)) == [Found(0, left), f"{a}|{b}", Found(1, right)]  # type: ignore[arg-type]


CHANGES: dict[str, Callable[[str], str]] = {
    "upper": str.upper,
    "lower": str.lower,
    "title": str.title,
    "swapcase": str.swapcase,
    "casefold": str.casefold,
    "head": lambda t: t[:40],
    "tail": lambda t: t[10:],
    "last word": lambda t: t.split()[-1],
    "first line": lambda t: t.strip().splitlines()[0],
    "last line": lambda t: t.strip().splitlines()[-1],
    "first sentence": lambda t: t.split(".")[0],
    "after a comma": lambda t: t.split(",")[1],
    "words": lambda t: " ".join(t.split()),
    "one line": lambda t: t.replace("\n", " "),
    "no quotes": lambda t: t.replace('"', "'"),
    "no digits": lambda t: re.sub(r"\d", "", t),
    "no punctuation": lambda t: t.translate(str.maketrans("", "", string.punctuation)),
    "letters": lambda t: re.sub(r"[^a-zA-Z ]", "", t),
    "wrapped": lambda t: textwrap.fill(t, 30),
    "shortened": lambda t: textwrap.shorten(t, 40),
    "indented": lambda t: textwrap.indent(t, "  "),
    "quoted": lambda t: "> " + t.replace("\n", "\n> "),
    "repr": repr,
    "ascii": ascii,
    "list": lambda t: str([t]),
    "json": json.dumps,
    "readable json": lambda t: json.dumps({"text": t}, ensure_ascii=False),
    "html": html.escape,
    "blank lines": lambda t: re.sub(r"\n{2,}", "\n", t),
    "newlines stripped": lambda t: t.strip("\n"),
    "unicode dropped": lambda t: t.encode("ascii", "ignore").decode(),
    "reversed": lambda t: t[::-1],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_value_is_no_value(change: str) -> None:
    changed = CHANGES[change](marker(7))
    parts = list(split(f"before {changed} after {marker(8)}"))
    assert Found(7, "identity") not in parts
    assert isinstance(parts[-1], Damaged)
    assert isinstance(parts[0], str)
    assert parts[0].startswith("before ")


def test_what_follows_damage_is_left_out() -> None:
    text = f"a {marker(0)} b {marker(1).upper()} c {marker(2)} d"
    assert list(split(text)) == ["a ", Found(0, "identity"), " b ", Damaged()]


def test_a_text_without_values() -> None:
    assert list(split("")) == []
    assert list(split("{plain} text\n")) == ["{plain} text\n"]
