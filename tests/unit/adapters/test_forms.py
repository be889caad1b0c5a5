"""The forms of a text that are looked for in prompts."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters.forms import forms_of
from grape_lc.flow import parse_transducer

ATOMS = [*" \n'\"\\é{}:,[]", "word", "</think>", '{"a": "', '"}', "```json\n", "\ud83d"]
texts = st.lists(st.sampled_from(ATOMS), max_size=12).map("".join)


def simplest(text: str) -> dict[str, str]:
    return {form: specs[0] for form, specs in forms_of(text).items()}


@given(texts)
def test_each_form_is_what_its_transducer_gives(text: str) -> None:
    forms = forms_of(text)
    for form, specs in forms.items():
        for spec in specs:
            assert parse_transducer(spec).apply(text) == form
            assert parse_transducer(spec).settled(text, done=True) == form
    named = [spec for specs in forms.values() for spec in specs]
    assert len(set(named)) == len(named)
    assert list(forms)[:1] == [text][: len(text)]


@given(texts)
def test_what_programs_do_is_among_them(text: str) -> None:
    forms = simplest(text)
    for form in (text, text.strip(), text.lstrip(), text.rstrip()):
        assert form in forms or not form
    after = text.partition("</think>")[2].strip()
    assert after in forms or not after
    for form in (json.dumps(text)[1:-1], json.dumps(text.strip())[1:-1]):
        assert form in forms or not form
    assert repr(text) in forms or repr(text)[1:-1] == text


def test_the_simplest_transducer_is_named() -> None:
    assert simplest("plain") == {"plain": "identity"}
    assert list(simplest(" plain\n").items())[:4] == [
        (" plain\n", "identity"),
        ("plain", "strip"),
        (" plain", "rstrip"),
        ("plain\n", "lstrip"),
    ]
    assert simplest("it's") == {"it's": "identity"}, "quotes alone are the program's"
    assert simplest('say "é"\n') == {
        'say "é"\n': "identity",
        'say "é"': "strip",
        "'say \"é\"\\n'": "repr",
        'say \\"é\\"\\n': "json_escape",
        'say \\"\\u00e9\\"\\n': "json_escape_ascii",
        'say \\"é\\"': "strip|json_escape",
        'say \\"\\u00e9\\"': "strip|json_escape_ascii",
    }


def test_others_that_give_the_same_are_named_too() -> None:
    assert forms_of("plain")["plain"] == (
        *("identity", "strip", "rstrip", "lstrip", "json_escape_ascii", "json_escape"),
        *("strip|json_escape_ascii", "strip|json_escape"),
    )
    assert forms_of("two\n")["two"] == (
        *("strip", "rstrip", "strip|json_escape_ascii", "strip|json_escape"),
    )


def test_fields_of_a_document() -> None:
    link = "https://example.com/a/long/one"
    document = {
        "plan": " Two words\n",
        "kind": "billing",
        "link": link,
        "steps": [{"do": "Read 'it'"}, {"do": "Two words"}],
    }
    for text, base in [
        (json.dumps(document), ""),
        (f"Here:\n```json\n{json.dumps(document, indent=1)}\n```", ""),
        (f'<think>{{"plan": "Or so"}}</think>{json.dumps(document)}', "after_think|"),
    ]:
        forms = simplest(text)
        assert forms[" Two words\n"] == f"{base}json:plan"
        assert forms["Two words"] == f"{base}json:plan|strip", "the first of two"
        assert forms["' Two words\\n'"] == f"{base}json:plan|repr"
        assert forms["Read 'it'"] == f"{base}json:steps.0.do"
        assert forms[link] == f"{base}json:link"
        assert "Or so" not in forms, "a thought"
        assert "billing" not in forms, "a word that the program has as well"


def test_a_document_with_very_many_fields() -> None:
    text = json.dumps([f"text number {n}" for n in range(10_000)])
    forms = simplest(text)
    assert forms["text number 63"] == "json:63"
    assert "text number 64" not in forms
