import io

from rich.console import Console

from grape_lc.bench.arms import parse_arm
from grape_lc.bench.collect import Live
from grape_lc.bench.engine_pool import EnginePool, engine_key
from grape_lc.bench.matrix_progress import MatrixProgress
from grape_lc.bench.time_left import Planned
from tests.unit.bench.fakes import TestBed

KIND = ("code", "0.5x")
VLLM, OURS = parse_arm("vllm"), parse_arm("grape")
PLAN = [Planned(KIND, engine_key(arm, {})) for arm in (VLLM, OURS, VLLM)]


def drive(console: Console) -> None:
    clock = [0.0]

    def started() -> float:  # every start takes twenty-five seconds
        clock[0] += 25.0
        return clock[0]

    with (
        EnginePool(TestBed().engine_of, clock=started) as pool,
        MatrixProgress(console, PLAN, 1, pool, lambda: clock[0]) as progress,
    ):
        with pool.lease(VLLM, {}):
            pass
        progress.begin("code at 0.5x, repeat 1, vllm", KIND, 3)
        for _ in range(40):
            clock[0] += 1.0
            progress.tick(1, Live(100, 25.0))
        progress.end()
        progress.fail("code at 0.5x, repeat 1, grape", "EngineStartError: [gone]")
        progress.begin("code at 0.5x, repeat 2, vllm", KIND, 3)
        clock[0] += 300.0
        progress.tick(0, Live(0, None))
        progress.end()


def test_without_a_terminal_it_prints_a_line_for_each_run_and_now_and_then():
    out = io.StringIO()
    drive(Console(file=out, width=200))
    first, second, failed, late, last = out.getvalue().splitlines()
    assert first == (
        "1 of 4 runs: code at 0.5x, repeat 1, vllm: 1/3 programs, 100 tokens, "
        "agentic ITL 25.0 ms, 30 s"
    )
    # Two runs of forty seconds, and the start of the engine that grape needs, of twenty-five.
    assert second == (
        "2 of 4 runs, about 2 min left: code at 0.5x, repeat 1, vllm: 3/3 programs, 100 tokens, "
        "agentic ITL 25.0 ms, 40 s"
    )
    assert failed == "code at 0.5x, repeat 1, grape failed: EngineStartError: [gone]"
    # It takes longer than the run before: that it is about to end is all that is known.
    assert late.startswith("3 of 4 runs, about 0 s left: code at 0.5x, repeat 2, vllm: 0/3")
    assert last == (
        "4 of 4 runs, about 0 s left: code at 0.5x, repeat 2, vllm: 3/3 programs, 0 tokens, "
        "agentic ITL -, 300 s"
    )


def test_on_a_terminal_it_draws_one_line_over_and_over():
    out = io.StringIO()
    drive(Console(file=out, width=160, force_terminal=True))
    last = out.getvalue().rsplit("\r", 1)[1]
    assert "4 of 4 runs" in last
    assert "repeat 2, vllm: 3/3 programs" in last
    assert "repeat 1" not in last


def test_the_terminal_is_restored_after_an_error():
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True)
    try:
        with (
            EnginePool(TestBed().engine_of) as pool,
            MatrixProgress(console, PLAN, 0, pool) as progress,
        ):
            progress.begin("code", KIND, 3)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert out.getvalue().endswith("\x1b[?25h")  # the cursor is shown again


def test_long_times_are_told_roughly():
    out, clock = io.StringIO(), [0.0]
    plan = [Planned(KIND, "vllm")] * 8
    with EnginePool(TestBed().engine_of) as pool:
        progress = MatrixProgress(Console(file=out, width=200), plan, 0, pool, lambda: clock[0])
        progress.begin("code", KIND, 3)
        clock[0] += 3600.0
        progress.end()
    assert out.getvalue().startswith("1 of 8 runs, about 7.0 h left: code: 3/3 programs")
