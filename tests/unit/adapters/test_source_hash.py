"""source_hash: the same for the same code in every process, another one for changed prompts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grape_lc import ChatGrape, ScriptedEngine, attach
from grape_lc.adapters.source_hash import source_hash
from grape_lc.adapters.source_names import steady
from tests.shapes import SHAPES, Shape

# A program of two modules, with everything that a prompt is usually made of.
MAIN = """
import functools
import os
from typing import Annotated, TypedDict
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.output_parsers import StrOutputParser
from langgraph.graph import START, StateGraph
from grape_lc import ChatGrape
from texts import IMPORTED, describe
import texts

llm = ChatGrape(engine=None)
PLAN = "Plan for {problem}"
HEAD = "You are careful. "
LONG = HEAD + "Write code."
TEMPLATE = ChatPromptTemplate.from_messages([("system", "Chain system"), ("user", "{plan}")])
chain = TEMPLATE | llm | StrOutputParser()
KEY = os.environ.get("SOME_KEY", "none")
FROM_FILE = open(os.environ["PROMPT_FILE"]).read()

class State(TypedDict, total=False):
    problem: str
    plan: str
    notes: Annotated[list, lambda a, b: a + b]

def helper(text):
    return "Helper says " + text

class Agent:
    def __init__(self, style):
        self.style = style
    def __call__(self, state):
        return {"plan": llm.invoke(self.style + self.more()).content}
    def more(self):
        return "method text"

def plan(state):
    # plan's comment
    return {"plan": llm.invoke(PLAN.format(**state) + helper(KEY) + FROM_FILE).content}

def make(prompt):
    def inner(state):
        return {"plan": llm.invoke(prompt + LONG).content}
    return inner

async def imported(state):
    return {"plan": (await llm.ainvoke(IMPORTED + texts.BY_ATTRIBUTE + describe(state))).content}

def route(state):
    return "made" if "x" in state.get("plan", "") else "imported"

def partly(style, state):
    return {"plan": chain.invoke({"plan": style})}

def build():
    builder = StateGraph(State)
    builder.add_node("plan", plan)
    builder.add_node("made", make("Closed over"))
    builder.add_node("agent", Agent("Instance text"))
    builder.add_node("imported", imported)
    builder.add_node("partly", functools.partial(partly, "Partial text"))
    builder.add_node("chain", TEMPLATE)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", route, ["made", "imported"])
    builder.add_edge("made", "agent")
    builder.add_edge("imported", "partly")
    builder.add_edge(["agent", "partly"], "chain")
    return builder.compile()

graph = build()
"""
TEXTS = """
from other import SUFFIX
IMPORTED = "Imported text"
BY_ATTRIBUTE = "Attribute text"
def describe(state):
    return "Described " + SUFFIX
"""
OTHER = 'SUFFIX = "Third module"\n'
FILE = "a prompt of several words"


def hash_of(folder: Path, *, as_main: bool = False, **environment: str) -> str:
    tail = "import sys; from grape_lc.adapters.source_hash import source_hash\n"
    if as_main:
        (folder / "run.py").write_text(
            (folder / "app.py").read_text() + tail + "print(source_hash(graph))"
        )
        command = [sys.executable, "run.py"]
    else:
        command = [sys.executable, "-c", f"{tail}import app; print(source_hash(app.graph))"]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{Path.cwd()}{os.pathsep}{folder}",
        "PROMPT_FILE": str(folder / "prompt.txt"),
        **environment,
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def program(tmp_path):
    (tmp_path / "app.py").write_text(MAIN)
    (tmp_path / "texts.py").write_text(TEXTS)
    (tmp_path / "other.py").write_text(OTHER)
    (tmp_path / "prompt.txt").write_text(FILE)
    return tmp_path


def test_it_is_the_same_in_another_process_and_environment(program):
    first = hash_of(program, PYTHONHASHSEED="1")
    assert len(first) == 64
    assert int(first, 16)
    assert hash_of(program, PYTHONHASHSEED="2", SOME_KEY="another") == first


def test_it_is_the_same_when_the_module_is_the_program(program):
    # The source is a line longer, behind everything that the nodes name.
    assert hash_of(program, as_main=True) == hash_of(program)


CHANGES = {
    "a module's constant": ("app.py", "Plan for", "Make a plan for"),
    "a constant that a constant names": ("app.py", "You are careful", "You are bold"),
    "a function that a node names": ("app.py", "Helper says", "Helper tells"),
    "a closure": ("app.py", "Closed over", "Closed again"),
    "an instance's field": ("app.py", "Instance text", "Another text"),
    "an instance's method": ("app.py", "method text", "a method's text"),
    "a partial": ("app.py", "Partial text", "Part of a text"),
    "a template in a chain": ("app.py", "Chain system", "Chain message"),
    "a branch": ("app.py", '"x" in', '"y" in'),
    "a reducer": ("app.py", "a + b", "b + a"),
    "an edge": ("app.py", '"made", "agent")', '"made", "chain")'),
    "an imported constant": ("texts.py", "Imported text", "Imported words"),
    "an attribute of a module": ("texts.py", "Attribute text", "Attribute words"),
    "a third module": ("other.py", "Third module", "Module three"),
    "a file read at import": ("prompt.txt", "several words", "few words"),
}
SCRIPT = """
import importlib, json, os, sys
from grape_lc import ChatGrape, ScriptedEngine, attach
from grape_lc.adapters.source_hash import source_hash
from tests.shapes import SHAPES, Shape
from grape_lc.adapters.source_names import steady
def fresh():
    for name in ("app", "texts", "other"):
        sys.modules.pop(name, None)
    import linecache; linecache.clearcache(); importlib.invalidate_caches()
    return source_hash(importlib.import_module("app").graph)
