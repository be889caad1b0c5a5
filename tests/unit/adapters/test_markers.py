"""Markers: found again after what leaves a value whole, noticed after what does not."""

from __future__ import annotations

import html
import json
import re
import string
import textwrap
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters.markers import THOUGHTS, Damaged, Found, Part, marker, short_marker, split
from grape_lc.flow import parse_transducer

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
        STRIPS[part.transducer](marker(part.number)) if isinstance(part, Found) else str(part)
        for part in parts
    )
    assert list(split(text)) == joined(parts)


@given(literals, literals, st.sampled_from(sorted(STRIPS)))
def test_stripping_the_whole_text_is_seen_at_its_ends_only(a: str, b: str, strip: str) -> None:
    text = STRIPS[strip](f"{marker(0)}{a}|{b}{marker(1)}")
    left = "lstrip" if strip in ("strip", "lstrip") else "identity"
    right = "rstrip" if strip in ("strip", "rstrip") else "identity"
    assert list(split(text)) == [Found(0, left), f"{a}|{b}", Found(1, right)]


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
    "ascii": ascii,
    "repr of more": lambda t: repr(f"so: {t}"),
    "repr of repr": lambda t: repr(repr(t)),
    "json of json": lambda t: json.dumps(json.dumps(t)),
    "repr without its quotes": lambda t: repr(t)[1:-1],
    "composed otherwise": lambda t: unicodedata.normalize("NFD", t),
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


# ------------------------------------------------------------------ escapes, fields, thoughts

ESCAPES: dict[str, Callable[[str], str]] = {
    "identity": lambda text: text,
    "repr": repr,
    "json_escape": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json_escape_ascii": lambda text: json.dumps(text)[1:-1],
}
THINKING: dict[str, Callable[[str], str]] = {
    "": lambda text: text,
    "after_think": lambda text: text.rsplit("</think>", 1)[-1],
}
texts = st.lists(
    st.one_of(
        literals,
        st.tuples(
            st.integers(0, 10**6),
            st.sampled_from(sorted(THINKING)),
            st.sampled_from(sorted(STRIPS)),
            st.sampled_from(sorted(ESCAPES)),
        ),
    ),
    max_size=5,
)


def spec_of(*names: str) -> str:
    return "|".join(name for name in names if name not in ("", "identity")) or "identity"


@given(texts, st.booleans())
def test_what_a_value_went_through_is_known(parts: list[Any], thinks: bool) -> None:
    text, wanted = "", list[Part]()
    for part in parts:
        if isinstance(part, str):
            text += part
            wanted.append(part)
            continue
        number, thinking, strip, escape = part
        value = THINKING[thinking](marker(number, thinks=thinks))
        # What begins with thoughts has no white space in front that could be stripped.
        seen = strip
        if thinks and not thinking:
            seen = {"lstrip": "identity", "strip": "rstrip"}.get(strip, strip)
        spec = spec_of(thinking if thinks else "", seen, escape)
        text += ESCAPES[escape](STRIPS[strip](value))
        wanted.append(Found(number, spec))
    assert list(split(text)) == joined(wanted)


@given(st.integers(0, 9), st.sampled_from(sorted(STRIPS)), st.booleans())
def test_found_specs_do_to_a_marker_what_the_program_did(
    number: int, strip: str, thinks: bool
) -> None:
    """The transducer that is found, applied to the marker, gives the text it was found in."""
    value = marker(number, thinks=thinks)
    for thinking in THINKING.values():
        for escape in ESCAPES.values():
            text = escape(STRIPS[strip](thinking(value)))
            (found,) = split(text)
            assert isinstance(found, Found)
            assert parse_transducer(found.transducer).apply(value) == text


def test_thoughts_that_were_cut_out() -> None:
    value = marker(4, thinks=True)
    cuts = [
        value.split("</think>")[-1],
        value.partition("</think>")[2],
        re.sub(r"<think>.*?</think>", "", value, flags=re.DOTALL),
    ]
    assert [list(split(f"So: {text}!")) for text in cuts] == [
        ["So: ", Found(4, "after_think"), "!"]
    ] * len(cuts)
    thoughts = re.findall(r"<think>(.*?)</think>", value, flags=re.DOTALL)[0]
    assert list(split(f"It thought {thoughts}.")) == ["It thought \n", Damaged()]


def test_lists_of_values() -> None:
    both = [marker(1), marker(2).strip()]
    assert list(split(f"All: {both}")) == [
        *("All: [", Found(1, "repr"), ", ", Found(2, "strip|repr"), "]"),
    ]
    assert list(split(json.dumps({"all": both}))) == [
        *('{"all": ["', Found(1, "json_escape_ascii"), '", "'),
        *(Found(2, "strip|json_escape_ascii"), '"]}'),
    ]
    assert list(split(json.dumps(f"a\n{marker(1)}", ensure_ascii=False))) == [
        *('"a\\n', Found(1, "json_escape"), '"'),
    ]


