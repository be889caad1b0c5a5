"""What was learned is kept between processes, by default without any text of a prompt."""

from __future__ import annotations

import itertools
import json
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters.agreement import agreement
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.adapters.learning import Learner, SeenCall
from grape_lc.adapters.markers import Found
from grape_lc.adapters.outlines import (
    Lesson,
    Outlines,
    Value,
    has_tools,
    hide,
    lesson_from_plain,
    lesson_of,
    lesson_to_plain,
    revealed,
)
from grape_lc.adapters.source_hash import source_hash
from grape_lc.adapters.template_store import FORMAT, TemplateStore, learned_path
from grape_lc.config import graphs_dir
from grape_lc.errors import ConfigError
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock, prompt_text

MakeTeam = Callable[..., Any]

PROBLEMS = ("sorting a list", "finding a path", "counting words", "drawing a tree")


def handler_of(graph: Any) -> ProgramHandler:
    return next(h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler))


def written(graph: Any) -> Path:
    """The file, when nothing is being written any more."""
    store = handler_of(graph).lore("").templates._store
    assert store is not None
    store.wait()
    return store.path


def learned_files() -> list[str]:
    return [path.name for path in graphs_dir().glob("*.json") if "savings" not in path.name]


def writer() -> ScriptedEngine:
    """Never gives the same answer twice."""
    number = itertools.count()
    return ScriptedEngine(lambda request: f" answer no. {next(number)}\n", clock=VirtualClock())


# ------------------------------------------------------------------ from process to process


def team_runs(make_team: MakeTeam, problems: tuple[str, ...], **options: Any) -> list[bool]:
    """Whether each run had a program; each call stands for a process of its own."""
    engine = writer()
    graph = attach(make_team(ChatGrape(engine=engine)), **options)
    had = []
    for problem in problems:
        before = len(engine.programs)
        graph.invoke({"problem": problem})
        had.append(len(engine.programs) > before)
    if options.get("learned") != "memory":
        written(graph)
    return had


def test_a_later_process_needs_one_run_instead_of_two(make_team: MakeTeam) -> None:
    assert team_runs(make_team, PROBLEMS[:3]) == [False, False, True]
    assert team_runs(make_team, PROBLEMS[:3]) == [False, True, True]


def test_the_prompts_are_the_same_as_without_a_file(make_team: MakeTeam) -> None:
    def flow_after(runs: int) -> Any:
        graph = attach(make_team(ChatGrape(engine=writer())))
        for problem in PROBLEMS[:runs]:
            graph.invoke({"problem": problem})
        written(graph)
        return handler_of(graph).flow

    first = flow_after(3)
    again = flow_after(1)
    assert {t.name: t.prompt for t in again.tasks} == {t.name: t.prompt for t in first.tasks}


def test_no_text_of_a_prompt_is_in_the_file(make_team: MakeTeam) -> None:
    engine = writer()
    graph = attach(make_team(ChatGrape(engine=engine)))
    for problem in PROBLEMS:
        graph.invoke({"problem": problem})
    text = written(graph).read_text()
    known = {word for call in engine.calls for word in prompt_text(call.request).split()}
    known |= {word for problem in PROBLEMS for word in problem.split()}
    assert not [word for word in known if len(word) > 5 and word in text and word != "answer"]
    content = json.loads(text)
    assert set(content) == {"format", "version", "graph", "source", "content", "salt", "tasks"}
    assert content["format"] == FORMAT
    assert content["content"] is False
    assert set(content["tasks"]) == {"prd", "design", "risks", "code"}
    ((role, pieces),) = content["tasks"]["risks"]["messages"]
    assert role == "user"
    assert [set(piece) - {"or"} for piece in pieces] == [
        {"size", "sha256"},
        {"input"},
        {"size", "sha256"},
        {"answer"},
    ]
    assert pieces[0]["size"] == len("Risks of ")


