"""Which steps a profile measures.

The steps that matter: decode batches at short and long contexts, prefill chunks behind short and
long contexts, several chunks at once, and chunks beside decodes. They are chosen once and run in
every *round*, each time in another order drawn by lot: so each is measured several times, minutes
apart, and a machine that gets slower meanwhile looks like noise and not like a part of F.

Contexts come from *bases*, prompts that are computed once and found in the prefix cache from then
on. Each row has a base of its own, since rows that share KV would find it in the CPU's cache.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from grape_lc.errors import ConfigError

DECODE_STEPS = 6
"""Tokens of each call of a decode batch."""

_ROUNDS = 3  # that should fit the time
_LEAST_TASKS = 24  # in a round, even if it does not fit
_ROWS = 16  # wanted at least
_MOST_ROWS = 64  # wanted where that is cheap
_LONG_BASES = 3
_FULL = 1024  # tokens of a long base
_SHORT = 128  # most tokens of the others
_MOST_CHUNK = 2048
_LEAST_CHUNK = 64
_BASE_SHARE = 0.2  # of the time, for computing the bases
_CHUNK_SHARE = 0.015  # of the time, for the largest chunk
_BASE_BLOCKS = 0.5  # of the KV pool, for the bases
_TURN_S = 0.03  # from the end of a call to the first step of the next


@dataclass(frozen=True)
class Limits:
    """What the engine can do; all positive.

    rows: requests in a step. length: tokens of a request. step_tokens: tokens of a step.
    block: tokens of a KV block. blocks: KV blocks.
    """

    rows: int
    length: int
    step_tokens: int
    block: int
    blocks: int

    def __post_init__(self) -> None:
        if min(self.rows, self.length, self.step_tokens, self.block, self.blocks) <= 0:
            raise ConfigError(f"an engine's limits are positive: {self}")


@dataclass(frozen=True)
class Speed:
    """About how fast the engine is, seconds: of a step with one decode, of a token of prefill."""

    step_s: float
    token_s: float


@dataclass(frozen=True)
class Task:
    """A few steps to be made.

    decodes: rows that decode all the while. context: tokens that each has at first, as far as
    its base is that long. chunks: (tokens, context) of prompts that come in one after another,
    or at once if ``together``.
    """

    decodes: int = 0
    context: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    together: bool = False

    def seconds(self, speed: Speed) -> float:
        """About how long it takes."""
        decode_s = speed.step_s + 0.5 * self.decodes * speed.token_s
        if not self.chunks:
            return _TURN_S + (DECODE_STEPS + 1) * decode_s
        steps = (2 if self.decodes else 0) + (2 if self.decodes else 1) * len(self.chunks)
        tokens = sum(tokens for tokens, _ in self.chunks)
        return _TURN_S * (1 + len(self.chunks)) + steps * decode_s + 1.2 * tokens * speed.token_s


@dataclass(frozen=True)
class Workload:
    """What fits the engine and the time.

    bases: lengths of prompts to decode behind, whole blocks, longest first.
    tasks: all that a round runs.
    """

    bases: tuple[int, ...]
    tasks: tuple[Task, ...]

    @classmethod
    def plan(cls, limits: Limits, seconds: float, speed: Speed, draw: random.Random) -> Workload:
        """What ``seconds`` allow on this engine.

        Raises ConfigError if the engine is too small, or the time too short, for any profile.
        """
        bases = _bases(limits, seconds, speed)
        full = bases[0]
        contexts = tuple(sorted({0, limits.block, _whole(full // 4, limits.block), full}))
        most = min(int(_CHUNK_SHARE * seconds / speed.token_s), _MOST_CHUNK, limits.step_tokens)
        most = min(max(most, _LEAST_CHUNK), limits.length - full - limits.block)
        chunk = min(most, limits.step_tokens)
        tasks = [
            *_chunks(chunk, contexts),
            *_decodes(len(bases), contexts[1:]),
            *_mixtures(min(len(bases), limits.rows - 1), chunk, contexts, draw),
        ]
        # Where not all fit, lot decides which are left out.
        draw.shuffle(tasks)
        room = (1.0 - _BASE_SHARE) * seconds / _ROUNDS
        chosen: list[Task] = []
        for task in tasks:
            cost = task.seconds(speed)
            if cost <= room or len(chosen) < _LEAST_TASKS:
                chosen.append(task)
                room -= cost
        return cls(bases, tuple(chosen))

    def round(self, draw: random.Random) -> list[Task]:
        """The tasks in a new order."""
        return draw.sample(self.tasks, len(self.tasks))


def _bases(limits: Limits, seconds: float, speed: Speed) -> tuple[int, ...]:
    tokens = int(
        min(_BASE_SHARE * seconds / speed.token_s, _BASE_BLOCKS * limits.blocks * limits.block)
    )
    rows = max(_ROWS, min(_MOST_ROWS, tokens // (3 * _SHORT)))
    rows = min(rows, limits.rows, tokens // limits.block)
    if limits.length < 4 * limits.block or limits.blocks < 2:
        raise ConfigError(
            f"the engine is too small to be profiled: max_model_len={limits.length}, "
            f"{limits.blocks} KV blocks of {limits.block} tokens"
        )
    if rows < 1:
        raise ConfigError(
            f"{seconds:g} s are not enough for a profile here: a token of prefill takes "
            f"{1e3 * speed.token_s:.1f} ms, and the first {limits.block} of them must fit in "
            f"{_BASE_SHARE:.0%} of the time"
        )
    # Whole blocks, with something left for a chunk and a few tokens of output.
    longest = min(limits.length - 2 * limits.block, int(limits.length * 0.75))
    longest = longest // limits.block * limits.block
    full = min(longest, _FULL, _whole(tokens // (2 * _LONG_BASES), limits.block))
    rest = tokens - full * min(_LONG_BASES, rows)
    short = min(full, _SHORT, _whole(rest // max(1, rows - _LONG_BASES), limits.block))
    return tuple(full if index < _LONG_BASES else short for index in range(rows))


def _chunks(most: int, contexts: Sequence[int]) -> list[Task]:
    """Chunks of all sizes: one context each, a second one for those that are cheap."""
    tasks = []
    for index, size in enumerate(_ladder(most)):
        tasks.append(Task(chunks=((size, contexts[index % len(contexts)]),)))
        if size <= most // 4:
            tasks.append(Task(chunks=((size, contexts[(index + 2) % len(contexts)]),)))
    return list(dict.fromkeys(tasks))


def _decodes(most: int, contexts: Sequence[int]) -> list[Task]:
    return [
        Task(rows, context)
        for rows in _ladder(most)
        for context in dict.fromkeys((contexts[0], contexts[-1]))
    ]


def _mixtures(most: int, chunk: int, contexts: Sequence[int], draw: random.Random) -> list[Task]:
    """Chunks beside decodes, each in a row of its own, and a few at once."""
    beside = [size for size in _ladder(chunk) if size <= max(chunk // 3, 1)]
    tasks = []
    for rows in _ladder(most)[::2]:
        sizes = draw.sample(beside, min(4, len(beside)))
        chunks = tuple((size, draw.choice(contexts)) for size in sizes)
        # Behind a short context decodes would grow too much meanwhile to be repeats.
        tasks.append(Task(rows, draw.choice(contexts[2:] or contexts[1:]), chunks))
    small = [size for size in beside if size <= max(chunk // 8, 1)]
    for rows in (0, 1, 4):
        if rows <= most:
            pieces = tuple((draw.choice(small), draw.choice(contexts)) for _ in range(4))
            tasks.append(Task(rows, contexts[-1], pieces, together=True))
    return tasks


def _whole(tokens: int, block: int) -> int:
    return max(1, tokens // block) * block


def _ladder(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to ``most``, which is the last; none for 0."""
    values = {most}
    for power in range(most.bit_length()):
        values |= {1 << power, 3 << power >> 1} if power else {1}
    return sorted(value for value in values if 0 < value <= most)
