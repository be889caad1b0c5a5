"""What LangGraph and LangChain do otherwise while a graph is traced.

Replaced, only in the context of a trace and only while one runs in this process:

    BranchSpec._finish          where a conditional edge goes
    ChannelWrite.do_write       where a node's Command(goto=...) goes
    ThreadPoolExecutor.submit   the thread gets the context, and a lane (trace_lanes.py)
    BaseTool.run, arun          not executed; the result is an unknown text
    BaseRetriever.invoke, ...   not executed; the documents are unknown texts

All other code of the process sees the originals' behaviour.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import replace
from typing import Any, Protocol

from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables.config import (
    ContextThreadPoolExecutor,
    var_child_runnable_config,
)
from langchain_core.tools import BaseTool
from langgraph.graph._branch import BranchSpec
from langgraph.pregel._write import ChannelWrite, ChannelWriteTupleEntry
from langgraph.types import Command, Send

from grape_lc.adapters.callsite import call_site, function_of
from grape_lc.adapters.trace_lanes import Lane, lane

_DOCUMENTS = 3  # that a retriever finds in a trace


class Director(Protocol):
    """Who decides in a trace."""

    def edge(
        self,
        site: str,
        function: Callable[..., Any] | None,
        ends: Sequence[str] | None,
        natural: Sequence[str],
    ) -> str | None:
        """The end that a conditional edge at ``site`` takes instead of its own choice, or None.

        ends: those that are declared; None: none are.
        """
        ...

    def goto(self, site: str, natural: Sequence[str]) -> str | None:
        """As ``edge``, for the Command that the node returns."""
        ...

    def lane(self, site: str) -> Lane:
        """The lane of a thread that is started at ``site``."""
        ...

    def unknown(self, what: str) -> str:
        """A text that nobody can know beforehand; ``what`` says where it is from."""
        ...


director: ContextVar[Director | None] = ContextVar("grape_lc_trace_director", default=None)
"""Set in the context of a trace."""

_lock = threading.Lock()
_users = 0
_originals: dict[tuple[type, str], Any] = {}


@contextmanager
def hooks() -> Iterator[None]:
    """The replacements are in place; those of several traces at once are the same."""
    global _users  # noqa: PLW0603 - classes of other packages are patched once for all traces
    with _lock:
        _users += 1
        if _users == 1:
            for owner, name, make in _HOOKS:
                original = owner.__dict__[name]
                _originals[owner, name] = original
                setattr(owner, name, make(original))
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                for (owner, name), original in _originals.items():
                    setattr(owner, name, original)
                _originals.clear()


def _finish(original: Any) -> Any:
    def finish(self: Any, writer: Any, input: Any, result: Any, config: Any) -> Any:  # noqa: A002
        forced = _forced_end(self, result, config)
        return original(self, writer, input, result if forced is None else forced, config)

    return finish


def _forced_end(branch: Any, result: Any, config: Mapping[str, Any]) -> Any:
    """The option to return instead of ``result``, or None."""
    directing = director.get()
    if directing is None:
        return None
    several = result if isinstance(result, list | tuple) else [result]
    ends = branch.ends
    natural = []
    for one in several:
        end = one.node if isinstance(one, Send) else one if ends is None else ends.get(one)
        if not isinstance(end, str):
            return None  # LangGraph will say what is wrong with it
        natural.append(end)
    declared = None if ends is None else [*dict.fromkeys(ends.values())]
    end = directing.edge(_site(config), function_of(branch.path), declared, natural)
    if end is None or ends is None:
        return end
    return next(option for option, target in ends.items() if target == end)


def _do_write(original: Any) -> Any:
    # A static method: its descriptor is kept, and put back as it was.
    write = original.__func__

    def do_write(config: Any, writes: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        directing = director.get()
        if directing is not None:
            writes = [_directed(directing, entry, config) for entry in writes]
        write(config, writes, *args, **kwargs)

    return staticmethod(do_write)


def _directed(directing: Director, entry: Any, config: Any) -> Any:
    if not isinstance(entry, ChannelWriteTupleEntry) or not isinstance(entry.value, Command):
        return entry
    command = entry.value
    gotos = command.goto if isinstance(command.goto, list | tuple) else [command.goto]
    # One to a graph above changes what that graph does; and each write has two entries, of which
    # the one that reads the updates leaves goto alone.
    if command.graph is not None or not all(isinstance(goto, str) for goto in gotos):
        return entry
    if getattr(entry.mapper, "__name__", "") != "_control_branch" or not gotos:
        return entry
    end = directing.goto(_site(config), [str(goto) for goto in gotos])
    return entry if end is None else entry._replace(value=replace(command, goto=end))


def _submit(original: Any) -> Any:
    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        directing = director.get()
        if directing is None:
            return original(self, fn, *args, **kwargs)
        # What an event loop hands to threads is LangGraph's, or awaited one by one.
        if _running_loop() is not None:
            return original(self, copy_context().run, fn, *args, **kwargs)
        config = var_child_runnable_config.get() or {}
        # LangChain's pool copies the context by itself, within the original.
        token = lane.set(directing.lane(_site(config)))
        try:
            return original(self, copy_context().run, fn, *args, **kwargs)
        finally:
            lane.reset(token)

    return submit


def _map(original: Any) -> Any:
    def submit_each(self: Any, fn: Any, *iterables: Any, **kwargs: Any) -> Any:
        if director.get() is None:
            return original(self, fn, *iterables, **kwargs)
        futures = [self.submit(fn, *each) for each in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    return submit_each


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _tool(original: Any) -> Any:
    def run(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        directing = director.get()
        if directing is None:
            return original(self, tool_input, *args, **kwargs)
        return _tool_result(directing, self, kwargs.get("tool_call_id"))

    return run


def _atool(original: Any) -> Any:
    async def arun(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        directing = director.get()
        if directing is None:
            return await original(self, tool_input, *args, **kwargs)
        return _tool_result(directing, self, kwargs.get("tool_call_id"))

    return arun


def _tool_result(directing: Director, tool: BaseTool, call_id: str | None) -> Any:
    text = directing.unknown(f"the result of the tool {tool.name!r}")
    return text if call_id is None else ToolMessage(text, tool_call_id=call_id, name=tool.name)


def _retriever(original: Any) -> Any:
    def invoke(self: BaseRetriever, *args: Any, **kwargs: Any) -> Any:
        directing = director.get()
        return original(self, *args, **kwargs) if directing is None else _found(directing, self)

    return invoke


def _aretriever(original: Any) -> Any:
    async def ainvoke(self: BaseRetriever, *args: Any, **kwargs: Any) -> Any:
        directing = director.get()
        if directing is None:
            return await original(self, *args, **kwargs)
        return _found(directing, self)

    return ainvoke


def _found(directing: Director, retriever: BaseRetriever) -> list[Document]:
    what = f"a document found by {type(retriever).__name__}"
    return [
        # Not validated, which would make a plain dictionary of the metadata.
        Document.model_construct(
            id=None,
            type="Document",
            page_content=directing.unknown(what),
            metadata=_Unknowns(directing, what),
        )
        for _ in range(_DOCUMENTS)
    ]


class _Unknowns(dict[str, Any]):
    """Metadata of a document: any key has a text."""

    def __init__(self, directing: Director, what: str) -> None:
        super().__init__()
        self._directing = directing
        self._what = what

    def __missing__(self, key: str) -> str:
        return self._directing.unknown(f"{key!r} of {self._what}")

    def get(self, key: str, default: Any = None) -> Any:
        """As for a key that is there."""
        return self[key]


def _site(config: Mapping[str, Any]) -> str:
    site = call_site(config.get("metadata"), (), None)
    return "" if site is None else site.name()


_HOOKS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (BranchSpec, "_finish", _finish),
    (ChannelWrite, "do_write", _do_write),
    (ThreadPoolExecutor, "submit", _submit),
    (ContextThreadPoolExecutor, "submit", _submit),
    (ContextThreadPoolExecutor, "map", _map),
    (BaseTool, "run", _tool),
    (BaseTool, "arun", _atool),
    (BaseRetriever, "invoke", _retriever),
    (BaseRetriever, "ainvoke", _aretriever),
)
