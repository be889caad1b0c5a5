"""The client of a web server goes away amid a streamed run: the run ends."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from grape_lc import GrapeEngine, attach
from tests.unit.runtime.word_graphs import LIMIT_S, MODEL, flow, graph, until_idle, word_hosts

NEVER = {"topic": "on and on slow"}
"""A call that does not end."""


@pytest.fixture(scope="module")
def engine() -> Iterator[GrapeEngine]:
    with word_hosts(), GrapeEngine(MODEL, progress=False) as engine:
        yield engine


async def of_graph(engine: GrapeEngine) -> AsyncIterator[str]:
    run = attach(graph(engine, use_async=True), flow(), model=engine, learn=False)
    async for chunk, _ in run.astream(NEVER, stream_mode="messages"):
        yield str(chunk.content)


async def of_flow(engine: GrapeEngine) -> AsyncIterator[str]:
    async for event in flow().stream(engine, NEVER):
        yield f"{event}\n"


def test_runs_of_clients_that_disconnect_are_freed(engine: GrapeEngine) -> None:
    async def answer(request: Request) -> StreamingResponse:
        what = of_graph if request.query_params["what"] == "graph" else of_flow
        return StreamingResponse(what(engine))

    listener = socket.create_server(("127.0.0.1", 0))
    served = uvicorn.Config(
        Starlette(routes=[Route("/", answer)]), log_level="warning", lifespan="off", ws="none"
    )
    server = uvicorn.Server(served)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    try:
        for what in ("graph", "flow", "graph"):
            with (
                contextlib.suppress(httpx.HTTPError),
                httpx.stream("GET", url, params={"what": what}, timeout=LIMIT_S) as response,
            ):
                next(response.iter_bytes())
        until_idle(engine)
    finally:
        server.should_exit = True
        thread.join(LIMIT_S)
