"""GrapeEngine, its host process and the wire, with a small engine in the place of vLLM."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grape_lc import GrapeEngine
from grape_lc.engine.base import CallDelta, CallRequest
from grape_lc.errors import (
    CallFailedError,
    ConfigError,
    EmptyPromptError,
    EngineClosedError,
    EngineDiedError,
    EngineStartError,
    FlowInputError,
    ModelNotFoundError,
    RequestError,
)
from grape_lc.flow.events import ProgramFinished, TaskFinished, TaskStarted, TokenEvent
from tests.unit.runtime.word_graphs import MODEL, text_of, two_tasks, word_hosts


@pytest.fixture(autouse=True)
def word_engine() -> Iterator[None]:
    """The host loads the word engine instead of vLLM."""
    with word_hosts():
        yield


@pytest.fixture
def engine() -> Iterator[GrapeEngine]:
    with GrapeEngine(MODEL, progress=False) as engine:
        yield engine


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_streams_from_threads_and_loops_at_once(engine: GrapeEngine) -> None:
    """Every call gets its own answer, whoever makes it."""
    results: dict[int, str] = {}

    def work(n: int) -> None:
        results[n] = text_of(engine.stream(CallRequest(text=f"number {n} of many")))

    async def awork(n: int) -> None:
        results[n] = "".join(
            [d.text async for d in engine.astream(CallRequest(text=f"number {n} of many"))]
        )

    async def all_of_them() -> None:
        await asyncio.gather(*(awork(n) for n in range(10, 30)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    asyncio.run(all_of_them())
    for thread in threads:
        thread.join()
    assert results == {n: f"number {n} of many " for n in range(30)}


async def test_sync_calls_work_inside_a_running_loop(engine: GrapeEngine) -> None:
    """As in a notebook cell."""
    assert text_of(engine.stream(CallRequest(text="a b"))) == "a b "


async def test_nothing_blocks_an_event_loop(
    engine: GrapeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that watch their loop refuse sends on a socket that could make it wait."""
    sends = []

    def watched(name: str) -> Callable[..., Any]:
        real = getattr(socket.socket, name)

        def call(self: socket.socket, *args: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                assert not self.getblocking(), f"{name} on a blocking socket"
                sends.append(name)
            return real(self, *args)

        return call

    for name in ("send", "sendall", "sendto", "recv"):
        monkeypatch.setattr(socket.socket, name, watched(name))
    program = engine.open_program(two_tasks(), {"topic": "bees"})
    assert [d.text async for d in engine.astream(CallRequest(text="a b"))] == ["a ", "b "]
    engine.close_program(program)
    assert len(sends) >= 3


def test_handles_share_one_engine_until_the_last_is_closed(engine: GrapeEngine) -> None:
    """Same settings, same process; other settings, another one."""
    with GrapeEngine(MODEL, progress=False) as second:
        assert second.pid == engine.pid
        with GrapeEngine(MODEL, progress=False, max_model_len=50) as other:
            assert other.pid != engine.pid
    with pytest.raises(EngineClosedError):
        text_of(second.stream(CallRequest(text="a")))
    assert text_of(engine.stream(CallRequest(text="still here"))) == "still here "
    shared = GrapeEngine.shared(MODEL)
    assert shared is GrapeEngine.shared(MODEL)
    shared.close()


def test_close_ends_the_process_and_its_calls(engine: GrapeEngine) -> None:
    """A call in flight gets a clear error; nothing of the engine is left."""
    pid, errors = engine.pid, []

    def work() -> None:
        try:
            text_of(engine.stream(CallRequest(text="slow")))
        except EngineClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: engine.stats()["running"] == 1)
    engine.close()
    thread.join(120)
    assert len(errors) == 1
    assert gone(pid)
    engine.close()


def test_a_failed_call_leaves_the_others_alone(engine: GrapeEngine) -> None:
    """One call's error is its own."""
    good = engine.stream(CallRequest(text="one two three"))
    assert next(good).text == "one "
    with pytest.raises(CallFailedError, match="failed this call"):
        text_of(engine.stream(CallRequest(text="please fail now")))
    assert text_of(good) == "two three "


def test_a_killed_engine_fails_its_calls_and_is_replaced(engine: GrapeEngine) -> None:
    """Calls in flight end with EngineDiedError; the next call starts a new engine."""
    pid, before = engine.pid, engine.stream(CallRequest(text="one slow"))
    assert next(before).text == "one "
    with pytest.raises(EngineDiedError, match=r"host .* was killed by SIGKILL"):
        text_of(engine.stream(CallRequest(text="now die")))
    with pytest.raises(EngineDiedError):
        next(before)
    assert text_of(engine.stream(CallRequest(text="a new one"))) == "a new one "
    assert engine.pid != pid
    assert gone(pid)


