"""Nodes whose failure to do what is denied, or to end, does not end the trace of the graph."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langgraph._internal._runnable import RunnableCallable
from langgraph.constants import START
from langgraph.pregel import Pregel

from grape_lc.adapters.callsite import current_call_site, function_of, unnumbered
from grape_lc.adapters.sandbox_frames import place_of
from grape_lc.adapters.sandbox_guard import Denied, running_at

AnyGraph = Pregel[Any, Any, Any, Any]


class Hung:
    """The nodes that did not come to their end, in time or at all. Usable from any thread."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._nodes: dict[str, None] = {}
        self._ended: dict[tuple[str, str], None] = {}

    def add(self, node: str) -> None:
        """``node`` did not end within the limit."""
        self._nodes[node] = None

    def ended(self, node: str, kind: str) -> None:
        """``node`` ended where an effect of this kind was denied."""
        self._ended[node, kind] = None

    def without_calls(self, tasks: Iterable[str]) -> tuple[str, ...]:
        """A sentence for each node that ended so and of which no call was seen.

        tasks: the calls that were seen.
        """
        called = {unnumbered(task) for task in tasks}
        ended = {(unnumbered(node), kind) for node, kind in self._ended}
        return tuple(
            f"node {node!r} ended where it was denied {kind}, before any call of a model; if it "
            f"makes one behind that, it is not in the flow: --allow {kind}"
            for node, kind in sorted(ended)
            if node not in called
        )

    def __contains__(self, node: str) -> bool:
        return node in self._nodes

    def warnings(self) -> tuple[str, ...]:
        """A sentence for each."""
        return tuple(
            f"node {node!r} did not end within {self.limit_s:g} s; what it does behind its last "
            "call is not in the flow"
            for node in sorted(self._nodes)
        )


def contained(graph: AnyGraph, hung: Hung, folder: str) -> AnyGraph:
    """A copy of ``graph`` and its subgraphs whose nodes end where something is denied.

    Such a node, and one that does not end within ``hung.limit_s``, has written nothing to the
    state; the graph goes on behind it as its edges say. A graph that a node's function calls is
    not copied: there the node ends that called it. folder: from which its files are named.
    """
    nodes = {}
    for name, node in graph.nodes.items():
        if name == START:
            nodes[name] = node
        elif isinstance(node.bound, Pregel):
            inner = contained(node.bound, hung, folder)
            nodes[name] = node.copy({"bound": inner, "subgraphs": [inner]})
        else:
            nodes[name] = node.copy({"bound": _Contained(node.bound, name, hung, folder)})
    return graph.copy({"nodes": nodes})


class _Contained(Runnable[Any, Any]):
    def __init__(self, bound: Runnable[Any, Any], name: str, hung: Hung, folder: str) -> None:
        self._bound = bound
        self._hung = hung
        self._place = _place(bound, folder)
        self._name = self.name = name

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        placed = running_at.set(self._place)
        try:
            return self._bound.invoke(input, config, **kwargs)
        except BaseException as error:
            if not self._is_denial(error):
                raise
            return None
        finally:
            running_at.reset(placed)

    def _is_denial(self, error: BaseException) -> bool:
        """Whether something was denied, of which is then taken note."""
        denied = denied_in(error)
        if denied is not None:
            site = current_call_site()
            self._hung.ended(self._name if site is None else site.name(), denied.effect.kind)
        return denied is not None

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        site = current_call_site()
        place = self._name if site is None else site.name()
        if place in self._hung:
            return None
        if _is_synchronous(self._bound):
            work = _in_thread(functools.partial(self.invoke, input, config, **kwargs))
        else:
            work = self._bound.ainvoke(input, config, **kwargs)
        placed = running_at.set(self._place)
        limit = asyncio.timeout(self._hung.limit_s)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            self._hung.add(place)
            return None
        except BaseException as error:
            if not self._is_denial(error):
                raise
            return None
        finally:
            running_at.reset(placed)


def denied_in(error: BaseException | None, depth: int = 10) -> Denied | None:
    """The Denied that ``error`` is, or was raised because of."""
    if error is None or not depth:
        return None
    if isinstance(error, Denied):
        return error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for one in (*inner, error.__cause__, error.__context__):
        if (found := denied_in(one, depth - 1)) is not None:
            return found
    return None


def _place(bound: Runnable[Any, Any], folder: str) -> str | None:
    """Where a node's function begins."""
    function = function_of(bound)
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    return None if code is None else place_of(code.co_filename, code.co_firstlineno, folder)


def _is_synchronous(bound: Runnable[Any, Any]) -> bool:
    """Whether this is a plain function, which LangGraph would run in a thread of the loop's."""
    return (
        isinstance(bound, RunnableCallable)
        and bound.func is not None
        and (
            bound.afunc is None
            or (isinstance(bound.afunc, functools.partial) and bound.afunc.func is run_in_executor)
        )
    )


async def _in_thread(function: Callable[[], Any]) -> Any:
    """The function's result. Its thread is left alone if it does not end: nobody joins it.

    A thread of the event loop's would be joined when the loop closes.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
        if done.done():  # not awaited any more
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 - handed on, whatever it is
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: it did not wait
            loop.call_soon_threadsafe(deliver, result, error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True, name="grape-node").start()
    return await done
