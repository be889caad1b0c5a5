"""Which parts of vLLM this package touches, read from its source.

Each attribute access in ``grape_lc/engine/vllm_*.py`` has an object in front of the dot. The tables
below say what kind of object of vLLM a name stands for; from there on the kinds of attributes
follow. A name that is in no table is an error, so that none is forgotten: the lists of parts in
``vllm_parts`` are compared with what is found here.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[2] / "grape_lc" / "engine"

MIXINS = ("state", "room", "life", "insight", "step", "counted")
"""Modules whose ``self`` is a scheduler of vLLM."""

IN_CORE = (
    *MIXINS,
    "adoption",
    "counts",
    "kv",
    "open_prompts",
    "staging",
    "steplog",
    "utilities",
    "views",
)
"""Modules that run inside the engine core."""

FRONT = ("engine", "requests", "figures", "profile", "tool_parsers")
"""Modules that run in the host, with vLLM's front end."""

# What a name, or a path of our own objects, stands for; ``*`` behind a kind: several of it.
EVERYWHERE = {
    "self.requests": "request*",
    "prompt.request": "request",
    "request": "request",
    "opened": "request",
    "r": "request",
    "scheduler": "scheduler",
    "self._scheduler": "scheduler",
}
BY_MODULE: dict[str, dict[str, str]] = {
    "life": {
        "sampling": "sampling_params",
        "output": "engine_core_output",
        "engine_outputs": "engine_core_outputs",
    },
    "step": {"output": "scheduler_output", "step": "scheduler_output"},
    "insight": {"output": "scheduler_output"},
    "counted": {"output": "scheduler_output"},
    "steplog": {"output": "scheduler_output", "requests": "request*"},
    "counts": {"config": "kv_cache_config", "tensor": "kv_cache_tensor", "requests": "request*"},
    "kv": {
        "config": "vllm_config",
        "parallel": "parallel_config",
        "kv_cache_manager": "kv_cache_manager",
        "self._manager": "kv_cache_manager",
        "self._pool": "block_pool",
        "self._groups": "group*",
        "group": "group",
        "manager": "group",
        "block": "block",
        "blocks": "block*",
        "cached": "kv_cache_blocks",
    },
    "staging": {
        "waiting": "queue",
        "holding": "queue",
        "self.waiting": "queue",
        "self.holding": "queue",
    },
    "utilities": {"core": "engine_core", "EngineCore": "engine_core"},
}
FRONT_NAMES: dict[str, dict[str, str]] = {
    "engine": {
        "AsyncLLM": "async_llm",
        "self._llm": "async_llm",
        "manager": "engine_manager",
        "self._config": "vllm_config",
        "config": "vllm_config",
        "cache": "cache_config",
        "engine_args": "engine_args",
        "out": "request_output",
        "completion": "completion_output",
        "params": "sampling_params",
        "current_platform": "platform",
    },
    "requests": {
        "self._config": "vllm_config",
        "config": "vllm_config",
        "params": "sampling_params",
        "self._renderer": "renderer",
        "self._chat": "chat_params",
        "current_platform": "platform",
    },
    "figures": {
        "config": "vllm_config",
        "model": "model_config",
        "parallel": "parallel_config",
        "current_platform": "platform",
    },
    "profile": {
        "config": "vllm_config",
        "model": "model_config",
        "cache": "cache_config",
        "parallel": "parallel_config",
        "speculative": "speculative_config",
        "current_platform": "platform",
    },
    "tool_parsers": {"ParserManager": "parser_manager", "ToolParserManager": "tool_parser_manager"},
}
# The kind of an attribute, by that of the object that has it.
LEADS = {
    ("scheduler", "requests"): "request*",
    ("scheduler", "running"): "request*",
    ("scheduler", "waiting"): "queue",
    ("scheduler", "kv_holding_waiting"): "queue",
    ("scheduler", "kv_cache_manager"): "kv_cache_manager",
    ("scheduler", "kv_cache_config"): "kv_cache_config",
    ("scheduler", "vllm_config"): "vllm_config",
    ("scheduler", "scheduler_config"): "scheduler_config",
    ("kv_cache_manager", "block_pool"): "block_pool",
    ("kv_cache_manager", "coordinator"): "coordinator",
    ("coordinator", "single_type_managers"): "group*",
    ("group", "block_pool"): "block_pool",
    ("request", "sampling_params"): "sampling_params",
    ("request", "prefill_stats"): "prefill_stats",
    ("vllm_config", "model_config"): "model_config",
    ("vllm_config", "cache_config"): "cache_config",
    ("vllm_config", "device_config"): "device_config",
    ("vllm_config", "parallel_config"): "parallel_config",
    ("vllm_config", "scheduler_config"): "scheduler_config",
    ("vllm_config", "speculative_config"): "speculative_config",
    ("async_llm", "engine_core"): "core_client",
    ("async_llm", "output_processor"): "output_processor",
    ("core_client", "resources"): "resources",
    ("resources", "engine_manager"): "engine_manager",
    ("engine_core", "scheduler"): "scheduler",
    ("engine_core", "vllm_config"): "vllm_config",
}
_OURS = """
_FINISH _LEVELS _LIMITS _REFUSALS args c call checks chosen config core cost dict executor extra
fields found hint how item kwargs late level limit load logger m message name outcome outputs
part plan prompt ran references request requests sampling scheduled self snapshot step table
tokenizer victim view views waiting why
"""
OURS = frozenset(_OURS.split())
"""Names in front of a dot that are no object of vLLM, or plain values of one."""

