"""Processes of the real engine killed, a model that raises, a close amid work.

One engine, started anew by whoever calls next, beside the shared one, which must not notice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy
from typing_extensions import TypedDict

import grape_lc
from grape_lc import ChatGrape, GrapeEngine
from grape_lc.engine.base import CallRequest
from grape_lc.errors import EngineDiedError
from grape_lc.flow.sampling import Sampling
from grape_lc.runtime import process
from grape_lc.runtime.groups import lives
from tests.engine.conftest import SETTINGS
from tests.engine.flows import chain
from tests.engine.runs import run_program

HERE = Path(__file__).parent / "faulty"
POISON = 49151  # as in faulty_worker
DIED = (EngineDiedError,)
QUESTION = "Count from one to one hundred."
LONG: dict[str, Any] = {"temperature": 0, "max_tokens": 120, "ignore_eos": True}
# How many times, and each time later, an engine that starts is killed with its user.
MOMENTS = int(os.environ.get("GRAPE_KILLED_STARTS", "1"))


@pytest.fixture(scope="module")
def faulty(model_path: str) -> Iterator[GrapeEngine]:
    """An engine whose model raises when it meets POISON. Not started yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        engine = GrapeEngine(
            model_path,
            progress=False,
            worker_extension_cls="faulty_worker.Faulty",
            grape={"validate": True},
            **SETTINGS,
        )
        yield engine
        engine.close()


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def family(pid: int) -> list[psutil.Process]:
    """The engine host and every process under it."""
    host = psutil.Process(pid)
    return [host, *host.children(recursive=True)]


def core_of(processes: list[psutil.Process]) -> psutil.Process:
    """vLLM's engine core, which holds the model."""
    assert len(processes) >= 2, "vLLM's engine core is a process of its own"
    return max(processes[1:], key=lambda process: process.memory_info().rss)