@pytest.mark.parametrize("how", ["close", "cancel", "throw"])
def test_leaving_a_call_aborts_it_in_the_engine(engine: GrapeEngine, how: str) -> None:
    """Closed iterators, cancelled tasks and errors in the consumer free the engine at once."""

    begun = asyncio.Event()

    async def consume() -> None:
        async for _ in engine.astream(CallRequest(text="one slow")):
            begun.set()
            if how == "throw":
                raise KeyError("consumer")

    async def cancel() -> None:
        task = asyncio.create_task(consume())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    if how == "close":
        stream = engine.stream(CallRequest(text="one slow"))
        next(stream)
        stream.close()  # type: ignore[attr-defined]
    elif how == "cancel":
        asyncio.run(cancel())
    else:
        with pytest.raises(KeyError):
            asyncio.run(consume())
    wait_for(lambda: engine.stats()["aborted"] == 1)
    assert engine.stats()["running"] == 0


def test_a_closed_event_loop_does_not_stop_the_reader(engine: GrapeEngine) -> None:
    """The loop of one caller ends under its call; other callers go on."""
    loop = asyncio.new_event_loop()
    stream = engine.astream(CallRequest(text="one slow two"))
    loop.run_until_complete(anext(stream))
    loop.close()
    assert text_of(engine.stream(CallRequest(text="go on"))) == "go on "


def test_requests_must_be_plain_data(engine: GrapeEngine) -> None:
    """Before anything is sent; the connection stays usable."""
    with pytest.raises(RequestError, match="plain data"):
        text_of(engine.stream(CallRequest(messages=({"role": "user", "content": object()},))))
    assert text_of(engine.stream(CallRequest(text="go on"))) == "go on "


def test_streams_that_the_collector_ends_do_not_hold_anybody_up(engine: GrapeEngine) -> None:
    """A half-read call in a cycle is cancelled by a finalizer, in the middle of any send."""

    class Holder:
        """Part of a cycle."""

        stream: Iterator[CallDelta]
        me: Holder

    thresholds = gc.get_threshold()
    gc.set_threshold(20, 2, 2)
    try:
        for number in range(200):
            holder = Holder()
            holder.stream = engine.stream(CallRequest(text="one slow"))
            next(holder.stream)
            holder.me = holder
            del holder
            assert text_of(engine.stream(CallRequest(text=f"{number}"))) == f"{number} "
    finally:
        gc.set_threshold(*thresholds)

    def collected() -> bool:
        gc.collect()  # each time: it does nothing while another thread is at it
        return bool(engine.stats()["running"] == 0)

    wait_for(collected)


def test_handles_are_copied_and_pickled_as_handles_on_the_same_engine(engine: GrapeEngine) -> None:
    """So that models that hold one can be."""
    assert copy.deepcopy(engine) is engine
    with pickle.loads(pickle.dumps(engine)) as other:  # noqa: S301 - made one line above
        assert other.pid == engine.pid


def test_bad_requests_are_refused_with_their_own_error(engine: GrapeEngine) -> None:
    """Before or in the host, always ours."""
    with pytest.raises(EmptyPromptError):
        text_of(engine.stream(CallRequest(messages=())))
    with pytest.raises(RequestError):
        text_of(engine.stream(CallRequest(text="")))


@pytest.mark.parametrize(
    ("model", "args", "error"),
    [
        ("someone/missing", {}, ModelNotFoundError),
        ("./no/such/folder", {}, ModelNotFoundError),
        (MODEL, {"broken": True}, EngineStartError),
        (MODEL, {"crash": True}, EngineStartError),
        (MODEL, {"not_data": object()}, ConfigError),
    ],
)
def test_an_engine_that_cannot_start_says_why(
    model: str, args: dict[str, Any], error: type[Exception]
) -> None:
    """At once, with the log's end where the log knows more."""
    with pytest.raises(error) as caught:
        GrapeEngine(model, progress=False, **args).start()
    if args.get("broken"):
        assert "the weights are broken" in str(caught.value)


