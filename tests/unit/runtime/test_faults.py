"""An engine's processes killed at any moment, with a small engine in the place of vLLM.

The host, its socket, its folder and the process that it spawns as vLLM does its core are real.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from grape_lc import GrapeEngine
from grape_lc.engine.base import CallRequest
from grape_lc.engine.endings import how_it_ended
from grape_lc.errors import EngineClosedError, EngineDiedError
from grape_lc.runtime.engine_log import log_tail
from grape_lc.runtime.environment import host_environment
from grape_lc.runtime.groups import lives
from grape_lc.runtime.run_folder import RunFolder, sweep
from tests.unit.runtime.word_graphs import MODEL, text_of, word_hosts


@pytest.fixture(autouse=True)
def word_engine() -> Iterator[None]:
    """The host loads the word engine instead of vLLM."""
    with word_hosts():
        yield


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder with nothing else in it; short, as sockets have to fit."""
    with tempfile.TemporaryDirectory(prefix="g") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)
        monkeypatch.undo()


def words(engine: GrapeEngine, text: str) -> str:
    return text_of(engine.stream(CallRequest(text=text)))


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


class Core(NamedTuple):
    """The process below a host, and what it holds in shared memory."""

    pid: int
    host: int
    memory: tuple[Path, ...]

    @classmethod
    def told(cls, file: Path) -> Core:
        wait_for(file.exists)
        pid, *names = file.read_text().split()
        host = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        memory = tuple(Path("/dev/shm") / name for name in names)
        assert all(path.exists() for path in memory), memory
        return cls(int(pid), int(host), memory)

    def left(self) -> list[object]:
        """What is still there of its group and of its memory."""
        group = [self.host] if lives(self.host) else []
        return [*group, *(path for path in self.memory if path.exists())]


SCRIPT = """
from grape_lc import GrapeEngine
from grape_lc.runtime import client
client._VLLM = "word_engine:WordEngine"
GrapeEngine("someone/words", progress=False, core={core!r}, hangs={hangs}).start()
print("up", flush=True)
import time
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("hangs", "killed"),
    [
        (True, ("host", "user")),
        (True, ("user",)),
        (False, ("user", "host")),
        (False, ("user",)),
        (False, ("host",)),
    ],
)
def test_whoever_is_killed_nothing_is_left(
    tmp_path: Path, temporary: Path, killed: tuple[str, ...], hangs: bool
) -> None:
    """No process, no shared memory, and no folder once the next engine has started."""
    file = tmp_path / "core"
    script = SCRIPT.format(core=str(file), hangs=hangs)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    ) as user:
        core = Core.told(file)
        if not hangs:
            assert user.stdout is not None
            assert user.stdout.readline() == "up\n"
        for who in killed:
            os.kill(core.host if who == "host" else user.pid, signal.SIGKILL)
        wait_for(lambda: not core.left())
        user.kill()
    sweep()
    assert list(temporary.glob("grape.*")) == []


def test_a_core_that_is_killed_is_named_and_replaced(tmp_path: Path) -> None:
    """Calls and questions that wait get the same error; the next call has a new engine."""
    with GrapeEngine(MODEL, progress=False, core=str(tmp_path / "core")) as engine:
        first = Core.told(tmp_path / "core")
        log = engine._host().log_path
        waits = engine.stream(CallRequest(text="one slow"))
        next(waits)
        with pytest.raises(EngineDiedError, match=r"the core \(process 7\) was killed by SIGKILL"):
            words(engine, "corefails slow")
        with pytest.raises(EngineDiedError, match=r"the core \(process 7\) was killed by SIGKILL"):
            next(waits)
        (tmp_path / "core").unlink()
        assert words(engine, "a new one") == "a new one "
        assert first.left() == []
    assert log.exists()  # the error says where it is
    log.unlink()


def test_a_host_that_is_killed_is_named(tmp_path: Path) -> None:
    """With its signal, and what most often sends that one."""
    with GrapeEngine(MODEL, progress=False) as engine:
        pid = engine.pid
        with pytest.raises(EngineDiedError) as caught:
            words(engine, "now die")
    assert str(caught.value).startswith(
        f"the engine host (process {pid}) was killed by SIGKILL, as the kernel does where memory "
        "runs out\n"
    )


@pytest.mark.parametrize(
    ("pid", "code", "says"),
    [
        (7, None, "the core (process 7) does not answer any more"),
        (None, None, "the core does not answer any more"),
        (7, 1, "the core (process 7) ended with exit code 1"),
        (7, -15, "the core (process 7) was killed by SIGTERM"),
        (7, -99, "the core (process 7) was killed by signal 99"),
    ],
)
def test_every_end_has_words(pid: int | None, code: int | None, says: str) -> None:
    assert how_it_ended("the core", pid, code) == says


def test_sockets_go_where_they_fit_or_where_the_user_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is too long for a socket would keep vLLM from starting."""
    monkeypatch.delenv("VLLM_RPC_BASE_PATH", raising=False)
    assert host_environment(Path("/tmp/grape.1"))["VLLM_RPC_BASE_PATH"] == "/tmp/grape.1"
    assert "VLLM_RPC_BASE_PATH" not in host_environment(Path("/tmp") / ("long" * 20))
    monkeypatch.setenv("VLLM_RPC_BASE_PATH", "/run/mine")
    assert host_environment(Path("/tmp/grape.1"))["VLLM_RPC_BASE_PATH"] == "/run/mine"


