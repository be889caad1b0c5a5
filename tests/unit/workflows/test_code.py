import ast

import pytest
from pydantic import Field

from grape_lc.workflow_package import load_workflow, workflows_folder
from tests.unit.workflows import recorder

code = load_workflow("code")
STAGES = ["requirements", "design", "plan", "code", "review"]
ROLES = [
    "product_planner",
    "framework_designer",
    "project_planner",
    "code_generator",
    "test_validator",
]


class Recorder(recorder.Recorder):
    """Answers as the roles of the team, in turn."""

    responses: list[str] = Field(default_factory=lambda: [f"<{stage}>" for stage in STAGES])


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
        if source.parent.name == "server":
            continue  # shows how an app of its own is attached
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
