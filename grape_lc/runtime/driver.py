"""Runs a TaskFlow on any engine: a task's call is sent as soon as its variables are written."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from typing import NamedTuple, Protocol

from grape_lc.engine.base import CallRequest, EngineClient
from grape_lc.flow.events import FlowEvent, ProgramFinished, TaskFinished, TaskStarted, TokenEvent
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.runtime.off_loop import off_loop


class ToolStep(NamedTuple):
    """What a program does between its calls: it makes an input out of what is there by then.

    reads: variables of the flow. writes: an input variable that the run was not given.
    use: called with the values of ``reads``, in a thread of its own.
    """

    reads: tuple[str, ...]
    writes: str
    use: Callable[[Mapping[str, str]], str]


async def run_events(
    engine: EngineClient,
    flow: TaskFlow,
    inputs: Mapping[str, str],
    tools: Sequence[ToolStep] = (),
    tenant: str = "",
) -> AsyncIterator[FlowEvent]:
    """Events of one run, in the order in which they happen; ProgramFinished is the last.

    Tasks run side by side where the flow allows it. If one fails, the others are cancelled and
    its error is raised. Closing the iterator cancels the run. Raises RequestError, EngineError,
    TransducerError when an answer does not fit the slot that reads it, and what a tool raises.

    tools: write inputs that ``inputs`` lacks. Where there are some, UnknownVariableError is raised
        for one that does not fit the flow, and FlowInputError for what nobody gives.
    tenant: on whose behalf it runs, as in CallRequest.
    """
    if tools:
        for name in (name for tool in tools for name in tool.reads):
            flow.variable(name)
        flow.check_inputs({**inputs, **{tool.writes: "" for tool in tools}})
    program = await _open(engine, flow, inputs, tenant)
    run = _Run(engine, flow, program, dict(inputs), tools, tenant)
    # An event loop that is closed under the run never comes to the end below.
    close = weakref.finalize(run, engine.close_program, program)
    close.atexit = False
    try:
        run.start_ready()
        while run.tasks:
            yield await run.next_event()
        while not run.events.empty():
            yield run.events.get_nowait()
        yield ProgramFinished(program, run.outputs(), dict(run.values), time.monotonic())
    finally:
        # Before anything is awaited: a loop that ends cancels this very clean-up.
        run.cancel()
        close()
        await run.ended()


async def _open(
    engine: EngineClient, flow: TaskFlow, inputs: Mapping[str, str], tenant: str
) -> str:
    """Announce the run; it may start the engine, so not on the event loop's thread."""
    return await off_loop(lambda: engine.open_program(flow, inputs, tenant), engine.close_program)