def test_a_scheduler_without_its_hooks_serves_plainly_and_says_so() -> None:
    """A warning names what is missing; flows run, nothing is opened."""
    reason = "Scheduler._preempt_request is missing"
    with pytest.warns(RuntimeWarning, match=reason):
        engine = GrapeEngine(MODEL, progress=False, hook_missing=reason).start()
    with engine:
        result = two_tasks().run_sync(engine, {"topic": "bees"})
        assert result.outputs == {"text": "write plan bees now out "}
        assert engine.stats()["adopted"] == 0
        assert engine.info()["early_refusal"] == reason


def test_unknown_scheduler_is_refused() -> None:
    """With the alternatives."""
    with pytest.raises(ConfigError, match="'grape', 'stock'"):
        GrapeEngine(MODEL, scheduler="fifo")  # type: ignore[arg-type]


def test_observers_see_labels_and_all_deltas(engine: GrapeEngine) -> None:
    """From the first delta to the last, with the request they belong to."""
    seen: list[tuple[str | None, str]] = []
    undo = engine.observe(lambda _id, request, delta: seen.append((request.label, delta.text)))
    text_of(engine.stream(CallRequest(text="a b", label="run 7")))
    undo()
    text_of(engine.stream(CallRequest(text="unseen")))
    assert seen == [("run 7", "a "), ("run 7", "b ")]