def test_descriptors_and_folders_are_given_back(temporary: Path) -> None:
    """After a close, after a death, and after a start that failed."""

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def cycle(end: str | None) -> None:
        with GrapeEngine(MODEL, progress=False) as engine:
            assert len(list(temporary.glob("grape.*"))) == 1
            if end is not None:
                with pytest.raises(EngineDiedError):
                    words(engine, end)

    cycle(None)
    before = descriptors()
    for end in (None, "die", "corefails slow"):
        cycle(end)
    with pytest.raises(Exception, match="the weights are broken"):
        GrapeEngine(MODEL, progress=False, broken=True).start()
    assert descriptors() == before
    assert list(temporary.glob("grape.*")) == []


def test_a_folder_is_removed_only_when_nobody_holds_it(temporary: Path) -> None:
    """Whatever is in it; and nothing else that happens to have such a name."""
    held, free = RunFolder(), RunFolder()
    (free.path / "socket").touch()
    os.close(free.lock)
    (temporary / "grape.txt").touch()
    (temporary / "grape.link").symlink_to(held.path)
    sweep()
    names = {path.name for path in temporary.iterdir()}
    assert names == {held.path.name, "grape.txt", "grape.link"}
    os.close(held.lock)
    held.remove()
    held.remove()


@pytest.mark.parametrize("first", [0, 1])
def test_two_engines_live_and_end_apart(first: int) -> None:
    """With other settings: used at once, closed in either order, one of them killed."""
    engines = [GrapeEngine(MODEL, progress=False, number=number).start() for number in (0, 1)]
    other = engines[1 - first]
    closed = engines[first].stream(CallRequest(text="one slow"))
    goes_on = other.stream(CallRequest(text="one two three"))
    assert [next(stream).text for stream in (closed, goes_on)] == ["one ", "one "]
    engines[first].close()
    with pytest.raises(EngineClosedError):
        list(closed)
    assert text_of(goes_on) == "two three "
    with GrapeEngine(MODEL, progress=False, number=first) as again:
        pid = other.pid
        with pytest.raises(EngineDiedError):
            words(again, "die")
        assert words(other, "a b") == "a b "
        assert other.pid == pid
    other.close()


def test_two_handles_of_one_engine_outlive_each_other() -> None:
    """The same settings: whichever is closed first, the other one's calls go on."""
    one = GrapeEngine(MODEL, progress=False).start()
    two = GrapeEngine(MODEL, progress=False).start()
    stream = two.stream(CallRequest(text="one two"))
    next(stream)
    one.close()
    assert text_of(stream) == "two "
    with pytest.raises(EngineDiedError):
        words(two, "die")
    with GrapeEngine(MODEL, progress=False) as three:
        assert words(three, "a") == words(two, "a") == "a "
        assert two.pid == three.pid
        two.close()
        assert words(three, "b") == "b "


