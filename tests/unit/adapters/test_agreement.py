"""What runs agree on when a value may have gone through one transducer or another."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters.agreement import agreement, symbolic
from grape_lc.adapters.edges import DIFFERS, value_in
from grape_lc.adapters.flow_builder import Messages
from grape_lc.adapters.forms import forms_of
from grape_lc.adapters.markers import Damaged, Found, Newest, Part
from grape_lc.flow import parse_transducer

PROGRAMS: dict[str, Callable[[str], str]] = {
    "identity": lambda text: text,
    "strip": lambda text: text.strip(),
    "lstrip": lambda text: text.lstrip(),
    "rstrip": lambda text: text.rstrip(),
    "json_escape": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "strip|json_escape_ascii": lambda text: json.dumps(text.strip())[1:-1],
}
answers = st.builds(
    lambda head, body, tail: head + body + tail,
    st.sampled_from(["", " ", "\n"]),
    st.text(st.sampled_from('xyzé"\n'), min_size=1, max_size=9).filter(str.strip),
    st.sampled_from(["", " ", "\n"]),
)


def seen(answer: str, sent: str) -> Messages:
    """A run's prompt with the answer told apart."""
    forms = [
        (form, value_in(1, form, specs))
        for form, specs in sorted(forms_of(answer).items(), key=lambda item: -len(item[0]))
    ]
    return (("user", symbolic(f"A: <{sent}> :B", forms)),)


@given(st.sampled_from(sorted(PROGRAMS)), st.lists(answers, min_size=2, max_size=4))
def test_what_the_program_does_is_found_though_some_answers_do_not_show_it(
    program: str, answers: list[str]
) -> None:
    first, *others = [seen(answer, PROGRAMS[program](answer)) for answer in answers]
    common = first
    for other in others:
        common = agreement(common, other)
    ((_, parts),) = common
    assert parts[0] == "A: <"
    assert parts[2:] == ("> :B",)
    (found,) = [part for part in parts if isinstance(part, Found)]
    for spec in (found.transducer, *found.also):
        for answer in answers:
            assert parse_transducer(spec).apply(answer) == PROGRAMS[program](answer)
    assert program in (found.transducer, *found.also)


def test_the_newest_of_several_values_is_one_value() -> None:
    one: Messages = (("user", ("A", Newest((1, 2), "strip"), "end")),)
    assert agreement(one, one) == one
    other: Messages = (("user", ("A", Newest((1, 3), "strip"), "end")),)
    assert agreement(one, other) == (("user", ("A", DIFFERS)),)
    assert agreement(one, (("user", ("A", Found(1, "strip"), "end")),)) == agreement(one, other)


def test_nothing_explains_both() -> None:
    one = (("user", (Found(1, "strip", ("lstrip",)), "end")),)
    assert agreement(one, (("user", (Found(1, "rstrip"), "end")),)) == (("user", (DIFFERS,)),)
    assert agreement(one, (("user", (Found(2, "strip"), "end")),)) == (("user", (DIFFERS,)),)
    ((_, (found, _)),) = agreement(one, (("user", (Found(1, "lstrip"), "end")),))
    assert found == Found(1, "lstrip")


def test_one_value_of_a_dump_shows_that_the_others_were_escaped_too() -> None:
    def seen(question: str, answer: str, *, dumped: bool = True) -> Messages:
        sent = json.dumps({"question": question, "answer": answer})
        if not dumped:
            sent = f'"{question}" and {json.dumps(answer)} or {question}'
        return read((question, answer), sent)

    one, other = seen("xx or xy?", 'u "v"\n'), seen("yy", "v\n\n\u00e9")
    ((_, parts),) = agreement(one, other)
    assert parts == (
        *('{"question": "', Found(0, "json_escape_ascii"), '", "answer": "'),
        *(Found(1, "json_escape_ascii"), '"}'),
    )
    ((_, parts),) = agreement(
        seen("xx or xy?", 'u "v"\n', dumped=False), seen("yy", "v\n\n\u00e9", dumped=False)
    )
    assert parts[-1] == Found(0), "what has no quotes is no part of JSON"


# ------------------------------------------------------------------ white space beside values

STRIPS = ("identity", "strip", "lstrip", "rstrip")
spaces = st.sampled_from(["", " ", "\n", "\n\n"])


def padded(letters: str) -> st.SearchStrategy[str]:
    return st.builds(
        lambda left, body, right: left + body + right,
        spaces,
        st.text(st.sampled_from(letters), min_size=2, max_size=4),
        spaces,
    )


def read(answers: tuple[str, str], prompt: str) -> Messages:
    """A run's prompt with two answers told apart."""
    forms = [
        (form, value_in(number, form, specs))
        for number, answer in enumerate(answers)
        for form, specs in forms_of(answer).items()
    ]
    forms.sort(key=lambda item: -len(item[0]))
    return (("user", symbolic(prompt, forms)),)


def written(parts: tuple[Part, ...], answers: tuple[str, str]) -> str:
    """What the parts foretell."""
    text = ""
    for part in parts:
        if isinstance(part, Damaged):
            break
        if isinstance(part, Found):
            text += parse_transducer(part.transducer).apply(answers[part.number])
        else:
            assert isinstance(part, str)
            text += part
    return text


@given(
    st.tuples(st.sampled_from(STRIPS), st.sampled_from(STRIPS)),
    st.tuples(spaces, spaces, spaces, spaces),
    st.lists(st.tuples(padded("xyz"), padded("uvw")), min_size=2, max_size=5),
)
def test_the_white_space_beside_a_value_is_the_texts_where_runs_say_so(
    strips: tuple[str, str], beside: tuple[str, str, str, str], runs: list[tuple[str, str]]
) -> None:
    a, b, c, d = beside

    def prompt(answers: tuple[str, str]) -> str:
        one, two = (PROGRAMS[s](t) for s, t in zip(strips, answers, strict=True))
        return f"One:{a}{one}{b}Two:{c}{two}{d}End"

    common = read(runs[0], prompt(runs[0]))
    for answers in runs[1:]:
        common = agreement(common, read(answers, prompt(answers)))
    ((_, parts),) = common
    assert not any(isinstance(part, Damaged) for part in parts), "the program did the same"
    for answers in runs:
        assert written(parts, answers) == prompt(answers)


@given(st.lists(st.tuples(padded("xyz"), padded("uvw"), st.text("xu \n:", max_size=9)), min_size=2))
def test_what_is_agreed_on_was_in_every_run(runs: list[tuple[str, str, str]]) -> None:
    """Whatever the runs were sent."""
    common: Messages | None = None
    for one, two, more in runs:
        seen = read((one, two), f"{one.strip()}{more}{two}")
        common = seen if common is None else agreement(common, seen)
    assert common is not None
    ((_, parts),) = common
    for one, two, more in runs:
        assert f"{one.strip()}{more}{two}".startswith(written(parts, (one, two)))
