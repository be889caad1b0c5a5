"""What a call of ChatGrape asks for, and how its answer is to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grape_lc.adapters.chat_calls import ForcedReader, PlainReader, Reader, TaggedReader
from grape_lc.adapters.chat_structured import constraint, response_schema
from grape_lc.adapters.chat_tools import Tool, tool_use
from grape_lc.errors import RequestError
from grape_lc.flow.sampling import Sampling

HERMES = "hermes"
"""The parser of calls in this process; any other name is one of vLLM's."""

CHAT_OPTIONS = frozenset(
    {
        "logprobs",
        "parallel_tool_calls",
        "response_format",
        "tool_choice",
        "tools",
        "top_logprobs",
    }
)


@dataclass(frozen=True)
class Form:
    """The form of an answer.

    tools: what the model is shown. reader: reads one answer; parser: what vLLM reads it with.
    """

    sampling: Sampling
    tools: tuple[Tool, ...]
    reader: type[Reader]
    parser: str | None = None


def form_of(
    sampling: Sampling,
    options: Mapping[str, Any],
    *,
    logprobs: bool | None,
    top_logprobs: int | None,
    tool_parser: str,
) -> Form:
    """The form that the options of a call ask for; the others are the settings of the model.

    Raises RequestError for options that contradict each other.
    """
    use = tool_use(options)
    tools, forced = (use.tools, use.forced) if use else ((), ())
    schema = response_schema(options.get("response_format"))
    rules = constraint(schema, tools, forced, parallel=bool(use and use.parallel))
    update: dict[str, Any] = {
        "logprobs": _logprobs(
            options.get("logprobs", logprobs), options.get("top_logprobs", top_logprobs)
        )
    }
    if rules is not None:
        if sampling.structured_outputs is not None:
            what = "tool_choice" if forced else "response_format"
            raise RequestError(
                f"{what} and structured_outputs={sampling.structured_outputs!r}: an answer has "
                "one form; leave one of them out"
            )
        update["structured_outputs"] = rules
    if tools and not forced:
        # The tags are special tokens of some models, and would be missing in the text.
        update["extra"] = {"skip_special_tokens": False, **sampling.extra}
    sampling = sampling.model_copy(update=update)
    if forced:
        return Form(sampling, tools, ForcedReader)
    if not tools:
        return Form(sampling, tools, PlainReader)
    if tool_parser == HERMES or schema is not None:  # with a schema, calls have the form it allows
        return Form(sampling, tools, TaggedReader)
    return Form(sampling, tools, PlainReader, tool_parser)


def _logprobs(wanted: object, top: object) -> int | None:
    if wanted not in (None, True, False):
        raise RequestError(f"logprobs={wanted!r}; it is True or False, and top_logprobs a number")
    if top is not None and (not isinstance(top, int) or isinstance(top, bool) or top < 0):
        raise RequestError(f"top_logprobs={top!r}; it is a number of tokens")
    if top is not None and wanted is False:
        raise RequestError(f"top_logprobs={top} with logprobs=False")
    return int(top or 0) if wanted or top is not None else None
