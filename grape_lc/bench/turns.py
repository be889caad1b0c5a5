"""In which order the arms of a comparison run, repeat by repeat.

Where all engines fit into memory the order rotates, so that a machine that grows slower or
warmer favours none::

    repeat 1   a b c
    repeat 2   b c a
    repeat 3   c a b

With more engines than may be open at once every turn of such an order would start one. So every
second repeat runs backwards, and begins with the engines that are open still; positions even out
over two repeats::

    repeat 1   a b c d e f
    repeat 2   f e d c b a
    repeat 3   a b c d e f
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def rotated(arms: Sequence[str], repeat: int) -> list[str]:
    """The order of the arms in a repeat, counted from 1."""
    shift = (repeat - 1) % len(arms)
    return [*arms[shift:], *arms[:shift]]


def to_and_fro(arms: Sequence[str], repeat: int) -> list[str]:
    """The same, every second repeat backwards."""
    return list(arms) if repeat % 2 else list(reversed(arms))


def turns_of(
    engines: Mapping[str, str], repeats: int, most: int, open_engines: Sequence[str] = ()
) -> dict[int, list[str]]:
    """The order of the arms in each repeat, counted from 1.

    engines: the engine of each arm, in the order in which the arms were given; arms of one
        engine stand together where engines are more than ``most``.
    most: engines that may be open at once. open_engines: those that are.
    """
    if len(set(engines.values())) <= most:
        return {n: rotated(list(engines), n) for n in range(1, repeats + 1)}
    first = {engine: place for place, engine in reversed(list(enumerate(engines.values())))}
    arms = sorted(engines, key=lambda arm: first[engines[arm]])
    if engines[arms[-1]] in open_engines and engines[arms[0]] not in open_engines:
        arms.reverse()
    return {n: to_and_fro(arms, n) for n in range(1, repeats + 1)}
