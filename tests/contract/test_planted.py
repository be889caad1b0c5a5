"""Changes planted in vLLM: the self-test names each of them, or a contract test fails.

A change of a name, of arguments or of a type is for the self-test, which leaves such an engine to
vLLM's own scheduler. What a part *does* it cannot see: for that there are the contract tests, of
which some are run here on a vLLM that behaves otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from grape_lc.engine import vllm_parts as parts
from grape_lc.engine.vllm_choice import (
    CLIENT,
    CONTROL_FIELDS,
    COUNTED,
    OURS,
    why_not_importable,
    why_not_sent,
)
from grape_lc.engine.vllm_hooks import check_hooks, check_request
from tests.contract import test_hooks, test_open_prompts
from tests.contract.simulation import KINDS, Simulation, make_scheduler

GROUPS = "kv_cache_manager.coordinator.single_type_managers"
PATHS = [
    *parts.METHODS,
    *parts.ATTRIBUTES,
    *(f"{path}.{name}" for path, names in parts.CONFIG.items() for name in names),
    *(f"{queue}.{name}" for queue in ("waiting", "kv_holding_waiting") for name in parts.QUEUE),
    *(f"kv_cache_manager.{name}" for name in parts.KV_MANAGER),
    "kv_cache_manager.block_pool",
    "kv_cache_manager.coordinator",
    GROUPS,
    *(f"kv_cache_manager.block_pool.{name}" for name in parts.POOL),
    *(f"{GROUPS}.{name}" for name in parts.GROUP),
]


class Lacking:
    """An object without one part, named by its path; or with ``instead`` in its place."""

    def __init__(self, target: Any, path: str, *instead: Any) -> None:
        self.__target, self.__path, self.__instead = target, path, instead

    def __getattr__(self, name: str) -> Any:
        first, _, rest = self.__path.partition(".")
        if name != first:
            return getattr(self.__target, name)
        if rest:
            value = getattr(self.__target, name)
            if isinstance(value, list | tuple):
                return [Lacking(item, rest, *self.__instead) for item in value]
            return Lacking(value, rest, *self.__instead)
        if self.__instead:
            return self.__instead[0]
        raise AttributeError(name)


@pytest.fixture(scope="module")
def scheduler(model_config_dir):
    return make_scheduler(model_config_dir, KINDS[0])


@pytest.mark.parametrize("path", PATHS)
def test_a_missing_part_is_named(scheduler, path):
    problems = check_hooks(Lacking(scheduler, path))
    assert any(path.rpartition(".")[2] in problem for problem in problems)
    assert all(problem.endswith("is missing") for problem in problems)


@pytest.mark.parametrize(
    "path",
    [
        *(name for name, kind in parts.ATTRIBUTES.items() if kind),
        *(f"{GROUPS}.{name}" for name, kind in parts.GROUP.items() if kind),
    ],
)
def test_another_type_is_named(scheduler, path):
    name = path.rpartition(".")[2]
    (problem,) = check_hooks(Lacking(scheduler, path, object()))
    assert problem.partition(" is a object")[0].endswith(name)


@pytest.mark.parametrize(
    ("path", "function", "problem"),
    [
        ("add_request", lambda request, lane: 0, "['lane'] is new"),
        ("shutdown", lambda timeout: 0, "['timeout'] is new"),
        ("_preempt_request", lambda request, when: 0, "not ['timestamp', 'drop_stale_output']"),
        (
            "_reserve_prefill_lookahead",
            lambda request, num_new_tokens, num_computed_tokens: 0,
            "not ['request', 'num_computed_tokens', 'num_new_tokens'] first",
        ),
        (
            "kv_cache_manager.allocate_slots",
            lambda request, num_new_tokens, new_computed_blocks, num_new_computed_tokens: 0,
            "not ['full_sequence_must_fit']",
        ),
        ("kv_cache_manager.get_computed_blocks", lambda request, key: 0, "['key'] is new"),
        ("waiting.remove_requests", lambda ids: 0, "not ['requests']"),
    ],
)
def test_other_arguments_are_named(scheduler, path, function, problem):
    (found,) = check_hooks(Lacking(scheduler, path, function))
    assert found.endswith(problem)
    assert path.rpartition(".")[2] in found


@pytest.mark.parametrize("name", parts.REQUEST)
def test_a_part_that_a_request_lacks_is_named(monkeypatch, name):
    class Other(Request):
        def __getattribute__(self, asked):
            if asked == name and object.__getattribute__(self, "__dict__").get("made"):
                raise AttributeError(asked)
            return super().__getattribute__(asked)

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.made = True

    monkeypatch.setattr("vllm.v1.request.Request", Other)
    assert f"Request.{name} is missing" in check_request()


def test_a_request_that_is_made_otherwise_is_named(monkeypatch):
    monkeypatch.setattr("vllm.v1.request.Request", lambda request_id, prompt: None)
    (problem,) = check_request()
    assert problem.startswith("a Request is made in another way: TypeError")


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, names in parts.CLASSES.items() for name in names]
)
def test_a_field_or_member_that_is_gone_is_named(monkeypatch, scheduler, path, name):
    kind = path.rpartition(".")[2]
    rest = {part: None for part in parts.CLASSES[path] if part != name}
    monkeypatch.setattr(path, type(kind, (), rest))
    assert f"{kind}.{name} is missing" in check_hooks(scheduler)
    monkeypatch.delattr(path)
    assert any(problem.startswith(f"{path} is missing") for problem in check_hooks(scheduler))


def test_a_method_of_vllm_with_a_name_of_ours_is_named(scheduler):
    class Newer(Scheduler):
        def _drop(self, request):
            """Something else."""

    stock = Newer.__new__(Newer)
    assert check_hooks(scheduler, stock) == ["_drop is a part of vLLM's own"]


# The front end.


def test_a_client_that_sends_otherwise_is_refused():
    class Client:
        add_request_async = abort_requests_async = call_utility_async = None

    class Sent:
        def __init__(self, request_id, tokens):
            """Other fields."""

    engine = import_module("grape_lc.engine.vllm_engine")
    assert why_not_sent(Client(), engine.EngineCoreRequest) is None
    for name in CLIENT:
        lacking = type("Client", (), {other: None for other in CLIENT if other != name})
        assert name in str(why_not_sent(lacking(), engine.EngineCoreRequest))
    assert "Sent: " in str(why_not_sent(Client(), Sent))


def test_the_fields_that_are_checked_are_those_that_are_sent(monkeypatch):
    engine = import_module("grape_lc.engine.vllm_engine")
    seen: dict[str, Any] = {}
    monkeypatch.setattr(engine, "EngineCoreRequest", lambda **fields: seen.update(fields))

    class Llm:
        class engine_core:  # noqa: N801 - as vLLM names it
            @staticmethod
            async def add_request_async(request):
                """Sent."""

    made = engine.VLLMEngine.__new__(engine.VLLMEngine)
    made._llm = Llm
    control = made._control(
        "id", [1], {}, *[None] * (engine.VLLMEngine._control.__code__.co_argcount - 4)
    )
    with pytest.raises(StopIteration):
        control.send(None)
    assert {*seen} == {*CONTROL_FIELDS}


def test_a_module_that_cannot_be_imported_is_refused():
    assert why_not_importable(OURS) is None
    assert why_not_importable(COUNTED) is None
    assert "this vLLM differs" in str(why_not_importable("grape_lc.engine.vllm_nowhere"))


# What a part does.


def holds_nothing(request):
    return False


def forgets_to_hash(self):
    """The hashes of what was appended are missing."""


def takes_no_hit(self, request, *args, **kwargs):
    if not args or args[0] == 0:
        return None
    return STOCK_ALLOCATE(self, request, *args, **kwargs)


STOCK_ALLOCATE = KVCacheManager.allocate_slots
STOCK_FINISHED = Scheduler._update_after_schedule


def tells_no_end(self, scheduler_output):
    """A worker is not told whom to forget."""
    scheduler_output.finished_req_ids.clear()
    STOCK_FINISHED(self, scheduler_output)


@pytest.mark.parametrize(
    ("owner", "name", "change", "test"),
    [
        (
            Scheduler,
            "_holds_kv_blocks",
            staticmethod(holds_nothing),
            test_hooks.test_a_waiting_request_that_holds_kv_is_admitted_with_it,
        ),
        (
            KVCacheManager,
            "allocate_slots",
            takes_no_hit,
            test_open_prompts.test_whole_prompt_in_the_prefix_cache,
        ),
        (
            Scheduler,
            "_update_after_schedule",
            tells_no_end,
            test_hooks.test_a_parked_prompt_is_new_to_the_worker_each_time,
        ),
        (
            Request,
            "update_block_hashes",
            forgets_to_hash,
            test_open_prompts.test_others_find_in_the_prefix_cache_what_was_appended,
        ),
    ],
)
def test_another_behaviour_fails_a_contract_test(
    monkeypatch, model_config_dir, owner, name, change, test
):
    def make(**settings: Any) -> Simulation:
        return Simulation(model_config_dir, KINDS[0], **settings)

    run: Callable[..., None] = test
    run(make)
    monkeypatch.setattr(owner, name, change)
    with pytest.raises((AssertionError, LookupError, RuntimeError)):
        run(make)
