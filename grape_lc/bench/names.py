"""Lists of names with settings on the command line: ``code,synthetic:depth=8,fan_out=2,search``."""

from __future__ import annotations

from grape_lc.errors import ConfigError


def separate(text: str, what: str, known: str) -> list[str]:
    """Names separated by commas, in their order, each with its settings if it has any.

    Since no name holds an equals sign, ``grape:a=1,b=2,vllm`` are two. what, known: the kind of
    thing named, and what there is of it, for errors. Raises ConfigError when there is none, and
    when one stands there twice.
    """
    found: list[str] = []
    for piece in (piece.strip() for piece in text.split(",")):
        if "=" in piece and ":" not in piece and found and ":" in found[-1]:
            found[-1] += f",{piece}"
        elif piece:
            found.append(piece)
    if not found:
        raise ConfigError(f"no {what} in {text!r}; there are: {known}")
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ConfigError(f"{', '.join(twice)} stands twice among the {what}s {text!r}")
    return found
