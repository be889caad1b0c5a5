"""An attached graph behind ``langgraph dev``, where that is installed, and what it asks of one."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

import httpx
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.pregel import Pregel
from langgraph.store.memory import InMemoryStore

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock

WORKFLOWS = Path(__file__).resolve().parents[3] / "workflows"
ANSWERS = {"Plan": "1. land on the flower", "Write": "a text about it"}


class State(TypedDict, total=False):
    topic: str
    plan: str
    text: str


def make_graph(engine: ScriptedEngine) -> Any:
    llm = ChatGrape(engine=engine)

    async def plan(state: State) -> State:
        return {"plan": str((await llm.ainvoke(f"Plan for {state['topic']}")).content)}

    def text(state: State) -> State:
        return {"text": str(llm.invoke(f"Write: {state['plan']}, and stop.").content)}

    builder = StateGraph(State).add_node("plan", plan).add_node("text", text)
    return builder.add_edge(START, "plan").add_edge("plan", "text").compile()


# -- what langgraph_api/graph.py and stream.py do with a graph ----------------------------------


async def test_a_copy_with_the_servers_checkpointer_is_still_attached() -> None:
    """``get_graph`` yields ``graph.copy(update=...)`` for each run; it must know the program."""
    engine = ScriptedEngine(ANSWERS, clock=VirtualClock())
    plain, app = make_graph(engine), attach(make_graph(engine), model=engine)
    assert isinstance(app, Pregel)
    assert not callable(app)  # that would be a factory
    for number in range(4):
        results = []
        for graph in (plain, app):
            update: Any = {
                "checkpointer": InMemorySaver(),
                "store": InMemoryStore(),
                "name": "served",
            }
            copy = graph.copy(update=update)
            config: Any = {
                "configurable": {"thread_id": f"t{number}"},
                "metadata": {"run_attempt": 1},
            }
            seen: dict[str, int] = {}
            modes: Any = [
                "values",
                "updates",
                "messages",
                "custom",
                "checkpoints",
                "tasks",
                "debug",
            ]
            async for _, mode, _ in copy.astream(
                {"topic": "bees"}, config, stream_mode=modes, subgraphs=True, durability="async"
            ):
                seen[mode] = seen.get(mode, 0) + 1
            results.append((seen, (await copy.aget_state(config)).values))
        assert results[0] == results[1]
    assert [len(program.fed) for program in engine.programs] == [2, 2]  # from the third run on
    assert engine.open_programs == ()
    events = [event["event"] async for event in app.astream_events({"topic": "x"}, version="v2")]
    assert events.count("on_chat_model_stream") >= 2
    assert app.get_graph(xray=True).to_json() == plain.get_graph(xray=True).to_json()


BLOCKING = [
    *((os, name) for name in ("mkdir", "replace", "rename", "unlink", "rmdir", "scandir", "open")),
    *((socket.socket, name) for name in ("connect", "send", "sendall", "recv")),
    (time, "sleep"),
]


async def test_a_run_on_an_event_loop_blocks_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server refuses calls that could block on its loop's thread; a refused one of ours would
    cost the program."""
    engine = ScriptedEngine(ANSWERS)
    app = attach(make_graph(engine), learned=tmp_path / "learned.json", model=engine)
    blocked: list[str] = []

    def watched(owner: Any, name: str) -> Callable[..., Any]:
        real = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            loop = asyncio._get_running_loop()
            silent = owner is socket.socket and not args[0].getblocking()
            if loop is not None and not silent:
                blocked.append(name)
            return real(*args, **kwargs)

        return call

    for owner, name in BLOCKING:
        monkeypatch.setattr(owner, name, watched(owner, name))
    for _ in range(4):
        await app.ainvoke({"topic": "bees"})
    assert blocked == []
    assert len(engine.programs) == 2


# -- the real server ----------------------------------------------------------------------------

