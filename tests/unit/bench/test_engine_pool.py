import pytest

from grape_lc.bench.arms import BUDGET, parse_arm
from grape_lc.bench.engine_pool import EnginePool, engine_key
from grape_lc.bench.examples import load_example
from grape_lc.bench.pooled_server import PooledServer
from grape_lc.errors import EngineStartError
from tests.unit.bench.fakes import TestBed

VLLM, TUNED, WARM, OURS = map(parse_arm, ("vllm", "vllm-opt", "warm", "grape"))


def test_what_makes_engines_different():
    assert engine_key(TUNED, {"dtype": "float32"}) == engine_key(WARM, {"dtype": "float32"})
    assert engine_key(TUNED, {}) == engine_key(parse_arm(f"vllm-opt:{BUDGET}=none"), {})
    keys = {
        engine_key(arm, shared)
        for arm in (VLLM, OURS, parse_arm("grape:chunk=4"), parse_arm("vllm+draft"))
        for shared in ({}, {"num_gpu_blocks_override": 9})
    }
    assert len(keys) == 8


def test_an_engine_stays_open_until_there_is_no_room():
    bed = TestBed()
    with EnginePool(bed.engine_of, most=2) as pool:
        for arm in (VLLM, TUNED, VLLM, OURS, TUNED):
            with pool.lease(arm, {}) as engine:
                assert engine.info()["scheduler"] == arm.scheduler
        assert pool.open_engines == (engine_key(OURS, {}), engine_key(TUNED, {}))
    assert bed.log == [
        *("open vllm", "open vllm-opt"),
        *("close vllm-opt", "open grape"),  # vllm was used later
        *("close vllm", "open vllm-opt"),
        *("close vllm-opt", "close grape"),
    ]
    assert len(pool.open_engines) == 0


def test_starts_are_timed():
    times = iter((0.0, 30.0, 40.0, 90.0))
    with EnginePool(TestBed().engine_of, clock=lambda: next(times)) as pool:
        for arm in (VLLM, VLLM, TUNED):
            with pool.lease(arm, {}):
                pass
        assert pool.starts == (30.0, 50.0)


def test_a_start_that_fails_leaves_nothing_behind():
    bed = TestBed()
    bed.starts_fail = {"vllm": 1}
    with EnginePool(bed.engine_of) as pool:
        with pytest.raises(EngineStartError), pool.lease(VLLM, {}):
            pass
        assert (pool.open_engines, pool.starts) == ((), ())
        with pool.lease(VLLM, {}):
            pass
    assert bed.log == ["open vllm", "open vllm", "close vllm"]


def test_who_holds_an_engine_is_told_when_it_ends():
    told: list[str] = []
    with EnginePool(TestBed().engine_of, most=1) as pool:
        with pool.lease(VLLM, {}, lambda: told.append("given back")):
            pass
        first = pool.lease(VLLM, {}, lambda: told.append("first"))
        first.__enter__()
        pool.lease(VLLM, {}, lambda: told.append("second")).__enter__()
        with pool.lease(TUNED, {}):
            assert told == ["first", "second"]
        first.__exit__(None, None, None)  # too late, and harmless
        pool.lease(TUNED, {}, lambda: told.append("dropped")).__enter__()
        pool.drop(TUNED, {})
        pool.drop(TUNED, {})
        assert told == ["first", "second", "dropped"]


def test_all_engines_are_closed_also_after_one_that_cannot_be(monkeypatch: pytest.MonkeyPatch):
    bed = TestBed()
    pool = EnginePool(bed.engine_of)
    for arm in (VLLM, TUNED):
        with pool.lease(arm, {}):
            pass
    monkeypatch.setattr(bed.engines[1], "close", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pool.close()
    assert bed.log[-2:] == ["close vllm-opt", "close vllm"]
    with pytest.raises(RuntimeError, match="closed"), pool.lease(VLLM, {}):
        pass


def test_a_server_warms_up_each_engine_that_it_gets():
    bed, example = TestBed(), load_example("code")
    with EnginePool(bed.engine_of, most=1) as pool:
        tuned, warm, ours = (
            PooledServer(arm, example, 16, pool, {}, 60.0) for arm in (TUNED, WARM, OURS)
        )
        assert tuned.start() is tuned.start() is warm.start()
        (engine,) = bed.engines
        assert len(engine.calls) == 2 * 5  # each server its own
        ours.start()
        assert tuned.start() is bed.engines[2]
        tuned.close()
        assert bed.log == [
            *("open vllm-opt", "close vllm-opt", "open grape", "close grape", "open vllm-opt")
        ]
        assert tuned.start() is bed.engines[2]
        tuned.drop()
        assert pool.open_engines == ()
