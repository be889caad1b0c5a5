"""An engine without a model, for tests of graphs and flows.

    engine = ScriptedEngine({"plan": "1. read 2. sort", "code": "def solve(): ..."})
    graph = build(ChatGrape(engine=engine))
    graph.invoke({"problem": "sort a list"})
    assert engine.calls[1].prompt.startswith("system: You write code")

It answers from a script, piece by piece, and records what was asked of it: calls, programs,
and what the open prompts of each program would have been fed.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from grape_lc.engine.base import (
    CallDelta,
    CallObserver,
    CallRequest,
    FinishReason,
    FoundBy,
    TokenLogprob,
    Usage,
)
from grape_lc.engine.call_limits import check_call
from grape_lc.errors import (
    CallFailedError,
    CallTimeoutError,
    EmptyPromptError,
    EngineClosedError,
)
from grape_lc.runtime import content
from grape_lc.runtime.driver import RunsFlows

if TYPE_CHECKING:
    from grape_lc.flow.taskflow import TaskFlow
    from grape_lc.flow.template import Slot

Answer = str | Sequence[str] | Exception
Script = str | Mapping[str, Answer] | Sequence[Answer] | Callable[[CallRequest], Answer]
Outcome = Literal["running", "finished", "cancelled", "failed"]

# A word with the white space before it, as most tokenizers cut; or white space at the end.
_PIECE = re.compile(r"\s*\S+|\s+\Z")


class Clock(Protocol):
    """Where the engine takes its time from; seconds."""

    def now(self) -> float:
        """The present, on a clock that never runs backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        ...

    async def asleep(self, seconds: float) -> None:
        """Let the event loop go on meanwhile."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds of ``time.monotonic``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """``time.sleep``."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """``asyncio.sleep``."""
        await asyncio.sleep(seconds)


class VirtualClock:
    """A clock that moves only when somebody sleeps, and then at once.

    The sleeps of calls that run side by side add up: it orders events, it does not model
    parallel time.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> float:
        """Seconds slept so far, plus the start."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Move the clock forward without waiting."""
        with self._lock:
            self._now += seconds

    async def asleep(self, seconds: float) -> None:
        """Move the clock forward and give other tasks of the loop their turn."""
        self.sleep(seconds)
        await asyncio.sleep(0)


@dataclass
class ScriptedCall:
    """One call, updated while it runs.

    deltas: the pieces delivered so far.
    outcome: ``cancelled`` when the caller closed the iterator or cancelled its task.
    begun: when it came, on the engine's clock.
    program, task: what its text is fed to: as the request says, or as its prompt was found to be
        (``found_by`` is ``content``); None once a call has come that names the same task.
    """

    call_id: int
    request: CallRequest
    deltas: list[str] = field(default_factory=list)
    outcome: Outcome = "running"
    begun: float = 0.0
    program: str | None = None
    task: str | None = None
    found_by: FoundBy = "none"

    @property
    def prompt(self) -> str:
        """The prompt as one text; of a chat, ``role: content`` of each message on its lines."""
        return prompt_text(self.request)

    @property
    def text(self) -> str:
        """What was delivered so far."""
        return "".join(self.deltas)


@dataclass
class ScriptedProgram:
    """One program, updated while it is open.

    tenant: whose it is; calls of others are no part of it.
    fed: for each task of a call of this program, the pieces that were delivered while the
        program was open: what the open prompts downstream of the task would have got.
    """

    program_id: str
    flow: TaskFlow
    inputs: dict[str, str]
    open: bool = True
    tenant: str = ""
    fed: dict[str, list[str]] = field(default_factory=dict)
    _last: dict[str, ScriptedCall] = field(default_factory=dict)  # calls by task

    def called(self, call: ScriptedCall) -> None:
        """A call of this program begins; it takes the place of one that its content told."""
        assert call.task is not None
        last = self._last.get(call.task)
        if last is not None and last.outcome == "running" and last.found_by == "content":
            last.program = last.task = None
        self._last[call.task] = call

    def known(self) -> Iterator[content.Known]:
        """What is known of the prompts of tasks that were not called, in the flow's order."""
        begun = {
            task for task, call in self._last.items() if call.outcome in ("running", "finished")
        }
        running = {task for task in begun if self._last[task].outcome == "running"}
        writers = {task.output: task.name for task in self.flow.tasks}
        values = dict(self.inputs)
        for variable, writer in writers.items():
            if writer in begun - running:
                values[variable] = self._last[writer].text
        tasks = {task.name: task for task in self.flow.tasks}
        for name, call in self._last.items():
            written = self.flow.written_by(tasks[name]) if name in tasks else ()
            for newest in written[1:]:
                writers[newest] = name
                values.pop(newest, None)
                if name in begun - running:
                    values[newest] = call.text

        def text_of(slot: Slot) -> str | None:
            value = values.get(slot.variable)
            return None if value is None else slot.transducer.settled(value, done=True)

        for task in self.flow.order():
            if task.name not in begun:
                known = content.known_of(self.program_id, task, text_of, writers, running, _joined)
                if known is not None:
                    yield known


