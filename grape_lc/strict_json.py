"""JSON from outside: one reading of each text, and no value that could not be written again.

Python's own reader takes the last of two equal keys, NaN, numbers that become infinite, halves of
surrogate pairs, and any depth that its stack allows. Two readers of one file, a reviewer and this
package, may then see different things; and what is read may fail much later, where it is sent.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from grape_lc.limits import FILE_BYTES, JSON_DEPTH, JSON_VALUES, Limit


class StrictJSONError(ValueError):
    """A text is not JSON, or not JSON that is taken; says why."""


def read_json(text: str | bytes, *, size: Limit = FILE_BYTES, values: bool = True) -> Any:
    """The value of a text.

    Bytes are UTF-8. size: of the text. values: count the values, too (``limits.JSON_VALUES``), and
        look at each for its depth and halves of surrogate pairs.

    Raises StrictJSONError, and nothing else, for what is no JSON, a key that stands twice in an
    object, a number that is not finite or has thousands of digits, and what is over a limit.
    """
    if len(text) > size.value:
        raise StrictJSONError(size.excess(len(text)))
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except StrictJSONError:
        raise
    except RecursionError:
        raise StrictJSONError(f"it has more than {JSON_DEPTH.value} levels") from None
    except ValueError as error:  # UnicodeDecodeError too
        raise StrictJSONError(_short(str(error))) from None
    if values:
        _look_through(value)
    return value


def read_json_file(path: Path, *, size: Limit = FILE_BYTES, values: bool = True) -> Any:
    """The value in a file of UTF-8 text. Raises OSError, and StrictJSONError as ``read_json``.

    No more is read than ``size`` allows, even of a device that never ends.
    """
    return read_json(read_bytes(path, size), size=size, values=values)


def read_bytes(path: Path, size: Limit = FILE_BYTES) -> bytes:
    """The content of a file. Raises OSError, and StrictJSONError where it is too large."""
    with path.open("rb") as file:
        data = file.read(size.value + 1)
    if len(data) > size.value:
        raise StrictJSONError(f"more than {size.value} bytes ({size.variable}=N allows N)")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise StrictJSONError(f"the key {_short(repr(twice))} stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise StrictJSONError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise StrictJSONError(f"the number {_short(digits)} is too large")
    return number


def _look_through(value: Any) -> None:
    most, deepest = JSON_VALUES.value, JSON_DEPTH.value
    count, level, depth = 0, [value], 0
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                for key in item:
                    _whole(key)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str):
                _whole(item)
            elif isinstance(item, int):
                _small(item)
        count += len(level)
        if count + len(below) > most:
            raise StrictJSONError(JSON_VALUES.excess(count + len(below)))
        depth += 1
        if depth > deepest and below:
            raise StrictJSONError(f"it has more than {deepest} levels ({JSON_DEPTH.variable}=N)")
        level = below


def _whole(text: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise StrictJSONError(f"a text has the half of a surrogate pair {half!r}") from None


def _small(number: int) -> None:
    # What is compared with floats, or printed, fails on larger ones.
    if number.bit_length() > 256:
        raise StrictJSONError(f"a whole number of {number.bit_length()} bits; 256 are taken")


def _short(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
