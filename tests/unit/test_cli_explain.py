"""``grape explain``: of a graph, traced in the sandbox, and of files; text, JSON and HTML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grape_lc import ScriptedEngine, attach, cli
from grape_lc.adapters.explain import handler_of
from grape_lc.adapters.flow_file import FlowFile
from grape_lc.adapters.load_graph import load_graph
from grape_lc.cli.explain import _notes
from grape_lc.engine import tokens
from grape_lc.engine.tokens import token_counter
from grape_lc.errors import ModelNotFoundError
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.client import GrapeEngine

APP = """
from typing import TypedDict

from langgraph.graph import START, StateGraph

from grape_lc import ChatGrape

llm = ChatGrape(temperature=0, max_tokens=60)


class State(TypedDict, total=False):
    topic: str
    facts: str
    text: str


def facts(state: State) -> State:
    return {"facts": llm.invoke(f"On 2026-11-30: {'rules ' * 60} about {state['topic']}").text}


def write(state: State) -> State:
    return {"text": llm.invoke(f"Write by these facts: {state['facts']}").text}


builder = StateGraph(State)
builder.add_sequence([facts, write])
builder.add_edge(START, "facts")
graph = builder.compile(name="article")
"""


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, ["explain", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "explained_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    # Loading the graph here adds to it.
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    return tmp_path


@pytest.fixture
def flow_file(tmp_path: Path) -> Path:
    flow = TaskFlow(name="two")
    flow.add_variable(InputVar("problem"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_task("{problem}: plan it. " + "Keep to the rules. " * 20, "plan")
    flow.add_variable(OutputVar("code"))
    flow.add_task("Code for {plan}", "code")
    path = tmp_path / "flow.json"
    path.write_text(flow.to_json())
    return path


def test_a_graph_is_traced_and_its_last_runs_are_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine("an answer")
    monkeypatch.setattr(GrapeEngine, "shared", lambda *args, **options: engine)
    attached: Any = attach(load_graph("explained_app:graph", folder))
    for topic in ("bees", "rivers"):
        attached.invoke({"topic": topic})
    handler = handler_of(attached)
    assert handler is not None
    handler.savings.flush()
    code, out, _ = run("explained_app:graph", "--html", "page.html", "--json", "data.json")
    assert code == 0
    data = json.loads((folder / "data.json").read_text())
    assert [(call["task"], call["source"]) for call in data["calls"]] == [
        ("facts", "traced"),
        ("write", "traced"),
    ]
    assert [edge["upstream"] for edge in data["edges"]] == ["facts"]
    assert [advice["kind"] for advice in data["advice"]] == ["volatile"]
    # What the two runs of this process took, found by the hash of the code.
    assert [call["last"]["calls"] for call in data["calls"]] == [2, 2]
    for text in ("facts -> write", "'2026-11-30' looks like a date", "last 2 runs"):
        assert text in out
    page = (folder / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "facts -&gt; write" in page


def test_prompts_that_the_code_declares_are_told_apart(folder: Path) -> None:
    declared = APP.replace(
        "def write(",
        """from grape_lc import declares_prompt


@declares_prompt("By the facts {found|strip}, write", reads={"found": "facts"})
def write(""",
    )
    (folder / "declared_app.py").write_text(declared)
    code, out, _ = run("declared_app:graph", "--json", "-")
    assert code == 0
    data = json.loads(out)
    assert {call["task"]: call["source"] for call in data["calls"]} == {
        "facts": "traced",
        "write": "declared",
    }
    write = next(call for call in data["calls"] if call["task"] == "write")
    [part] = write["prompt"]["streams_in"]
    assert (part["from"], part["slot"].endswith("|strip}")) == ("facts", True)


def test_what_names_no_graph_is_one_line(folder: Path) -> None:
    for target, said in (
        ("explained_app:nothing", "explained_app has no 'nothing'"),
        ("no_such_module:graph", "no module 'no_such_module'"),
        ("nothing", "names no graph"),
    ):
        code, out, err = run(target)
        assert (code, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1


def test_a_flow_is_explained_as_text_and_data(flow_file: Path) -> None:
    code, out, err = run(str(flow_file))
    assert (code, err) == (0, "")
    for text in ("Graph 'two'", "plan -> code", "declared", "{problem} stands before"):
        assert text in out
    code, out, err = run(str(flow_file), "--json", "-")
    data = json.loads(out)
    assert (data["graph"], data["estimated"], data["runs"]) == ("two", True, [])


def test_tokens_are_counted_by_a_model(flow_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def counter(model: str | None, *, progress: Any) -> Any:
        asked.append(model)
        return lambda text: len(text.split())

    monkeypatch.setattr(tokens, "token_counter", counter)
    _, out, _ = run(str(flow_file), "--model", "some/model", "--json", "-")
    data = json.loads(out)
    assert asked == ["some/model"]
    assert data["estimated"] is False
    assert data["calls"][1]["prompt"]["known_at_start"] == 2


def test_a_model_without_a_tokenizer_is_one_line(flow_file: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    code, _, err = run(str(flow_file), "--model", str(tmp_path))
    assert code == 2
    assert "tokenizer.json" in err
    (tmp_path / "tokenizer.json").write_text("{}")
    code, _, err = run(str(flow_file), "--model", str(tmp_path))
    assert code == 2
    assert "is no tokenizer" in err


def test_the_tokenizer_of_a_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    vocabulary = {"[UNK]": 0, "one": 1, "two": 2}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
        "added_tokens": [],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    count = token_counter(str(tmp_path), progress=print)
    assert [count(text) for text in ("", "one", "one two three")] == [0, 1, 3]


def test_a_hub_name_has_no_folder_to_count_by() -> None:
    with pytest.raises(ModelNotFoundError, match="give a folder"):
        token_counter("some-org/some-model", progress=print)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json", "/no/such/folder/x.json"], "there is no folder"),
        (["--html", "."], "it is a folder"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_trace(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "grape_lc.adapters.sandbox.run_sandboxed",
        lambda *args, **options: pytest.fail("traced"),
    )
    code, _, err = run("app:graph", *arguments)
    assert code == 2
    assert said in err


def test_what_a_trace_says_of_itself_is_not_named_twice() -> None:
    flow = TaskFlow(name="x")
    warnings = ("trace of graph 'x': one path", "something else")
    file = FlowFile(graph="x", flow=flow, warnings=warnings)
    assert list(_notes(file)) == ["trace of graph 'x': one path", "trace: something else"]


def test_a_bad_example_is_one_line() -> None:
    code, _, err = run("app:graph", "--example", "{")
    assert code == 2
    assert "the example is no JSON" in err
