"""The transducers of a template's slots, by the names that templates give them.

    {plan}   {plan|strip}   {answer|after_think|json:steps.0.title|strip}

Each changes a value on its way into the prompt, and works on a stream as well, so that a prompt
can grow while its slot's value is still being written. Several are applied from left to right.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from types import MappingProxyType

from grape_lc.errors import PromptSyntaxError
from grape_lc.flow.json_field import json_field
from grape_lc.flow.json_paths import PREFIX, json_spec, parse_path
from grape_lc.flow.streams import Transducer, TransducerStream
from grape_lc.flow.text_transducers import IDENTITY, TEXT_TRANSDUCERS
from grape_lc.limits import SLOT_STAGES

__all__ = [
    "IDENTITY",
    "TRANSDUCERS",
    "Transducer",
    "TransducerStream",
    "json_spec",
    "parse_transducer",
    "piped",
]

TRANSDUCERS: Mapping[str, Transducer] = MappingProxyType({t.name: t for t in TEXT_TRANSDUCERS})
"""Those that have a name of their own; ``json:<path>`` and pipes are made by parse_transducer."""


def piped(*specs: str) -> str:
    """The specs as one; ``identity`` and "" are left out where they do nothing."""
    names = [name for spec in specs for name in spec.split("|") if name not in ("", IDENTITY.name)]
    return "|".join(names) or IDENTITY.name


def parse_transducer(spec: str) -> Transducer:
    """The transducer that a template writes as ``spec``, such as ``json:plan|strip``.

    Raises PromptSyntaxError, which names the part that is not known or the limit that is passed.
    """
    return _parsed(spec) if len(spec) > _LONG_CHARS else _parsed_and_kept(spec)


def _parsed(spec: str) -> Transducer:
    SLOT_STAGES.check(spec.count("|") + 1, "a slot", PromptSyntaxError)
    stages = tuple(_stage(name) for name in spec.split("|"))
    stages = tuple(stage for stage in stages if stage != IDENTITY)
    if len(stages) < 2:
        return stages[0] if stages else IDENTITY
    name = "|".join(stage.name for stage in stages)
    return Transducer(name, partial(_apply_all, stages), partial(_Pipe, stages))


_LONG_CHARS = 1 << 12
_parsed_and_kept = lru_cache(maxsize=1024)(_parsed)


def _stage(name: str) -> Transducer:
    if name in TRANSDUCERS:
        return TRANSDUCERS[name]
    if name.startswith(PREFIX):
        return json_field(parse_path(name.removeprefix(PREFIX)))
    raise PromptSyntaxError(
        f"unknown transducer {name!r:.60}; known: {', '.join(TRANSDUCERS)}, {PREFIX}<path>, and "
        "several with | between them"
    )


def _apply_all(stages: tuple[Transducer, ...], value: str) -> str:
    for stage in stages:
        value = stage.apply(value)
    return value


class _Pipe(TransducerStream):
    """What each stream returns is fed to the next; the first that ends ends those behind it."""

    def __init__(self, stages: tuple[Transducer, ...]) -> None:
        super().__init__()
        self._streams = [stage.stream() for stage in stages]

    def _take(self, delta: str) -> str:
        return self._through(delta, ended=False)

    def _end(self) -> str:
        return self._through("", ended=True)

    def _through(self, text: str, *, ended: bool) -> str:
        for stream in self._streams:
            text = stream.feed(text)
            if ended:
                text += stream.finish()
            if stream.stopped:
                self.stopped = True
                return self._rest_of(stream, text)
            ended = stream.complete
        self.complete = ended
        return text

    def _rest_of(self, stopped: TransducerStream, text: str) -> str:
        """What the streams behind one that has stopped make of its last text."""
        for stream in self._streams[self._streams.index(stopped) + 1 :]:
            text = stream.feed(text)
        return text