def test_a_file_of_the_users_has_texts_and_prepares_the_first_run(
    make_team: MakeTeam, tmp_path: Path
) -> None:
    path = tmp_path / "prompts.json"
    assert team_runs(make_team, PROBLEMS[:2], learned=path) == [False, False]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "Design this:" in path.read_text()
    assert team_runs(make_team, PROBLEMS[2:3], learned=str(path)) == [True]
    assert list(tmp_path.glob("*.tmp")) == []


def test_nothing_is_written_while_nothing_is_learned(make_team: MakeTeam) -> None:
    graph = attach(make_team(ChatGrape(engine=writer())))
    for problem in PROBLEMS[:2]:
        graph.invoke({"problem": problem})
    path = written(graph)
    before = path.stat()
    path.chmod(0o400)
    for problem in PROBLEMS:
        graph.invoke({"problem": problem})
    after = written(graph).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_in_memory_nothing_is_kept(make_team: MakeTeam) -> None:
    assert team_runs(make_team, PROBLEMS[:3], learned="memory") == [False, False, True]
    assert learned_files() == []
    assert team_runs(make_team, PROBLEMS[:3], learned="memory") == [False, False, True]


def test_other_code_has_another_file(make_team: MakeTeam) -> None:
    assert team_runs(make_team, PROBLEMS[:2]) == [False, False]
    assert team_runs(lambda llm: make_team(llm, use_async=False), PROBLEMS[:1]) == [False]
    assert len(learned_files()) == 1
    assert learned_path("My graph/x", "0123456789abcdef").name == "My_graph_x-0123456789ab.json"


