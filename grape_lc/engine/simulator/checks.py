"""What must hold in and after every step; used with ``validate``."""

from __future__ import annotations

from grape_lc.engine.simulator.life import Life
from grape_lc.engine.simulator.room import Row
from grape_lc.scheduler.types import Plan, Stage


def check_step(plan: Plan, rows: list[Row], max_tokens: int, most_rows: int) -> None:
    """Raise AssertionError if a step breaks what no step may break."""
    total = sum(tokens for _, tokens in rows)
    assert total <= plan.budget <= max_tokens, f"{total} of {plan.budget} tokens"
    assert len(rows) <= most_rows, f"{len(rows)} of {most_rows} rows"
    assert len({id(request) for request, _ in rows}) == len(rows), "a request runs twice"
    planned = {item.id for item in (*plan.prefills, *(plan.starts or ()), *plan.opens)}
    both = planned & {victim.id for victim in plan.preempt}
    assert not both, f"planned and preempted: {sorted(both)}"
    for request, tokens in rows:
        view = request.view
        assert tokens >= 1, f"{view.id} runs {tokens} tokens"
        drafts = view.step_tokens - 1 if view.stage is Stage.DECODE else 0
        most = view.tokens - view.hold_back + drafts
        assert view.computed + tokens <= most, (
            f"{view.id}: {view.computed} + {tokens} of {most} tokens"
        )


def check_state(life: Life) -> None:
    """Raise AssertionError if queues, KV and controller contradict each other."""
    queues, controller = life.queues, life.controller
    life.kv.validate(queues.all())
    controller.validate()
    waiting = {r.view.id for r in (*queues.holding, *queues.waiting)}
    assert waiting == set(controller.waiting), "controller and queues differ"
    assert set(queues.opens) == set(controller.opens), "open prompts differ"
    for request in queues.opens.values():
        view = request.view
        assert view.stage is Stage.OPEN, f"{view.id} is open at stage {view.stage}"
        assert not view.output, f"{view.id} sampled {view.output} tokens"
        assert view.computed <= max(0, view.tokens - view.hold_back), f"{view.id} is too far"
    for request in queues.running:
        assert request.view.stage in (Stage.PREFILL, Stage.DECODE), request.view