def test_an_observer_that_raises_is_removed_and_calls_go_on(
    engine: GrapeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told in the log; the undo stays harmless."""

    def broken(call_id: int, request: CallRequest, delta: CallDelta) -> None:
        raise KeyError("observer")

    undo = engine.observe(broken)
    assert text_of(engine.stream(CallRequest(text="a b c"))) == "a b c "
    assert [record.message for record in caplog.records] == ["an observer failed and is removed"]
    undo()


async def test_flow_runs_with_its_second_prompt_prefilled_ahead(engine: GrapeEngine) -> None:
    """Events in order, values complete, the open prompt taken over, nothing left behind."""
    events = [event async for event in two_tasks().stream(engine, {"topic": "bees"})]
    kinds = [type(e) for e in events]
    assert kinds[0] is TaskStarted
    assert kinds[-1] is ProgramFinished
    assert kinds.count(TaskFinished) == 2
    last = events[-1]
    assert isinstance(last, ProgramFinished)
    assert last.outputs == {"text": "write plan bees now out "}
    texts = [e.text for e in events if isinstance(e, TokenEvent) and e.task == "text"]
    assert "".join(texts) == last.outputs["text"]
    stats = engine.stats()
    assert stats["adopted"] == 1
    assert stats["open_prompts"] == 0
    assert stats["programs"] == 0
    text = stats["hints"]["text"]
    assert (text["depth"], text["after"], text["feeds"]) == (1, [], False)
    assert text["program"] is not None


def test_flow_runs_synchronously(engine: GrapeEngine) -> None:
    """The same result without an event loop, and usage for each task."""
    result = two_tasks().run_sync(engine, {"topic": "bees"})
    assert result.outputs == {"text": "write plan bees now out "}
    assert result.usage["text"].ahead_tokens > 0
    with pytest.raises(FlowInputError, match="topic"):
        two_tasks().run_sync(engine, {})


def test_a_flow_that_fails_or_is_left_releases_everything(engine: GrapeEngine) -> None:
    """The other calls of the run are cancelled, its program is closed."""
    with pytest.raises(CallFailedError):
        two_tasks().run_sync(engine, {"topic": "fail"})
    events = two_tasks().stream_sync(engine, {"topic": "slow"})
    next(events)
    events.close()  # type: ignore[attr-defined]
    wait_for(lambda: engine.stats()["running"] == 0)
    stats = engine.stats()
    assert stats["open_prompts"] == 0
    assert stats["programs"] == 0


def found(deltas: Iterator[CallDelta]) -> tuple[str, str, str]:
    """Text, outcome and origin of a call."""
    *_, last = taken = list(deltas)
    assert last.usage is not None
    text = "".join(delta.text for delta in taken)
    return text, last.usage.ahead_outcome, last.usage.found_by


def test_calls_without_a_program_are_found_by_their_prompts(engine: GrapeEngine) -> None:
    """Each one takes over what was prepared for it, and feeds what reads it; once."""
    plan = CallRequest(text="plan bees now")
    write = CallRequest(messages=({"role": "user", "content": "write plan bees now out"},))
    assert found(engine.stream(plan))[2] == "none"
    program = engine.open_program(two_tasks(), {"topic": "bees"})
    assert found(engine.stream(CallRequest(text="plan wasps now")))[2] == "none"
    assert found(engine.stream(plan)) == ("plan bees now ", "adopted", "content")
    assert found(engine.stream(write)) == ("write plan bees now out ", "adopted", "content")
    stats = engine.stats()
    assert stats["adopted"] == 1  # a root has nothing to take over
    assert stats["table"]["matched_by_content"] == 2
    text = stats["hints"]["text"]
    assert (text["program"], text["depth"]) == (program, 1)
    assert found(engine.stream(write))[2] == "none"
    engine.close_program(program)
    assert engine.stats()["open_prompts"] == 0


def test_a_call_that_names_its_task_takes_it_from_one_that_was_guessed(
    engine: GrapeEngine,
) -> None:
    """What the other one still says is not fed; a call of n is no guess for its siblings."""
    program = engine.open_program(two_tasks(), {"topic": "slow bees"})
    guess = engine.stream(CallRequest(text="plan slow bees now"))
    assert next(guess).text == "plan "
    real = CallRequest(text="plan bees now", program=program, task="plan")
    assert found(engine.stream(real))[2] == "name"
    guess.close()  # type: ignore[attr-defined]
    wait_for(lambda: engine.stats()["aborted"] == 1)
    write = CallRequest(messages=({"role": "user", "content": "write plan bees now out"},))
    named = write.model_copy(update={"program": program})
    assert found(engine.stream(named))[2] == "none"
    assert found(engine.stream(write))[1:] == ("adopted", "content")
    assert engine.stats()["adopted"] == 1
    engine.close_program(program)


SCRIPT = """
import sys
from grape_lc import GrapeEngine
from grape_lc.engine.base import CallRequest
from grape_lc.runtime import client
client._VLLM = "word_engine:WordEngine"
engine = GrapeEngine("someone/words", progress=False).start()
print(engine.pid, flush=True)
stream = engine.stream(CallRequest(text="one slow"))
next(stream)
print("".join(d.text for d in engine.stream(CallRequest(text="from the top level"))), flush=True)
{ending}
"""


@pytest.mark.parametrize("ending", ["pass", "1 / 0", "import os; os.kill(os.getpid(), 9)"])
def test_scripts_without_a_main_guard_leave_nothing_behind(tmp_path: Path, ending: str) -> None:
    """The interpreter ends, in whatever way, with a call in flight: the engine is gone."""
    script = tmp_path / "agent.py"
    script.write_text(SCRIPT.format(ending=ending))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    pid, answer = done.stdout.splitlines()
    assert answer == "from the top level ", done.stderr
    wait_for(lambda: gone(int(pid)))


def test_a_forked_child_must_make_its_own_engine(engine: GrapeEngine) -> None:
    """The child is told so, and its end does not touch the parent's engine."""
    code = (
        "import os, sys\n"
        "from grape_lc import GrapeEngine\n"
        "from grape_lc.engine.base import CallRequest\n"
        "from grape_lc.runtime import client\n"
        "client._VLLM = 'word_engine:WordEngine'\n"
        "e = GrapeEngine('someone/words', progress=False).start()\n"
        "host = e._host()\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        host.post({'t': 'close', 'program': 'x'})\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, flush=True)\n"
        "    sys.exit(0)\n"
        "os.wait()\n"
        "if os.fork() == 0:\n"
        "    import time\n"
        "    time.sleep(1000)\n"
        "    sys.exit(0)\n"
        "print(''.join(d.text for d in e.stream(CallRequest(text='parent lives'))))\n"
        "print(e.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as user:
        assert user.stdout is not None
        lines = [user.stdout.readline().rstrip("\n") for _ in range(3)]
        assert lines[:2] == ["EngineClosedError", "parent lives "]
        user.wait(120)
        wait_for(lambda: gone(int(lines[2])))  # though a child of its user lives on
        os.killpg(user.pid, signal.SIGKILL)


def test_ctrl_c_reaches_the_user_and_not_the_engine(engine: GrapeEngine) -> None:
    """SIGINT to the engine's process group leaves it serving."""
    os.killpg(engine.pid, signal.SIGINT)
    assert text_of(engine.stream(CallRequest(text="still here"))) == "still here "


def test_measured_steps_reach_the_client(engine: GrapeEngine) -> None:
    assert engine.steps() == [[1, 1, 40, 0.0, 0.001]]


def test_records_of_steps_reach_the_client(engine: GrapeEngine) -> None:
    assert engine.records() == ['{"v":1}', '{"step":0}']
