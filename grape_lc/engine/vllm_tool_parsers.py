"""vLLM's own parsers of tool calls, for models whose calls are not in the form of Hermes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager
from vllm.tool_parsers import ToolParserManager

from grape_lc.engine.base import CallPiece
from grape_lc.errors import RequestError


class ToolCallParser:
    """Reads the calls out of one answer, once it is complete.

    vLLM's parsers can read along too, but not all of them do, and some say arguments twice.

    name: as vLLM registers it. Raises RequestError for a name that it does not know, or a parser
    that cannot work with this tokenizer.
    """

    def __init__(
        self, name: str, tokenizer: Any, config: Any, tools: Sequence[Mapping[str, Any]]
    ) -> None:
        known = ToolParserManager.list_registered()
        if name not in known:
            raise RequestError(f"tool_parser={name!r}; this vLLM knows: {', '.join(known)}")
        self._request = ChatCompletionRequest(
            messages=[], model="model", tools=[dict(tool) for tool in tools], tool_choice="auto"
        )
        self._text = ""
        self._ids: list[int] = []
        try:
            kind = ParserManager.get_parser(tool_parser_name=name, enable_auto_tools=True)
            self._parser = kind(tokenizer, self._request.tools, model_config=config)
        except Exception as error:
            raise RequestError(
                f"tool_parser={name!r} does not work with this model: {error}"
            ) from error

    def feed(
        self, text: str, token_ids: Sequence[int], *, last: bool
    ) -> tuple[str, tuple[CallPiece, ...]]:
        """Text beside the calls, and the calls, if this is the ``last`` piece; else nothing."""
        self._text += text
        self._ids += token_ids
        if not last:
            return "", ()
        _, content, calls = self._parser.parse(
            self._text, self._request, enable_auto_tools=True, model_output_token_ids=self._ids
        )
        pieces = (
            CallPiece(number, call.arguments, call.name, call.id or f"call_{uuid.uuid4().hex[:24]}")
            for number, call in enumerate(calls or ())
        )
        return content or "", tuple(pieces)
