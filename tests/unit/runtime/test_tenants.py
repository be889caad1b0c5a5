"""Programs of several tenants in one table: a call finds, takes and feeds its own tenant's only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grape_lc.engine.base import CallRequest
from grape_lc.flow import Sampling
from grape_lc.runtime.ahead import Ahead
from grape_lc.runtime.programs import PromptTable
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock
from tests.unit.runtime.tables import CharacterText, Engine, chain, finish
from tests.unit.runtime.test_ahead import PLAN, OpenPrompts, answer, draft, plan

TENANTS = ("", "a", "b")


class Appended(OpenPrompts):
    """Keeps the text that open prompts get."""

    def __init__(self) -> None:
        super().__init__()
        self.appended = ""

    async def append(
        self, key: str, ids: Sequence[int], hops: int, final: bool, source: str | None
    ) -> None:
        self.appended += "".join(map(chr, ids))


async def opened(engine: OpenPrompts, *tenants: str) -> Ahead:
    """A program of each tenant, with the same input; its name is ``p`` and the tenant's."""
    ahead = Ahead(engine, enabled=True)
    for tenant in tenants:
        flow = chain().model_dump(mode="json")
        await ahead.open_program(f"p{tenant}", flow, {"topic": "bees"}, tenant)
    return ahead


async def test_equal_prompts_are_found_in_the_own_tenants_program() -> None:
    engine = OpenPrompts()
    ahead = await opened(engine, *TENANTS)
    for tenant in ("b", "", "a"):
        sampled: dict[str, Any] = {"tenant": tenant, "sampling": Sampling(temperature=1)}
        bound = await ahead.begin_call(plan(**sampled))
        assert (bound.program, bound.found_by) == (f"p{tenant}", "content")
        await ahead.call_text(bound, PLAN, 9)
        await ahead.end_call(bound, complete=True)
        found_by, key = await answer(ahead, draft(**sampled), "a draft")
        assert (found_by, key in engine.open_now) == ("content", True)
        assert key is not None
        assert engine.open_now[key].tenant == tenant
    assert ahead.table.counts["ambiguous"] == 0


async def test_nothing_is_found_in_anothers_program() -> None:
    ahead = await opened(OpenPrompts(), "a")
    assert await answer(ahead, plan(program="pa", task="plan", tenant="a"), PLAN) == ("name", None)
    for tenant in ("b", ""):
        assert await answer(ahead, draft(tenant=tenant), "x") == ("none", None)
    assert ahead.table.counts["matched_by_content"] == 0


@pytest.mark.parametrize("tenant", ["b", ""])
async def test_a_guessed_name_is_worth_nothing(tenant: str) -> None:
    """Neither is the open prompt handed over, nor is anything fed to it, nor does it go."""
    engine = OpenPrompts()
    ahead = await opened(engine, "a")
    before = dict(engine.open_now)
    spy = await ahead.begin_call(plan(program="pa", task="plan", tenant=tenant))
    assert (spy.program, spy.task, spy.key, spy.found_by) == (None, None, None, "none")
    assert (spy.hint.program, spy.hint.task, spy.hint.feeds) == (None, None, False)
    await ahead.call_text(spy, "poison " * 9, 9)
    await ahead.end_call(spy, complete=True)
    assert await answer(ahead, draft(program="pa", task="draft", tenant=tenant), "x") == (
        "none",
        None,
    )
    assert engine.open_now == before
    assert ahead.table.counts["program_of_another_tenant"] == 2
    own = {"program": "pa", "tenant": "a"}
    assert (await answer(ahead, plan(task="plan", **own), PLAN))[0] == "name"
    found_by, key = await answer(ahead, draft(task="draft", **own), "a draft")
    assert (found_by, key in before) == ("name", True)


