"""Prompts of one call from several runs, put together."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters.flow_builder import Messages
from grape_lc.adapters.markers import Damaged, Found, Newest, Part
from grape_lc.adapters.trace_merge import DIFFERS, Seen, merged

ENDS = Damaged(DIFFERS)
A, B, C = Found(1), Found(2), Found(3, "strip")
KIND = Found(7, "json:kind")


def user(*parts: Part) -> Messages:
    return (("user", parts),)


def seen(*parts: Part, chosen: Mapping[Found, str] | None = None, short: bool = False) -> Seen:
    return Seen(user(*parts), chosen or {}, short)


def test_one_prompt_is_itself() -> None:
    assert merged([seen("Plan: ", A, "!")]) == user("Plan: ", A, "!")


def test_prompts_end_where_they_differ() -> None:
    assert merged([seen("Go on: ", A), seen("Go on: ", C)]) == user("Go on: ", ENDS)
    assert merged([seen("x ", A), seen("x ")]) == user("x ", ENDS)
    one: Messages = (("system", ("s",)), ("user", ("u", A)))
    assert merged([Seen(one), Seen(one[:1])]) == (("system", ("s", ENDS)),)
    assert merged([Seen(one), Seen((("user", ("u",)),))]) == user(ENDS)


def test_answers_of_different_calls_are_the_newest_of_them() -> None:
    one, other = seen("Go on: ", A, "!"), seen("Go on: ", B, "!")
    assert merged([one, other]) == user("Go on: ", Newest((1, 2)), "!")
    third = seen("Go on: ", B, "?", short=True)
    assert merged([one, other, third]) == user("Go on: ", Newest((1, 2)), ENDS)
    # What was read of a run with thoughts, or of shorter lists, is another branch at most.
    short = seen("Go on: ", A, "!", short=True)
    assert merged([one, other, short]) == user("Go on: ", Newest((1, 2)), "!")


def test_an_answer_that_is_not_the_newest_is_no_choice() -> None:
    one = Seen(user("First: ", A, " then: ", B), before=(1, 2))
    other = Seen(user("First: ", B, " then: ", A), before=(2, 1))
    assert merged([one, other]) == user("First: ", ENDS)
    later = [
        Seen(user("Last: ", A), before=(2, 1)),
        Seen(user("Last: ", B), before=(1, 2)),
        Seen(user("Last: ", Found(9))),  # an input, where no call was made before
    ]
    assert merged(later) == user("Last: ", Newest((1, 2, 9)))


def test_a_word_that_begins_alike_is_no_common_text() -> None:
    assert merged([seen("At 21:25:31."), seen("At 21:25:32.")]) == user("At ", ENDS)
    assert merged([seen("ab"), seen("ac")]) == user(ENDS)
    # A text that ends is not a word that goes on otherwise.
    assert merged([seen("Plan: ", A), seen("Plan: x")]) == user("Plan: ", ENDS)


def test_a_chosen_text_is_a_slot() -> None:
    prompts = [
        seen(f"A {kind} case: {kind}", A, "!", chosen={KIND: kind})
        for kind in ("negative", "neutral", "good")
    ]
    assert merged(prompts) == user("A ", KIND, " case: ", KIND, A, "!")
    # Of texts that begin alike the slot takes what was read of them already.
    assert merged(prompts[:2]) == user("A ", KIND, " case: ", KIND, A, "!")


def test_a_chosen_text_that_stands_in_one_prompt_only_is_no_slot() -> None:
    one = seen("A bug ", A, chosen={KIND: "bug"})
    other = seen("A feature ", A, chosen={KIND: "question"})
    assert merged([one, other]) == user("A ", ENDS)
    assert merged([one, seen("A question ", A)]) == user("A ", ENDS)


def test_of_lists_the_longest_counts() -> None:
    long = seen("- ", A, "\n- ", B, "\n- ", C, "\nSum up.")
    short = seen("- ", A, "\n- ", B, "\nSum up.", short=True)
    assert merged([long, short]) == long.messages


def test_a_length_in_front_of_the_list_ends_the_prompt() -> None:
    long = seen("Of 3: ", A, B, C)
    short = seen("Of 2: ", A, B, short=True)
    assert merged([long, short]) == user("Of ", ENDS)


def test_what_changes_behind_a_list_of_the_same_length_ends_the_prompt() -> None:
    assert merged([seen(A, " id 7f"), seen(A, " id 9c", short=True)]) == user(A, " id ", ENDS)


def test_unknown_places_are_kept() -> None:
    tool = Damaged("a tool")
    one: Messages = (("user", (A, tool)), ("user", (B,)))
    assert merged([Seen(one), Seen(one)]) == one


parts = st.lists(
    st.one_of(st.text("ab :", min_size=1, max_size=6), st.sampled_from([A, B, C])), max_size=6
)
prompts = st.lists(
    st.tuples(st.sampled_from(["system", "user"]), parts.map(tuple)), min_size=1, max_size=3
).map(tuple)


def flat(messages: Messages) -> str:
    """A prompt as one text, in which each value is a character that tells its transducer."""

    def mark(part: Part) -> str:
        if isinstance(part, str):
            return part
        return "\x03" if part == C else "\x01"

    return "".join(f"<{role}>" + "".join(map(mark, of)) for role, of in messages)


@given(st.lists(prompts, min_size=1, max_size=4))
def test_the_common_prompt_is_the_beginning_of_each(several: list[Messages]) -> None:
    together = merged([Seen(messages) for messages in several])
    bare = tuple((role, tuple(p for p in of if p != ENDS)) for role, of in together)
    if any(ENDS in of for _, of in together):
        assert together[-1][1][-1] == ENDS, "nothing stands behind a difference"
        if together[0] == ("user", (ENDS,)):
            return  # not even the first role is common
    else:
        assert {flat(messages) for messages in several} == {flat(bare)}
    assert all(flat(messages).startswith(flat(bare)) for messages in several)
    values = {part.number for m in several for _, of in m for part in of if isinstance(part, Found)}
    for _, of in together:
        for part in of:
            if isinstance(part, Newest):
                assert values.issuperset(part.numbers)
