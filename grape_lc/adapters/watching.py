"""What the calls of a graph's runs are sent and answer, seen by LangChain's callbacks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from grape_lc.adapters.callsite import CallSite, numbered
from grape_lc.adapters.chat_tools import tool_use
from grape_lc.adapters.learning import SeenCall
from grape_lc.adapters.messages import to_chat
from grape_lc.errors import RequestError

_MOST_CALLS = 256
"""Of a run that are kept: a loop without end must not fill the memory, nor take long to learn."""

_OURS = frozenset({"grape-chat", "grape-llm"})


@dataclass(frozen=True, slots=True)
class WatchedCall:
    """A call that was answered. namespace: of the node that made it."""

    call: SeenCall
    namespace: str


@dataclass(slots=True)
class Watched:
    """The calls of a run in the order in which they began, None until it is answered.

    counts: by place in the graph.
    """

    counts: Counter[str] = field(default_factory=Counter)
    calls: dict[int, WatchedCall | None] = field(default_factory=dict)

    def answered(self) -> list[WatchedCall]:
        """Those that were answered, in order."""
        return [call for call in list(self.calls.values()) if call is not None]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call that was not answered yet."""

    watched: Watched
    call: SeenCall
    namespace: str


class Watcher:
    """Writes down calls. Usable from any thread; keys are numbers of LangChain's run ids."""

    def __init__(self) -> None:
        self._begun: dict[int, _Begun] = {}
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """Calls that were not answered yet."""
        with self._lock:
            return len(self._begun)

    def begins(
        self,
        key: int,
        watched: Watched,
        site: CallSite,
        root: str,
        prompt: list[BaseMessage] | str,
        options: dict[str, Any],
    ) -> None:
        """A call begins. root: namespace of the run's graph. options: LangChain's, of the call."""
        parameters = options.get("invocation_params") or {}
        ours = _is_ours(options)
        with self._lock:
            if len(watched.calls) >= _MOST_CALLS:
                return
            # Calls of other models have no part in the numbers by which ours are known.
            name = numbered(site.name(root) + ("" if ours else "!"), watched.counts)
            if not ours:
                call = SeenCall(name, (), "")
            elif isinstance(prompt, str):
                call = SeenCall(name, (), "", text=prompt)
            else:
                call = _chat(name, prompt, parameters)
            limit = parameters.get("max_tokens")
            if ours and isinstance(limit, int) and limit > 0:
                call = replace(call, max_tokens=limit)
            watched.calls[key] = None
            self._begun[key] = _Begun(watched, call, site.namespace)

    def ends(self, key: int, response: LLMResult) -> None:
        """It was answered."""
        with self._lock:
            begun = self._begun.pop(key, None)
            if begun is None:
                return
            answer = response.generations[0][0].text if response.generations else ""
            call = replace(begun.call, answer=answer)
            begun.watched.calls[key] = WatchedCall(call, begun.namespace)

    def fails(self, key: int) -> None:
        """It failed."""
        with self._lock:
            self._begun.pop(key, None)

    def forgets(self, watched: Watched) -> None:
        """The run is over: what was not answered by now never will be."""
        with self._lock:
            for key in watched.calls:
                self._begun.pop(key, None)


def foreign_model(options: Mapping[str, Any], serialized: Mapping[str, Any] | None) -> str | None:
    """Class of the model that a call is of; None if it is one of ours.

    options, serialized: as LangChain's callbacks get them.
    """
    if _is_ours(options):
        return None
    known = serialized or {}
    path = known.get("id") or [known.get("name")]
    return str(path[-1] or (options.get("invocation_params") or {}).get("_type") or "unknown")


def _is_ours(options: Mapping[str, Any]) -> bool:
    return (options.get("invocation_params") or {}).get("_type") in _OURS


def _chat(task: str, messages: list[BaseMessage], parameters: dict[str, Any]) -> SeenCall:
    """The call as ChatGrape makes it; without a prompt where that would fail."""
    try:
        use = tool_use(parameters)
        return SeenCall(task, to_chat(messages), "", tools=use.tools if use else ())
    except RequestError:
        return SeenCall(task, (), "")
