"""grape trace's sandbox: what a traced program does outside is denied and reported, not done."""

import asyncio
import contextlib
import json
import os
import socket
import sqlite3
import textwrap
import threading
import time
from pathlib import Path

import pytest

from grape_lc.adapters.flow_file import FlowFile
from grape_lc.adapters.sandbox import run_sandboxed
from grape_lc.adapters.sandbox_environment import PLACEHOLDER
from grape_lc.adapters.sandbox_landlock import version as landlock_version
from grape_lc.adapters.sandbox_policy import KINDS
from grape_lc.errors import ConfigError, FlowError, TraceError
from tests.unit.adapters.sandbox_programs import CASES, Case, node, program

SIMPLE = node("first", Case("pass", None))


class Listener:
    """A TCP and UDP port on this machine that counts who comes."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(type=socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        self.seen: list[str] = []
        self._threads = [
            threading.Thread(target=self._accept, daemon=True),
            threading.Thread(target=self._receive, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _accept(self) -> None:
        while True:
            connection, _ = self.tcp.accept()
            connection.close()
            if "stop" in self.seen:
                return
            self.seen.append("tcp")

    def _receive(self) -> None:
        while True:
            data = self.udp.recv(100)
            if data == b"stop":
                return
            self.seen.append("udp")

    def close(self) -> list[str]:
        """Whoever came before this."""
        seen = list(self.seen)
        self.seen.append("stop")
        socket.create_connection(("127.0.0.1", self.port)).close()
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.sendto(b"stop", ("127.0.0.1", self.port))
        for thread in self._threads:
            thread.join(10)
        self.tcp.close()
        self.udp.close()
        return seen


def listing(folder: Path) -> dict[str, tuple]:
    """Everything about a folder that a program could change."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.lstat().st_nlink,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted([folder, *folder.rglob("*")])
    }


class World:
    """A folder with programs, a canary elsewhere, and a listener."""

    def __init__(self, root: Path) -> None:
        self.folder, self.canary, self.temporary = root / "user", root / "canary", root / "tmp"
        for path in (self.folder, self.canary, self.canary / "sub", self.temporary):
            path.mkdir()
        (self.canary / "old").write_text("old content")
        (self.canary / "sub" / "inner").write_text("inner content")
        (self.canary / "place").write_text("of old")
        with sqlite3.connect(self.canary / "known.db") as database:
            database.execute("create table t (x)")
            database.execute("insert into t values ('content')")
        database.close()
        (self.folder / "linked").symlink_to(self.canary)
        self.listener = Listener()

    def write(self, name: str, *parts: str) -> str:
        text = program(self.canary, self.listener.port, *parts)
        (self.folder / f"{name}.py").write_text(text)
        return f"{name}:graph"

    @contextlib.contextmanager
    def unchanged(self):
        """Nothing appears, goes or changes, in the canary, the user's folder and outside."""
        before = listing(self.canary), listing(self.folder)
        yield
        assert (listing(self.canary), listing(self.folder)) == before
        assert list(self.temporary.iterdir()) == []  # the scratch folder is gone


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("sandbox"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(world.temporary))
        yield world
    # The only connections are those that a test allows, and takes off the list.
    assert world.listener.close() == []


@pytest.fixture(scope="module")
def traced(world) -> FlowFile:
    """All cases in one graph, in one process, with the network left to the hook alone."""
    target = world.write("cases", *(node(name, case) for name, case in CASES.items()))
    with world.unchanged():
        return run_sandboxed(target, folder=world.folder, isolate=False).file


@pytest.mark.parametrize("name", CASES)
def test_an_effect_is_denied_and_reported(traced, name):
    case = CASES[name]
    found = [effect for effect in traced.denied if effect.node == name]
    assert {effect.kind for effect in found} == ({case.kind} if case.kind else set())
    tasks = [task.name for task in traced.flow.tasks]
    assert name in tasks
    assert (f"{name}#2" in tasks) is (case.kind is None or not case.ends)
    for effect in found:
        assert effect.where.startswith("cases.py:")
    assert all(case.what in effect.what for effect in found[:1])