# Members of enumerations of vLLM; used as ``Name.MEMBER``.
ENUMERATIONS = (
    "RequestStatus",
    "PauseState",
    "SchedulingPolicy",
    "SamplingType",
    "RequestOutputKind",
)
_OF_COLLECTIONS = frozenset({"get", "pop"})


def source(module: str) -> ast.Module:
    return ast.parse((ENGINE / f"vllm_{module}.py").read_text())


class Reader(ast.NodeVisitor):
    """Collects what one module touches.

    touched: attributes by kind of object. unknown: names in front of a dot that no table has.
    """

    def __init__(self, module: str) -> None:
        front = module in FRONT
        self._names = FRONT_NAMES[module] if front else {**EVERYWHERE, **BY_MODULE.get(module, {})}
        self._names = dict(self._names)
        if module in MIXINS:
            self._names["self"] = "scheduler"
        self.touched: defaultdict[str, set[str]] = defaultdict(set)
        self.unknown: set[str] = set()
        tree = source(module)
        self._ours = OURS | _imported(tree)
        self.visit(tree)

    def kind(self, node: ast.expr) -> str | None:
        """What kind of object of vLLM an expression is; None: none."""
        named = self._names.get(ast.unparse(node))
        if named is not None:
            return named
        if isinstance(node, ast.Attribute):
            base = self.kind(node.value)
            return None if base is None else LEADS.get((base, node.attr))
        if isinstance(node, ast.Subscript):
            return _one_of(self.kind(node.value))
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in _OF_COLLECTIONS:
                return _one_of(self.kind(function.value))
            if isinstance(function, ast.Name) and function.id == "super":
                return self._names.get("self")
        return None

    def touch(self, owner: ast.expr, name: str) -> None:
        kind = self.kind(owner)
        if kind is not None:
            if not kind.endswith("*"):
                self.touched[kind].add(name)
        elif isinstance(owner, ast.Name):
            if owner.id in ENUMERATIONS:
                self.touched[owner.id].add(name)
            elif owner.id not in self._ours:
                self.unknown.add(owner.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.touch(node.value, node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """``getattr(x, "name")`` and ``hasattr`` touch it as well."""
        function = node.func
        if isinstance(function, ast.Name) and function.id in {"getattr", "hasattr"}:
            owner, name = node.args[:2]
            if isinstance(name, ast.Constant):
                self.touch(owner, str(name.value))
        self.generic_visit(node)


def _imported(tree: ast.Module) -> set[str]:
    """Names that a module imports from anywhere but vLLM."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] != "vllm"
        ):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return found


def _one_of(kind: str | None) -> str | None:
    return kind.removesuffix("*") if kind is not None and kind.endswith("*") else None


def touched(modules: tuple[str, ...]) -> dict[str, set[str]]:
    """Attributes that these modules touch, by kind of object."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules:
        for kind, names in Reader(module).touched.items():
            found[kind] |= names
    return dict(found)


def own_names() -> set[str]:
    """Methods and attributes that our mixins give to a scheduler."""
    names: set[str] = set()
    for module in MIXINS:
        for node in ast.walk(source(module)):
            if isinstance(node, ast.ClassDef):
                names |= {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for target in targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self":
                        names.add(part.attr)
    return names


def imports(modules: tuple[str, ...]) -> set[tuple[str, str]]:
    """Names that these modules import from vLLM, each with the module of vLLM that has it."""
    return {
        (node.module, alias.name)
        for module in modules
        for node in ast.walk(source(module))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vllm"
        for alias in node.names
    }
