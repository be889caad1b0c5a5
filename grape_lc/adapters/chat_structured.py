"""Answers in a given form: response formats, and ``with_structured_output``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal, get_args

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import (
    BaseCumulativeTransformOutputParser,
    BaseOutputParser,
    JsonOutputParser,
    PydanticOutputParser,
)
from langchain_core.output_parsers.openai_tools import (
    JsonOutputKeyToolsParser,
    PydanticToolsParser,
)
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, SkipValidation

from grape_lc.adapters.chat_calls import BEGIN, END
from grape_lc.adapters.chat_tools import Tool, call_schema, name_of
from grape_lc.errors import RequestError

Method = Literal["json_schema", "function_calling", "json_mode"]
METHODS: tuple[Method, ...] = get_args(Method)

# What a dictionary has if it is a JSON schema, and not a function.
_WORDS = frozenset({"type", "properties", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"})
_ANY_OBJECT: dict[str, Any] = {"type": "object"}


def response_schema(response_format: Any) -> dict[str, Any] | None:
    """The JSON schema of a ``response_format``; ``None``: text.

    It is in OpenAI's form (``text``, ``json_object`` or ``json_schema``), or a pydantic class, a
    TypedDict or a JSON schema. Raises RequestError for anything else.
    """
    if response_format is None:
        return None
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return dict(_ANY_OBJECT)
    if kind == "json_schema":
        given = response_format.get("json_schema")
        schema = given.get("schema") if isinstance(given, Mapping) else None
        if not isinstance(schema, Mapping):
            raise RequestError(
                f"response_format={response_format!r:.200} has no schema; the form is "
                "{'type': 'json_schema', 'json_schema': {'name': ..., 'schema': {...}}}"
            )
        return dict(schema)
    return json_schema(response_format)


def json_schema(schema: Any) -> dict[str, Any]:
    """The JSON schema of a pydantic class, a TypedDict or a dictionary. Raises RequestError."""
    if _is_pydantic(schema):
        if issubclass(schema, BaseModel):
            return dict(schema.model_json_schema())
        return dict(schema.schema())
    if isinstance(schema, Mapping) and schema.get("type") != "function" and _WORDS & schema.keys():
        return dict(schema)
    try:
        return convert_to_json_schema(schema)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RequestError(
            f"{schema!r:.200} is no schema; known: a pydantic class, a TypedDict, a JSON schema, a "
            "function in OpenAI's form"
        ) from error


def constraint(
    schema: dict[str, Any] | None, tools: Sequence[Tool], forced: Sequence[Tool], *, parallel: bool
) -> dict[str, Any] | None:
    """What vLLM's structured outputs are told; ``None``: nothing.

    Forced tools come first: this answer is a call. Else an answer with a schema is JSON of that
    schema or, where there are tools, a call of one of them.
    """
    if forced:
        return {"json": call_schema(forced, parallel=parallel)}
    if schema is None:
        return None
    if not tools:
        return {"json": schema}
    calls = [
        {
            "type": "tag",
            "begin": f"{BEGIN}\n",
            "content": {"type": "json_schema", "json_schema": call_schema([tool], parallel=False)},
            "end": f"\n{END}",
        }
        for tool in tools
    ]
    answer = {"type": "json_schema", "json_schema": schema}
    form = {"type": "or", "elements": [answer, *calls]}
    return {"structural_tag": json.dumps({"type": "structural_tag", "format": form})}


# -- with_structured_output -------------------------------------------------------------------


def structured(
    llm: BaseChatModel,
    schema: Any,
    *,
    method: str,
    include_raw: bool,
    strict: bool | None,
    tools: Sequence[Any] | None,
    options: Mapping[str, Any],
) -> Runnable[Any, Any]:
    """See ``ChatGrape.with_structured_output``. Raises RequestError."""
    if method not in METHODS:
        raise RequestError(f"method={method!r}; known: {', '.join(map(repr, METHODS))}")
    if schema is None and method != "json_mode":
        raise RequestError(f"method={method!r} needs a schema; only 'json_mode' goes without one")
    if tools and method != "json_schema":
        raise RequestError(f"tools beside a schema need method='json_schema', got {method!r}")
    described = None if schema is None else json_schema(schema)
    for_tracing = {
        "kwargs": {"method": method, "strict": strict},
        "schema": _titled(schema, described),
    }
    inner: BaseOutputParser[Any]
    if method == "function_calling":
        tool = _tool(schema, strict)
        name = name_of(tool)
        bound = llm.bind_tools(
            [tool],
            tool_choice=name,
            parallel_tool_calls=False,
            ls_structured_output_format=for_tracing,
            **options,
        )
        inner = (
            PydanticToolsParser(tools=[schema], first_tool_only=True)
            if _is_pydantic(schema)
            else JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
        )
    else:
        form = (
            {"type": "json_object"}
            if described is None
            else {
                "type": "json_schema",
                "json_schema": {
                    "name": str(described.get("title", "answer")),
                    "schema": described,
                    "strict": strict,
                },
            }
        )
        given = {
            "response_format": form,
            "ls_structured_output_format": for_tracing,
            **options,
        }
        bound = llm.bind_tools(tools, **given) if tools else llm.bind(**given)
        inner = (
            PydanticOutputParser(pydantic_object=schema)
            if _is_pydantic(schema)
            else JsonOutputParser()
        )
    parser = _Whole(inner=inner, of_call=method == "function_calling")
    if not include_raw:
        return bound | parser
    parsed = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    with_errors = parsed.with_fallbacks([failed], exception_key="parsing_error")
    return RunnableMap(raw=bound) | with_errors


def _is_pydantic(schema: Any) -> bool:
    return isinstance(schema, type) and is_basemodel_subclass(schema)


def _tool(schema: Any, strict: bool | None) -> Tool:
    try:
        return convert_to_openai_tool(schema, strict=strict)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RequestError(f"{schema!r} cannot be called as a function: {error}") from error


def _titled(schema: Any, described: dict[str, Any] | None) -> dict[str, Any] | None:
    """A schema as LangChain writes it into traces, where it has to have a name."""
    if described is None:
        return None
    try:
        return convert_to_openai_tool(schema)
    except (ValueError, TypeError, KeyError, AttributeError):
        return {"title": "answer", **described}


def _message(result: list[Generation]) -> AIMessage | None:
    """The answer that is parsed. Raises OutputParserException for one that was cut short."""
    first = result[0]
    if not isinstance(first, ChatGeneration) or not isinstance(first.message, AIMessage):
        return None
    message = first.message
    if message.response_metadata.get("finish_reason") == "length":
        # Parsers of LangChain complete it, and half a value would pass for a whole one.
        raise OutputParserException(
            "the answer ends at max_tokens, before the object is complete; raise max_tokens "
            f"({message.usage_metadata['output_tokens'] if message.usage_metadata else '?'} tokens "
            "were sampled)",
            llm_output=message.text,
        )
    return message


class _Whole(BaseCumulativeTransformOutputParser[Any]):
    """Another parser, for whole answers only.

    of_call: the object is the arguments of a call. Else an answer that is a call has no object.
    """

    inner: SkipValidation[BaseOutputParser[Any]]
    of_call: bool = False

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        """See the class. Raises OutputParserException."""
        message = _message(result)
        called = message is not None and message.tool_calls and not message.text.strip()
        if called and not self.of_call:
            return None
        return self.inner.parse_result(result, partial=partial)

    def parse(self, text: str) -> Any:
        """See the class."""
        return self.inner.parse(text)