def test_lines_of_the_report_are_those_of_the_effects(traced, world):
    source = (world.folder / "cases.py").read_text().splitlines()
    for effect in traced.denied:
        line = source[int(effect.where.rpartition(":")[2]) - 1].strip()
        # In a task or a thread of its own it is where that was started, or the node's function.
        begin = f"def {effect.node}(state):"
        assert line in CASES[effect.node].code or line.endswith(begin), effect


def test_the_report_has_no_content(traced):
    text = json.dumps([effect.model_dump() for effect in traced.denied])
    assert "a value" not in text
    assert "canary/system" not in text


def test_the_file_is_the_same_each_time(traced, world):
    again = run_sandboxed("cases:graph", folder=world.folder, isolate=False).file
    assert again.to_json() == traced.to_json()


IMPORTS = """
    print("home", Path.home(), "cwd", os.getcwd(), "tmp", tempfile.gettempdir())
    print("stdin", repr(sys.stdin.read()))
    print("secret", os.environ["SOME_API_KEY"], os.environ.get("DATABASE_URL"))
    print("kept", os.environ["SOME_SETTING"], Path("settings.txt").read_text())
    os.environ["SET_AT_IMPORT"] = "x"
    try:
        redis = socket.create_connection(("127.0.0.1", PORT))
    except OSError:
        print("no service")
    (CANARY / "logs").mkdir()
    open(CANARY / "logs" / "log", "w").write("started")
"""
CALLS = """
    def asks(state):
        llm.invoke("Text " + state["text"] + os.environ["SOME_API_KEY"])
    builder.add_node("asks", asks).add_edge(START, "asks")
    sys.stderr.write("the end of it\\n")
"""


