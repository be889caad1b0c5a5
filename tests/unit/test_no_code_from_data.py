"""No module makes code, objects or commands out of data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "grape_lc").rglob("*.py"), *(ROOT / "workflows").rglob("*.py")])

# Modules that turn bytes into objects or code by themselves.
MODULES = frozenset(
    {
        "cloudpickle",
        "code",
        "codeop",
        "dill",
        "imp",
        "joblib",
        "marshal",
        "pickle",
        "runpy",
        "shelve",
    }
    | {"yaml", "jsonpickle", "xmlrpc"}
)
BUILTINS = frozenset({"__import__", "compile", "eval", "exec"})
CALLS = frozenset(
    {
        *("exec_module", "import_module", "load_module", "loads", "load", "popen", "spawn_module"),
        *("getoutput", "getstatusoutput", "system", "Environment", "from_string", "literal_eval"),
    }
)

ALLOWED = {
    # Programs that a model wrote run in a process of their own, without rights: that is its task.
    "grape_lc/bench/confined_child.py": {"compile", "exec"},
    # The user's own code, named on the command line or in langgraph.json; traced in a sandbox.
    "grape_lc/adapters/load_graph.py": {"import_module"},
    "grape_lc/files.py": {"exec_module"},
    # Names that stand in the code of this package.
    "grape_lc/__init__.py": {"import_module"},
    "grape_lc/adapters/sandbox_patches.py": {"import_module"},
    "grape_lc/bench/html_report.py": {"import_module", "Environment"},
    "grape_lc/workflow_package.py": {"import_module"},
    "workflows/_command.py": {"import_module"},
    # Parts of vLLM, and our own scheduler, that are looked for by names in this package.
    "grape_lc/engine/vllm_choice.py": {"import_module"},
    "grape_lc/engine/vllm_hooks.py": {"import_module"},
    # The engine's class: the user's own process names it, over a socket that it made.
    "grape_lc/runtime/host.py": {"import_module"},
}
# ``json.loads`` and the readers of profiles and learned prompts.
HARMLESS = frozenset({"json", "profile_store", "store", "savings"})


def found_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names of what a module uses of the above, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in module or [alias.name for alias in node.names]:
                if name.partition(".")[0] in MODULES:
                    yield name, node.lineno
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in BUILTINS | CALLS - {"load"}:
            yield function.id, node.lineno
        elif isinstance(function, ast.Attribute) and function.attr in CALLS:
            owner = function.value
            of = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if of not in HARMLESS and not (function.attr == "load" and of != "torch"):
                yield function.attr, node.lineno
        for keyword in node.keywords:
            if keyword.arg == "shell":
                yield "shell", node.lineno
            if keyword.arg == "allow_dangerous_deserialization":
                yield keyword.arg, node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_keeps_data_data(path):
    name = path.relative_to(ROOT).as_posix()
    used = dict(found_in(ast.parse(path.read_text(encoding="utf-8"))))
    assert used.keys() <= ALLOWED.get(name, set()), {name: used}


def test_what_is_allowed_is_used():
    for name, allowed in ALLOWED.items():
        used = dict(found_in(ast.parse((ROOT / name).read_text(encoding="utf-8"))))
        assert used.keys() == allowed, name


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from yaml import safe_load",
        "eval('1')",
        "exec(code)",
        "__import__(name)",
        "subprocess.run('ls', shell=True)",
        "os.system('ls')",
        "torch.load(path)",
        "jinja2.Environment()",
        "importlib.import_module(name)",
        "marshal.loads(data)",
    ],
)
def test_it_would_be_seen(code):
    assert list(found_in(ast.parse(code)))
