"""Micro-task-level serving for agent graphs on stock vLLM.

Names are loaded on first use, so that ``import grape_lc`` is quick and imports neither vllm,
torch, langchain nor langgraph.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grape_lc.adapters.explain import explain_graph
    from grape_lc.adapters.langchain import ChatGrape
    from grape_lc.adapters.langgraph import attach, declares_prompt, to_taskflow
    from grape_lc.adapters.llm import GrapeLLM
    from grape_lc.errors import GrapeError
    from grape_lc.flow import InputVar, IntermediateVar, OutputVar, Sampling, Targets, TaskFlow
    from grape_lc.runtime.client import GrapeEngine
    from grape_lc.runtime.scripted import ScriptedEngine

__version__ = "0.1.0.dev0"

_HOMES = {
    "ChatGrape": "grape_lc.adapters.langchain",
    "GrapeEngine": "grape_lc.runtime.client",
    "GrapeError": "grape_lc.errors",
    "GrapeLLM": "grape_lc.adapters.llm",
    "InputVar": "grape_lc.flow",
    "IntermediateVar": "grape_lc.flow",
    "OutputVar": "grape_lc.flow",
    "Sampling": "grape_lc.flow",
    "ScriptedEngine": "grape_lc.runtime.scripted",
    "Targets": "grape_lc.flow",
    "TaskFlow": "grape_lc.flow",
    "attach": "grape_lc.adapters.langgraph",
    "declares_prompt": "grape_lc.adapters.declared",
    "explain_graph": "grape_lc.adapters.explain",
    "to_taskflow": "grape_lc.adapters.langgraph",
}

__all__ = [
    "ChatGrape",
    "GrapeEngine",
    "GrapeError",
    "GrapeLLM",
    "InputVar",
    "IntermediateVar",
    "OutputVar",
    "Sampling",
    "ScriptedEngine",
    "Targets",
    "TaskFlow",
    "__version__",
    "attach",
    "declares_prompt",
    "explain_graph",
    "to_taskflow",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'grape_lc' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