class _Run:
    """Calls in flight and values written so far."""

    def __init__(
        self,
        engine: EngineClient,
        flow: TaskFlow,
        program: str,
        values: dict[str, str],
        tools: Sequence[ToolStep],
        tenant: str,
    ) -> None:
        self.engine = engine
        self.flow = flow
        self.program = program
        self.tenant = tenant
        self.values = values
        for newest, of in flow.choices.items():
            if given := [values[name] for name in of if name in values]:
                values[newest] = given[-1]
        self.waiting = list(flow.order())
        self.tools = list(tools)
        self.tasks: set[asyncio.Task[None]] = set()
        self.events: asyncio.Queue[FlowEvent] = asyncio.Queue()

    def start_ready(self) -> None:
        """Send the call of every task, and use every tool, whose variables are all written."""
        ready = [
            task
            for task in self.waiting
            if all(name in self.values for name in task.prompt.variables)
            and all(self._is_done(name) for name in self.flow.upstream(task))
        ]
        for task in ready:
            self.waiting.remove(task)
            self.tasks.add(asyncio.create_task(self._call(task), name=f"grape:{task.name}"))
        for tool in [
            tool for tool in self.tools if all(name in self.values for name in tool.reads)
        ]:
            self.tools.remove(tool)
            self.tasks.add(asyncio.create_task(self._use(tool), name=f"grape:{tool.writes}"))

    def _is_done(self, task: str) -> bool:
        return self.flow.task(task).output in self.values

    async def next_event(self) -> FlowEvent:
        """The next event, or the error of a call that failed."""
        getter = asyncio.ensure_future(self.events.get())
        try:
            while not getter.done():
                done, _ = await asyncio.wait(
                    {getter, *self.tasks}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done - {getter}:
                    self.tasks.discard(task)
                    task.result()
            return getter.result()
        finally:
            getter.cancel()

    async def _call(self, task: Task) -> None:
        rendered = task.prompt.render_partial(lambda slot: slot.text(self.values[slot.variable]))
        request = CallRequest(
            messages=None if isinstance(rendered, str) else tuple(rendered),
            text=rendered if isinstance(rendered, str) else None,
            tools=task.prompt.tools,
            sampling=task.sampling,
            program=self.program,
            task=task.name,
            tenant=self.tenant,
            **task.targets.over(self.flow.targets).model_dump(),
        )
        self._emit(TaskStarted(self.program, task.name, time.monotonic()))
        text = ""
        stream = self.engine.astream(request)
        async with contextlib.aclosing(stream):  # type: ignore[type-var]
            async for delta in stream:
                text += delta.text
                self._emit(
                    TokenEvent(self.program, task.name, delta.text, delta.token_ids, delta.at)
                )
                if delta.finish_reason is not None and delta.usage is not None:
                    # The next call leaves before anyone is told: it is what the run waits for.
                    self.values |= dict.fromkeys(self.flow.written_by(task), text)
                    self.start_ready()
                    self._emit(
                        TaskFinished(
                            self.program,
                            task.name,
                            text,
                            delta.finish_reason,
                            delta.usage,
                            delta.at,
                        )
                    )

    async def _use(self, tool: ToolStep) -> None:
        given = {name: self.values[name] for name in tool.reads}
        # The caller's context goes with it, as it does with calls.
        used = asyncio.get_running_loop().run_in_executor(None, copy_context().run, tool.use, given)
        self.values[tool.writes] = await used
        self.start_ready()

    def _emit(self, event: FlowEvent) -> None:
        self.events.put_nowait(event)

    def outputs(self) -> dict[str, str]:
        """Values of the output variables, in the order of declaration."""
        return {v.name: self.values[v.name] for v in self.flow.variables if v.kind == "output"}

    def cancel(self) -> None:
        """End what still runs."""
        for task in self.tasks:
            task.cancel()

    async def ended(self) -> None:
        """Wait until what was cancelled has ended."""
        await asyncio.gather(*self.tasks, return_exceptions=True)


def run_events_sync(
    engine: EngineClient,
    flow: TaskFlow,
    inputs: Mapping[str, str],
    tools: Sequence[ToolStep] = (),
    tenant: str = "",
) -> Iterator[FlowEvent]:
    """``run_events`` for synchronous code; works inside a running event loop too.

    The run lives on an event loop in a thread of its own, which ends with the iterator.
    """
    events: queue.SimpleQueue[FlowEvent | BaseException | None] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()

    async def pump() -> None:
        stream = run_events(engine, flow, inputs, tools, tenant)
        async with contextlib.aclosing(stream):  # type: ignore[type-var]
            async for event in stream:
                events.put(event)

    job = loop.create_task(pump())

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(job)
            events.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            events.put(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=run, name="grape-flow", daemon=True)
    thread.start()
    try:
        while (event := events.get()) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        with contextlib.suppress(RuntimeError):  # the loop may have ended by itself
            loop.call_soon_threadsafe(job.cancel)
        # The garbage collector may end the iterator on that very thread; and of an interpreter
        # that ends, this thread is all that still runs.
        if threading.current_thread() is not thread and not sys.is_finalizing():
            thread.join()


class RunsFlows(EngineClient, Protocol):
    """What ``TaskFlow.run`` and its kin need of an engine; every engine client inherits it."""

    def run_flow_events(
        self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = ""
    ) -> AsyncIterator[FlowEvent]:
        """Events of a run of ``flow``; see ``TaskFlow.stream``."""
        return run_events(self, flow, inputs, tenant=tenant)

    def run_flow_events_sync(
        self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = ""
    ) -> Iterator[FlowEvent]:
        """The same for synchronous code, also inside a running event loop."""
        return run_events_sync(self, flow, inputs, tenant=tenant)