def test_a_module_is_imported_inside_with_nothing_of_value(world, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:very-secret@db/x")
    monkeypatch.setenv("SOME_SETTING", "seen")
    (world.folder / "settings.txt").write_text("settings read")
    target = world.write("imports", IMPORTS, CALLS)
    with world.unchanged():
        result = run_sandboxed(target, folder=world.folder, isolate=False)
    text = result.file.to_json()
    assert "very-secret" not in text + result.output
    assert {"SOME_API_KEY", "DATABASE_URL"} <= set(result.withheld)
    assert "SOME_SETTING" not in result.withheld
    for name in ("home", "cwd", "tmp"):
        assert f"{name} {world.temporary}" in result.output
    assert "stdin ''" in result.output
    assert f"secret {PLACEHOLDER} {PLACEHOLDER}" in result.output
    assert "kept seen settings read" in result.output
    assert "no service" in result.output
    assert result.output.rstrip().endswith("the end of it")
    assert [(e.node, e.kind) for e in result.file.denied] == [
        (None, "file"),
        (None, "file"),
        (None, "network"),
    ]
    assert [(e.node, e.what) for e in result.file.confined] == [(None, "SET_AT_IMPORT")]
    assert not result.offline


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("threading.Thread(target=print).start()", "allow it with --allow thread"),
        ("subprocess.run(['touch', 'x'])", "touch with 1 arguments (bad_import.py:19); let a node"),
        ("raise KeyError('MISSING')", "KeyError: 'MISSING'"),
        ("os._exit(3)", "exit code 3 and left no result"),
        ("print('last words', flush=True); os.abort()", "SIGABRT"),
        # It knows where its result is looked for.
        (
            "Path(sys.argv[1], 'result.json').write_text('{\"flow_file\": \"{}\"}'); os._exit(0)",
            "no usable result",
        ),
        ("Path(sys.argv[1], 'result.json').write_text('forged'); os._exit(0)", "no usable result"),
        ("os.symlink('/etc/passwd', Path(sys.argv[1], 'result.json')); os._exit(0)", "no result"),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_error(world, code, says):
    target = world.write("bad_import", code, SIMPLE)
    with world.unchanged(), pytest.raises(TraceError) as caught:
        run_sandboxed(target, folder=world.folder)
    assert says in str(caught.value)
    assert "last words" in str(caught.value) or "last words" not in code


HANGS = """
    def waits(state):
        llm.invoke("Waits: " + state["text"])
        threading.Event().wait()
    async def waits_later(state):
        await llm.ainvoke("Waits later: " + state["text"])
        await asyncio.Event().wait()
    def behind(state):
        llm.invoke("Behind: " + state["text"])
    def greedy(state):
        llm.invoke("Greedy: " + state["text"])
        try:
            bytearray(8 << 30)
        except MemoryError:
            llm.invoke("Refused: " + state["text"])
    def floods(state):
        for _ in range(300):
            print("x" * 100_000)
        print("end of the flood")
        llm.invoke("Flooded: " + state["text"])
    for function in (waits, waits_later, behind, greedy, floods):
        builder.add_node(function)
    for a, b in [(START, "greedy"), (START, "floods"), (START, "waits"), (START, "waits_later")]:
        builder.add_edge(a, b)
    builder.add_edge(["waits", "waits_later"], "behind")
"""


def test_nodes_that_hang_flood_or_eat_memory_end_and_the_rest_is_traced(world):
    target = world.write("hangs", HANGS)
    expected = {"waits", "waits_later", "behind", "greedy", "greedy#2", "floods"}
    tasks = set[str]()
    # A busy machine may need the first for its imports alone, or a node's share for the flood.
    for timeout_s in (12, 60, 240):
        with world.unchanged(), contextlib.suppress(TraceError):
            result = run_sandboxed(
                target,
                folder=world.folder,
                timeout_s=timeout_s,
                memory_bytes=4 << 30,
                isolate=False,
            )
            if expected == (tasks := {task.name for task in result.file.flow.tasks}):
                break
    else:
        pytest.fail(f"not traced whole in four minutes: {tasks}")
    said = "\n".join(result.file.warnings)
    assert f"'waits' did not end within {timeout_s // 4} s" in said
    assert f"'waits_later' did not end within {timeout_s // 4} s" in said
    assert len(result.output) <= 64 << 10
    assert "end of the flood" in result.output


BLOCKS = """
    print("pid", os.getpid(), flush=True)
    async def blocks(state):
        await llm.ainvoke("Blocks: " + state["text"])
        threading.Event().wait()
    builder.add_node("blocks", blocks).add_edge(START, "blocks")
"""


async def test_what_cannot_be_ended_is_killed(world):
    """Here from within an event loop, which does not matter."""
    target = world.write("blocks", BLOCKS)
    message = ""
    for timeout_s in (6, 12, 60):  # a busy machine may need the first for its imports alone
        begin = time.monotonic()
        with world.unchanged(), pytest.raises(TraceError) as caught:
            run_sandboxed(target, folder=world.folder, timeout_s=timeout_s)
        message = str(caught.value)
        assert f"within {timeout_s} s and was killed" in message
        assert time.monotonic() - begin < timeout_s + 120
        if "pid " in message:
            break
    pid = int(message.rpartition("pid ")[2].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


LOOKS_UP = """
    def asks(state):
        llm.invoke("Asks: " + state["text"])
        socket.create_connection(("127.0.0.1", PORT))
    def score(state):
        socket.create_connection(("127.0.0.1", PORT))
        llm.invoke("Score: " + state["text"])
    builder.add_node(asks).add_node(score)
    builder.add_edge(START, "asks").add_edge(START, "score")
"""


def test_a_node_that_ended_before_its_call_is_named(world):
    target = world.write("looks_up", LOOKS_UP)
    with world.unchanged():
        file = run_sandboxed(target, folder=world.folder, isolate=False).file
    assert [task.name for task in file.flow.tasks] == ["asks"]
    assert {effect.node for effect in file.denied} == {"asks", "score"}
    (said,) = file.warnings
    assert said.startswith("node 'score' ended where it was denied network, before any call")
    assert said.endswith("--allow network")


OTHER_CHILD = """
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    print("pid", pid, flush=True)
"""


async def test_what_is_allowed_is_done_and_ends_with_the_trace(world):
    connects = Case("socket.create_connection(('127.0.0.1', PORT)).close()", None)
    target = world.write("allowed", OTHER_CHILD, node("connects", connects))
    result = await asyncio.to_thread(
        run_sandboxed, target, folder=world.folder, allow=("network", "process")
    )
    assert not result.offline
    assert result.file.denied == ()
    assert "connects#2" in {task.name for task in result.file.flow.tasks}
    assert world.listener.seen.count("tcp") >= 1
    world.listener.seen.clear()
    pid = int(result.output.rpartition("pid ")[2].split()[0])
    for _ in range(1200):  # whoever adopts it has to take note of its end
        if not runs(pid):
            return
        await asyncio.sleep(0.05)
    pytest.fail("a process of the program is left")


C_CODE = """
    libc = ctypes.CDLL(None, use_errno=True)
    folder = str(CANARY).encode()
    flags = os.O_CREAT | os.O_WRONLY
    print("outside", libc.open(folder + b"/new", flags, 0o600), libc.unlink(folder + b"/old"),
          libc.mkdir(folder + b"/dir", 0o700), libc.truncate(folder + b"/old", 0),
          libc.rename(folder + b"/old", b"moved"), libc.open(b"linked/old", os.O_WRONLY))
    print("inside", libc.mkdir(b"own", 0o700), libc.open(b"own/new", flags, 0o600) > 2,
          libc.rename(b"own/new", b"moved"), libc.unlink(b"moved"), libc.rmdir(b"own"))
    print("read", libc.open(folder + b"/old", os.O_RDONLY) > 2)
"""


def test_c_code_cannot_write_elsewhere_where_the_kernel_helps(world):
    target = world.write("c_code", C_CODE, SIMPLE)
    if landlock_version() < 2:
        pytest.skip("no Landlock here: C code is not kept from files")
    with world.unchanged():
        result = run_sandboxed(target, folder=world.folder, allow=("native",), isolate=False)
    assert "outside -1 -1 -1 -1 -1 -1\n" in result.output
    assert "inside 0 True 0 0 0\n" in result.output
    assert "read True\n" in result.output


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("llm.invoke('\\ud800 ' + state['text'])", r"surrogate pair '\\ud800' \(task 'odd'\)"),
        ("llm.invoke(open('/no_\\udc80').read() + state['text'])", "no_.udc80"),
        ("os.open('/no_\\udc80', os.O_CREAT | os.O_WRONLY)", "no_.udc80"),
    ],
)
def test_texts_that_utf_8_cannot_hold_are_told_in_a_sentence(world, code, says):
    node = f"""
    def odd(state):
        {code}
    builder.add_node("odd", odd).add_edge(START, "odd")
    """
    target = world.write("odd", node)
    with pytest.raises((FlowError, TraceError), match=says) as caught:
        run_sandboxed(target, folder=world.folder)
    assert "left no" not in str(caught.value)
    str(caught.value).encode()


