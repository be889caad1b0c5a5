"""The lists of vLLM's parts are complete: what the source touches, neither more nor less."""

from __future__ import annotations

import ast
import inspect
import textwrap
from importlib import import_module
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from grape_lc.engine import vllm_parts as parts
from tests.contract.simulation import KINDS, make_scheduler
from tests.contract.touched import (
    ENGINE,
    ENUMERATIONS,
    FRONT,
    IN_CORE,
    Reader,
    imports,
    own_names,
    touched,
)

# Modules that touch no object of vLLM, or whose work it is to look for them.
OTHERS = {
    "choice",
    "convert",
    "hooks",
    "messages",
    "parts",
    "scheduler",
    "settings",
    "tools",
    "trace",
}

# Where the lists have what is touched of each kind of object.
LISTED: dict[str, set[str]] = {
    "scheduler": {*parts.METHODS, *parts.ATTRIBUTES, *parts.LOOKED_FOR} - {"watermark_blocks"},
    "request": {*parts.REQUEST},
    "sampling_params": {*parts.SAMPLING},
    "prefill_stats": {*parts.PREFILL_STATS},
    "queue": {name for name in parts.QUEUE if not name.startswith("__")},
    "kv_cache_manager": {*parts.KV_MANAGER, "block_pool", "coordinator", "watermark_blocks"},
    "coordinator": {"single_type_managers"},
    "block_pool": {*parts.POOL},
    "group": {*parts.GROUP},
    "scheduler_config": {*parts.CONFIG["scheduler_config"]},
    "kv_cache_config": {*parts.CONFIG["kv_cache_config"]},
    "vllm_config": {*parts.CONFIG["vllm_config"]},
    "device_config": {*parts.CONFIG["vllm_config.device_config"]},
    "model_config": {*parts.CONFIG["vllm_config.model_config"], "dtype"},
    "parallel_config": {*parts.CONFIG["vllm_config.parallel_config"]},
    # Added to the class by ourselves, and what they read.
    "engine_core": {"scheduler", "vllm_config"},
}
BY_CLASS = {
    "scheduler_output": "vllm.v1.core.sched.output.SchedulerOutput",
    "engine_core_outputs": "vllm.v1.engine.EngineCoreOutputs",
    "engine_core_output": "vllm.v1.engine.EngineCoreOutput",
    "kv_cache_blocks": "vllm.v1.core.kv_cache_manager.KVCacheBlocks",
    "block": "vllm.v1.core.kv_cache_utils.KVCacheBlock",
    "kv_cache_tensor": "vllm.v1.kv_cache_interface.KVCacheTensor",
}

# What the front end touches: of which class. Their attributes are read from the source.
FRONT_CLASSES = {
    "async_llm": "vllm.v1.engine.async_llm.AsyncLLM",
    "core_client": "vllm.v1.engine.core_client.AsyncMPClient",
    "resources": "vllm.v1.engine.core_client.BackgroundResources",
    "engine_manager": "vllm.v1.engine.utils.CoreEngineProcManager",
    "output_processor": "vllm.v1.engine.output_processor.OutputProcessor",
    "vllm_config": "vllm.config.VllmConfig",
    "cache_config": "vllm.config.CacheConfig",
    "model_config": "vllm.config.ModelConfig",
    "parallel_config": "vllm.config.ParallelConfig",
    "scheduler_config": "vllm.config.SchedulerConfig",
    "speculative_config": "vllm.config.SpeculativeConfig",
    "engine_args": "vllm.engine.arg_utils.AsyncEngineArgs",
    "request_output": "vllm.outputs.RequestOutput",
    "completion_output": "vllm.outputs.CompletionOutput",
    "sampling_params": "vllm.SamplingParams",
    "platform": "vllm.platforms.interface.Platform",
    "renderer": "vllm.renderers.BaseRenderer",
    "chat_params": "vllm.renderers.ChatParams",
    "parser_manager": "vllm.parser.parser_manager.ParserManager",
    "tool_parser_manager": "vllm.tool_parsers.ToolParserManager",
}
# A list of our own, and an object of vLLM's metrics, that bear the same name as another object.
SAME_NAME = {("request_output", "append"), ("model_config", "get_num_flops_breakdown")}


def test_every_module_is_read():
    modules = {path.stem.removeprefix("vllm_") for path in ENGINE.glob("vllm_*.py")}
    assert modules == {*IN_CORE, *FRONT} | OTHERS


@pytest.mark.parametrize("module", [*IN_CORE, *FRONT])
def test_every_name_before_a_dot_is_known(module):
    assert Reader(module).unknown == set(), "say in touched.py what they stand for"


def test_the_lists_are_what_the_scheduler_touches():
    found = touched(IN_CORE)
    # Ours, unless vLLM has it too: then it is listed.
    found["scheduler"] -= own_names() - LISTED["scheduler"]
    found["engine_core"] = {n for n in found["engine_core"] if not n.startswith("grape_")}
    # The test of the utilities reads these two: any scheduler has them.
    for name in ENUMERATIONS:
        path = next((path for path in parts.CLASSES if path.endswith(f".{name}")), None)
        if path is not None:
            assert found.pop(name) == {*parts.CLASSES[path]}, name
    for kind, path in BY_CLASS.items():
        assert found.pop(kind) == {*parts.CLASSES[path]}, kind
    for kind in found:
        assert {n for n in found[kind] if not n.startswith("grape_")} == LISTED[kind], kind
    assert {*found} == {*LISTED}


def test_no_name_of_ours_is_one_of_vllm(model_config_dir):
    """A new attribute of vLLM with a name that we use would be overwritten, or overwrite ours."""
    for kind in KINDS:
        base = AsyncScheduler if kind.asynchronous else Scheduler
        stock = make_scheduler(model_config_dir, kind.__class__("stock", base, kind.v2, False))
        both = own_names() & {*vars(stock), *dir(type(stock))}
        assert both <= LISTED["scheduler"] | {"__init__"}


@pytest.mark.parametrize("kind", sorted(touched(FRONT).keys() - {*ENUMERATIONS}))
def test_this_vllm_has_what_the_front_end_touches(kind):
    wanted = {name for name in touched(FRONT)[kind] if (kind, name) not in SAME_NAME}
    assert wanted <= names_of(class_at(FRONT_CLASSES[kind]))


@pytest.mark.parametrize(("module", "name"), sorted(imports((*IN_CORE, *FRONT))))
def test_this_vllm_has_what_is_imported(module, name):
    assert hasattr(import_module(module), name)


def class_at(path: str) -> type:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)  # type: ignore[no-any-return]


def names_of(kind: Any) -> set[str]:
    """Attributes of a class and its objects: those of the class, and what its methods set."""
    names = {*dir(kind)}
    for base in kind.__mro__[:-1]:
        names |= {*vars(base).get("__annotations__", ())}
        try:
            text = inspect.getsource(base)
        except (OSError, TypeError):
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(text))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                names.add(node.attr)
    return names
