"""N-gram drafting: which tokens of an answer a drafter would find in the text before them.

    answer    o o o o | c c c c c c c c c c | o o o o
    match             |     x x x x x x x x   x
                                              '-- the copy ended here: all of this draft is wrong

An answer is a chain of its own tokens (o) and of runs that are copied (c) from its prompt. Behind
``least`` tokens of a run the latest tokens match their original, and what followed there is the
draft; it is right up to the end of the run. Behind other tokens a match is an accident, and wrong
from its first token on. Without a match there is no draft, and the step is an ordinary one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import log, log1p

from grape_lc.errors import ConfigError

NO_MATCH = 255
"""At a place of an answer: there is no draft."""


_LONG = 1 << 30  # longer than any answer


@dataclass(frozen=True)
class Drafting:
    """How an engine drafts, and how much there is to be found.

    tokens: of a draft. least: tokens that make a match. copy_rate: share of an answer's tokens that
    lie in copied runs. run: mean tokens of such a run, which are geometric. accident: share of the
    other tokens behind which there is a match. ``run`` and ``accident`` are assumptions.
    """

    tokens: int = 4
    least: int = 2
    copy_rate: float = 0.3
    run: float = 16.0
    accident: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.tokens < NO_MATCH or self.least < 1 or self.run < 1:
            raise ConfigError(
                f"drafting needs 1 to {NO_MATCH - 1} tokens, and matches and runs of at least one, "
                f"not {self.tokens}, {self.least} and {self.run}"
            )
        if not (0 <= self.copy_rate <= 1 and 0 <= self.accident <= 1):
            raise ConfigError(
                f"shares of an answer are 0 to 1, not {self.copy_rate} and {self.accident}"
            )

    def matches(self, answer: int, seed: str) -> bytes:
        """For each place of an answer: drafted tokens that are right there, or ``NO_MATCH``.

        A place is the number of tokens before it. The share of copied tokens is ``copy_rate`` on
        the average; the same seed gives the same answer, however it is served.
        """
        dice = random.Random(seed)  # noqa: S311 - a workload
        found = bytearray([NO_MATCH]) * answer
        place = 0
        copied = dice.random() < self.copy_rate
        while place < answer:
            if copied:
                end = min(place + self._run(dice), answer)
                for at in range(place + self.least, min(end + 1, answer)):
                    found[at] = min(self.tokens, end - at)
            else:
                end = min(place + self._own(dice), answer)
                for at in range(place, end):
                    if dice.random() < self.accident:
                        found[at] = 0
            place, copied = end, not copied
        return bytes(found)

    def _run(self, dice: random.Random) -> int:
        """Tokens of a copied run, at least 1."""
        return 1 + _geometric(dice, self.run - 1)

    def _own(self, dice: random.Random) -> int:
        """Tokens between two runs, from 0 on: so many that the share comes out."""
        if not self.copy_rate:
            return _LONG
        return _geometric(dice, self.run * (1 - self.copy_rate) / self.copy_rate)


def _geometric(dice: random.Random, mean: float) -> int:
    """0, 1, 2 and so on, each less likely than the one before by the same factor."""
    if mean <= 0:
        return 0
    return int(log(1.0 - dice.random()) / -log1p(1 / min(mean, _LONG)))