def in_fresh_process(code: str, *arguments: Any) -> list[str]:
    """Lines that a script prints whose first ones make an engine ``e``."""
    head = (
        "import os, sys, threading, time\n"
        "from grape_lc import GrapeEngine\n"
        "from grape_lc.engine.base import CallRequest\n"
        "from grape_lc.runtime import client\n"
        "client._VLLM = 'word_engine:WordEngine'\n"
        "e = GrapeEngine('someone/words', progress=False)\n"
        "def words(text):\n"
        "    return ''.join(d.text for d in e.stream(CallRequest(text=text)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


FORK = """
e.start()
stream = e.stream(CallRequest(text="one two three"))
next(stream)
child = os.fork()
if child == 0:
    try:
        next(stream)
    except Exception as error:
        print(type(error).__name__, flush=True)
    print(words("in the child"), e.pid, flush=True)
    e.close()
    sys.exit(0)
os.waitpid(child, 0)
print("".join(d.text for d in stream), words("in the parent"), e.pid)
"""


def test_a_forked_child_has_an_engine_of_its_own() -> None:
    """What the parent began stays the parent's; the child's end and close do not touch it."""
    error, child, parent = in_fresh_process(FORK)
    assert error == "EngineClosedError"
    assert child.startswith("in the child ")
    assert parent.startswith("two three  in the parent ")
    assert child.split()[-1] != parent.split()[-1]


FORK_WHILE_STARTING = """
e = GrapeEngine('someone/words', progress=False, core=sys.argv[1], hangs=True)
threading.Thread(target=e.start, daemon=True).start()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
if os.fork() == 0:
    e.close()  # waits for the lock that the start holds, if that is still held
    other = GrapeEngine('someone/words', progress=False)
    print(other.start().is_open, flush=True)
    other.close()
    os._exit(0)
os.wait()
os._exit(0)
"""


def test_a_fork_while_an_engine_starts_does_not_block_the_child(tmp_path: Path) -> None:
    """Though a thread that is not there any more holds the locks; the parent's start ends too."""
    assert in_fresh_process(FORK_WHILE_STARTING, tmp_path / "core") == ["True"]
    pid, *_ = (tmp_path / "core").read_text().split()
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


POOLS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def job(number):
    return number * number

def own(number):
    text = words(f"number {number}")
    e.close()
    return text

if __name__ == "__main__":
    e.start()
    pid = e.pid
    stream = e.stream(CallRequest(text="one two three"))
    next(stream)
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        process = context.Process(target=job, args=(3,))
        process.start()
        process.join()
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            print(process.exitcode, list(pool.map(job, range(3))))
            if method != "forkserver":
                print(pool.submit(own, 7).result())
    print("".join(d.text for d in stream), e.pid == pid)
"""


def test_pools_of_processes_leave_the_engine_alone(tmp_path: Path) -> None:
    """Whatever way they are started; a worker that makes calls has an engine of its own."""
    script = tmp_path / "pools.py"
    head = (
        "from grape_lc import GrapeEngine\n"
        "from grape_lc.engine.base import CallRequest\n"
        "from grape_lc.runtime import client\n"
        "client._VLLM = 'word_engine:WordEngine'\n"
        "e = GrapeEngine('someone/words', progress=False)\n"
        "def words(text):\n"
        "    return ''.join(d.text for d in e.stream(CallRequest(text=text)))\n"
    )
    script.write_text(head + POOLS)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    each = ["0 [0, 1, 4]", "number 7 "]
    assert done.stdout.splitlines() == [*each * 2, each[0], "two three  True"], done.stderr


LOG = """\
(EngineCore pid=9) INFO 12-01 05:22:04 [core.py:1] Error: not one of an exception
(EngineCore pid=9) ERROR 12-01 05:22:05 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=9) ERROR 12-01 05:22:05 [core.py:1512] Traceback (most recent call last):
(EngineCore pid=9) ERROR 12-01 05:22:05 [core.py:1512]     raise ValueError("x")
(EngineCore pid=9) ERROR 12-01 05:22:05 [core.py:1512] torch.OutOfMemoryError: 2 GiB [of 4]
(MainProcess pid=8) ERROR 12-01 05:22:05 [async_llm.py:906] vllm.EngineDeadError: see above
"""


def test_the_error_that_ended_a_core_stands_before_the_end_of_the_log(tmp_path: Path) -> None:
    """That of the front end, which only heard of it, is none."""
    log = tmp_path / "log"
    log.write_text(f"{'much before ' * 10**5}\n{LOG}")
    first, *_, last = log_tail(log).splitlines()
    assert first == "the last error in the engine's log: torch.OutOfMemoryError: 2 GiB [of 4]"
    assert last == LOG.splitlines()[-1]
    killed = "Worker proc W-0 died unexpectedly (exit code: -9), shutting down executor."
    log.write_text(f"(EngineCore pid=9) ERROR 12-01 05:22:04 [multi.py:1] {killed}\n{LOG}")
    assert log_tail(log).splitlines()[0] == f"the last error in the engine's log: {killed}"
    log.write_text("nothing\n" * 100)
    assert log_tail(log).splitlines()[1:] == ["nothing"] * 25
    assert log_tail(tmp_path / "none") == f"(no log at {tmp_path / 'none'})"
