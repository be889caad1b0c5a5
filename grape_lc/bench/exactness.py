"""Answers compared token by token with those that another engine gave to the same prompts.

A greedy answer is a function of its prompt, so an answer is looked up by its prompt, whichever
program, configuration or order of arrival it comes from. Where one answer differs, later prompts of
its program differ too, and nobody knows the right answers to them: they are counted apart.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from grape_lc.engine.base import CallDelta, CallObserver, CallRequest, TokenLogprob, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator


class Answer(NamedTuple):
    """What came of one call.

    prompt: as ``prompt_key`` makes it. tokens: ids, in order. usage: None if the call never ended,
    because it was cancelled; its tokens are then the beginning of an answer. leads: of each token,
    by how much its logarithm of probability exceeds that of the runner-up; empty if not asked for.
    """

    prompt: str
    task: str
    tokens: tuple[int, ...]
    usage: Usage | None
    leads: tuple[float, ...] = ()


class Mismatch(NamedTuple):
    """An answer that differs: at which token (from 0), what was expected there, what came.

    None stands for the end of an answer. lead: by how much the expected token was ahead of the
    runner-up, where that is known.
    """

    task: str
    position: int
    expected: int | None
    got: int | None
    lead: float | None


class Observable(Protocol):
    """An engine whose calls can be watched."""

    def observe(self, observer: CallObserver) -> Callable[[], None]:
        """Show ``observer`` every delta of calls begun from now on; returns the undo."""
        ...


def prompt_key(request: CallRequest) -> str:
    """Names what a greedy answer depends on: the prompt, and the limit of the answer."""
    chat = None
    if request.messages is not None:
        chat = [[message["role"], message["content"]] for message in request.messages]
    return json.dumps([chat, request.text, request.token_ids, request.sampling.max_tokens])


class Recorder:
    """Collects the answers of an engine's calls; give it to ``observe``. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, tuple[CallRequest, list[CallDelta]]] = {}

    def __call__(self, call_id: int, request: CallRequest, delta: CallDelta) -> None:
        """Take one delta."""
        with self._lock:
            self._calls.setdefault(call_id, (request, []))[1].append(delta)

    def answers(self) -> list[Answer]:
        """All of them so far, in the order in which they began."""
        with self._lock:
            calls = [(request, tuple(deltas)) for request, deltas in self._calls.values()]
        return [_answer(request, deltas) for request, deltas in calls]


@contextmanager
def recorded(engine: Observable) -> Iterator[Recorder]:
    """A recorder of the calls made meanwhile."""
    recorder = Recorder()
    undo = engine.observe(recorder)
    try:
        yield recorder
    finally:
        undo()


def _answer(request: CallRequest, deltas: Sequence[CallDelta]) -> Answer:
    return Answer(
        prompt_key(request),
        request.task or "",
        tuple(token for delta in deltas for token in delta.token_ids),
        deltas[-1].usage,
        tuple(_lead(item) for delta in deltas for item in delta.logprobs if len(item.top) > 1),
    )


def _lead(item: TokenLogprob) -> float:
    return item.top[0][1] - item.top[1][1]


@dataclass
class Comparison:
    """Counts of answers that were compared, and those that differ.

    calls: answers compared whole. cut: answers of cancelled calls, compared as far as they went.
    unknown: answers to prompts that the other engine was never given. tokens: those compared.
    adopted_calls, adopted_tokens: calls that took over an open prompt, and what they found done.
    """

    calls: int = 0
    cut: int = 0
    unknown: int = 0
    tokens: int = 0
    adopted_calls: int = 0
    adopted_tokens: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether something was compared, and none of it differs."""
        return self.tokens > 0 and not self.mismatches and not self.unknown


class Expected:
    """The right answers, by prompt.

    contradictions: answers of the engine that gave them which differ from what it had answered to
    the same prompt before; the first one counts.
    """

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._answers: dict[str, Answer] = {}
        self.contradictions = Comparison()
        for answer in answers:
            if answer.usage is None:
                raise ValueError(f"the answer of task {answer.task!r} has no end")
            if answer.prompt in self._answers:
                self._compare(answer, self.contradictions)
            self._answers.setdefault(answer.prompt, answer)

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def least_lead(self) -> float | None:
        """The closest that a runner-up came to a token that was chosen, in logarithms."""
        leads = [lead for answer in self._answers.values() for lead in answer.leads]
        return min(leads, default=None)

    def compare(self, answers: Iterable[Answer]) -> Comparison:
        """Compare each answer with the right one."""
        result = Comparison()
        for answer in answers:
            self._compare(answer, result)
        return result

    def _compare(self, answer: Answer, result: Comparison) -> None:
        expected = self._answers.get(answer.prompt)
        if expected is None:
            result.unknown += 1
            return
        ended = answer.usage is not None
        if ended:
            result.calls += 1
        else:
            result.cut += 1
        result.tokens += len(answer.tokens)
        if answer.usage is not None and answer.usage.ahead_tokens:
            result.adopted_calls += 1
            result.adopted_tokens += answer.usage.ahead_tokens
        found = first_difference(expected.tokens, answer.tokens, whole=ended)
        if found is not None:
            lead = expected.leads[found] if found < len(expected.leads) else None
            result.mismatches.append(
                Mismatch(
                    answer.task, found, _at(expected.tokens, found), _at(answer.tokens, found), lead
                )
            )


def first_difference(expected: Sequence[int], got: Sequence[int], *, whole: bool) -> int | None:
    """Where two answers differ first; None if they do not.

    whole: they must also end together; else ``got`` may be a beginning of ``expected``.
    """
    for position, (right, token) in enumerate(zip(expected, got, strict=False)):
        if right != token:
            return position
    if len(got) > len(expected) or (whole and len(got) < len(expected)):
        return min(len(expected), len(got))
    return None


def _at(tokens: Sequence[int], position: int) -> int | None:
    return tokens[position] if position < len(tokens) else None


def chunk_sizes(lines: Iterable[str]) -> dict[int, int]:
    """How often a piece of a prompt of so many tokens was computed, from a scheduler's records."""
    sizes: dict[int, int] = {}
    for line in lines:
        record: Mapping[str, Mapping[str, object]] = json.loads(line)
        if "plan" not in record:
            continue
        planned = record["plan"]
        prompts = {
            item[0]
            for group in ("prefills", "starts", "opens")
            for item in planned[group] or ()  # type: ignore[attr-defined]
        }
        for request, tokens in record["ran"].items():
            if request in prompts and isinstance(tokens, int):
                sizes[tokens] = sizes.get(tokens, 0) + 1
    return dict(sorted(sizes.items()))
