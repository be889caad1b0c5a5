"""What is refused of a call before any engine sees it: its size, and options that have no place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from grape_lc.engine.base import CallRequest
from grape_lc.errors import PromptTooLongError, RequestError, UnsupportedRequestError
from grape_lc.limits import (
    CALL_MESSAGES,
    CALL_TOOLS,
    JSON_DEPTH,
    NAME_CHARS,
    STOP_TEXTS,
    TEXT_CHARS,
)

_OWN = "how an answer is delivered is the engine's to say"
_LOST = "what it asks for is not returned"
# Fields of vllm.SamplingParams that would be taken, and give an answer without text, or one that
# is computed and thrown away.
REFUSED_FIELDS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        (
            "detokenize",
            "flat_logprobs",
            "output_kind",
            "output_text_buffer_length",
            "skip_clone",
            "stream_interval",
        ),
        _OWN,
    )
    | dict.fromkeys(
        (
            "logprob_token_ids",
            "prompt_logprob_start",
            "prompt_logprob_token_ids",
            "prompt_logprobs",
            "routed_experts_prompt_start",
            "trace_decode_token_ids",
        ),
        _LOST,
    )
)


def check_call(request: CallRequest) -> None:
    """Raise RequestError for a call that is over a limit, or whose ``extra`` cannot be served."""
    for name in ("program", "task", "label", "tenant", "tool_parser"):
        NAME_CHARS.check(len(getattr(request, name) or ""), f"the call's {name}", RequestError)
    CALL_MESSAGES.check(len(request.messages or ()), "the call", RequestError)
    for number, message in enumerate(request.messages or ()):
        if not isinstance(message.get("role"), str):
            raise RequestError(
                f"message {number} of the call has no role that is a text, such as 'user': "
                f"{message!r:.60}"
            )
    CALL_TOOLS.check(len(request.tools), "the call", RequestError)
    TEXT_CHARS.check(len(request.text or ""), "the call's text", PromptTooLongError)
    TEXT_CHARS.check(len(request.token_ids or ()), "the call's token_ids", PromptTooLongError)
    sampling = request.sampling
    STOP_TEXTS.check(len(sampling.stop), "the call", RequestError)
    chars = 0
    for what, value in (
        ("messages", request.messages),
        ("tools", request.tools),
        ("structured_outputs", sampling.structured_outputs),
        ("extra", sampling.extra),
    ):
        for text in texts_in(value, f"the call's {what}"):
            chars += len(text)
    TEXT_CHARS.check(chars, "the call's texts", PromptTooLongError)
    check_extra(sampling.extra)


def check_extra(extra: Mapping[str, Any]) -> None:
    """Raise RequestError for further sampling fields that no call may have."""
    for name in extra:
        why = REFUSED_FIELDS.get(name)
        if why is None and str(name).startswith("_"):
            why = "it is vLLM's own"
        if why is not None:
            raise UnsupportedRequestError(f"extra has {name!r:.60}: {why}; leave it out")
    words = extra.get("bad_words")
    if words is not None and not (
        isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)
    ):
        raise RequestError(f"bad_words={words!r:.60}: write a list of texts")
    stop = extra.get("stop")
    if isinstance(stop, list | tuple):
        STOP_TEXTS.check(len(stop), "extra", RequestError)


def texts_in(value: object, what: str) -> Iterator[str]:
    """Every text in plain data, keys included. Raises RequestError where that is too deep."""
    most, depth, level = JSON_DEPTH.value, 0, [value]
    while level:
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                yield item
            elif isinstance(item, Mapping):
                below.extend(item)
                below.extend(item.values())
            elif isinstance(item, Sequence) and not isinstance(item, bytes | bytearray):
                below.extend(item)
        depth += 1
        if below and depth > most:
            raise RequestError(f"{what}: {JSON_DEPTH.excess(depth)}")
        level = below
