"""What a transducer is: a text from a value, at once or piece by piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field


class TransducerStream(ABC):
    """One value on its way through a transducer, piece by piece.

    What ``feed`` and ``finish`` return is final: later input never changes it. Joined, it equals
    ``apply`` of the whole value, however that was cut. Where ``apply`` raises, the stream is
    ``stopped`` at the latest at its end, unless it was ``complete`` before.

    complete: the text is all there, though more of the value may come.
    stopped: the value is not what the transducer needs; nothing more will be returned.
    """

    def __init__(self) -> None:
        self.complete = False
        self.stopped = False
        self._finished = False

    def feed(self, delta: str) -> str:
        """Take the next piece and return what is certain to follow in the prompt.

        Raises RuntimeError after ``finish``.
        """
        if self._finished:
            raise RuntimeError(f"feed({delta!r}) after finish(): a stream carries one value")
        if self.complete or self.stopped or not delta:
            return ""
        return self._take(delta)

    def finish(self) -> str:
        """End the value and return what is still owed; ``complete`` or ``stopped`` is set."""
        self._finished = True
        if self.complete or self.stopped:
            return ""
        rest = self._end()
        self.complete = not self.stopped
        return rest

    @abstractmethod
    def _take(self, delta: str) -> str:
        """``feed``, of a piece that is not empty and of a stream that goes on."""

    def _end(self) -> str:
        """``finish``, of a stream that goes on; may set ``stopped``."""
        return ""


@dataclass(frozen=True, slots=True)
class Transducer:
    """What happens to a value between the variable and the prompt.

    name: as a template writes it; two transducers are equal if their names are.
    whole: the text for a value; raises TransducerError for a value that has none.
    opened: a fresh stream.
    """

    name: str
    whole: Callable[[str], str] = field(compare=False, repr=False)
    opened: Callable[[], TransducerStream] = field(compare=False, repr=False)

    def apply(self, value: str) -> str:
        """The text that stands in the prompt for ``value``.

        Raises TransducerError when there is none: ``value`` is not of the form that is needed.
        """
        return self.whole(value)

    def stream(self) -> TransducerStream:
        """A fresh stream for one value."""
        return self.opened()

    def settled(self, value: str, *, done: bool) -> str | None:
        """The text for a value as far as it was written, if the rest cannot change it.

        done: there is no rest. None: the text is not certain yet, or there is none.
        """
        stream = self.stream()
        text = stream.feed(value)
        if done:
            text += stream.finish()
        return text if stream.complete else None