def test_a_place_where_no_file_can_be_is_refused(team: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (
        tmp_path,
        tmp_path / "none" / "x.json",
        tmp_path / "pipe",
        "/dev/null",
        tmp_path / ("a" * 5000),
        str(tmp_path / "a\0b"),
        str(tmp_path / "\ud800.json"),
    ):
        with pytest.raises(ConfigError, match="no file can be kept there"):
            attach(team, learned=path)


@pytest.mark.parametrize("learned", ["cach", "Memory", "", None, 5])
@pytest.mark.parametrize("learn", [True, False])
def test_what_is_neither_a_place_nor_a_path_is_refused(
    team: Any, learned: Any, learn: bool
) -> None:
    with pytest.raises(ConfigError, match=r"'cache', 'memory' to keep nothing.*\./prompts\.json"):
        attach(team, learned=learned, learn=learn)


def test_a_word_is_a_path_if_it_says_so(
    team: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("./prompts", "prompts.json", Path("prompts")):
        attach(team, learned=path)


@pytest.mark.parametrize("flow", ["a\0b", "\ud800.json", "a" * 5000])
def test_a_flow_that_is_no_path_is_refused(team: Any, flow: str) -> None:
    with pytest.raises(ConfigError, match=r"is no path of a file|cannot read"):
        attach(team, flow)


@pytest.mark.parametrize("flow", [5, {}, []])
def test_a_flow_that_is_none_is_refused(team: Any, flow: Any) -> None:
    with pytest.raises(TypeError, match="a TaskFlow or the path of a file, not"):
        attach(team, flow)


def test_no_folder_for_the_cache(
    make_team: MakeTeam, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GRAPE_LC_GRAPHS", "relative")
    with pytest.raises(ConfigError, match="'relative' is not an absolute path"):
        graphs_dir()
    engine = writer()
    with caplog.at_level(logging.INFO, "grape_lc"):
        graph = attach(make_team(ChatGrape(engine=engine)))
    assert "is not kept" in caplog.text
    for problem in PROBLEMS[:3]:
        graph.invoke({"problem": problem})
    assert len(engine.programs) == 1


def test_a_folder_that_cannot_be_written(
    make_team: MakeTeam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPE_LC_GRAPHS", str(tmp_path / "file" / "graphs"))
    engine = writer()
    graph = attach(make_team(ChatGrape(engine=engine)))
    for problem in PROBLEMS:
        graph.invoke({"problem": problem})
    written(graph)
    assert len(engine.programs) == 2
    said = [r for r in caplog.records if r.name == "grape_lc.adapters.template_store"]
    assert len(said) <= 2  # that it cannot be read, and that it cannot be written
    assert "are not kept in" in said[-1].getMessage()


# ------------------------------------------------------------------ files that are no good


GOOD = {
    "format": FORMAT,
    "version": 1,
    "graph": "team",
    "source": "0" * 64,
    "content": True,
    "salt": "salt",
    "tasks": {
        "prd": {"messages": [["user", [{"text": "Requirements of "}, {"input": "problem"}]]]}
    },
}


def store_at(path: Path, *, content: bool = True) -> TemplateStore:
    return TemplateStore(path, "team", "0" * 64, content=content)


def test_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(GOOD))
    outlines = store_at(path).load()
    assert outlines == Outlines(
        "salt", {"prd": Lesson((("user", ("Requirements of ", Value("input", "problem"))),))}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"format": "other"},
        {"source": "1" * 64},
        {"salt": ""},
        {"tasks": 3},
        {"tasks": {"prd": {"messages": []}}},
        {"tasks": {"prd": {"messages": [["user"]]}}},
        {"tasks": {"prd": {"messages": [["user", [{"input": 3}]]]}}},
        {"tasks": {"prd": {"messages": [["user", [{"input": "x", "through": "magic"}]]]}}},
        {"tasks": {"prd": {"messages": [["user", [{"input": "x", "through": "strip}{y"}]]]}}},
        {"tasks": {"prd": {"messages": [[3, [{"text": "x"}]]]}}},
        {"tasks": {"prd": {"messages": [["user", [{"size": -1, "sha256": "0" * 64}]]]}}},
        {"tasks": {"prd": {"messages": [["user", [{"size": 1, "sha256": "x"}]]]}}},
        {"tasks": {"prd": {"messages": [["human", [{"text": "x"}]]]}}},
        {"tasks": {"prd": {"messages": [["", [{"text": "x"}]], ["user", []]]}}},
        {"tasks": {"prd": {"messages": [["user", [{"text": "x"}]]], "tools": 3}}},
        {"tasks": {"prd": {"messages": [["user", [{"text": "x"}]]], "tools": [{"name": 3}]}}},
        {"tasks": {"prd": {"messages": [["user", [{"text": "x"}]]], "tools": {"text": "x"}}}},
        {"tasks": {" ": {"messages": [["user", [{"text": "x"}]]]}}},
    ],
    ids=str,
)
def test_a_file_of_something_else_is_left_alone(
    change: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**GOOD, **change}))
    assert store_at(path).load() is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert str(path) in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00", "[" * 100_000, '{"format": 1}'])
def test_a_broken_file_is_left_alone_until_there_is_something_new(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, make_team: MakeTeam
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert team_runs(make_team, PROBLEMS[:1], learned=path) == [False]
    assert path.read_text() == text
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert team_runs(make_team, PROBLEMS[:2], learned=path) == [False, False]
    assert team_runs(make_team, PROBLEMS[:1], learned=path) == [True]


def test_a_huge_file_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(17 * 2**20)
    assert store_at(path).load() is None
    assert "bytes" in caplog.text


@pytest.mark.parametrize(
    "tasks",
    [
        # Another graph's prompts, under the names of this one's tasks.
        {
            "prd": [["system", [{"text": "You are a cook."}, {"answer": "soup"}]]],
            "code": [["user", [{"input": "dish"}, {"text": " with "}, {"answer": "prd"}]]],
            "cook": [["user", [{"text": "Cook!"}]]],
        },
        # In each other's places.
        {
            "prd": [["user", [{"text": "Design this:\n"}, {"answer": "prd", "through": "strip"}]]],
            "design": [["user", [{"text": "Requirements of "}, {"input": "problem"}]]],
        },
        # Cut short.
        {"code": [["user", [{"text": "Co"}, {"end": True}]]], "risks": [["user", []]]},
        # Tasks that wait for each other.
        {
            "design": [["user", [{"answer": "risks"}]]],
            "risks": [["user", [{"answer": "design"}]]],
        },
        # Hidden texts that never were.
        {"design": [["user", [{"size": 13, "sha256": "0" * 64}, {"answer": "prd"}]]]},
    ],
)
def test_wrong_lessons_never_change_a_result(
    tasks: Any, tmp_path: Path, make_team: MakeTeam, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.json"

    def results(attached: bool) -> list[Any]:
        engine = ScriptedEngine(lambda r: f"<{prompt_text(r)[:40]}>", clock=VirtualClock())
        graph = make_team(ChatGrape(engine=engine))
        if attached:
            lessons = {task: {"messages": messages} for task, messages in tasks.items()}
            content = {**GOOD, "source": source_hash(graph), "tasks": lessons}
            path.write_text(json.dumps(content))
            graph = attach(graph, learned=path)
        return [graph.invoke({"problem": problem}) for problem in PROBLEMS]

    assert results(True) == results(False)
    assert caplog.text == ""


# ------------------------------------------------------------------ parts


def test_writes_at_the_same_time_leave_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    lessons = [{"prd": Lesson((("user", (f"prompt number {n} " * n,)),))} for n in range(1, 40)]
    stores = [store_at(path) for _ in range(4)]

    def write(store: TemplateStore) -> None:
        for lesson in lessons:
            store.save_soon(lesson)
            store.wait()

    threads = [threading.Thread(target=write, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.wait()
    outlines = store_at(path).load()
    assert outlines is not None
    assert outlines.lessons == lessons[-1]
    assert list(tmp_path.iterdir()) == [path]


def test_what_comes_in_quick_succession_is_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = store_at(tmp_path / "x.json"), tmp_path / "x.json"
    writes: list[dict[str, Lesson]] = []
    real = store._write

    def write(lessons: dict[str, Lesson]) -> None:
        writes.append(lessons)
        real(lessons)

    monkeypatch.setattr(store, "_write", write)
    lessons = [{"prd": Lesson((("user", (f"number {n}",)),))} for n in range(1, 40)]
    for lesson in lessons:
        store.save_soon(lesson)
    assert writes == []
    # Another graph that is attached meanwhile begins with all of it.
    outlines = store_at(path).load()
    assert outlines is not None
    assert outlines.lessons == lessons[-1]
    store.wait()
    assert writes == [lessons[-1]]


def test_it_is_written_by_itself_and_when_the_process_ends(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from grape_lc.adapters.outlines import Lesson\n"
        "from grape_lc.adapters import template_store\n"
        "from grape_lc.adapters.template_store import TemplateStore\n"
        "first, last = (TemplateStore(Path(p), 'g', 's', content=True) for p in sys.argv[1:])\n"
        "first.save_soon({'a': Lesson((('user', ('first',)),))})\n"
        "end = time.monotonic() + 100\n"
        "while not first.path.exists() and time.monotonic() < end: time.sleep(0.05)\n"
        "print(first.path.exists())\n"
        "template_store._PAUSE_S = 1000.0\n"
        "last.save_soon({'a': Lesson((('user', ('last',)),))})\n"
        "print(last.path.exists())\n"
    )
    paths = [str(tmp_path / name) for name in ("first.json", "last.json")]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.split() == ["True", "False"]
    assert '"last"' in Path(paths[1]).read_text()


def test_a_forked_process_writes_what_it_learns(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from grape_lc.adapters.outlines import Lesson\n"
        "from grape_lc.adapters.template_store import TemplateStore\n"
        "from grape_lc.adapters import template_store\n"
        "from grape_lc.adapters.savings import Savings, RunSavings, CallSaving, load\n"
        "template_store._PAUSE_S = 1000.0\n"  # so that only the child writes
        "store = TemplateStore(Path(sys.argv[1]), 'g', 's', content=True)\n"
        "kept = Savings()\n"
        "kept.keep_in(lambda: Path(sys.argv[2]), pause_s=1000.0)\n"
        "def run(name):\n"
        "    kept.add(RunSavings(calls=[CallSaving(name, 1, 1, 0, 0, '', 'open')]))\n"
        "    store.save_soon({name: Lesson((('user', (name,)),))})\n"
        "run('parent')\n"
        "if os.fork() == 0:\n"
        "    template_store._PAUSE_S = kept._file._pause_s = 0.1\n"
        "    run('child')\n"
        "    end = time.monotonic() + 100\n"
        "    while time.monotonic() < end:\n"
        "        done = store.path.exists() and 'child' in store.path.read_text()\n"
        "        names = [c.task for r in load(Path(sys.argv[2])) for c in r.calls]\n"
        "        if done and 'child' in names: break\n"
        "        time.sleep(0.05)\n"
        "    print(done, 'child' in names, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "os._exit(0)\n"
    )
    paths = [str(tmp_path / name) for name in ("learned.json", "savings.json")]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.split() == ["True", "True"]


def test_hidden_lessons_that_no_run_has_shown_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    store = store_at(path, content=False)
    learner = Learner("f")
    for topic in ("first topic", "other topic"):
        learner.watch({"topic": topic}, [asked("a", "Write on", topic), asked("b", "Sing", topic)])
    store.save_soon(learner.lessons)
    store.wait()

    # Only a is called; what is known of b must not get lost.
    later = store_at(path, content=False)
    again = Learner("f", later.load())
    assert tasks_of(again) == set()
    assert again.watch({"topic": "third one"}, [asked("a", "Write on", "third one")])
    assert tasks_of(again) == {"a"}
    later.save_soon(again.lessons)
    later.wait()

    third = Learner("f", store_at(path).load())
    assert third.watch({"topic": "fourth one"}, [asked("b", "Sing", "fourth one")])
    assert tasks_of(third) == {"b"}


def asked(task: str, verb: str, topic: str) -> SeenCall:
    return SeenCall(task, ({"role": "user", "content": f"{verb} {topic}."},), "an answer")


def tasks_of(learner: Learner) -> set[str]:
    return set() if learner.flow is None else {task.name for task in learner.flow.tasks}


def test_a_hidden_lesson_that_does_not_fit_is_dropped() -> None:
    lesson = Lesson((("user", (hide("Write a poem about ", "s"), Value("input", "topic"))),))
    learner = Learner("f", Outlines("s", {"a": lesson}))
    changed = learner.watch(
        {"topic": "the sea"},
        [SeenCall("a", ({"role": "user", "content": "the sea: a song"},), "x")],
    )
    assert changed
    assert learner.flow is None
    assert learner.lessons == {}


TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Finds a word.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        },
    },
)


def test_tools_are_a_part_of_what_is_learned() -> None:
    def run(learner: Learner, topic: str, tools: Any) -> set[str]:
        messages = ({"role": "user", "content": f"Look up {topic}."},)
        learner.watch({"topic": topic}, [SeenCall("a", messages, "x", tools=tools)])
        return tasks_of(learner)

    learner = Learner("f")
    assert run(learner, "first topic", TOOLS) == set()
    assert run(learner, "other topic", TOOLS) == {"a"}
    assert learner.flow is not None
    assert learner.flow.task("a").prompt.tools == TOOLS
    plain = {t: lesson_to_plain(lesson, "salt") for t, lesson in learner.lessons.items()}
    kept = Outlines("salt", {task: lesson_from_plain(lesson) for task, lesson in plain.items()})
    assert run(Learner("f", kept), "third topic", TOOLS) == {"a"}
    assert run(Learner("f", kept), "third topic", ()) == set()
    # Without its tools the same prompt is another one.
    for topic in ("topic 4", "topic 5", "topic 6"):
        assert learner.flow.task("a").prompt.tools == TOOLS
        run(learner, topic, ())
    assert run(learner, "topic 7", ()) == {"a"}
    assert learner.flow.task("a").prompt.tools == ()


texts = st.text("ab{ü ", min_size=1, max_size=6)
values = st.builds(Found, st.integers(0, 2), st.sampled_from(["identity", "strip"]))
NAMES: Any = {0: ("input", "topic"), 1: ("answer", "a"), 2: ("answer", "b#2")}
NUMBERS = {name: number for number, name in NAMES.items()}


def told_apart(parts: list[Any]) -> tuple[Any, ...]:
    """As prompts are told apart: no two literal texts stand side by side."""
    joined: list[Any] = []
    for part in parts:
        if joined and isinstance(part, str) and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


roles = st.sampled_from(["system", "user"])
told = st.lists(texts | values, max_size=4).map(told_apart)
prompts = st.lists(st.tuples(roles, told), min_size=1, max_size=3).map(tuple)


specs = st.sampled_from(["identity", "strip", "json:a.b|strip", "repr", "}", "json:}{", "x|y"])
pieces = st.one_of(
    st.fixed_dictionaries({"text": st.text(max_size=3)}),
    st.fixed_dictionaries({"size": st.integers(-1, 3), "sha256": st.just("0" * 64)}),
    st.fixed_dictionaries(
        {"input": st.sampled_from(["topic", "", "a b", "{x}", "1"])},
        optional={"through": specs, "or": st.lists(specs, max_size=2)},
    ),
    st.fixed_dictionaries(
        {"answer": st.sampled_from(["a", "b#2", "none", " "])}, optional={"through": specs}
    ),
    st.just({"end": True}),
    st.sampled_from([None, {}, 3]),
)
any_lesson = st.lists(
    st.tuples(st.sampled_from(["user", "", "human", " "]), st.lists(pieces, max_size=3)), max_size=3
)


@given(st.dictionaries(st.sampled_from(["a", "b#2", "c"]), any_lesson))
def test_whatever_a_file_says_a_learner_takes_what_was_read(tasks: Any) -> None:
    try:
        lessons = {task: lesson_from_plain({"messages": m}) for task, m in tasks.items()}
    except (LookupError, TypeError, ValueError):
        return
    learner = Learner("f", Outlines("salt", lessons))
    if learner.flow is not None:
        learner.flow.validate_flow()
    calls = [SeenCall(task, ({"role": "user", "content": "hello"},), "a b c d") for task in "abc"]
    learner.watch({"topic": "a topic"}, calls)
    assert json.dumps({t: lesson_to_plain(each, "s") for t, each in learner.lessons.items()})


def number_of(kind: str, name: str) -> int:
    return int(NUMBERS[kind, name])


@given(prompts, st.none() | st.just("salt"), st.sampled_from([(), TOOLS]))
def test_a_prompt_comes_back_from_its_lesson(prompt: Any, salt: str | None, tools: Any) -> None:
    plain = json.loads(json.dumps(lesson_to_plain(lesson_of(prompt, tools, NAMES), salt)))
    lesson = lesson_from_plain(plain)
    assert revealed(lesson, prompt, number_of, "salt") == prompt
    assert has_tools(lesson, tools, "salt")
    assert not has_tools(lesson, (*tools, *TOOLS), "salt")
    if salt is not None:
        literals = {p for _, parts in prompt for p in parts if isinstance(p, str) and len(p) > 3}
        literals |= {"look_up", "Finds a word."}
        assert not [text for text in literals if text in json.dumps(plain, ensure_ascii=False)]


@given(prompts, prompts)
def test_a_lesson_shows_no_more_than_the_prompt_has(one: Any, other: Any) -> None:
    """What another prompt reveals of a lesson, both have in common."""
    lesson = lesson_from_plain(lesson_to_plain(lesson_of(one, (), NAMES), "salt"))
    shown = revealed(lesson, other, number_of, "salt")
    assert agreement(shown, other) == agreement(agreement(shown, one), other)
