"""The forms in which programs put a known text into a prompt.

<think>Hm.</think> {"plan": " Go on"}    identity
{"plan": " Go on"}                       after_think|lstrip
Go on                                    after_think|json:plan|strip
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from grape_lc.flow.json_document import string_fields
from grape_lc.flow.json_paths import json_spec
from grape_lc.flow.transducers import TRANSDUCERS, piped

# Programs strip at both ends rather than at one.
_STRIPS = ("identity", "strip", "rstrip", "lstrip")
# The default of json.dumps, of the two.
_ESCAPES = ("repr", "json_escape_ascii", "json_escape")
_MOST_FIELDS = 64  # of a document that are looked for
# A word is often one of few that a model may choose from (a kind, a degree), and then the
# program's own text has it as well. A field of one word this long (characters) is none of those.
_LONG_WORD = 24


def forms_of(text: str) -> dict[str, tuple[str, ...]]:
    """Each form of ``text`` and the transducers that give it, the simplest first.

    The empty form is left out.
    """
    forms: dict[str, dict[str, None]] = {}
    for form, spec in _all(text):
        if form:
            forms.setdefault(form, {})[spec] = None
    return {form: tuple(specs) for form, specs in forms.items()}


def _all(text: str) -> Iterator[tuple[str, str]]:
    bases = [("", text)]
    answer = TRANSDUCERS["after_think"].apply(text)
    if answer != text:
        bases.append(("after_think", answer))
    for base, value in bases:
        for strip in _STRIPS:
            yield TRANSDUCERS[strip].apply(value), piped(base, strip)
    # Thoughts may hold drafts of a document: it is looked for behind them.
    base, document = bases[-1]
    fields = [
        (piped(base, json_spec(path)), value)
        for path, value in islice(string_fields(document), _MOST_FIELDS)
        if len(value.split()) > 1 or len(value) >= _LONG_WORD
    ]
    for base, value in fields:
        yield value, base
        yield value.strip(), piped(base, "strip")
    for base, value in (*bases, *fields):
        for strip in ("identity", "strip"):
            yield from _escaped(TRANSDUCERS[strip].apply(value), piped(base, strip))


def _escaped(text: str, spec: str) -> Iterator[tuple[str, str]]:
    for escape in _ESCAPES:
        form = TRANSDUCERS[escape].apply(text)
        # In quotes and else unchanged: more likely the program's own quotes.
        if escape != "repr" or form[1:-1] != text:
            yield form, piped(spec, escape)
