"""Ctrl-C in a notebook's cell while a run is under way: the kernel lives and nothing is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from tests.unit.runtime.word_graphs import HOSTED, LIMIT_S

ROOT = Path(__file__).resolve().parents[3]

SETUP = """
import asyncio
from grape_lc import ChatGrape, GrapeEngine, attach
from grape_lc.runtime import client
from tests.unit.runtime.word_graphs import flow, graph, until_idle
client._VLLM = "word_engine:WordEngine"
engine = GrapeEngine("someone/words", progress=False).start()
def attached(use_async):
    return attach(graph(engine, use_async=use_async), flow(), model=engine, learn=False)
seen = set()
def tell(call, request, delta):
    if call not in seen:
        seen.add(call)
        print(request.messages[-1]["content"][:20], flush=True)
engine.observe(tell)
"""

LONG = 20_000
"""Words of an answer that takes longer than the test waits. They come one by one: Python hears of a
signal when an event loop wakes up."""

CELLS = {
    "graph": "attached(False).invoke({long})",
    "graph, awaited": "await attached(True).ainvoke({long})",
    "stream of a graph, awaited": (
        "async for _ in attached(True).astream({long}, stream_mode='messages'): pass"
    ),
    "flow": "flow().run_sync(engine, {long})",
    "flow, awaited": "await flow().run(engine, {long})",
    "model": "ChatGrape(engine=engine).invoke({long}['topic'])",
    "model, awaited": "await ChatGrape(engine=engine).ainvoke({long}['topic'])",
}

NEXT = """
assert "weigh for plan bees" in attached(False).invoke({"topic": "bees"})["text"]
until_idle(engine)
print("idle", flush=True)
"""


class Notebook:
    """A kernel and the cells that run in it."""

    def __init__(self, manager: KernelManager, client: Any) -> None:
        self._manager = manager
        self._client = client

    def run(self, code: str, *, interrupt_at: str | None = None) -> tuple[str, str]:
        """What a cell prints, and its error. interrupt_at: a line at which it gets Ctrl-C."""
        cell = self._client.execute(code)
        out = error = ""
        while True:
            message = self._client.get_iopub_msg(timeout=LIMIT_S)
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream" if content["name"] == "stdout":
                    out += content["text"]
                    if interrupt_at is not None and interrupt_at in out:
                        interrupt_at = None
                        self._manager.interrupt_kernel()
                case "error":
                    error = f"{content['ename']}: {content['evalue']}"
                case "status" if content["execution_state"] == "idle":
                    return out, error


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    manager = KernelManager(kernel_name="python3")
    paths = os.pathsep.join([str(ROOT), str(HOSTED)])
    manager.start_kernel(env={**os.environ, "PYTHONPATH": paths})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=LIMIT_S)
        notebook = Notebook(manager, client)
        assert notebook.run(SETUP) == ("", "")
        yield notebook
        assert notebook.run("engine.close()") == ("", "")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("what", CELLS)
def test_ctrl_c_ends_the_cell_and_the_next_one_works(what: str, notebook: Notebook) -> None:
    """Amid its first call: a KeyboardInterrupt, or a cancel where the cell awaits."""
    # What threads print may show up a cell later: each cell is known by its own text.
    mark = f"cell{list(CELLS).index(what)}"
    code = CELLS[what].format(long={"topic": mark + " on" * LONG})
    _, error = notebook.run(code, interrupt_at=mark)
    assert error.startswith(("KeyboardInterrupt", "CancelledError")), error
    out, error = notebook.run(NEXT)
    assert error == ""
    assert "idle\n" in out
