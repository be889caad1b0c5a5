"""Answers that a program reads as JSON although the call asked for a text.

The schema is in the prompt, in words. So the form is found out by what fails:

    a text         json.loads(answer)         not JSON: an object then
    {}             json.loads(answer)["plan"] KeyError 'plan': with this key then
    {"plan": ...}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from langchain_core.exceptions import OutputParserException

from grape_lc.adapters.markers import Found, marker, split
from grape_lc.adapters.trace_answers import Answer


class Documents:
    """The calls that are answered with an object, by name, and the keys of it."""

    def __init__(self) -> None:
        self._keys: dict[str, list[str]] = {}

    def answer(self, call: str, number: int) -> Answer | None:
        """The object that a call is answered with; None: its answer is a text."""
        keys = self._keys.get(call)
        if keys is None:
            return None
        document = {key: marker(number, (key,)) for key in keys}
        return Answer(json.dumps(document, ensure_ascii=False), document=True)

    def learn(self, error: BaseException | None, calls: Mapping[int, str]) -> bool:
        """Take in why a run failed; whether a further run will be answered otherwise.

        calls: the names of the calls by the numbers of their markers.
        """
        for one in _chain(error):
            text = _unreadable(one)
            for part in split(text) if text is not None else ():
                if isinstance(part, Found) and part.number in calls:
                    call = calls[part.number]
                    if call not in self._keys:
                        self._keys[call] = []
                        return True
            key = one.args[0] if isinstance(one, KeyError) and one.args else None
            if isinstance(key, str) and self._keys:
                # The document that was found last is the one that the program is at.
                last = [*self._keys.values()][-1]
                if key not in last:
                    last.append(key)
                    return True
        return False


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _unreadable(error: BaseException) -> str | None:
    """The text that was no JSON."""
    if isinstance(error, json.JSONDecodeError):
        return error.doc
    return error.llm_output if isinstance(error, OutputParserException) else None
