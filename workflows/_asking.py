"""How the roles of the example agents ask their model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from langchain_core.messages import HumanMessage, SystemMessage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

Limits = int | Mapping[str, int] | None
"""Limit of every role's answer in tokens, or limits by role name; None: no limit."""


def asker(llm: BaseChatModel, max_tokens: Limits) -> Callable[[str, str, str], str]:
    """A function of a role's name, its system prompt and a message that returns the answer.

    max_tokens: bound with ``llm.bind``. A role that is not named has no limit of its own.
    """

    def ask(role: str, system: str, message: str) -> str:
        limit = max_tokens.get(role) if isinstance(max_tokens, Mapping) else max_tokens
        model = llm if limit is None else llm.bind(max_tokens=limit)
        reply = model.invoke([SystemMessage(system), HumanMessage(message)])
        return str(reply.text)

    return ask
