"""The rules of the sandbox: what counts as an effect, what is told of it, who may."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grape_lc.adapters.sandbox_environment import (
    MOST_LINKS,
    PLACEHOLDER,
    make_scratch,
    scrubbed,
)
from grape_lc.adapters.sandbox_frames import origin_of, place_of
from grape_lc.adapters.sandbox_patches import _Instead
from grape_lc.adapters.sandbox_policy import KINDS, RULES, Fence, Verdict, verdict
from grape_lc.adapters.secrets import holds_secret, is_secret_name


@pytest.fixture
def fence(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "to_out").symlink_to(tmp_path / "out")
    (tmp_path / "out" / "to_in").symlink_to(tmp_path / "in")
    return Fence(str((tmp_path / "in").resolve()))


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("in", True),
        ("in/new", True),
        ("in/no/such/folder/yet", True),
        ("in/deep/../new", True),
        ("in/../out/x", False),
        ("in/to_out", False),
        ("in/to_out/x", False),
        ("in/to_out/../x", False),
        ("in/deep/..", True),
        ("in/..", False),
        # A link outside that points in is itself outside.
        ("out/to_in", False),
        ("out/to_in/x", True),
        ("inner", False),
        ("out", False),
        ("..", False),
    ],
)
@pytest.mark.parametrize("form", [str, os.fsencode, Path])
def test_the_fence_follows_links_both_ways(fence, tmp_path, path, inside, form):
    assert fence.inside(form(f"{tmp_path}/{path}")) is inside


def test_the_fence_knows_open_folders_and_files(fence, tmp_path):
    outer, inner = (os.open(tmp_path / name, os.O_RDONLY) for name in ("out", "in"))
    try:
        assert fence.inside("x", inner)
        assert not fence.inside("x", outer)
        assert not fence.inside("../out/x", inner)
        assert fence.inside(inner)
        assert not fence.inside(outer)
    finally:
        os.close(outer)
        os.close(inner)


@example(parts=["in", "to_out", "..", "x"])
@example(parts=["out", "to_in", ".."])
@given(parts=st.lists(st.sampled_from(["in", "out", "to_in", "to_out", "deep", "..", ".", "x"])))
def test_nothing_that_really_lies_outside_is_inside(parts, tmp_path_factory):
    root = tmp_path_factory.getbasetemp() / "links"
    if not root.exists():
        (root / "in" / "deep").mkdir(parents=True)
        (root / "out").mkdir()
        (root / "in" / "to_out").symlink_to(root / "out")
        (root / "out" / "to_in").symlink_to(root / "in")
    path = Path(root, *parts)
    if Fence(os.path.realpath(root / "in")).inside(path):
        assert Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root / "in"))


def test_verdicts():
    table = {
        (kind, by_user, at_import): verdict(kind, by_user=by_user, at_import=at_import)
        for kind in KINDS
        for by_user in (True, False)
        for at_import in (True, False)
    }
    lenient = {key: found for key, found in table.items() if found is not Verdict.DENY}
    assert lenient == {
        ("environment", False, False): Verdict.CONFINE,
        ("environment", True, True): Verdict.CONFINE,
        ("environment", False, True): Verdict.CONFINE,
        ("thread", False, False): Verdict.ALLOW,
        ("thread", False, True): Verdict.ALLOW,
        ("native", False, False): Verdict.ALLOW,
        ("native", False, True): Verdict.ALLOW,
    }
    assert {rule.kind for rule in RULES.values()} == set(KINDS)


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("event", "args", "what"),
    [
        ("subprocess.Popen", (None, ["curl", "-H", SECRET], None, None), "curl with 2 arguments"),
        ("subprocess.Popen", ("/bin/sh", f"echo {SECRET}", None, None), "/bin/sh"),
        ("subprocess.Popen", (None, f"echo {SECRET}", None, None), "echo"),
        ("subprocess.Popen", (Path("/bin/x"), [Path("/bin/x")], None, None), "/bin/x"),
        ("subprocess.Popen", (None, [], None, None), "?"),
        ("os.system", (f"echo {SECRET}".encode(),), "echo"),
        ("os.system", (b"  ",), "a shell"),
        ("os.exec", ("/bin/x", ["x", SECRET], {"A": SECRET}), "/bin/x with 1 arguments"),
        ("pty.spawn", (["x", SECRET],), "x with 1 arguments"),
        ("os.putenv", (b"NAME", SECRET.encode()), "NAME"),
        ("socket.connect", (None, ("host", 80)), "host:80"),
        ("socket.connect", (None, ("::1", 80, 0, 0)), "::1:80"),
        ("socket.connect", (None, b"/run/x"), "/run/x"),
        ("socket.sendmsg", (None, None), None),
        ("socket.getaddrinfo", (b"host", None, 0, 0, 0), "host"),
        ("socket.getaddrinfo", (None, 80, 0, 0, 0), "80"),
        ("socket.gethostbyname", ("host",), "host"),
        ("os.kill", (1, 0), None),
        ("os.kill", (1, signal.SIGTERM), "SIGTERM to another process or thread"),
        ("os.kill", (os.getpid(), 63), "63 to itself"),
        ("open", ("/x", "r", os.O_RDONLY | os.O_CLOEXEC), None),
        ("open", ("/x", None, os.O_RDWR), "/x"),
        ("open", (3, "w", os.O_WRONLY), None),
        ("open", ("/dev/null", "w", os.O_WRONLY), None),
        ("os.mkdir", ("/", 0o777, -1), None),
        ("os.mkdir", ("/no_such", 0o777, -1), "/no_such"),
        ("os.symlink", ("/anything", "/no_such", -1), "/no_such"),
        ("sqlite3.connect", (":memory:",), None),
        ("sqlite3.connect", ("",), None),
        ("sqlite3.connect", ("file:x?mode=memory&cache=shared",), None),
        ("sqlite3.connect", ("file:/x?mode=ro",), None),
        ("sqlite3.connect", (b"/x",), "/x"),
        ("sqlite3.connect", ("file:/x?mode=ro&mode=rwc",), "/x"),
        ("sqlite3.connect", ("file:/x?mode=ro&mode=memory",), "/x"),
        ("sqlite3.connect", ("file:/etc/passwd?immutable=1",), None),
        ("sqlite3.connect", ("file:/no_such?immutable=1",), "/no_such"),
        ("sqlite3.connect", ("file:/etc/passwd?immutable=0",), "/etc/passwd"),
        ("ctypes.dlopen", (None,), "the process itself"),
        ("resource.prlimit", (1, 4, None), None),
        ("resource.prlimit", (0, 4, (0, 0)), None),
        ("resource.prlimit", (1, 4, (0, 0)), "another process or thread"),
        ("grape.setpriority", (os.PRIO_PROCESS, os.getpid(), 1), None),
        ("grape.setpriority", (os.PRIO_PGRP, 0, 1), None),
        ("grape.setpriority", (os.PRIO_PGRP, 1, 1), "another process or thread"),
        ("grape.setpriority", (os.PRIO_USER, 0, 1), "another process or thread"),
        ("grape.setpgid", (1, 1), "another process or thread"),
        ("grape.pidfd_send_signal", (3, 0), None),
        ("grape.pidfd_send_signal", (3, 15), "SIGTERM to another process or thread"),
        ("grape.sem_open", (1, 1, 1, "/x", True), None),
        ("grape.sem_open", (1, 1, 1, "/x", False), "a semaphore for other processes"),
        ("ctypes.dlopen", ("x.so",), "x.so"),
        ("sqlite3.enable_load_extension", (None, False), None),
        ("sqlite3.enable_load_extension", (None, True), "extensions of SQLite"),
    ],
)
def test_what_is_told_of_an_event(fence, event, args, what):
    assert RULES[event].look(args, fence) == what
    assert SECRET not in str(what)


def test_pipes_and_memory_may_be_changed(fence):
    reading, writing = os.pipe()
    memory = os.memfd_create("x")
    try:
        assert RULES["os.chmod"].look((writing, 0o600, -1), fence) is None
        assert RULES["os.truncate"].look((memory, 3), fence) is None
    finally:
        for number in (reading, writing, memory):
            os.close(number)


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "APIKEY",
        "HF_TOKEN",
        "client_secret",
        "DB_PASSWORD",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_PAT",
        "SSH_AUTH_SOCK",
        "SENTRY_DSN",
        "key",
    ],
)
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["KEYBOARD", "MONKEY", "PATH", "PWD", "OLDPWD", "AUTHOR", "TOKENIZERS_PARALLELISM", ""]
)
def test_names_of_other_things(name):
    assert not holds_secret(name, "https://host/path?a=b@c")


def test_addresses_with_a_password_are_secrets():
    assert holds_secret("BROKER", "amqp://me:word@host:5672/")
    assert not holds_secret("BROKER", "amqp://host:5672/")


@given(
    st.dictionaries(
        st.sampled_from(["A_KEY", "B_TOKEN", "URL", "HOME", "TMPDIR", "PYTHONPATH", "LANG"]),
        st.sampled_from([f"x://u:{SECRET}@h/", SECRET, "plain"]),
    )
)
def test_no_secret_is_in_the_environment_of_a_program(environment):
    found, withheld = scrubbed(environment, Path("/scratch"))
    for name in environment:
        hidden = name.endswith(("_KEY", "_TOKEN")) or "@" in environment[name]
        assert (name in withheld) is hidden
        if hidden and name not in {"HOME", "TMPDIR", "PYTHONPATH"}:
            assert found[name] == PLACEHOLDER
    assert found["HOME"] == "/scratch/home"
    assert found["TMPDIR"] == "/scratch/tmp"
    assert found.get("LANG", "plain") in {environment.get("LANG"), "plain", PLACEHOLDER}


def test_a_working_folder_links_to_what_is_in_the_users(tmp_path):
    user, scratch = tmp_path / "user", tmp_path / "scratch"
    (user / "prompts").mkdir(parents=True)
    (user / "prompts" / "a.txt").write_text("a prompt")
    (user / ".env").write_text("x")
    scratch.mkdir()
    work = make_scratch(scratch, user)
    assert sorted(entry.name for entry in work.iterdir()) == [".env", "prompts"]
    assert (work / "prompts" / "a.txt").read_text() == "a prompt"


def test_a_very_full_folder_is_the_working_folder_itself(tmp_path):
    user = tmp_path / "user"
    user.mkdir()
    for number in range(MOST_LINKS):
        (user / str(number)).touch()
    for last in (False, True):
        scratch = tmp_path / f"scratch{last}"
        scratch.mkdir()
        work = make_scratch(scratch, user)
        assert (work == user) is last
        assert (work / str(MOST_LINKS - 1)).exists()
        assert last or len(list(work.iterdir())) == MOST_LINKS
        (user / "one more").touch()


def test_a_copy_of_nothing_takes_no_file_away(tmp_path):
    """Two nodes open a new database: one has made its copy while the other looks for a source."""

    def made_meanwhile(path, mode):
        (tmp_path / "instead" / "0").write_text("of another thread")
        return Path(path).open(mode)

    instead = _Instead(tmp_path / "instead", made_meanwhile)
    assert Path(instead.copy(tmp_path / "new.db")).read_text() == "of another thread"


def test_whose_a_file_is():
    import asyncio

    import langgraph.pregel

    import grape_lc.adapters.tracing

    assert origin_of(asyncio.__file__) == "stdlib"
    assert origin_of("<frozen importlib._bootstrap>") == "stdlib"
    assert origin_of(langgraph.pregel.__file__) == "library"
    assert origin_of(grape_lc.adapters.tracing.__file__) == "library"
    assert origin_of("<string>") == "user"
    assert origin_of(__file__) == "user"
    assert place_of("/x/site-packages/lib/a.py", 3, "/home/me") == "lib/a.py:3"
    assert place_of("/home/me/pkg/a.py", 3, "/home/me") == "pkg/a.py:3"
