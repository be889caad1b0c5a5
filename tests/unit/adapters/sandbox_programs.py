"""Programs with side effects, for the tests of the sandbox."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

HEAD = """
import asyncio, concurrent.futures, ctypes, multiprocessing, os, shutil, signal, socket, sqlite3
import posix, resource, subprocess, sys, tempfile, threading, time
from pathlib import Path
from typing import Annotated, TypedDict
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph
from grape_lc import ChatGrape

CANARY = Path({canary!r})
PORT = {port}
llm = ChatGrape()

class State(TypedDict, total=False):
    text: str

builder = StateGraph(State)
"""


@dataclass(frozen=True)
class Case:
    """A node that asks the model, does ``code``, and asks again.

    kind: of the effect that is reported; None: the node may do this.
    ends: whether the node ends there.
    what: in the report.
    """

    code: str
    kind: str | None
    ends: bool = True
    what: str = ""
    is_async: bool = False


CASES = {
    # network
    "tcp": Case('socket.create_connection(("127.0.0.1", PORT))', "network", what="127.0.0.1:"),
    "tcp_raw": Case('socket.socket().connect(("127.0.0.1", PORT))', "network", what="127.0.0.1:"),
    "dns": Case('socket.getaddrinfo("example.org", 443)', "network", what="example.org:443"),
    "name": Case('socket.gethostbyname("example.org")', "network", what="example.org"),
    "udp": Case(
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
        "network",
        what="127.0.0.1:",
    ),
    "listen": Case('socket.socket().bind(("127.0.0.1", 0))', "network", what="127.0.0.1:0"),
    "unix": Case(
        "socket.socket(socket.AF_UNIX).bind(str(CANARY / 'socket'))", "network", what="/socket"
    ),
    "tcp_later": Case('await asyncio.open_connection("127.0.0.1", PORT)', "network", is_async=True),
    "dns_later": Case(
        'await asyncio.get_running_loop().getaddrinfo("example.org", 443)',
        "network",
        what="example.org:443",
        is_async=True,
    ),
    "http_later": Case(
        "import httpx\n"
        "async with httpx.AsyncClient() as client:\n"
        "    await client.get(f'http://127.0.0.1:{PORT}/')",
        "network",
        is_async=True,
    ),
    "http": Case(
        "import urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{PORT}/')", "network"
    ),
    # files
    "write": Case("open(CANARY / 'new', 'w').write('x')", "file", ends=False, what="/new"),
    "append": Case("with open(CANARY / 'old', 'a') as f: f.write('x')", "file", ends=False),
    "path_write": Case(
        "(CANARY / 'p').write_text('x'); assert (CANARY / 'p').read_text() == 'x'",
        "file",
        ends=False,
    ),
    "in_place": Case(
        "with open(CANARY / 'place', 'r+') as f: assert f.read()[:6] == 'of old'; f.write('!')\n"
        "assert open(CANARY / 'place').read()[:7] == 'of old!'",
        "file",
        ends=False,
    ),
    "anew": Case("open(CANARY / 'none', 'x').write('y')", "file", ends=False),
    "os_open": Case("os.open(CANARY / 'new', os.O_CREAT | os.O_WRONLY)", "file"),
    "os_open_at": Case(
        "os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=os.open(CANARY, os.O_RDONLY))", "file"
    ),
    "posix_open_at": Case(
        "posix.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=os.open(CANARY, os.O_RDONLY))", "file"
    ),
    "through_link": Case("open('linked/old', 'a').write('x')", "file", ends=False),
    "through_own_link": Case(
        "os.symlink(CANARY / 'old', 'mine'); os.open('mine', os.O_WRONLY)", "file"
    ),
    "delete": Case("os.remove(CANARY / 'old')", "file", ends=False, what="/old"),
    "delete_tree": Case("shutil.rmtree(CANARY / 'sub')", "file", ends=False),
    "rename": Case("os.replace(CANARY / 'old', 'here')", "file", ends=False),
    "rename_out": Case("open('a', 'w'); os.rename('a', CANARY / 'a')", "file", ends=False),
    "copy": Case("shutil.copy(CANARY / 'old', CANARY / 'copy')", "file", ends=False),
    "mkdir": Case("(CANARY / 'a' / 'b').mkdir(parents=True, exist_ok=True)", "file", ends=False),
    "symlink": Case("os.symlink('x', CANARY / 'link')", "file", ends=False),
    "hard_link": Case("os.link(CANARY / 'old', 'twin')", "file", ends=False),
    "mode": Case("(CANARY / 'old').chmod(0o600)", "file", ends=False),
    "shorten": Case("os.truncate(CANARY / 'old', 1)", "file", ends=False),
    "times": Case("os.utime(CANARY / 'old', (1, 1))", "file", ends=False),
    "fifo": Case("os.mkfifo(CANARY / 'fifo')", "file", what="/fifo"),
    "database": Case(
        "with sqlite3.connect(CANARY / 'new.db') as db:\n"
        "    db.execute('create table if not exists t (x)')\n"
        "assert not (CANARY / 'new.db').exists()",
        "file",
        ends=False,
        what="/new.db",
    ),
    "database_uri": Case(
        "db = sqlite3.connect(f'file:{CANARY}/known.db?mode=rwc', uri=True)\n"
        "assert ('content',) in db.execute('select x from t').fetchall()\n"
        "db.execute(\"insert into t values ('more')\"); db.commit(); db.close()",
        "file",
        ends=False,
        what="/known.db",
    ),
    # SQLite fails with an error of its own, which the program takes for a broken database.
    "attached": Case(
        "try: sqlite3.connect(':memory:').execute(f\"ATTACH '{CANARY}/db' AS x\")\n"
        "except sqlite3.DatabaseError: pass",
        "file",
        ends=False,
        what="/db",
    ),
    "attached_by_class": Case(
        "try: sqlite3.Connection(':memory:').execute(f\"ATTACH '{CANARY}/db' AS x\")\n"
        "except sqlite3.DatabaseError: pass\n"
        "assert isinstance(sqlite3.connect(':memory:'), sqlite3.Connection)",
        "file",
        ends=False,
        what="/db",
    ),
    "database_mutable": Case(
        "sqlite3.connect(f'file:{CANARY}/mutable.db?immutable=0', uri=True).execute('select 1')",
        "file",
        ends=False,
        what="/mutable.db",
    ),
    "own_files": Case(
        "Path('out').mkdir(); Path('out/a').write_text('x'); os.rename('out/a', 'out/b')\n"
        "shutil.rmtree('out'); sqlite3.connect('own.db').execute('create table t (x)')\n"
        "tempfile.TemporaryFile().write(b'x'); Path.home().joinpath('.rc').write_text('x')\n"
        "open('/dev/null', 'w').write('x'); open('linked/old').read()",
        None,
    ),
    # processes
    "run": Case(
        "subprocess.run(['touch', CANARY / 'run', 'more'])", "process", what="touch with 2"
    ),
    "system": Case("os.system(f'touch {CANARY}/system')", "process", what="touch"),
    "spawn": Case("os.posix_spawn('/bin/touch', ['touch', f'{CANARY}/s'], {})", "process"),
    "fork": Case("os.fork() or os._exit(0)", "process"),
    "exec": Case("os.execv('/bin/true', ['true'])", "process"),
    "start_process": Case(
        "multiprocessing.get_context('spawn').Process(target=print).start()", "process"
    ),
    "run_later": Case(
        "await asyncio.create_subprocess_exec('touch', str(CANARY / 'later'))",
        "process",
        is_async=True,
    ),
    "kill": Case("os.kill(os.getppid(), signal.SIGTERM)", "signal", what="SIGTERM"),
    "kill_by_descriptor": Case(
        "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGWINCH)",
        "signal",
        what="SIGWINCH to another",
    ),
    "priority": Case(
        "os.setpriority(which=os.PRIO_PROCESS, who=os.getppid(), priority=5)", "signal"
    ),
    "limits": Case(
        "resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))", "signal", what="another"
    ),
    "processors": Case("os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))", "signal"),
    "own_limits": Case(
        "os.setpriority(os.PRIO_PROCESS, 0, 1); os.sched_setaffinity(0, os.sched_getaffinity(0))\n"
        "resource.prlimit(os.getppid(), resource.RLIMIT_CORE)\n"
        "resource.prlimit(os.getpid(), resource.RLIMIT_CORE, (0, 0))\n"
        "multiprocessing.get_context('fork').Lock()",
        None,
    ),
    "shared_lock": Case("multiprocessing.get_context('spawn').Lock()", "process", what="semaphore"),
    # the process itself
    "variable": Case(
        "os.environ['CHANGED'] = 'a value'", "environment", ends=False, what="CHANGED"
    ),
    "directory": Case("os.chdir(CANARY)", "directory"),
    "thread": Case("threading.Thread(target=print).start()", "thread", what="print"),
    "pool": Case(
        "with concurrent.futures.ThreadPoolExecutor() as pool: pool.submit(print).result()", None
    ),
    "in_a_pool": Case(
        "with concurrent.futures.ThreadPoolExecutor() as pool:\n"
        "    pool.submit(os.system, 'true').result()",
        "process",
    ),
    "in_a_thread": Case("await asyncio.to_thread(os.system, 'true')", "process", is_async=True),
    "library_itself": Case("ctypes.CDLL(None).getpid()", "native", what="the process itself"),
    "library": Case("ctypes.CDLL('libc.so.6').getpid()", "native", what="libc.so.6"),
    "asyncio_thread": Case("await asyncio.to_thread(time.sleep, 3)", None, is_async=True),
    "batch": Case("RunnableLambda(lambda x: x + 1).batch([1, 2, 3])", None),
    "waits": Case("time.sleep(30)", None),
    "waits_later": Case("await asyncio.sleep(30)", None, is_async=True),
    # programs that catch errors
    "catches_errors": Case(
        "try: socket.create_connection(('127.0.0.1', PORT))\nexcept Exception: pass", "network"
    ),
    "catches_all": Case(
        "try: socket.create_connection(('127.0.0.1', PORT))\nexcept BaseException: pass",
        "network",
        ends=False,
    ),
    "raises_another": Case(
        "try: socket.create_connection(('127.0.0.1', PORT))\n"
        "except BaseException as e: raise RuntimeError('no service')",
        "network",
    ),
    "in_a_group": Case(
        "async with asyncio.TaskGroup() as group:\n"
        "    group.create_task(asyncio.open_connection('127.0.0.1', PORT))",
        "network",
        is_async=True,
    ),
}


def node(name: str, case: Case) -> str:
    """The node's function, between two calls of the model, and its place in the graph."""
    call = "await llm.ainvoke" if case.is_async else "llm.invoke"
    body = "\n".join(
        [
            f"{call}('Before {name}: ' + state['text'])",
            case.code,
            f"{call}('After {name}: ' + state['text'])",
        ]
    )
    return (
        f"{'async ' if case.is_async else ''}def {name}(state):\n"
        f"{textwrap.indent(body, '    ')}\n"
        f"builder.add_node('{name}', {name})\n"
        f"builder.add_edge(START, '{name}')\n"
    )


def program(canary: Path, port: int, *parts: str) -> str:
    """A module that makes ``graph`` of parts that add to ``builder``."""
    head = HEAD.format(canary=str(canary), port=port)
    return "\n".join([head, *map(textwrap.dedent, parts), "graph = builder.compile()\n"])