def left(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that run. One that ended and that init has not collected yet does not."""
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def wait_for(engine: GrapeEngine, what: str, wanted: int) -> None:
    """Until there are that many."""
    end = time.monotonic() + 300
    while (stats := engine.stats())[what] < wanted:
        assert time.monotonic() < end, stats
        time.sleep(0.01)


def graph_with_retries(llm: ChatGrape) -> Any:
    class State(TypedDict, total=False):
        answer: str

    def node(state: State) -> State:
        return {"answer": str(llm.invoke(QUESTION).content)}

    builder = StateGraph(State)
    builder.add_node("node", node, retry_policy=RetryPolicy(max_attempts=2, initial_interval=0.01))
    return grape_lc.attach(builder.add_edge(START, "node").compile())


def test_a_core_killed_amid_calls_fails_them_or_they_are_made_again(
    faulty: GrapeEngine, pool: ThreadPoolExecutor
) -> None:
    """By max_retries, LangChain's with_retry and LangGraph's RetryPolicy; what was shown is not.

    Nothing of the dead engine is left.
    """
    llm = ChatGrape(engine=faulty, **LONG)
    expected = str(llm.invoke(QUESTION).content)
    first = family(faulty.pid)
    again = ChatGrape(engine=faulty, max_retries=1, **LONG)
    stream = again.stream(QUESTION, max_tokens=1500)
    shown = str(next(stream).content)
    if (child := os.fork()) == 0:  # one that ends must not take the engine along
        faulty.close()
        os._exit(0)
    os.waitpid(child, 0)
    failing = pool.submit(llm.invoke, QUESTION, max_tokens=1500)
    run = pool.submit(lambda: asyncio.run(run_program(faulty, chain(400), "bees")))
    wait_for(faulty, "open_prompts", 2)
    by_graph = pool.submit(graph_with_retries(llm).invoke, {})
    wait_for(faulty, "running", 4)
    by_model = pool.submit(again.invoke, QUESTION)
    by_runnable = pool.submit(llm.with_retry(retry_if_exception_type=DIED).invoke, QUESTION)
    wait_for(faulty, "running", 6)
    core = core_of(first)
    core.kill()
    with pytest.raises(EngineDiedError, match=rf"core \(process {core.pid}\) was killed by SIGK"):
        failing.result(300)
    with pytest.raises(EngineDiedError, match=f"process {core.pid}"):
        run.result(300)
    with pytest.raises(EngineDiedError, match=f"process {core.pid}"):
        shown += "".join(str(chunk.content) for chunk in stream)
    assert expected.startswith(shown[: len(expected)])
    assert shown
    assert by_model.result(300).content == expected
    assert by_runnable.result(300).content == expected
    assert by_graph.result(300) == {"answer": expected}
    assert faulty.pid != first[0].pid
    assert not left(first)


def test_a_model_that_raises_ends_its_engine_and_no_other(
    faulty: GrapeEngine, engine: GrapeEngine, quiet: Any, pool: ThreadPoolExecutor
) -> None:
    """The error tells what was raised; whoever was asked to try again gets an answer."""
    expected = str(ChatGrape(engine=engine, **LONG).invoke(QUESTION).content)
    faulty.start()
    first = family(faulty.pid)
    core = core_of(first).pid
    other = pool.submit(lambda: asyncio.run(run_program(engine, chain(), "bees")))
    again = ChatGrape(engine=faulty, max_retries=1, **LONG)
    bystander = pool.submit(again.invoke, QUESTION)
    wait_for(faulty, "running", 1)
    poison = CallRequest(token_ids=(POISON,) * 4, sampling=Sampling(max_tokens=4))
    with pytest.raises(EngineDiedError) as caught:
        list(faulty.stream(poison))
    how, why, *_ = str(caught.value).splitlines()
    assert how.startswith(f"vLLM's engine core (process {core}) ")
    assert why.endswith(f"log: ZeroDivisionError: the model met token {POISON}")
    assert bystander.result(300).content == expected
    assert set(other.result(300)[0]) == {"plan", "draft", "review"}
    assert not left(first)


def test_closed_amid_work(faulty: GrapeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in flight are told so; no process is left, and no log of an end that was in order."""
    faulty.start()
    group = family(faulty.pid)
    host = faulty._host()

    async def story() -> None:
        runs = [asyncio.create_task(run_program(faulty, chain(200), t)) for t in ("sea", "sun")]
        await asyncio.to_thread(wait_for, faulty, "open_prompts", 4)
        await asyncio.to_thread(faulty.close)
        results = await asyncio.gather(*runs, return_exceptions=True)
        assert [type(r).__name__ for r in results] == ["EngineClosedError"] * 2

    # vLLM itself takes some seconds to end, more on a busy machine; it is not killed meanwhile.
    monkeypatch.setattr(process, "_STOP_GRACE_S", 120.0)
    asyncio.run(story())
    assert not left(group), "a process outlived close()"
    assert not host.log_path.exists(), f"not a clean end, see {host.log_path}"


STARTING = """
import sys
from grape_lc import GrapeEngine
GrapeEngine(sys.argv[1], progress=False).start()
"""


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_host_and_user_killed_during_the_start(model_path: str, moment: int) -> None:
    """Nothing of vLLM is left, however far its engine core has come."""
    user = subprocess.Popen([sys.executable, "-c", STARTING, model_path], start_new_session=True)
    try:
        end = time.monotonic() + 240
        hosts: list[psutil.Process] = []
        spawned: list[psutil.Process] = []
        while len(spawned) < 2:  # the engine core, and Python's resource tracker
            assert time.monotonic() < end, "no engine core was started"
            time.sleep(0.01)
            hosts = psutil.Process(user.pid).children()
            spawned = hosts[0].children() if hosts else []
        time.sleep(moment)
        host = hosts[0].pid
        os.kill(host, signal.SIGKILL)
        user.kill()
    finally:
        user.kill()
        user.wait()
    end = time.monotonic() + 120
    while lives(host):
        assert time.monotonic() < end, left(spawned)
        time.sleep(0.05)