AGENTS = """
import json, os
from pathlib import Path
from grape_lc import ChatGrape, ScriptedEngine, attach
from test_langgraph_server import ANSWERS, make_graph

log = Path(os.environ["PROGRAMS_LOG"])

class Logged(ScriptedEngine):
    def open_program(self, flow, inputs, tenant=""):
        with log.open("a") as file:
            file.write(json.dumps([[task.name for task in flow.tasks], inputs]) + "\\n")
        return super().open_program(flow, inputs, tenant)

plain = make_graph(ScriptedEngine(ANSWERS))
graph = attach(make_graph(Logged(ANSWERS)))

def factory(config):
    return graph
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address of a running ``langgraph dev``, and where it writes what programs were opened."""
    pytest.importorskip("langgraph_api")
    pytest.importorskip("langgraph_cli")
    (tmp_path / "agents.py").write_text(AGENTS)
    shutil.copy(__file__, tmp_path / "test_langgraph_server.py")
    names = ("plain", "graph", "factory")
    (tmp_path / "langgraph.json").write_text(
        json.dumps({"dependencies": ["."], "graphs": {n: f"./agents.py:{n}" for n in names}})
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log, output = tmp_path / "programs.jsonl", tmp_path / "server.log"
    environment = {
        **os.environ,
        "GRAPE_LC_GRAPHS": str(tmp_path / "graphs"),
        "LANGSMITH_TRACING": "false",
        "PROGRAMS_LOG": str(log),
    }
    arguments = ["dev", "--no-browser", "--no-reload", "--port", str(port)]
    with (
        output.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "langgraph_cli", *arguments],
            cwd=tmp_path,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield wait_until_up(f"http://127.0.0.1:{port}", output), log
        finally:
            process.terminate()
        process.wait(120)
    assert "BlockingError" not in output.read_text()
    assert len(list((tmp_path / "graphs").iterdir())) == 2  # what was learned, what was saved


def wait_until_up(address: str, output: Path) -> str:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        try:
            if httpx.get(f"{address}/ok", timeout=20).status_code == 200:
                return address
        except httpx.HTTPError:
            time.sleep(0.2)
    raise AssertionError(f"the server did not come up: {output.read_text()[-2000:]}")


def programs(log: Path) -> list[Any]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_a_served_graph_answers_as_ever_and_opens_programs(server: tuple[str, Path]) -> None:
    address, log = server

    def run(graph: str, topic: str, path: str = "") -> Any:
        body = {"assistant_id": graph, "input": {"topic": topic}}
        return httpx.post(f"{address}{path}/runs/wait", json=body, timeout=240).json()

    for number in range(4):
        assert run("graph", f"bees {number}") == run("plain", f"bees {number}")
    assert programs(log) == [[["plan", "text"], {"topic": f"bees {n}"}] for n in (2, 3)]
    thread = httpx.post(f"{address}/threads", json={}, timeout=240).json()["thread_id"]
    assert run("graph", "ants", f"/threads/{thread}") == run("plain", "ants")
    state = httpx.get(f"{address}/threads/{thread}/state", timeout=240).json()["values"]
    assert state["text"] == ANSWERS["Write"]
    assert len(programs(log)) == 3
    for mode in ("values", "updates", "messages-tuple", "events"):
        kinds = []
        for graph in ("plain", "graph"):
            body = {"assistant_id": graph, "input": {"topic": "ants"}, "stream_mode": [mode]}
            with httpx.stream("POST", f"{address}/runs/stream", json=body, timeout=240) as answer:
                kinds.append([line for line in answer.iter_lines() if line.startswith("event:")])
        assert kinds[0] == kinds[1]
    # The server loads the file anew for each of its graphs, so this one has learned nothing yet.
    before = len(programs(log))
    for _ in range(3):
        assert run("factory", "wasps") == run("plain", "wasps")
    assert len(programs(log)) == before + 1


def test_the_example_serves_one_attached_graph() -> None:
    folder = WORKFLOWS / "server"
    config = json.loads((folder / "langgraph.json").read_text())
    (place,) = config["graphs"].values()
    file, _, name = place.partition(":")
    spec = importlib.util.spec_from_file_location("served_agent", folder / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    graph = getattr(module, name)
    assert isinstance(graph, Pregel)
    assert hasattr(graph, "explain")
    assert "problem" in graph.channels
