"""How the roles of the example agents ask their model, and in which order prompts tell things.

    role_first      role's instructions | what it works from | closing words
    history_first   head of all roles | all there is so far, as it came to be | role's instructions

In the first order a role's instructions are computed once for all programs, where the server keeps
prefixes. In the second each prompt of a program begins with most of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from langchain_core.messages import HumanMessage, SystemMessage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

Layout = Literal["role_first", "history_first"]

Limits = int | Mapping[str, int] | None
"""Limit of every role's answer in tokens, or limits by role name; None: no limit."""


Ask = Callable[[str, str, str], str]
"""Called with a role's name, its system prompt and a message; returns the answer."""


class Node(Protocol):
    """A node of a graph."""

    def __call__(self, state: Any) -> Any: ...


def asker(llm: BaseChatModel, max_tokens: Limits) -> Ask:
    """A function of a role's name, its system prompt and a message that returns the answer.

    max_tokens: bound with ``llm.bind``. A role that is not named has no limit of its own.
    """

    def ask(role: str, system: str, message: str) -> str:
        limit = max_tokens.get(role) if isinstance(max_tokens, Mapping) else max_tokens
        model = llm if limit is None else llm.bind(max_tokens=limit)
        reply = model.invoke([SystemMessage(system), HumanMessage(message)])
        return str(reply.text)

    return ask


def checked_layout(layout: str) -> str:
    """``layout``, if it is one. Raises ValueError, which names those that there are."""
    if layout not in get_args(Layout):
        raise ValueError(f"layout {layout!r}: there are {', '.join(get_args(Layout))}")
    return layout


def so_far(
    state: Mapping[str, object], titles: Mapping[str, str], last: str, role: str, closing: str
) -> str:
    """A message in the order ``history_first``.

    It tells what there is in a state, each under its title, in the order of ``titles`` up to
    ``last``; then the role's instructions and the closing words.
    """
    names = list(titles)
    told = names[: names.index(last) + 1]
    history = "".join(f"{titles[name]}:\n\n{state[name]}\n\n" for name in told)
    return f"{history}{role}\n\n{closing}"
