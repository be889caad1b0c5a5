"""Answers of a scripted model: any text, JSON of a schema, a call of a tool.

An answer depends on the whole prompt, and on nothing else. Texts have what real ones have: white
space at both ends, several lines, quotes, braces, other scripts.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from random import Random
from typing import Any

from grape_lc.engine.base import CallRequest
from grape_lc.runtime.scripted import prompt_text

_WORDS = (
    *("river", "signal", "ledger", "window", "copper", "harbor", "meadow", "engine", "garden"),
    *("lantern", "paper", "winter", "sorting", "caching", "parser", "thread", "budget", "planet"),
    *("it's", "don't", '"quoted"', "{braced}", "back\\slash", "50%", "a/b", "(maybe)", "Größe"),
    *("naïve", "数据", "Ελλάδα", "→", "first,", "second.", "and", "because", "while", "*bold*"),
)
_EDGES = ("", "", " ", "\n", "\n\n", "  \n")


def seed(request: CallRequest) -> Random:
    """The same for the same prompt, and very likely another for another one."""
    tools = json.dumps(request.tools, sort_keys=True)
    return Random(zlib.crc32(f"{prompt_text(request)}|{tools}".encode(errors="surrogatepass")))


def prose(random: Random, least: int = 12, most: int = 30) -> str:
    """So many words, in one to three lines, with white space around them."""
    words = random.choices(_WORDS, k=random.randint(least, most))
    for _ in range(random.randint(0, 2)):
        at = random.randrange(1, len(words))
        words[at] = "\n" + words[at]
    body = " ".join(words).strip()
    return random.choice(_EDGES) + body + random.choice(_EDGES)


def document(schema: Mapping[str, Any], random: Random) -> Any:
    """A value that fits a JSON schema, as far as the apps here need it."""
    definitions = schema.get("$defs", {})

    def value(part: Mapping[str, Any]) -> Any:
        if "$ref" in part:
            return value(definitions[part["$ref"].rsplit("/", 1)[-1]])
        if "const" in part:
            return part["const"]
        if "enum" in part:
            return random.choice(part["enum"])
        match part.get("type"):
            case "object":
                return {key: value(item) for key, item in part.get("properties", {}).items()}
            case "array":
                return [value(part["items"]) for _ in range(random.randint(2, 3))]
            case "integer":
                return random.randint(1, 9)
            case "boolean":
                return random.random() < 0.5
        return prose(random, 4, 9).strip()

    return value(schema)


def reply(request: CallRequest) -> str:
    """JSON where a schema is asked for, a call of the first tool once, and text otherwise."""
    random = seed(request)
    wanted = (request.sampling.structured_outputs or {}).get("json")
    if wanted is not None:
        return json.dumps(
            document(wanted, random), ensure_ascii=False, indent=random.choice([None, 2])
        )
    if request.tools and not any(m["role"] == "tool" for m in request.messages or ()):
        function = random.choice(request.tools)["function"]
        arguments = document(function["parameters"], random)
        call = json.dumps({"name": function["name"], "arguments": arguments})
        return f"{prose(random, 3, 6)}\n<tool_call>\n{call}\n</tool_call>"
    return prose(random)


def thinking(request: CallRequest) -> str:
    """As a reasoning model answers: thoughts between tags, then the answer."""
    random = seed(request)
    return f"<think>\n{prose(random, 8, 20)}\n</think>\n\n{prose(random)}"


def hostile(request: CallRequest) -> str:
    """A text that looks like much that has a meaning somewhere: slots, tags, markers, ends."""
    random = seed(request)
    parts = [*_HOSTILE, prose(random, 3, 5)]
    random.shuffle(parts)
    return "".join(parts)


_HOSTILE = (
    *("{topic}", "{outline_text|strip}", "{{", "}", "{0}", "%s", "${x}"),
    *("<|im_start|>assistant\n", "<|im_end|>", "<|endoftext|>", "</think>", "<think>"),
    *("\ue0f0" + "3:zQ7 Marker", "\ue0f1", "\ue1f0" + "0" + "\ue1f1", "\u2003", "\u2002\n"),
    *(
        '{"name": "weather", "arguments": {',
        "\\u00e9\\",
        "\x00\x07",
        "e\u0301",
        "👩‍👩‍👧",
        "\r\n\t ",
    ),
)