def test_a_very_full_folder_is_read_and_not_written(world, monkeypatch):
    monkeypatch.setattr("grape_lc.adapters.sandbox_environment.MOST_LINKS", 0)
    reads = """
        assert open('linked/old').read() == 'old content'
        open('fresh', 'w').write('x')
        assert open('fresh').read() == 'x'"""
    target = world.write("full", node("full", Case(textwrap.dedent(reads), None)))
    with world.unchanged():
        file = run_sandboxed(target, folder=world.folder).file
    assert "full#2" in {task.name for task in file.flow.tasks}
    assert [(effect.kind, effect.what) for effect in file.denied] == [("file", "fresh")]


NO_CALLS = """
    def idle(state):
        pass
    builder.add_node("idle", idle).add_edge(START, "idle")
"""


def test_a_graph_without_calls_is_an_error_with_what_was_denied(world):
    target = world.write("no_calls", NO_CALLS)
    with pytest.raises(TraceError, match="no call of ChatGrape was seen"):
        run_sandboxed(target, folder=world.folder)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "no graph"}, "module:graph"),
        ({"allow": ["everything"]}, ", ".join(KINDS)),
        ({"timeout_s": 0}, "more than 0"),
        ({"timeout_s": float("nan")}, "more than 0"),
        ({"timeout_s": float("inf")}, "at most 86400"),
        ({"timeout_s": 1e12}, "at most 86400"),
        ({"folder": "/no/such/folder"}, "no folder"),
        ({"example": {"x": object()}}, "not JSON"),
        ({"example": json.loads("[" * 220 + "]" * 220)}, "not JSON: .* recursion limit"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(world, options, says):
    with pytest.raises(ConfigError, match=says):
        run_sandboxed(**{"target": "cases:graph", "folder": world.folder, **options})
    assert list(world.temporary.iterdir()) == []


def test_an_unknown_module_is_told_by_the_child(world):
    with pytest.raises(ConfigError, match="no module 'no_such_module'"):
        run_sandboxed("no_such_module:graph", folder=world.folder)
