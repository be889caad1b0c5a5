"""What the scheduler tells about itself, and whether its tables are sound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from grape_lc.engine.vllm_life import LifeMixin
from grape_lc.scheduler.types import Level, Limit, Plan, Refusal

_LEVELS = {level: f"level_{level.value}" for level in Level}
_LIMITS = {limit: f"limit_{limit.name.lower()}" for limit in Limit}
_REFUSALS = {why: f"not_run_{why.name.lower()}" for why in Refusal}


class InsightMixin(LifeMixin):
    """Statistics, records and validation."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._levels: Counter[Level] = Counter()
        self._limits: Counter[Limit] = Counter()
        self._refusals: Counter[Refusal] = Counter()

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's own step; what it uses of the KV is counted."""
        output = super().schedule(*args, **kwargs)
        if self._off is None:
            free = self._ledger.free_blocks
            self._kv_counts.stepped(output.num_scheduled_tokens, self.requests, free)
        return output

    def _count(self, plan: Plan, ran: Mapping[str, int], *, early: bool) -> None:
        """A step was scheduled."""
        self.grape_counters["held" if plan.limit is Limit.HOLD else "steps"] += 1
        self.grape_counters["steps_with_open"] += early
        self._levels[plan.level] += 1
        self._limits[plan.limit] += 1
        self._refusals.update(plan.refused.values())
        for items in (plan.prefills, plan.starts or (), plan.opens):
            for item in items:
                if item.tokens and item.id not in ran:
                    self._refusals[Refusal.ENGINE] += 1

    def grape_stats(self) -> dict[str, Any]:
        """Counters and present sizes; plain values that travel between processes."""
        if self._off is not None:
            return {"disabled": self._off, **self.grape_counters}
        self._expire(self.grape_clock())
        snapshot = self._controller.snapshot
        stats: dict[str, Any] = {
            "free_blocks": self._ledger.free_blocks,
            "total_blocks": self._ledger.total_blocks,
            "open_prompts": len(self._opens),
            "requests": len(self.requests),
            "running": len(self.running),
            "waiting": len(self.waiting) + len(self.kv_holding_waiting),
            "tracked": len(self._ledger.tracked),
            "pressed": snapshot is not None and snapshot.signals.pressed,
            "follower_ms": 1e3 * self._controller.followers.expected,
            "hit_rate": self._hit_rate,
            "cost_trusted": self._costs.trusted,
            "sizes": self._sizes(),
            **self.grape_counters,
            **self._kv_counts.told(),
            **{name: self._levels[level] for level, name in _LEVELS.items()},
            **{name: self._limits[limit] for limit, name in _LIMITS.items()},
            **{name: self._refusals[why] for why, name in _REFUSALS.items()},
        }
        if self._unmovable is not None:
            stats["disabled"] = self._unmovable
        return stats

    def _sizes(self) -> dict[str, int]:
        """Entries of all that is kept for requests, open prompts and programs."""
        return {
            "views": len(self._views),
            "outcomes": len(self._outcomes),
            "sessions": len(self._sessions),
            "seeded": len(self._seeded),
            "blocked": len(self._blocked),
            "to_recompute": self._kv_counts.unfinished,
            "waiting_calls": len(self._controller.waiting),
            "ended_keys": self._opens.remembered,
            **self._controller.sizes,
        }

    def grape_records(self) -> list[str]:
        """Settings and records of the last steps as lines of JSON; empty if none are kept."""
        if self._off is not None or self._trace is None:
            return []
        return self._trace.lines()

    def grape_steps(self) -> list[list[float]]:
        """Steps measured since the last call: the four fields of the load, and seconds."""
        return [] if self._off is not None else self._step_log.drain()

    def grape_validate(self) -> None:
        """Raise RuntimeError naming every broken invariant; for use between steps."""
        if self._off is not None:
            return
        found = self._opens.problems()
        waiting = {r.request_id: r for q in (self.waiting, self.kv_holding_waiting) for r in q}
        running = {request.request_id: request for request in self.running}
        queued = {*waiting, *running} | {
            request.request_id
            for q in (self.deferred_waiting, self._inflight_prefills)
            for request in q
        }
        for prompt in self._opens:
            key = prompt.request.request_id
            if key in queued:
                found.append(f"open prompt {key} is in a queue between steps")
            if self.requests.get(key) is not prompt.request:
                found.append(f"open prompt {key} is not among the requests")
        for text, ids in {
            "KV of requests that are gone": self._ledger.tracked - set(self.requests),
            "remembered requests that are gone": set(self._outcomes) - set(self.requests),
            "requests without a view, or the other way round": {
                *(set(self.requests) ^ {*self._views.by_id, *self._opens.keys()})
            },
            "waiting calls that the policy sees otherwise": {
                *(set(self._controller.waiting) ^ ({*waiting} - self._sessions))
            },
            "open prompts that the policy sees otherwise": {
                *(set(self._controller.opens) ^ {*self._opens.keys()})
            },
            "blocked requests that run or are gone": self._blocked - set(waiting),
        }.items():
            if ids:
                found.append(f"{text}: {sorted(ids)}")
        found += self._view_problems(waiting)
        try:
            self._controller.validate()
            self._costs.validate()
        except (AssertionError, RuntimeError) as error:
            found.append(str(error))
        if found:
            raise RuntimeError("open prompts: " + "; ".join(found))

    def _view_problems(self, waiting: Mapping[str, Any]) -> list[str]:
        """Views of waiting calls that are not up to date."""
        found = []
        for request_id, request in waiting.items():
            view = self._views.by_id.get(request_id)
            if view is None or view.blocked or request.resumable:
                continue
            seen = (view.tokens, view.computed, view.output, view.held_blocks)
            held = self._ledger.held(request_id)
            true = (
                request.num_tokens,
                request.num_computed_tokens,
                request.num_output_tokens,
                held,
            )
            if seen != true:
                found.append(f"waiting call {request_id} is seen as {seen}, not {true}")
        return found
