"""Tables of rows of which nothing is known but their names, as simulations write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_HIDDEN = frozenset({"values", "base_values"})  # of single seeds; the file has them
_MOST = 2_000  # rows of a table


class RowTable(NamedTuple):
    """A table; left_out: how many rows it would have beyond those that it has."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


def row_table(rows: Sequence[Mapping[str, Any]]) -> RowTable | None:
    """All rows under the names that any of them has, in order; None without rows."""
    if not rows:
        return None
    names = dict.fromkeys(name for row in rows for name in row if name not in _HIDDEN)
    columns = tuple(name for name in names if any(row.get(name) is not None for row in rows))
    texts = tuple(tuple(value_text(row.get(name)) for name in columns) for row in rows[:_MOST])
    return RowTable(columns, texts, max(0, len(rows) - _MOST))


def beside_paper(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows that have a figure of the paper."""
    return [row for row in rows if row.get("paper") is not None]


def value_text(value: Any) -> str:
    """A value in a table: floats with four digits, lists and mappings flat."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {value_text(part)}" for name, part in value.items())
    return str(value)
