"""A chat model that answers from a list, and keeps what it was asked."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from pydantic import Field


class Recorder(FakeListChatModel):
    """Answers ``<1>``, ``<2>`` and so on; keeps the prompts and options of each call."""

    responses: list[str] = Field(default_factory=lambda: [f"<{n}>" for n in range(1, 20)])
    seen: list[tuple[list[BaseMessage], dict[str, Any]]] = Field(default_factory=list)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        options = {k: v for k, v in kwargs.items() if k == "max_tokens"}
        self.seen.append((messages, options))
        return super()._generate(messages, *args, **kwargs)

    @property
    def prompts(self) -> list[tuple[str, str]]:
        """The system prompt and the message of each call."""
        for messages, _ in self.seen:
            assert [message.type for message in messages] == ["system", "human"]
        return [(str(m[0].content), str(m[1].content)) for m, _ in self.seen]