def document(number: int, *, thinks: bool = False) -> str:
    body = {
        "plan": marker(number, "plan", thinks=thinks),
        "steps": [{"do": marker(number, ("steps", "0", "do"), thinks=thinks)}],
        "a.b": marker(number, ("a.b",), thinks=thinks),
        "count": 2,
    }
    return json.dumps(body, ensure_ascii=False)


def test_fields_of_a_document() -> None:
    answer = json.loads(document(3))
    text = f"{answer['plan'].strip()} {answer['steps']} {answer['a.b']}"
    assert list(split(text)) == [
        Found(3, "json:plan|strip"),
        *(" [{'do': ", Found(3, "json:steps.0.do|repr"), "}] ", Found(3, "json:a%2Eb")),
    ]
    for part in split(text):
        if isinstance(part, Found):
            spec = parse_transducer(part.transducer)
            assert spec.apply(document(3)) in text


def test_whole_documents() -> None:
    whole = document(3)
    answer = json.loads(whole)
    for text, parts in [
        (f"It is {whole}.", ["It is ", Found(3), "."]),
        (f"{[whole]}", ["[", Found(3, "repr"), "]"]),
        (json.dumps([whole]), ['["', Found(3, "json_escape_ascii"), '"]']),
        (f"{answer['plan']}{whole}", [Found(3, "json:plan"), Found(3)]),
    ]:
        assert list(split(text, {3: whole})) == parts
    # Written anew, it is its fields.
    anew = list(split(json.dumps(answer, indent=2), {3: whole}))
    assert anew[:2] == ['{\n  "plan": "', Found(3, "json:plan|json_escape_ascii")]
    assert list(split("2 of {}", {3: "2"})) == ["2 of {}"], "the program may have written it"


def test_documents_behind_thoughts() -> None:
    value = f"{THOUGHTS}\n{document(5, thinks=True)}\n"
    after = value.rsplit("</think>", maxsplit=1)[-1]
    assert list(split(f"<{value}>", {5: value})) == ["<", Found(5), ">"]
    assert list(split(f"<{value.strip()}>", {5: value})) == ["<", Found(5, "rstrip"), ">"]
    assert list(split(f"<{after.strip()}>", {5: value})) == [
        "<",
        Found(5, "after_think|strip"),
        ">",
    ]
    plan = json.loads(after)["plan"]
    assert list(split(f"<{plan}>", {5: value})) == ["<", Found(5, "after_think|json:plan"), ">"]
    assert parse_transducer("after_think|json:plan").apply(value) == plan


def test_a_field_that_no_path_can_name() -> None:
    assert list(split(f"a{marker(1, ('a', ''))}b")) == ["a", Damaged("a field without a name")]


SHORT_CHANGES = {
    name: change
    for name, change in CHANGES.items()
    if name in ("upper", "lower", "title", "swapcase", "casefold", "words", "one line", "no quotes",
                "no digits", "no punctuation", "quoted")
}  # fmt: skip


@given(literals, literals, st.integers(0, 2_000_000), st.sampled_from(sorted(STRIPS)))
def test_short_markers_are_found_wherever_they_stand(a: str, b: str, n: int, strip: str) -> None:
    text = STRIPS[strip](short_marker(n, ("plan", "0", "a.b")))
    field = parse_transducer("json:plan").name.replace("plan", "plan.0.")
    for shown, then in (
        (text, ""),
        (repr(text), "|repr"),
        (json.dumps(text)[1:-1], "|json_escape_ascii"),
        (json.dumps(text, ensure_ascii=False)[1:-1], "|json_escape"),
    ):
        (found,) = [part for part in split(f"{a}{shown}{b}") if isinstance(part, Found)]
        assert found.number == n
        assert found.transducer.startswith(field)
        assert found.transducer.endswith(then)
        assert (strip in found.transducer) is (strip != "identity")


@pytest.mark.parametrize("name", SHORT_CHANGES)
def test_a_changed_short_marker_is_noticed(name: str) -> None:
    text = SHORT_CHANGES[name](short_marker(3, ("plan",)))
    parts = list(split(f"before {text} behind"))
    assert isinstance(parts[-1], Damaged)
    assert not any(isinstance(part, Found) for part in parts)


def test_a_short_marker_is_short() -> None:
    assert len(short_marker(1_000_999, ())) == 21
    assert len(short_marker(0, ("plan",))) == 22
