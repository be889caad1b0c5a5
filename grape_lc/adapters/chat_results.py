"""What the deltas of calls are to LangChain: messages, chunks, usage, log probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import (
    invalid_tool_call,
    tool_call,
    tool_call_chunk,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from grape_lc.adapters.chat_calls import Piece, Reader
from grape_lc.engine.base import CallDelta, CallPiece, TokenLogprob, Usage


def chat_result(
    answers: Sequence[list[CallDelta]], readers: Iterable[Reader], model_name: str
) -> ChatResult:
    """The answers, one generation each; of several, the usage of all in ``llm_output``."""
    messages = [
        _message(deltas, reader, model_name)
        for deltas, reader in zip(answers, readers, strict=True)
    ]
    output = {} if len(answers) == 1 else llm_output(answers, model_name)
    generations = [ChatGeneration(message=message) for message in messages]
    return ChatResult(generations=generations, llm_output=output)


def llm_output(answers: Iterable[list[CallDelta]], model_name: str) -> dict[str, Any]:
    """Usage of calls that are one request to the user, and the model."""
    usages = [deltas[-1].usage for deltas in answers]
    known = [usage for usage in usages if usage is not None]
    asked = sum(usage.prompt_tokens for usage in known)
    sampled = sum(usage.completion_tokens for usage in known)
    return {
        "token_usage": {
            "prompt_tokens": asked,
            "completion_tokens": sampled,
            "total_tokens": asked + sampled,
        },
        "model_name": model_name,
    }


class Chunks:
    """Makes the chunks of one streamed call."""

    def __init__(self, reader: Reader, model_name: str) -> None:
        self._reader = reader
        self._model_name = model_name
        self._logprobs: list[TokenLogprob] = []

    def of(self, delta: CallDelta) -> ChatGenerationChunk | None:
        """A chunk for a delta; ``None`` for one that says nothing (part of a character, say)."""
        self._logprobs += delta.logprobs
        pieces = [*self._reader.feed(delta.text), *delta.calls]
        last = delta.finish_reason is not None
        if last:
            pieces += self._reader.finish()
        elif not pieces:
            return None
        response = response_metadata(delta, self._model_name) if last else {}
        if self._logprobs:
            response["logprobs"] = openai_logprobs(self._logprobs)
            self._logprobs = []
        message = AIMessageChunk(
            content=_text(pieces),
            tool_call_chunks=[
                tool_call_chunk(name=p.name, args=p.args, id=p.id, index=p.call)
                for p in _joined(pieces)
            ],
            response_metadata=response,
            usage_metadata=usage_metadata(delta.usage),
            chunk_position="last" if last else None,
        )
        return ChatGenerationChunk(message=message)


def usage_metadata(usage: Usage | None) -> UsageMetadata | None:
    """The token counts of a call."""
    if usage is None:
        return None
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.cached_tokens),
    )


def response_metadata(delta: CallDelta, model_name: str) -> dict[str, Any]:
    """Why a call ended, and how much of its prompt was there when it came."""
    response: dict[str, Any] = {
        "model_name": model_name,
        "model_provider": "grape",
        "finish_reason": delta.finish_reason,
    }
    if delta.usage is not None:
        response["grape"] = {
            "ahead_tokens": delta.usage.ahead_tokens,
            "cached_tokens": delta.usage.cached_tokens,
            "ahead_outcome": delta.usage.ahead_outcome,
            "found_by": delta.usage.found_by,
        }
    return response


def openai_logprobs(logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Log probabilities in OpenAI's form."""
    return {
        "content": [
            {
                **_logprob(item.token, item.logprob),
                "top_logprobs": [_logprob(token, value) for token, value in item.top],
            }
            for item in logprobs
        ]
    }


def _logprob(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _message(deltas: list[CallDelta], reader: Reader, model_name: str) -> AIMessage:
    pieces = [piece for d in deltas for piece in (*reader.feed(d.text), *d.calls)]
    pieces += reader.finish()
    response = response_metadata(deltas[-1], model_name)
    if logprobs := [item for delta in deltas for item in delta.logprobs]:
        response["logprobs"] = openai_logprobs(logprobs)
    calls = [*_calls(pieces)]
    return AIMessage(
        content=_text(pieces),
        tool_calls=[call for call in calls if call["type"] == "tool_call"],
        invalid_tool_calls=[call for call in calls if call["type"] == "invalid_tool_call"],
        response_metadata=response,
        usage_metadata=usage_metadata(deltas[-1].usage),
    )


def _text(pieces: Iterable[Piece]) -> str:
    return "".join(piece for piece in pieces if isinstance(piece, str))


def _joined(pieces: Iterable[Piece]) -> Iterator[CallPiece]:
    """One piece a call: LangChain joins those of different chunks only."""
    calls: dict[int, list[CallPiece]] = {}
    for piece in pieces:
        if isinstance(piece, CallPiece):
            calls.setdefault(piece.call, []).append(piece)
    for parts in calls.values():
        yield parts[0]._replace(args="".join(part.args for part in parts))


def _calls(pieces: Iterable[Piece]) -> Iterator[ToolCall | InvalidToolCall]:
    for call in _joined(pieces):
        try:
            args = json.loads(call.args, strict=False)
        except (ValueError, RecursionError):
            args = None
        if call.name is not None and isinstance(args, dict):
            yield tool_call(name=call.name, args=args, id=call.id)
        else:
            yield invalid_tool_call(name=call.name, args=call.args, id=call.id, error=None)
