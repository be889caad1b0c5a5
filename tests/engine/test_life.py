"""The real engine's life: started from anywhere, used by anyone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from grape_lc import ChatGrape, GrapeEngine
from grape_lc.engine.base import CallRequest
from grape_lc.errors import EngineStartError
from grape_lc.flow.sampling import Sampling


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; one that ended but that init has not collected yet does not."""
    _, left = psutil.wait_procs(processes, timeout=60)
    return [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


SCRIPT = """
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict
import grape_lc
from grape_lc import ChatGrape, GrapeEngine

llm = ChatGrape({model!r}, temperature=0, max_tokens=24, dtype="float32", max_model_len=1024)

class State(TypedDict, total=False):
    topic: str
    plan: str
    text: str

def plan(state):
    return {{"plan": llm.invoke("Plan: " + state["topic"]).content}}

def text(state):
    return {{"text": llm.invoke("About " + state["topic"] + ": " + state["plan"]).content}}

graph = StateGraph(State).add_node("plan_it", plan).add_node("write_it", text)
graph = graph.add_edge(START, "plan_it").add_edge("plan_it", "write_it").compile()
graph = grape_lc.attach(graph, trace=True)
engine = GrapeEngine.shared({model!r}, dtype="float32", max_model_len=1024)
for topic in ("bees", "bread", "the sea", "old maps", "rain", "snow"):
    answer = graph.invoke({{"topic": topic}})["text"]
    if engine.stats()["adopted"]:
        break  # how much is done ahead is up to the machine's load
print("ANSWER", repr(answer))
print("AHEAD", engine.stats()["adopted"])
"""


def test_agent_script_without_a_main_guard(model_path: str, tmp_path: Path) -> None:
    """As agent code is written: model and graph at top level. No process is left."""
    script = tmp_path / "code.py"
    script.write_text(SCRIPT.format(model=model_path))
    done = subprocess.run(
        [sys.executable, "-P", str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert lines["ANSWER"] != "''"
    assert lines["AHEAD"] == "1"
    left = [p for p in psutil.process_iter(["environ"]) if _belongs(p, str(tmp_path))]
    assert not alive(left)


def _belongs(process: psutil.Process, folder: str) -> bool:
    environment = process.info["environ"] or {}
    return process.pid != os.getpid() and environment.get("PWD") == folder


def test_threads_and_event_loops_share_the_engine(engine: GrapeEngine, quiet: Any) -> None:
    """A call from a plain thread while a loop runs another, and a sync call inside the loop."""
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=8)
    answers: list[Any] = []

    async def loop() -> None:
        slow = asyncio.create_task(llm.ainvoke("Count."))
        answers.append(llm.invoke("Count.").content)
        answers.append((await slow).content)

    thread = threading.Thread(target=lambda: answers.append(llm.invoke("Count.").content))
    thread.start()
    asyncio.run(loop())
    thread.join()
    assert len(set(answers)) == 1
    assert len(answers) == 3


def test_a_web_server_serves_it_and_a_client_that_leaves_is_noticed(
    engine: GrapeEngine, quiet: dict[str, Any]
) -> None:
    """Under uvicorn: a streamed answer, and a disconnect that ends the call in the engine."""
    import socket

    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    llm = ChatGrape(engine=engine, temperature=0)

    async def answer(request: Request) -> StreamingResponse:
        bound = llm.bind(max_tokens=int(request.query_params["n"]))

        async def parts() -> Any:
            async for chunk in bound.astream("Count from one to one thousand."):
                yield str(chunk.content)

        return StreamingResponse(parts())

    app = Starlette(routes=[Route("/", answer)])
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    try:
        assert httpx.get(url, params={"n": 8}, timeout=240).text
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.stream("GET", url, params={"n": 1500}, timeout=240) as response,
        ):
            for _ in response.iter_bytes():
                break
        end = time.monotonic() + 120
        while engine.stats()["requests"]:
            assert time.monotonic() < end, "the call goes on without its client"
            time.sleep(0.05)
    finally:
        server.should_exit = True
        thread.join(120)


def test_unusable_engine_arguments_are_told(model_path: str) -> None:
    """vLLM's own complaint reaches the user."""
    with pytest.raises(EngineStartError, match="max_model_len"):
        GrapeEngine(model_path, progress=False, max_model_len=10**7).start()


def test_calls_after_a_long_pause_and_of_one_token(engine: GrapeEngine, quiet: Any) -> None:
    """An idle engine takes no steps, and wakes up."""
    before = engine.stats()["steps"]
    time.sleep(1)
    assert engine.stats()["steps"] - before <= 3
    last = list(engine.stream(CallRequest(text="Hi", sampling=Sampling(max_tokens=1))))[-1]
    assert last.finish_reason == "length"
