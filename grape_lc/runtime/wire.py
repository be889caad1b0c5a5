"""Messages between the user's process and the engine host: one JSON object a line.

The two ends share a socket pair, so there is no port, and the end of either process is seen by
the other as the end of the stream. JSON, not pickle: a message can only ever be data.

    client -> host                              host -> client
    start  settings of the engine               progress text     while it loads
    call   id, request                          ready    info     it serves now
    cancel id                                   failed   kind, text   it did not come up
    open   program, flow, inputs, tenant        delta    id, text, token ids, time, end
    close  program                              error    id, kind, text
    ask    id, what, arguments                  answer   id, value
                                                died     text     the engine ended by itself
"""

from __future__ import annotations

import json
from typing import Any

from grape_lc import errors
from grape_lc.engine.base import CallDelta, CallPiece, TokenLogprob, Usage
from grape_lc.limits import LINE_BYTES

Message = dict[str, Any]


def encode(message: Message, *, limited: bool = True) -> bytes:
    """One line, newline included. Raises RequestError for what JSON cannot hold.

    limited: and for more than ``limits.LINE_BYTES``. A host's answers are as long as they are.
    """
    try:
        text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
        line = text.encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.RequestError(f"the request holds what is not plain data: {error}") from error
    if limited:
        LINE_BYTES.check(len(line), "the request", errors.RequestError)
    return line


def decode(line: bytes) -> Message:
    """The message of one line, which has a kind. Raises WireError for anything else."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise errors.WireError(f"a line of {len(line)} bytes is no JSON: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("t"), str):
        raise errors.WireError(f"a line of {len(line)} bytes is no message: {line[:60]!r}")
    return message


def delta_message(call_id: int, delta: CallDelta) -> Message:
    """``delta`` of call ``call_id`` as a message; end fields only when it is the last one."""
    message: Message = {
        "t": "delta",
        "id": call_id,
        "text": delta.text,
        "ids": delta.token_ids,
        "at": delta.at,
    }
    if delta.logprobs:
        message["logprobs"] = delta.logprobs
    if delta.calls:
        message["calls"] = delta.calls
    if delta.finish_reason is not None:
        message["end"] = delta.finish_reason
        message["usage"] = delta.usage
    return message


def delta_of(message: Message) -> CallDelta:
    """The inverse of ``delta_message``. Raises WireError for what that did not make."""
    try:
        return _delta_of(message)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise errors.WireError(f"a message is no piece of an answer: {error!r:.200}") from error


def _delta_of(message: Message) -> CallDelta:
    usage = message.get("usage")
    return CallDelta(
        text=message["text"],
        token_ids=tuple(message["ids"]),
        at=message["at"],
        finish_reason=message.get("end"),
        usage=Usage(*usage) if usage is not None else None,
        logprobs=tuple(
            TokenLogprob(token, logprob, tuple((text, value) for text, value in top))
            for token, logprob, top in message.get("logprobs", ())
        ),
        calls=tuple(CallPiece(*piece) for piece in message.get("calls", ())),
    )


def error_message(error: BaseException) -> Message:
    """Kind and text of an error; what is not ours becomes a CallFailedError."""
    if isinstance(error, errors.GrapeError):
        return {"kind": type(error).__name__, "text": str(error)}
    return {"kind": "CallFailedError", "text": f"{type(error).__name__}: {error}"}


def error_of(message: Message) -> errors.GrapeError:
    """The error that ``error_message`` described."""
    kind = getattr(errors, str(message.get("kind")), errors.CallFailedError)
    if not (isinstance(kind, type) and issubclass(kind, errors.GrapeError)):
        kind = errors.CallFailedError
    return kind(str(message.get("text")))
