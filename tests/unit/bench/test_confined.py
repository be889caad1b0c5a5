"""What a program that is checked may do, and what it may not."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from grape_lc.bench.confined import Bounds, run_confined

QUICK = Bounds(wall_s=120, cpu_s=5, memory=1 << 29, output=100_000)


def test_a_program_reads_its_input_and_prints():
    outcome = run_confined("n = int(input())\nprint(n * 2, 'é')\n", "21\nrest\n")
    assert tuple(outcome) == (0, "42 é\n", "")
    assert outcome.trouble == ""


def test_the_library_of_python_and_threads_can_be_used():
    source = (
        "import bisect, collections, dataclasses, datetime, decimal, functools, heapq\n"
        "import itertools, math, random, re, string, sys, threading, typing\n"
        "threading.stack_size(1 << 26); sys.setrecursionlimit(10**6)\n"
        "def depth(n): return n and 1 + depth(n - 1)\n"
        "t = threading.Thread(target=lambda: print(depth(20000))); t.start(); t.join()\n"
    )
    assert run_confined(source) == (0, "20000\n", "")


@pytest.mark.parametrize(
    "source",
    [
        "import socket; socket.socket()",
        "import urllib.request; urllib.request.urlopen('http://localhost')",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.execv('/bin/true', ['true'])",
        "import os; os.posix_spawn('/bin/true', ['true'], {})",
        "import multiprocessing as m; m.get_context('spawn').Process(target=print).start()",
        "import ctypes",
        "import _ctypes",
        "import os; os.kill(os.getppid(), 0)",
        "open('/etc/passwd')",
        "import os; os.open('/etc/passwd', os.O_RDONLY)",
        "open('../secret')",
        "open('new', 'w')",
        "open('program.py', 'a')",
        "import os; os.remove('program.py')",
        "import os; os.mkdir('new')",
        "import os; os.symlink('/etc/passwd', 'here')",
        "import tempfile; tempfile.TemporaryFile()",
        "import sqlite3; sqlite3.connect('new')",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
    ],
)
def test_what_reaches_outside_is_denied(source: str):
    outcome = run_confined(source, bounds=QUICK)
    assert outcome.status == 1
    assert "may not" in outcome.trouble or "No usable temporary directory" in outcome.trouble


def test_denied_all_the_same_where_the_program_does_not_mind(tmp_path: Path):
    target = tmp_path / "target"
    target.write_text("kept")
    source = (
        "import os\n"
        f"path = {str(target)!r}\n"
        "for act in (lambda: open(path, 'w').write('lost'), lambda: os.remove(path),\n"
        "            lambda: os.truncate(path, 0), lambda: os.rename(path, 'x')):\n"
        "    try: act()\n"
        "    except OSError: print('no')\n"
    )
    assert run_confined(source).output == "no\n" * 4
    assert target.read_text() == "kept"


def test_a_server_of_this_machine_is_not_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        outcome = run_confined(f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)")
        assert outcome.status == 1
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_environment_and_the_folder_of_the_caller_are_not_seen(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "x")
    source = "import os; print(dict(os.environ), os.getcwd(), sorted(os.listdir()))"
    output = run_confined(source).output
    assert "SECRET_OF_THE_CALLER" not in output
    assert os.getcwd() not in output  # noqa: PTH109 - as the program says it
    assert "['input', 'program.py']" in output


@pytest.mark.parametrize(
    ("source", "trouble"),
    [
        ("while True: pass", "SIGKILL"),
        ("x = 'a' * (1 << 30)", "MemoryError"),
        ("while True: print('x' * 1000)", "File too large"),
        ("raise SystemExit(3)", "exit status 3"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def", "SyntaxError: invalid syntax"),
        ("\0", "SyntaxError: source code string cannot contain null bytes"),
    ],
)
def test_limits_and_faults_are_told(source: str, trouble: str):
    outcome = run_confined(source, bounds=QUICK._replace(cpu_s=1))
    assert trouble in outcome.trouble
    assert len(outcome.output) <= QUICK.output


def test_one_that_waits_for_ever_is_ended():
    begin = time.monotonic()
    outcome = run_confined("import time; time.sleep(600)", bounds=Bounds(wall_s=0.5))
    assert outcome.status is None
    assert outcome.trouble == "took too long"
    assert time.monotonic() - begin < 300


@pytest.mark.parametrize(
    ("source", "function", "arguments", "answered"),
    [
        ("def f(a, b): print('noise'); return a, b", "f", {"b": 2, "a": 1}, {"result": [1, 2]}),
        ("def f(x, y): return x - y", "f", {"first": 3, "second": 1}, {"result": 2}),
        ("def egg_count(n): return n", "eggCount", {"n": 1}, {"result": 1}),
        ("def f(start_at): return start_at", "f", {"startAt": 1}, {"result": 1}),
        ("def other(n): return n\ndef _help(n): ...", "f", {"n": 1}, {"result": 1}),
        ("def g(n): ...\ndef h(n): ...", "f", {"n": 1}, {"missing": "f"}),
        ("def g(n, m): ...", "f", {"n": 1}, {"missing": "f"}),
        ("def f(n): raise ValueError('no')", "f", {"n": 1}, {"raised": "ValueError: no"}),
        ("def f(n): return {1}", "f", {"n": 1}, None),
        ("if __name__ == '__main__': input()\ndef f(): return 1", "f", {}, {"result": 1}),
    ],
)
def test_functions_are_called(source, function, arguments, answered):
    case = {"function": function, "arguments": arguments, "code": None}
    outcome = run_confined(source, case=case)
    if answered is None:
        assert "not JSON serializable" in outcome.trouble
    else:
        assert json.loads(outcome.output) == answered