async def test_a_name_guessed_too_early_is_worth_nothing() -> None:
    """The program is opened while the call that names it still runs."""
    engine = Appended()
    ahead = await opened(engine)
    spy = await ahead.begin_call(plan(program="pa", task="plan", tenant="b"))
    await ahead.open_program("pa", chain().model_dump(mode="json"), {"topic": "bees"}, "a")
    await ahead.call_text(spy, "poison " * 9, 9)
    await ahead.end_call(spy, complete=True)
    assert engine.appended == ""
    own = await ahead.begin_call(plan(program="pa", task="plan", tenant="a"))
    await ahead.call_text(own, PLAN, 9)
    assert PLAN[:8] in engine.appended


def test_branches_that_one_tenant_takes_say_nothing_of_anothers() -> None:
    table, engine = PromptTable(CharacterText(), chunk=4), Engine()
    for number in range(3):  # this tenant never comes to the draft
        engine.apply(table.open_program(f"a{number}", chain(), {"topic": "bees"}, "a"))
        finish(table, engine, "plan", PLAN, program=f"a{number}")
        engine.apply(table.close_program(f"a{number}"))
    before = table.counts["unlikely"]
    engine.apply(table.open_program("b", chain(), {"topic": "bees"}, "b"))
    assert table.counts["unlikely"] == before
    engine.apply(table.open_program("a", chain(), {"topic": "bees"}, "a"))
    assert table.counts["unlikely"] > before


WORDS = st.sampled_from(["bees", "ants"])


@settings(max_examples=40, deadline=None)
@given(
    programs=st.lists(st.tuples(st.sampled_from(TENANTS), WORDS), min_size=1, max_size=5),
    calls=st.lists(
        st.tuples(
            st.sampled_from(TENANTS),
            st.sampled_from(["plan", "draft"]),
            WORDS,
            st.one_of(st.none(), st.integers(0, 4)),
            st.booleans(),
        ),
        max_size=14,
    ),
)
async def test_no_call_is_part_of_anothers_program(programs: Any, calls: Any) -> None:
    """Texts are the same for all, names are guessed: table and scripted engine agree."""
    engine = OpenPrompts()
    ahead = Ahead(engine, enabled=True)
    scripted = ScriptedEngine(PLAN, clock=VirtualClock())
    owner: dict[str | None, str] = {}
    ids: dict[str | None, str] = {}
    for number, (tenant, topic) in enumerate(programs):
        flow, inputs = chain(), {"topic": topic}
        await ahead.open_program(f"r{number}", flow.model_dump(mode="json"), inputs, tenant)
        owner[f"r{number}"] = tenant
        ids[scripted.open_program(flow, inputs, tenant)] = f"r{number}"
    for tenant, task, topic, guess, greedy in calls:
        text = f"Plan {topic}" if task == "plan" else f"About {topic}: {PLAN} Go!"
        system = [{"role": "system", "content": "Write."}] if task == "draft" else []
        fields: dict[str, Any] = {} if guess is None else {"task": task, "program": f"r{guess}"}
        request = CallRequest(
            messages=(*system, {"role": "user", "content": text}),
            tenant=tenant,
            sampling=Sampling(temperature=0 if greedy else 1),
            **fields,
        )
        bound = await ahead.begin_call(request)
        if bound.program is not None:
            assert owner[bound.program] == tenant
        if bound.key is not None:
            assert engine.open_now[bound.key].tenant == tenant
        await ahead.call_text(bound, PLAN, 9)
        await ahead.end_call(bound, complete=True)
        ahead.table.validate()
        named = {f"r{at}": at for at in range(len(programs))}
        program = fields.get("program")
        if program in named:
            back = {own: there for there, own in ids.items()}
            request = request.model_copy(update={"program": back[program]})
        for _ in scripted.stream(request):
            pass
        call = scripted.calls[-1]
        if bound.program is not None:
            assert (ids[call.program], call.task) == (bound.program, bound.task)
            assert call.found_by == bound.found_by
        else:
            assert call.found_by == "none"
