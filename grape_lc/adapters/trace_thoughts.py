"""Programs that cut off the thoughts in front of an answer, as reasoning models write them.

A marker with thoughts shows it, but its left edge shows less about stripping than one without. So
a trace has runs of both kinds, and what they tell is put together here:

    without     {solution|strip}
    with        {solution|after_think|rstrip}  or, where they are kept,  {solution|rstrip}
    together    {solution|after_think|strip}   or                        {solution|strip}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from grape_lc.adapters.flow_builder import Messages
from grape_lc.adapters.markers import Found, Newest, Part, split
from grape_lc.adapters.recording import RecordedCall
from grape_lc.flow.transducers import piped

_CUT = "after_think"


def cuts_thoughts(calls: Iterable[RecordedCall]) -> bool:
    """Whether thoughts were cut off an answer that one of these calls has in its prompt."""
    return any(
        isinstance(part, Found) and _is_cut(part) for call in calls for part in _parts_of(call)
    )


def with_cuts(messages: Messages, thinking: Sequence[Messages]) -> Messages:
    """The prompt of a call; values of which runs with thoughts show that they were cut say so.

    thinking: the prompts of the same call in runs with thoughts.
    """
    cut: set[int] = set()
    kept: set[int] = set()
    for prompt in thinking:
        for part in _found(prompt):
            (cut if _is_cut(part) else kept).add(part.number)
    cut -= kept

    def changed(part: Part) -> Part:
        if isinstance(part, Found) and part.number in cut:
            return Found(part.number, piped(_CUT, part.transducer))
        if isinstance(part, Newest) and cut.issuperset(part.numbers):
            return Newest(part.numbers, piped(_CUT, part.transducer))
        return part

    return tuple((role, tuple(changed(part) for part in parts)) for role, parts in messages)


def _is_cut(part: Found) -> bool:
    return part.transducer.partition("|")[0] == _CUT


def _found(messages: Messages) -> Iterator[Found]:
    return (part for _, parts in messages for part in parts if isinstance(part, Found))


def _parts_of(call: RecordedCall) -> Iterator[Part]:
    if call.request.text is not None:
        yield from split(call.request.text)
    for message in call.request.messages or ():
        content = message["content"]
        for text in [content] if isinstance(content, str) else [b["text"] for b in content]:
            yield from split(text)
