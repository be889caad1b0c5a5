"""Whole cases, drawn from a ``Random``: messages with slots, and values that arrive in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from grape_lc.flow.template import MessageTemplate, PromptTemplate, literal_to_template
from tests.tokenizers.cases import Case
from tests.tokenizers.texts import pieces, text

ANSWERS = ("a", "b", "c")


def _content(random: Random, special: Sequence[str], names: Sequence[str]) -> str:
    """A template that reads these variables, in this order."""
    parts = [literal_to_template(text(random, special, 2))]
    for name in names:
        parts += [f"{{{name}}}", literal_to_template(text(random, special, 2))]
    return "".join(parts)


def _roles(random: Random) -> list[str]:
    """Turns of a conversation that ends with the user's."""
    count = random.choice((1, 1, 2, 3))
    turns = ["user" if i % 2 == (count - 1) % 2 else "assistant" for i in range(count)]
    return ["system", *turns] if random.random() < 0.5 else turns


def messages(random: Random, special: Sequence[str], slots: Sequence[str]) -> PromptTemplate:
    """A conversation of one to four messages that reads these variables anywhere."""
    roles = _roles(random)
    places = sorted(random.randrange(len(roles)) for _ in slots)
    return PromptTemplate(
        messages=tuple(
            MessageTemplate(
                role,
                _content(
                    random, special, [s for s, at in zip(slots, places, strict=True) if at == i]
                ),
            )
            for i, role in enumerate(roles)
        )
    )


def case(random: Random, special: Sequence[str], *, chat: bool = True) -> Case:
    """A prompt with one to four slots, at least one of them another call's answer.

    special: what the tokenizer turns into one token each. chat: messages, or one text.
    """
    slots = [random.choice((*ANSWERS, "x")) for _ in range(random.randint(1, 4))]
    if not set(slots) & set(ANSWERS):
        slots[0] = "a"
    if chat:
        prompt = messages(random, special, slots)
    else:
        prompt = PromptTemplate(text=_content(random, special, slots))
    values = {name: pieces(random, text(random, special, 8)) for name in prompt.variables}
    answers = [name for name in prompt.variables if name in ANSWERS]
    random.shuffle(answers)
    return Case(prompt, values, answers)
