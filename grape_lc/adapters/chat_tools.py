"""Which tools a call may or must use, and the JSON schema of a call that is forced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.utils.function_calling import convert_to_openai_tool

from grape_lc.errors import RequestError

Tool = dict[str, Any]
ToolChoice = Literal["auto", "none", "required"] | dict[str, Any]

_FORCED = frozenset({"any", "required"})


@dataclass(frozen=True)
class ToolUse:
    """What a call may do with its tools.

    tools: all that the model is shown, in OpenAI's form.
    forced: those of which the answer has to be a call; none if the model is free to answer.
    parallel: whether a forced answer may be several calls.
    """

    tools: tuple[Tool, ...]
    forced: tuple[Tool, ...] = ()
    parallel: bool = False


def describe_tools(tools: object, *, strict: bool | None = None) -> list[Tool]:
    """Functions, classes, LangChain tools or dictionaries as tools in OpenAI's form.

    Raises RequestError for what cannot be described.
    """
    out: list[Tool] = []
    if not isinstance(tools, Iterable) or isinstance(tools, str | Mapping):
        raise RequestError(f"tools={tools!r:.200}: write a list")
    for index, tool in enumerate(tools):
        try:
            described = convert_to_openai_tool(tool, strict=strict)
        except (
            *(AttributeError, KeyError, NotImplementedError, RecursionError),
            *(TypeError, ValueError),
        ) as error:
            raise RequestError(
                f"tool {index} ({tool!r:.200}) cannot be described: {error!s:.200}"
            ) from error
        function = described.get("function")
        if described.get("type") != "function" or not isinstance(function, Mapping):
            raise RequestError(
                f"tool {index} is of type {described.get('type')!r:.60}; only functions can be "
                "called"
            )
        name, parameters = function.get("name"), function.get("parameters")
        if not isinstance(name, str) or not isinstance(parameters, Mapping | None):
            raise RequestError(
                f"tool {index} has the name {name!r:.60} and parameters of type "
                f"{type(parameters).__name__}; they are a text and a JSON schema"
            )
        out.append(described)
    return out


def name_of(tool: Mapping[str, Any]) -> str:
    """The name by which a tool is called."""
    return str(tool["function"]["name"])


def choose(choice: object, tools: Sequence[Tool]) -> ToolChoice:
    """A choice in OpenAI's form. Raises RequestError for one that these tools do not allow.

    ``any``, ``required`` and True are one, as are ``auto``, False and None; ``none`` forbids calls;
    a name, or a dictionary with it, asks for that tool.
    """
    names = [name_of(tool) for tool in tools]
    if choice is None or choice is False or choice == "auto":
        return "auto"
    if choice == "none":
        return "none"
    if choice is True or (isinstance(choice, str) and choice in _FORCED):
        if not tools:
            raise RequestError(f"tool_choice={choice!r} without tools")
        return "required"
    name = choice
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, Mapping) else None
    if isinstance(name, str) and name in names:
        return {"type": "function", "function": {"name": name}}
    raise RequestError(
        f"tool_choice={choice!r:.200}; known: 'auto', 'any', 'none', 'required', True, a tool's "
        f"name or {{'type': 'function', 'function': {{'name': ...}}}}; tools: "
        f"{', '.join(names) or 'none'}"
    )


def tool_use(options: Mapping[str, Any]) -> ToolUse | None:
    """What the options of a call say about tools; ``None``: it has none, or must not use them.

    Raises RequestError.
    """
    tools = describe_tools(options.get("tools") or ())
    names = [name_of(tool) for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RequestError(f"tools with the same name: {', '.join(twice)}")
    choice = choose(options.get("tool_choice"), tools)
    if not tools or choice == "none":
        return None
    if choice == "auto":
        return ToolUse(tuple(tools))
    forced = [
        tool
        for tool in tools
        if isinstance(choice, str) or name_of(tool) == choice["function"]["name"]
    ]
    return ToolUse(tuple(tools), tuple(forced), parallel=options.get("parallel_tool_calls") is True)


def call_schema(tools: Sequence[Tool], *, parallel: bool) -> dict[str, Any]:
    """Schema of a call of one of the tools; ``parallel``: of a list of one or more calls."""
    definitions: dict[str, Any] = {}
    calls = [_one_call(index, tool, definitions) for index, tool in enumerate(tools)]
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    if parallel:
        schema = {"type": "array", "items": schema, "minItems": 1}
    return {**schema, "$defs": definitions} if definitions else schema


def _one_call(index: int, tool: Tool, definitions: dict[str, Any]) -> dict[str, Any]:
    parameters = dict(tool["function"].get("parameters") or {})
    parameters = {"type": "object", "properties": {}, "additionalProperties": False, **parameters}
    # References start at the root of a schema, which is no longer that of the parameters.
    for key in ("$defs", "definitions"):
        given = parameters.pop(key, None)
        if not isinstance(given, Mapping | None):
            raise RequestError(f"{key} of tool {name_of(tool)!r:.60} are {given!r:.60}, no mapping")
        for name, definition in (given or {}).items():
            definitions[f"{index}.{name}"] = _moved(definition, index)
    return {
        "type": "object",
        "properties": {"name": {"const": name_of(tool)}, "arguments": _moved(parameters, index)},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Any, index: int) -> Any:
    if isinstance(schema, list):
        return [_moved(item, index) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _moved(value, index) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        for root in ("#/$defs/", "#/definitions/"):
            if reference.startswith(root):
                out["$ref"] = f"#/$defs/{index}.{reference.removeprefix(root)}"
    return out
