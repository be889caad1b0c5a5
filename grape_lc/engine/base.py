"""What an engine is to the rest of the package.

``EngineClient`` is the side that user code, adapters and the driver see: calls and programs.
``GrapeEngine`` (vLLM in a process of its own) and ``ScriptedEngine`` (a fake that replays
answers) implement it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from grape_lc.flow.sampling import Sampling
from grape_lc.flow.targets import Seconds

if TYPE_CHECKING:
    from grape_lc.flow.taskflow import TaskFlow

FinishReason = Literal["stop", "length", "abort"]
FoundBy = Literal["name", "content", "none"]


class Usage(NamedTuple):
    """Token counts of one call.

    prompt_tokens: tokens of the whole prompt.
    completion_tokens: tokens sampled.
    cached_tokens: prompt tokens whose KV existed when the call arrived, whatever the source.
    ahead_tokens: the part of ``cached_tokens`` taken over from an open prompt.
    ahead_outcome: why that part is what it is: ``adopted``, ``none`` (the call had no open
        prompt), or the reason for which the open prompt could not be used.
    found_by: how the call was found to be a task of a running program: it named both
        (``name``), its prompt is that of a task (``content``), or it was not (``none``).
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    ahead_tokens: int = 0
    ahead_outcome: str = "none"
    found_by: FoundBy = "none"


class TokenLogprob(NamedTuple):
    """How likely the model found a token.

    token: its text. logprob: natural logarithm of its probability, -9999 if that is 0.
    top: the likeliest tokens in its place, with theirs; as many as were asked for.
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


class CallPiece(NamedTuple):
    """A part of a call of a tool: the first one has an id and, unless it is malformed, a name.

    call: which call of the answer it belongs to. args: text to append to its arguments.
    """

    call: int
    args: str
    name: str | None = None
    id: str | None = None


class CallDelta(NamedTuple):
    """One piece of an answer.

    text: text to append to what came before (may be empty).
    token_ids: the tokens sampled since the last delta.
    at: seconds on the monotonic clock of this machine when the engine delivered it.
    finish_reason, usage: set on the last delta only.
    logprobs: one for each of ``token_ids`` when the call asked for them, else none.
    calls: parts of calls of tools, when the call named a ``tool_parser``; they are no part of text.
    """

    text: str
    token_ids: tuple[int, ...]
    at: float
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    calls: tuple[CallPiece, ...] = ()


class CallRequest(BaseModel):
    """One call of the model.

    Exactly one of ``messages`` (OpenAI-style dictionaries with ``role`` and ``content``),
    ``text`` and ``token_ids`` is set. ``program`` and ``task`` say which open prompt, if any,
    was prepared for this call; a wrong or unknown value is harmless. A call that names no program
    is looked for by its prompt among those that wait for one. ``label`` is free text that
    observers see. ``priority`` orders calls that wait, lower values first, as in vLLM; other
    values than 0 need an engine made with ``scheduling_policy="priority"``.

    ``ttft_s`` and ``tbt_s`` are the targets for the first token and for the time between tokens,
    ``deadline_s`` the one for the whole program, in seconds from the arrival of its first call.
    The scheduler orders and sizes its steps by them; nothing is cancelled when one is missed.
    ``tenant`` names on whose behalf the call is made: tenants share the engine fairly, and nothing
    that one has computed or announced is used for another. Empty: nobody in particular.
    ``timeout_s`` is a limit, not a target: a call that takes longer is cancelled and raises
    CallTimeoutError.

    ``tools`` are functions in OpenAI's form that the chat template, or a system message where
    it knows of none, shows to the model. Calls of them are part of the answer's text, unless
    ``tool_parser`` names the parser of vLLM that reads them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    messages: tuple[dict[str, Any], ...] | None = None
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    sampling: Sampling = Sampling()
    program: str | None = None
    task: str | None = None
    label: str | None = None
    priority: int = 0
    tenant: str = ""
    ttft_s: Seconds | None = None
    tbt_s: Seconds | None = None
    deadline_s: Seconds | None = None
    timeout_s: Seconds | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tool_parser: str | None = None


class CallObserver(Protocol):
    """Sees every delta of every call of an engine; called on the engine's reader thread."""

    def __call__(self, call_id: int, request: CallRequest, delta: CallDelta) -> None:
        """See the class; ``call_id`` is unique while the engine lives."""
        ...


class EngineClient(Protocol):
    """Calls and programs, usable from threads and from event loops alike."""

    @property
    def model_name(self) -> str:
        """Name or path of the model that is served."""
        ...

    def stream(self, request: CallRequest) -> Iterator[CallDelta]:
        """Run a call; closing the iterator early cancels it.

        Raises RequestError (bad request) or EngineError.
        """
        ...

    def astream(self, request: CallRequest) -> AsyncIterator[CallDelta]:
        """Like ``stream``, for the running event loop; cancelling the task cancels the call."""
        ...

    def open_program(self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = "") -> str:
        """Announce a run of ``flow`` and return its program id, without waiting.

        ``inputs`` may be incomplete: what is not known is not prefilled. The engine opens the
        prompts of the flow's tasks and feeds them while upstream calls (those that name this
        program and a task) decode. Only calls of the same ``tenant`` are part of the program.
        """
        ...

    def close_program(self, program_id: str) -> None:
        """Release all open prompts of a program; unknown ids are ignored."""
        ...

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text, without special tokens added."""
        ...
