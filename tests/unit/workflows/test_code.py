import ast
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from pydantic import Field

from grape_lc.workflow_package import load_workflow, workflows_folder

code = load_workflow("code")
STAGES = ["requirements", "design", "plan", "code", "review"]
ROLES = [
    "product_planner",
    "framework_designer",
    "project_planner",
    "code_generator",
    "test_validator",
]


class Recorder(FakeListChatModel):
    """Answers from a list; keeps the prompts and options of each call."""

    responses: list[str] = Field(default_factory=lambda: [f"<{stage}>" for stage in STAGES])
    seen: list[tuple[list[BaseMessage], dict[str, Any]]] = Field(default_factory=list)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        options = {k: v for k, v in kwargs.items() if k == "max_tokens"}
        self.seen.append((messages, options))
        return super()._generate(messages, *args, **kwargs)


def test_each_role_writes_its_document():
    state = code.build(Recorder()).invoke({"problem": "Sort a list."})
    assert state == {"problem": "Sort a list.", **{stage: f"<{stage}>" for stage in STAGES}}


def test_each_role_reads_what_it_needs_and_no_more():
    llm = Recorder()
    code.build(llm).invoke({"problem": "<problem>"})
    prompts = [code.PRODUCT_PLANNER, code.FRAMEWORK_DESIGNER, code.PROJECT_PLANNER]
    prompts += [code.CODE_GENERATOR, code.TEST_VALIDATOR]
    assert [messages[0].content for messages, _ in llm.seen] == prompts
    reads = []
    for messages, _ in llm.seen:
        assert [message.type for message in messages] == ["system", "human"]
        text = str(messages[1].content)
        reads.append([name for name in ["problem", *STAGES] if f"<{name}>" in text])
    assert reads == [
        ["problem"],
        ["problem", "requirements"],
        ["requirements", "design"],
        ["problem", "design", "plan"],
        ["problem", "requirements", "code"],
    ]


def test_limits_are_bound_for_all_roles_or_by_role():
    llm = Recorder()
    code.build(llm, max_tokens=7).invoke({"problem": "x"})
    assert [options for _, options in llm.seen] == [{"max_tokens": 7}] * 5
    llm = Recorder()
    code.build(llm, max_tokens={"code_generator": 9}).invoke({"problem": "x"})
    assert [options for _, options in llm.seen] == [{}, {}, {}, {"max_tokens": 9}, {}]


def test_it_is_an_ordinary_graph():
    graph = code.build(Recorder())
    assert [name for name in graph.nodes if name != "__start__"] == ROLES
    for source in workflows_folder().rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.startswith("grape_lc") for name in names), source


def test_the_command_prints_every_document(capsys: pytest.CaptureFixture[str]):
    code.main(["--llm", f"{__name__}:Recorder", "--problem", "2"])
    out = capsys.readouterr().out
    for role, stage in zip(ROLES, STAGES, strict=True):
        assert f"## {role}\n\n<{stage}>" in out
    assert code.load_problems()[2].text in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--problem", "999"], "there are problems 0 to"),
        (["--llm", "no.such.module:X"], "no.such.module"),
        (["--llm", "langchain_core:NoSuchModel"], "NoSuchModel"),
        (["--llm", "langchain_core"], "langchain_core"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stop:
        code.main(arguments)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_the_problems_are_many_and_of_the_stated_size():
    problems = code.load_problems()
    assert len(problems) >= 24
    assert len({problem.id for problem in problems}) == len(problems)
    for problem in problems:
        assert 60 <= len(problem.text.split()) <= 250, problem.id
        assert "xample" in problem.text, problem.id


def test_problems_are_read_from_files_and_folders(tmp_path: Path):
    (tmp_path / "b.jsonl").write_text('{"question_id": 7, "question_content": "B"}\n\n')
    (tmp_path / "a.jsonl").write_text(
        '{"question_content": "A", "question_title": "T"}\n{"other": 1}\n[1]\n'
    )
    (tmp_path / "notes.txt").write_text("not read")
    assert code.load_problems(tmp_path) == [("a/1", "T", "A"), ("7", "7", "B")]
    assert code.load_problems(str(tmp_path / "b.jsonl")) == [("7", "7", "B")]


def test_unusable_files_are_named(tmp_path: Path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"question_content": "A"}\n{"question')
    with pytest.raises(ValueError, match="line 2"):
        code.load_problems(broken)
    with pytest.raises(FileNotFoundError, match="missing"):
        code.load_problems(tmp_path / "missing")
    broken.write_text('{"text": "A"}')
    with pytest.raises(ValueError, match="broken"):
        code.load_problems(tmp_path)
