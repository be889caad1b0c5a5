"""Who gives up KV, and which calls may start."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.scheduler.preemption import GROWTH_SHARE, choose, may_start, victims
from grape_lc.scheduler.settings import Eviction, PolicyConfig
from grape_lc.scheduler.types import Stage
from tests.unit.scheduler.factories import (
    CPU,
    GPU,
    configs,
    make_decode,
    make_open,
    make_pool,
    make_prefill,
    make_view,
    steady,
    views,
)

costs = st.sampled_from([None, CPU, GPU])
ALL = 10**6


def by(rule, **settings):
    return PolicyConfig(eviction=rule, **settings)


def named(candidates, config, need=ALL, **more):
    return [victim.id for victim in victims(candidates, need, config, **more)]


def test_no_more_than_is_needed():
    candidates = [make_decode(f"d{n}", held_blocks=5) for n in range(4)]
    assert named(candidates, by(Eviction.TAIL)) == ["d3", "d2", "d1"]
    found = victims(candidates, 6, by(Eviction.TAIL))
    assert [(victim.id, victim.blocks, victim.rule) for victim in found] == [
        ("d3", 5, "tail"),
        ("d2", 5, "tail"),
    ]
    assert victims(candidates, 0, by(Eviction.TAIL)) == ()


def test_who_holds_nothing_or_waits_has_nothing_to_give():
    candidates = [
        make_open("o1", held_blocks=0, computed=0),
        make_view("c2", held_blocks=4, adopted=True),
        make_decode("d3"),
        make_decode("d4", held_blocks=0, computed=0),
        make_decode("d5"),
    ]
    assert named(candidates, by(Eviction.LRU)) == ["d5"]
    assert choose(candidates[:4], by(Eviction.LRU)) is None


@pytest.mark.parametrize("rule", Eviction)
def test_the_running_call_that_came_first_gives_way_to_none(rule):
    first, second = make_decode("d1"), make_decode("d2")
    assert named([second, first], by(rule)) == ["d2"]
    assert choose([first], by(rule)) is None
    # Even if it came to run only now, and has no block yet.
    older = make_prefill("p0", computed=0)
    assert named([first, older], by(rule)) == ["d1"]


def test_tail_takes_the_farthest_open_prompt_then_the_last_to_come():
    candidates = [
        make_open("o1", hops=1),
        make_open("o2", hops=3),
        make_open("o3", hops=1),
        make_prefill("p4"),
        make_decode("d6"),
        make_decode("d5"),
    ]
    assert named(candidates, by(Eviction.TAIL)) == ["o2", "o3", "o1", "d6", "d5"]


def test_lru_takes_the_longest_untouched():
    candidates = [
        make_open("o1", touched=3.0, hops=5),
        make_open("o2", touched=1.0),
        make_decode("d3", touched=9.0),
        make_decode("d4", touched=9.0),
        make_decode("d5", touched=8.0),
    ]
    assert named(candidates, by(Eviction.LRU)) == ["o2", "o1", "d5", "d4"]


def test_distance_takes_prefills_before_decodes():
    candidates = [
        make_open("o1", hops=1),
        make_open("o2", hops=2),
        make_decode("d3"),
        make_decode("d4"),
        make_prefill("p5"),
    ]
    assert named(candidates, by(Eviction.DISTANCE)) == ["o2", "o1", "p5", "d4"]


@pytest.mark.parametrize("cost", [None, CPU])
def test_recompute_takes_what_is_cheap_to_compute_again(cost):
    candidates = [
        make_decode("d0"),
        make_decode("d1", tokens=500),
        make_decode("d2", tokens=100),
        make_decode("d3", tokens=300),
        make_open("o4", tokens=900, computed=800),
        make_open("o5", tokens=900, computed=20),
    ]
    expected = ["o5", "o4", "d2", "d3", "d1"]
    assert named(candidates, by(Eviction.RECOMPUTE), cost=cost) == expected


def test_cost_spares_a_call_that_is_nearly_done():
    first = make_decode("d0")
    nearly, long = make_decode("d1", remaining=3.0), make_decode("d2", remaining=80.0)
    unknown = make_decode("d3", output=99)
    config = by(Eviction.COST, horizon=128)
    # The limit of the unknown one leaves it a single token.
    assert named([first, nearly, long, unknown], config, cost=CPU) == ["d2", "d1", "d3"]


def test_cost_takes_what_holds_much_and_is_soon_computed_again():
    first = make_decode("d0")
    lean, bulky = make_decode("d2"), make_decode("d1", held_blocks=60)
    assert named([first, lean, bulky], by(Eviction.COST)) == ["d1", "d2"]


def test_cost_of_an_open_prompt_is_when_and_whether_it_is_used():
    config = by(Eviction.COST, horizon=100)
    final = make_open("o1", final=True, remaining=50.0)
    soon, late = make_open("o2", remaining=5.0), make_open("o3", remaining=50.0)
    unknown, far = make_open("o4"), make_open("o5", hops=2, remaining=5.0)
    everyone = [soon, far, final, unknown, late]
    assert named(everyone, config) == ["o5", "o4", "o3", "o2", "o1"]
    # Far, but much of it: worth keeping if predictions hold, not if each is a coin's toss.
    rich = make_open("o6", hops=2, remaining=0.0, tokens=400, computed=399, held_blocks=7)
    assert named([rich, unknown], config, use=1.0) == ["o4", "o6"]
    assert named([rich, unknown], config, use=0.2) == ["o6", "o4"]


@steady
@given(views(), st.integers(-2, 120), configs(), costs, st.floats(0, 1), st.data())
def test_enough_or_all_in_one_order(drawn, need, config, cost, use, data):
    spare = frozenset(data.draw(st.sets(st.sampled_from(["r0", "r2", "r5"]))))
    more = {"cost": cost, "use": use, "spare": spare}
    found = victims(drawn, need, config, **more)
    known = {view.id: view for view in drawn}
    calls = [view for view in drawn if view.stage in {Stage.PREFILL, Stage.DECODE}]
    oldest = min(calls, key=lambda view: view.seq, default=None)
    able = [
        view
        for view in drawn
        if view.held_blocks and view.stage is not Stage.WAITING and view.id not in spare
    ]
    able = [view for view in able if view is not oldest]
    freed = sum(victim.blocks for victim in found)
    if need > 0:
        assert freed >= need or len(found) == len(able)
        # Each of them was needed.
        assert not found or freed - found[-1].blocks < need
    else:
        assert not found
    ids = [victim.id for victim in found]
    assert len(set(ids)) == len(ids)
    assert set(ids) <= {view.id for view in able}
    assert all(victim.blocks == known[victim.id].held_blocks for victim in found)
    # Open prompts first.
    kinds = [known[name].stage is Stage.OPEN for name in ids]
    assert kinds == sorted(kinds, reverse=True)
    # The order given makes no difference, and ``choose`` is the first of them.
    assert victims(data.draw(st.permutations(drawn)), need, config, **more) == found
    next_one = choose(drawn, config, **more)
    assert (next_one.id if next_one else None) == next(
        (victim.id for victim in victims(drawn, ALL, config, **more)), None
    )


@steady
@given(views((Stage.OPEN, Stage.DECODE)), configs(), costs)
def test_what_costs_more_to_lose_is_never_taken_sooner(drawn, config, cost):
    # Under ``cost``, being closer to the end moves a call to the back.
    config = config.but(eviction=Eviction.COST)
    order = named(drawn, config, cost=cost)
    for view in drawn:
        if view.stage is Stage.DECODE and view.id in order and view.remaining:
            nearer = dataclasses.replace(view, remaining=view.remaining / 2)
            others = [nearer if other is view else other for other in drawn]
            assert named(others, config, cost=cost).index(view.id) >= order.index(view.id)


# ------------------------------------------------------------------ admission


def starts(view, config=None, *, free=100, thrashing=False, running=1, **pool):
    return may_start(
        view,
        make_pool(**pool),
        free=free,
        thrashing=thrashing,
        config=config or PolicyConfig(),
        running=running,
    )


def test_unless_preemptions_cost_much_whether_a_call_fits_is_left_to_the_engine():
    assert starts(make_view(tokens=160), free=0, growth=40)


def test_an_adopted_call_needs_only_what_is_missing():
    view, config = make_view(tokens=160, computed=96, held_blocks=6), PolicyConfig(wide_margin=0.25)
    assert starts(view, config, free=254, thrashing=True)
    assert not starts(view, config, free=253, thrashing=True)


def test_while_preemptions_cost_much_there_must_be_ample_room_beside_what_running_ones_need():
    view, config = make_view(tokens=160), PolicyConfig(wide_margin=0.25)
    assert not starts(view, config, free=259, thrashing=True)
    assert starts(view, config, free=260, thrashing=True)
    growth = int(20 / GROWTH_SHARE)
    assert not starts(view, config, free=279, growth=growth, thrashing=True)
    assert starts(view, config, free=280, growth=growth, thrashing=True)


def test_a_call_always_starts_if_nothing_runs_or_admission_is_off():
    view = make_view(tokens=160)
    assert starts(view, free=0, thrashing=True, running=0)
    assert starts(view, PolicyConfig(admission=False), free=0, thrashing=True, running=3)


# ------------------------------------------------------------------ progress


class Toy:
    """An engine that has nothing but blocks: runs calls of (prompt, output) tokens.

    ``ranks`` says in which order waiting calls start. Blocks hold 4 tokens, a step takes at most
    8 of each prompt.
    """

    size = 4
    chunk = 8

    def __init__(self, calls, total, config, ranks):
        self.config = config
        self.pool = make_pool(total, total, block_size=self.size)
        self.calls = [
            make_view(f"c{n}", tokens=prompt, max_output=output, rank=(ranks[n], n))
            for n, (prompt, output) in enumerate(calls)
        ]
        self.thrashing = False
        self.lost = 0  # tokens that must be computed again
        self.steps = 0

    def at(self, *stages):
        return [view for view in self.calls if view.stage in stages]

    @property
    def running(self):
        return self.at(Stage.PREFILL, Stage.DECODE)

    @property
    def free(self):
        return self.pool.total - sum(view.held_blocks for view in self.calls)

    def grow(self, view):
        """Blocks that a running call will take, and those of them that its known tokens need."""
        ahead = self.pool.blocks(view.tokens) - view.held_blocks
        end = min(view.max_output - view.output, self.config.horizon)
        return self.pool.blocks(view.tokens + end) - view.held_blocks - ahead, ahead

    def step(self):
        self.steps += 1
        growth = sum(self.grow(view)[0] for view in self.running)
        wide = self.config.wide_margin * self.pool.total
        if not self.running or self.free > growth + wide:
            self.thrashing = False
        for view in sorted(self.at(Stage.WAITING), key=lambda view: view.rank):
            running = self.running
            free = self.free - sum(self.grow(other)[1] for other in running)
            pool = self.pool._replace(growth=sum(self.grow(other)[0] for other in running))
            if not may_start(
                view,
                pool,
                free=free,
                thrashing=self.thrashing,
                config=self.config,
                running=len(running),
            ):
                break
            if running and self.pool.blocks(view.tokens) > free:
                break  # the engine finds no room
            view.stage = Stage.PREFILL
        for view in self.running:
            if view.stage is not Stage.WAITING:
                self.run(view)

    def run(self, view):
        tokens = min(view.tokens - view.computed, self.chunk)
        held = self.pool.blocks(view.computed + tokens)
        while held - view.held_blocks > self.free:
            victim = choose(self.running, self.config, cost=CPU) or view
            self.lost += victim.computed
            victim.stage, victim.computed, victim.held_blocks = Stage.WAITING, 0, 0
            self.thrashing = True
            if victim is view:
                return
        view.held_blocks = held
        view.computed += tokens
        view.touched = float(self.steps)
        if view.computed == view.tokens:
            view.stage = Stage.DECODE
            view.output += 1
            view.tokens += 1
            if view.output == view.max_output:
                self.calls.remove(view)

    def run_all(self, most):
        while self.calls:
            assert self.steps < most, f"{[view.id for view in self.calls]} never end"
            self.step()
        return self


def alone(calls):
    """Steps that the calls take one after another."""
    return sum(-(-prompt // Toy.chunk) + output for prompt, output in calls)


sizes = st.tuples(st.integers(1, 60), st.integers(1, 40))


@steady
@given(
    st.lists(sizes, min_size=1, max_size=9),
    st.integers(0, 20),
    configs(),
    st.data(),
)
def test_every_call_ends_in_any_pool_that_holds_the_largest(calls, more, config, data):
    least = max(-(-(prompt + output) // Toy.size) for prompt, output in calls)
    ranks = data.draw(st.permutations(range(len(calls))))
    # The oldest that runs loses nothing. Until it ends only older ones can take its place, each
    # once: so the next call ends after at most the steps that all take one after another.
    Toy(calls, least + more, config, ranks).run_all(most=len(calls) * alone(calls))


@pytest.mark.parametrize("rule", Eviction)
def test_admission_saves_recomputation(rule):
    calls = [(24, 40)] * 60
    ranks = list(range(len(calls)))
    without = Toy(calls, 60, by(rule, admission=False), ranks).run_all(most=5000)
    guarded = Toy(calls, 60, by(rule, admission=True), ranks).run_all(most=5000)
    assert guarded.lost < without.lost