def prompt_text(request: CallRequest) -> str:
    """The prompt of a request as one text, for tests to look into.

    Chat messages become ``role: content`` joined by newlines; token ids are written as
    numbers.
    """
    prompt = content.prompt_of(request)
    if prompt is not None:
        return _joined(prompt)
    return " ".join(str(token) for token in request.token_ids or ())


def _joined(prompt: list[dict[str, Any]] | str) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{m['role']}: {_content_text(m.get('content'))}" for m in prompt)


class ScriptedEngine(RunsFlows):
    """Answers calls from a script. Safe to use from threads and event loops at once.

    script: where answers come from:
        a text          answers every call;
        a sequence      one answer a call, in the order of arrival;
        a mapping       by LangGraph node or flow task; failing that, by the longest key that
                        stands in the prompt;
        a callable      gets the CallRequest.
    An answer is a text (delivered word by word), a sequence of pieces (delivered as they are)
    or an exception (raised). One piece counts as one token; stop strings and ``max_tokens``
    cut an answer as an engine would, and ``timeout_s`` ends a call that takes longer. Every piece
    is certain: its logprob is 0. Tools and structured outputs change nothing; the script says
    what the model would have written. A call that names no program is looked for by its prompt,
    as the real engine does; what it is answered does not depend on that.

    delay: seconds before each piece, slept on ``clock``.

    Raises CallFailedError for a call that the script has no answer for.
    """

    def __init__(
        self,
        script: Script = "ok",
        *,
        model_name: str = "scripted",
        delay: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self.delay = delay
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._model_name = model_name
        self._script = script
        self._calls: list[ScriptedCall] = []
        self._programs: dict[str, ScriptedProgram] = {}
        self._observers: list[CallObserver] = []
        self._closed = False
        # The garbage collector may end a call or a program while its thread holds the lock.
        self._lock = threading.RLock()

    # -- the engine protocol ----------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """The name given at construction."""
        return self._model_name

    @property
    def is_open(self) -> bool:
        """Whether calls are served."""
        return not self._closed

    def stream(self, request: CallRequest) -> Iterator[CallDelta]:
        """Deliver the scripted answer; closing the iterator early marks the call cancelled.

        Raises EmptyPromptError, CallFailedError, EngineClosedError, or the scripted exception.
        """
        call = self._begin(request)
        with _Ending(self, call):
            for delta in self._deltas(call):
                self.clock.sleep(self.delay)
                yield self._deliver(call, delta)

    async def astream(self, request: CallRequest) -> AsyncIterator[CallDelta]:
        """Like ``stream``; cancelling the task marks the call cancelled."""
        call = self._begin(request)
        with _Ending(self, call):
            for delta in self._deltas(call):
                await self.clock.asleep(self.delay)
                yield self._deliver(call, delta)

    def open_program(self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = "") -> str:
        """Record a program and return its id.

        Raises EngineClosedError.
        """
        with self._lock:
            self._check_open("open_program")
            program_id = f"program-{len(self._programs) + 1}"
            self._programs[program_id] = ScriptedProgram(
                program_id, flow, dict(inputs), tenant=tenant
            )
            return program_id

    def close_program(self, program_id: str) -> None:
        """Mark a program closed; unknown ids are ignored."""
        with self._lock:
            if (program := self._programs.get(program_id)) is not None:
                program.open = False

    def info(self) -> dict[str, Any]:
        """What the real engine says of itself, as far as there is something to say."""
        return {"model": self._model_name, "early_refusal": "it is a script"}

    def count_tokens(self, text: str) -> int:
        """Number of pieces that the text would be delivered in."""
        return len(_PIECE.findall(text))

    # -- for tests --------------------------------------------------------------------------

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """All calls in the order of arrival."""
        with self._lock:
            return tuple(self._calls)

    @property
    def programs(self) -> tuple[ScriptedProgram, ...]:
        """All programs in the order of opening."""
        with self._lock:
            return tuple(self._programs.values())

    @property
    def open_programs(self) -> tuple[str, ...]:
        """Ids of the programs that are open."""
        return tuple(program.program_id for program in self.programs if program.open)

    def observe(self, callback: CallObserver) -> Callable[[], None]:
        """Call ``callback`` with every delta, on the thread that takes it; returns an undo."""
        with self._lock:
            self._observers.append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._observers:
                    self._observers.remove(callback)

        return unsubscribe

    def close(self) -> None:
        """Refuse what comes, fail what runs at its next piece, and close all programs."""
        with self._lock:
            self._closed = True
            for program in self._programs.values():
                program.open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- inside -----------------------------------------------------------------------------

    def _begin(self, request: CallRequest) -> ScriptedCall:
        check_call(request)
        with self._lock:
            self._check_open("a call")
            call = ScriptedCall(len(self._calls), request, begun=self.clock.now())
            self._calls.append(call)
            self._find(call)
        return call

    def _find(self, call: ScriptedCall) -> None:
        """Find out which task of which open program a call is."""
        request = call.request
        found_by: FoundBy = "name"
        call.program, call.task = request.program, request.task
        opened = [p for p in self._programs.values() if p.open and p.tenant == request.tenant]
        if request.program is None and opened:
            choice = content.choose(
                call.prompt,
                (known for program in opened for known in program.known()),
                chat=request.messages is not None,
                greedy=content.is_greedy(request),
            )
            if choice.known is not None:
                call.program, call.task = choice.known.program, choice.known.task
                found_by = "content"
        program = self._programs.get(call.program or "")
        if program is not None and program.tenant != request.tenant:
            call.program = call.task = None
            return
        if program is None or not program.open or call.task is None:
            return
        if any(task.name == call.task for task in program.flow.tasks):
            call.found_by = found_by
            program.called(call)

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise EngineClosedError(f"{what} after close of the engine {self._model_name!r}")

    def _deltas(self, call: ScriptedCall) -> list[CallDelta]:
        request = call.request
        if not (request.messages or request.text or request.token_ids):
            raise EmptyPromptError(f"call {call.call_id} has no messages, text or tokens")
        answer = self._answer(call)
        if isinstance(answer, Exception):
            raise answer
        pieces = _PIECE.findall(answer) if isinstance(answer, str) else list(answer)
        pieces, reason = _cut(pieces, request.sampling.stop, request.sampling.max_tokens)
        usage = Usage(self.count_tokens(call.prompt), len(pieces), found_by=call.found_by)
        deltas = [
            CallDelta(
                piece,
                (zlib.crc32(piece.encode()),),
                0.0,
                logprobs=_certain(piece, request.sampling.logprobs),
            )
            for piece in pieces
        ]
        last = deltas.pop() if deltas else CallDelta("", (), 0.0)
        return [*deltas, last._replace(finish_reason=reason, usage=usage)]

    def _answer(self, call: ScriptedCall) -> Answer:
        script = self._script
        if isinstance(script, str):
            return script
        if callable(script):
            return script(call.request)
        if isinstance(script, Mapping):
            return _look_up(script, call)
        if call.call_id >= len(script):
            raise CallFailedError(
                f"call {call.call_id} came after the script's {len(script)} answers; "
                f"its prompt: {call.prompt!r}"
            )
        return script[call.call_id]

    def _deliver(self, call: ScriptedCall, delta: CallDelta) -> CallDelta:
        delta = delta._replace(at=self.clock.now())
        with self._lock:
            self._check_open(f"call {call.call_id}")
            limit = call.request.timeout_s
            if limit is not None and delta.at - call.begun > limit:
                raise CallTimeoutError(
                    f"call {call.call_id} took longer than the {limit} s that it was given"
                )
            call.deltas.append(delta.text)
            program = self._programs.get(call.program or "")
            if program is not None and program.open and call.task is not None:
                program.fed.setdefault(call.task, []).append(delta.text)
            if delta.finish_reason is not None:
                call.outcome = "finished"
            observers = tuple(self._observers)
        for observer in observers:
            observer(call.call_id, call.request, delta)
        return delta


class _Ending:
    """Writes down how a call ended, whichever way its iterator is left."""

    def __init__(self, engine: ScriptedEngine, call: ScriptedCall) -> None:
        self._engine = engine
        self._call = call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with self._engine._lock:
            if self._call.outcome == "running":
                # GeneratorExit and CancelledError are not Exceptions: the caller went away.
                failed = kind is not None and issubclass(kind, Exception)
                self._call.outcome = "failed" if failed else "cancelled"


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, Mapping))
    return ""