before = fresh()
found = {"before": before, "again": fresh()}
for what, (file, old, new) in json.loads(sys.argv[1]).items():
    text = open(file).read()
    assert old in text, what
    open(file, "w").write(text.replace(old, new))
    found[what] = fresh()
    open(file, "w").write(text)
found["after"] = fresh()
print(json.dumps(found))
"""


def test_every_change_of_what_a_prompt_is_made_of_changes_it(program):
    environment = {
        **os.environ,
        "PYTHONPATH": f"{Path.cwd()}{os.pathsep}{program}",
        "PROMPT_FILE": str(program / "prompt.txt"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(CHANGES)],
        cwd=program,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    before = found.pop("before")
    assert found.pop("again") == before
    assert found.pop("after") == before
    assert set(found) == set(CHANGES)
    assert [what for what, value in found.items() if value == before] == []
    assert len(set(found.values())) == len(CHANGES)


def graph_of(source: str):
    """A graph of code that has no source file."""
    space: dict = {"__name__": "nowhere"}
    exec(source, space)  # noqa: S102
    return space["graph"]


RELOADED = """
import importlib, pathlib
import app
from grape_lc.adapters.source_hash import source_hash
before = source_hash(app.graph)
text = pathlib.Path("app.py").read_text()
assert source_hash(app.graph) == before
pathlib.Path("app.py").write_text(text.replace("Plan for", "Make a plan for"))
importlib.reload(app)
assert source_hash(app.graph) != before
pathlib.Path("app.py").write_text(text)
importlib.reload(app)
assert source_hash(app.graph) == before
"""


def test_a_module_that_is_loaded_again_is_read_again(program):
    subprocess.run(
        [sys.executable, "-B", "-c", RELOADED],
        cwd=program,
        env={**os.environ, "PROMPT_FILE": "prompt.txt", "PYTHONPATH": str(Path.cwd())},
        check=True,
    )


INSTALLED = """
import json, pathlib, sys, sysconfig
folder, place = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(place))
# As if it were installed there.
import grape_lc.adapters.source_names as names
names._LIBRARY_FOLDERS = (place,)
from grape_lc.adapters.source_hash import source_hash
found = []
for text in ("Plan for", "Make a plan for"):
    for name in ("app", "texts", "other"):
        source = (folder / f"{name}.py").read_text().replace("Plan for", text)
        source = source.replace("from texts", "from the_pkg.texts").replace(
            "import texts", "import the_pkg.texts as texts"
        ).replace("from other", "from .other")
        (place / "the_pkg").mkdir(exist_ok=True)
        (place / "the_pkg" / f"{name}.py").write_text(source)
        for module in ("the_pkg.app", "the_pkg.texts", "the_pkg.other", "the_pkg"):
            sys.modules.pop(module, None)
    import importlib, linecache
    importlib.invalidate_caches(); linecache.clearcache()
    module = importlib.import_module("the_pkg.app")
    assert names.is_library("the_pkg.app") and names.is_library("the_pkg.texts")
    found.append(source_hash(module.graph))
print(json.dumps(found))
"""


def test_a_graph_of_an_installed_package_counts_in_full(program, tmp_path):
    (tmp_path / "site").mkdir()
    done = subprocess.run(
        [sys.executable, "-B", "-c", INSTALLED, str(program), str(tmp_path / "site")],
        env={**os.environ, "PROMPT_FILE": str(program / "prompt.txt")},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = json.loads(done.stdout)
    assert before != after


NOWHERE = """
from typing import TypedDict
from langgraph.graph import START, StateGraph
class State(TypedDict):
    x: str
TEXT = "a constant"
def node(state):
    return {"x": "a literal" + TEXT}
graph = StateGraph(State).add_node("n", node).add_edge(START, "n").compile()
"""


def test_code_without_source_counts_as_compiled():
    before = source_hash(graph_of(NOWHERE))
    assert source_hash(graph_of(NOWHERE)) == before
    assert source_hash(graph_of(NOWHERE.replace("a literal", "literally"))) != before
    assert source_hash(graph_of(NOWHERE.replace("a constant", "constantly"))) != before


def test_a_run_does_not_change_it():
    graph = graph_of(NOWHERE)
    before = source_hash(graph)
    graph.invoke({"x": "y"})
    assert source_hash(graph) == before
    assert source_hash(graph.with_config(tags=["seen"])) == before


def test_a_confused_parser_is_asked_again() -> None:
    answers: list[BaseException | str] = [SystemError("depth mismatch"), SystemError(), "tree"]

    def parse() -> str:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert steady(parse) == "tree"
    answers += [SystemError()] * 4
    with pytest.raises(SystemError):
        steady(parse)


def built(shape: Shape):
    return shape.build(ChatGrape(engine=ScriptedEngine("an answer")))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape_of_graph_has_one_hash(shape):
    """Made again, copied, and attached."""
    graph = built(shape)
    before = source_hash(graph)
    assert source_hash(built(shape)) == before
    assert source_hash(attach(graph, learn=False)) == before
    assert source_hash(graph.with_config(tags=["seen"])) == before


def test_shapes_differ():
    assert len({source_hash(built(shape)) for shape in SHAPES}) == len(SHAPES)
