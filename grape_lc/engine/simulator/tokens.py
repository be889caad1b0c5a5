"""Token ids without a tokenizer: what a text consists of, and the hashes of its full blocks.

A token is a place in a source: a static text, an input, or what one call answered. Two texts
share a prefix exactly if they are put together from the same sources, so the prefix cache works
as with real ids, and a text of thousands of tokens is a short list of segments:

    segments    | source 7 x 1024 | source 900 x 310 | source 8 x 40 |
    full blocks |#####|#####|#####|#####|#####|#####|#####|#####|.....
"""

from __future__ import annotations


class Text:
    """A growing row of tokens. ``block_size``: tokens of a KV block."""

    __slots__ = (
        "_counts",
        "_hashed_of_segment",
        "_hashes",
        "_segment",
        "_size",
        "_sources",
        "length",
    )

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._sources: list[int] = []
        self._counts: list[int] = []
        self.length = 0
        """Tokens."""
        # Where hashing goes on: which segment, and how many of its tokens are hashed.
        self._segment = 0
        self._hashed_of_segment = 0
        self._hashes: list[int] = []

    def append(self, source: int, tokens: int) -> None:
        """The next ``tokens`` tokens of a source; of the last one it goes on where that ended."""
        if tokens <= 0:
            return
        if self._sources and self._sources[-1] == source:
            self._counts[-1] += tokens
        else:
            self._sources.append(source)
            self._counts.append(tokens)
        self.length += tokens

    def hashes(self) -> list[int]:
        """One hash for each full block, chained: equal only after equal beginnings.

        The list is the text's own; it grows with later calls.
        """
        size, found = self._size, self._hashes
        missing = self.length // size - len(found)
        if missing <= 0:
            return found
        parent = found[-1] if found else 0
        segment, done = self._segment, self._hashed_of_segment
        sources, counts = self._sources, self._counts
        for _ in range(missing):
            if counts[segment] - done >= size:
                parent = hash((parent, sources[segment], done, size))
                done += size
            else:
                pieces = [parent]
                left = size
                while left:
                    part = min(counts[segment] - done, left)
                    if part:
                        pieces += (sources[segment], done, part)
                    left -= part
                    done += part
                    if left:
                        segment, done = segment + 1, 0
                parent = hash(tuple(pieces))
            found.append(parent)
        self._segment, self._hashed_of_segment = segment, done
        return found

    def common(self, other: Text) -> int:
        """Tokens of the longest prefix that both texts have."""
        total = 0
        for ours, theirs, count, other_count in zip(
            self._sources, other._sources, self._counts, other._counts, strict=False
        ):
            if ours != theirs:
                break
            total += min(count, other_count)
            if count != other_count:
                break
        return total

    def segments(self) -> tuple[tuple[int, int], ...]:
        """Pairs of source and tokens."""
        return tuple(zip(self._sources, self._counts, strict=True))