def _certain(piece: str, asked: int | None) -> tuple[TokenLogprob, ...]:
    if asked is None:
        return ()
    return (TokenLogprob(piece, 0.0, ((piece, 0.0),) if asked else ()),)


def _look_up(script: Mapping[str, Answer], call: ScriptedCall) -> Answer:
    for name in (call.request.task, call.request.label):
        if name is not None and name in script:
            return script[name]
    prompt = call.prompt
    found = [key for key in script if key in prompt]
    if not found:
        raise CallFailedError(
            f"the script has no answer for call {call.call_id} (task {call.request.task!r}, "
            f"label {call.request.label!r}): none of its keys {sorted(script)} is the task, the "
            f"label or a part of the prompt {prompt!r}"
        )
    return script[max(found, key=lambda key: (len(key), key))]


def _cut(
    pieces: list[str], stops: Sequence[str], max_tokens: int | None
) -> tuple[list[str], FinishReason]:
    """Apply ``max_tokens`` (in pieces), then the stop string that is complete first."""
    limited = max_tokens is not None and len(pieces) > max_tokens
    pieces = pieces[:max_tokens]
    text = "".join(pieces)
    # The stop string whose end comes first is the one an engine would have seen first.
    hits = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    if not hits:
        return pieces, "length" if limited else "stop"
    end = min(hits)[1]
    kept = []
    for piece in pieces:
        if end <= 0:
            break
        kept.append(piece[:end])
        end -= len(piece)
    return kept, "stop"
