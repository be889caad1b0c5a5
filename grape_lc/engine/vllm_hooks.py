"""Checks when an engine starts that vLLM has the parts that ``vllm_parts`` lists, as they were.

If one is missing, takes other arguments or is of another type, open prompts are switched off and
the scheduler is vLLM's own: that serves every call, only not ahead of time.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from grape_lc.engine import vllm_parts as parts
from grape_lc.engine.vllm_parts import Method


def check_hooks(target: Any, stock: Any = None) -> list[str]:
    """What is missing or different; empty if open prompts can work.

    target: a scheduler class (methods are checked) or a scheduler (all parts are checked).
    stock: where to look for methods instead: a subclass has those that it overrides, whether
        or not vLLM has them.
    """
    found = _methods(target if stock is None else stock, parts.METHODS)
    if inspect.isclass(target):
        return found
    if stock is not None:
        found += _taken(type(target), stock)
    found += _attributes(target, parts.ATTRIBUTES)
    for path, names in parts.CONFIG.items():
        found += _names(_reached(target, path), names, f"{path}.")
    for name in ("waiting", "kv_holding_waiting"):
        found += _methods(getattr(target, name, None), parts.QUEUE, f"{name}.")
    manager = getattr(target, "kv_cache_manager", None)
    found += _methods(manager, parts.KV_MANAGER, "kv_cache_manager.")
    found += _names(getattr(manager, "block_pool", None), parts.POOL, "block_pool.")
    groups = _reached(manager, "coordinator.single_type_managers")
    if isinstance(groups, Iterable):
        for group in groups:
            found += _attributes(group, parts.GROUP, f"{type(group).__name__}.")
    else:
        found.append("kv_cache_manager.coordinator.single_type_managers is missing")
    for path, names in parts.CLASSES.items():
        found += check_class(path, names)
    return [*dict.fromkeys(found + check_request())]


def check_class(path: str, names: Iterable[str]) -> list[str]:
    """Which of these fields, members or methods a class lacks; ``path``: module and name."""
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        return [f"{path} is missing: {error}"]
    known = {field for base in kind.__mro__ for field in vars(base).get("__annotations__", ())}
    return [f"{name}.{part} is missing" for part in names if part not in known | {*dir(kind)}]


def check_request() -> list[str]:
    """What a request of this vLLM lacks. One is made to see: most of it is set when it is made."""
    from vllm import SamplingParams
    from vllm.v1.request import Request

    try:
        request = Request("grape-self-test", [1, 2], SamplingParams(max_tokens=1), None)
    except Exception as error:  # noqa: BLE001 - whatever is raised, it is made in another way
        return [f"a Request is made in another way: {error!r}"]
    found = _attributes(request, parts.REQUEST, "Request.")
    found += _names(getattr(request, "sampling_params", None), parts.SAMPLING, "SamplingParams.")
    stats = getattr(request, "prefill_stats", None)
    if stats is not None:
        found += _methods(stats, parts.PREFILL_STATS, "PrefillStats.")
    return found


def _reached(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner


def _names(owner: Any, names: Iterable[str], where: str) -> list[str]:
    return [f"{where}{name} is missing" for name in names if not _has(owner, name)]


def _has(owner: Any, name: str) -> bool:
    try:
        getattr(owner, name)
    except Exception:  # noqa: BLE001 - a property that fails is of no use either
        return False
    return True


def _attributes(owner: Any, wanted: Mapping[str, type | None], where: str = "") -> list[str]:
    found = _names(owner, wanted, where)
    for name, kind in wanted.items():
        if kind is not None and _has(owner, name) and not isinstance(getattr(owner, name), kind):
            other = type(getattr(owner, name)).__name__
            found.append(f"{where}{name} is a {other}, not a {kind.__name__}")
    return found


def _methods(owner: Any, wanted: Mapping[str, Method], where: str = "") -> list[str]:
    found = []
    for name, method in wanted.items():
        function = getattr(owner, name, None)
        if not callable(function):
            found.append(f"{where}{name} is missing")
            continue
        try:
            known = [*inspect.signature(function).parameters.values()]
        except ValueError:
            continue  # compiled, or of Python's own types: it does not say
        found += _arguments(f"{where}{name}", known, method, unbound=inspect.isclass(owner))
    return found


def _arguments(
    name: str, known: list[inspect.Parameter], method: Method, *, unbound: bool
) -> list[str]:
    """Whether a method takes its arguments as it did."""
    if any(p.kind is p.VAR_KEYWORD for p in known):
        return []  # somebody wrapped it
    names = [p.name for p in known if p.kind is not p.VAR_POSITIONAL]
    if unbound and names[:1] == ["self"]:
        del names[0]
    missing = [wanted for wanted in (*method.first, *method.named) if wanted not in names]
    if missing:
        return [f"{name} takes {names}, not {missing}"]
    if tuple(names[: len(method.first)]) != method.first:
        return [f"{name} takes {names}, not {[*method.first]} first"]
    asked = {p.name for p in known if method.closed or p.default is p.empty}
    more = [new for new in names if new in asked and new not in (*method.first, *method.named)]
    if more:
        return [f"{name} takes {names}: {more} is new"]
    return []


def _taken(kind: type, stock: Any) -> list[str]:
    """Methods of ours that would replace one of vLLM's unasked."""
    ours = {
        name
        for base in kind.__mro__
        if base.__module__.startswith("grape_lc.")
        for name, value in vars(base).items()
        if not name.startswith("__") and name not in parts.METHODS
        if callable(value) or isinstance(value, property)
    }
    return [f"{name} is a part of vLLM's own" for name in sorted(ours) if hasattr(stock, name)]
