from typing import Any

import pytest

from grape_lc.bench.arms import Arm, parse_arms
from grape_lc.bench.compare import Comparison, Part, run_comparison
from grape_lc.bench.engine_pool import EnginePool
from grape_lc.bench.examples import load_example
from grape_lc.bench.matrix_progress import MatrixProgress
from grape_lc.bench.pooled_server import PooledServer
from grape_lc.bench.ranking import Standing, priority
from grape_lc.bench.run_log import RunLog
from grape_lc.bench.workload import Arrival
from grape_lc.errors import ConfigError
from tests.unit.bench.fakes import STAGES, BenchScript, TestBed, console, printed, requests

WORKLOADS = [
    [
        Arrival(f"p{repeat}.{n}", {"problem": f"Problem {n} of {repeat}."}, 0.01 * n)
        for n in range(2)
    ]
    for repeat in range(3)
]


def compare(
    arms: str, bed: TestBed, workloads: list[list[Arrival]] = WORKLOADS, limit_s: float = 60.0
) -> tuple[Comparison, str]:
    to, parsed = console(), parse_arms(arms)
    part = Part("code", "code", "fast", RunLog(None, {}).part("code"))
    with EnginePool(bed.engine_of) as pool, MatrixProgress(to, (), 0, pool) as progress:
        servers = {
            arm.name: PooledServer(arm, load_example("code"), 16, pool, {}, limit_s)
            for arm in parsed
        }
        got = run_comparison(parsed, workloads, servers, pool, progress, part)
    return got, printed(to)


def test_few_arms_keep_their_engines_and_take_turns():
    bed = TestBed()
    got, _ = compare("vllm,vllm-opt,grape", bed)
    assert bed.log == [
        *("open vllm", "open vllm-opt", "open grape"),
        *("run vllm", "run vllm-opt", "run grape"),
        *("run vllm-opt", "run grape", "run vllm"),
        *("run grape", "run vllm", "run vllm-opt"),
        *("close vllm-opt", "close vllm", "close grape"),
    ]
    assert [(run.arm, run.repeat, run.position) for run in got.runs[3:6]] == [
        ("vllm-opt", 2, 1),
        ("grape", 2, 2),
        ("vllm", 2, 3),
    ]
    assert got.failures == ()
    assert got.infos["grape"] == {"block_size": 32, "scheduler": "grape"}


def test_all_arms_of_a_repeat_run_the_same_programs_and_repeats_differ():
    got, _ = compare("vllm,vllm-opt,grape", TestBed())
    names = {
        (run.arm, run.repeat): [program.program for program in run.record.programs]
        for run in got.runs
        if run.record is not None
    }
    for arm in got.arms:
        assert [names[arm, repeat] for repeat in (1, 2, 3)] == [
            ["p0.0", "p0.1"],
            ["p1.0", "p1.1"],
            ["p2.0", "p2.1"],
        ]


def test_only_grape_is_told_of_programs_and_only_the_tuned_arm_has_priorities():
    bed = TestBed()
    compare("vllm,vllm-opt,grape", bed)
    stock, tuned, ours = (bed.of(name)[0] for name in ("vllm", "vllm-opt", "grape"))
    assert stock.programs == () == tuned.programs
    assert len(ours.programs) == 1 + 3 * 2  # the warm-up is one
    for engine in (stock, ours):
        assert {request.priority for request in requests(engine)} == {0}
    by_stage = {(request.label, request.priority) for request in requests(tuned)}
    assert by_stage == {
        (name, priority(Standing(depth, awaited=True), program))
        for depth, name in enumerate(STAGES)
        for program in range(2)
    }


def test_with_more_engines_than_may_be_open_few_are_started_again():
    bed = TestBed()
    arms = "vllm,vllm-opt,grape,grape:static=false,grape:incremental=false"
    got, _ = compare(arms, bed)
    names = [arm.name for arm in parse_arms(arms)]
    runs = [line.removeprefix("run ") for line in bed.log if line.startswith("run ")]
    assert runs == [*names, *reversed(names), *names]
    opened = [line.removeprefix("open ") for line in bed.log if line.startswith("open ")]
    assert opened == [*names, "vllm", "grape:incremental=false"]
    assert got.failures == ()
    assert [run.position for run in got.runs[5:10]] == [1, 2, 3, 4, 5]


def test_arms_that_need_the_same_engine_share_it():
    bed = TestBed()
    got, _ = compare("vllm-opt,warm,grape", bed, WORKLOADS[:2])
    assert [line for line in bed.log if "run" not in line] == [
        *("open vllm-opt", "open grape", "close vllm-opt", "close grape")
    ]
    assert got.equal("warm") == (20, 20)


def test_answers_to_other_prompts_are_not_compared():
    got, _ = compare("vllm-opt,layout,grape", TestBed(), WORKLOADS[:1])
    assert got.equal("layout") == (0, 0)
    assert got.equal("grape") == (10, 10)


def test_answers_are_compared_with_the_first_arm_in_the_same_repeat():
    bed = TestBed()
    bed.answers["grape"] = {"small software team": "Something else."}
    got, _ = compare("vllm,vllm-opt,grape", bed)
    assert got.equal("vllm-opt") == (30, 30)
    assert got.equal("grape") == (30, 0)
    assert got.equal("vllm") == (30, 30)


def test_counters_are_those_of_the_runs_where_the_engine_tells_them():
    got, _ = compare("vllm,grape", TestBed())
    assert got.counter("grape", "preemptions") == 3 * 2  # the fake counts programs
    assert got.counter("grape", "dropped_tokens") == 0
    assert got.counter("grape", "pressed") is None
    assert got.counter("vllm", "preemptions") is None


def test_an_engine_that_dies_costs_one_run_and_is_started_again():
    bed = TestBed()
    bed.dies = {("grape", 2)}
    got, text = compare("vllm,grape", bed)
    (failed,) = got.failures
    assert (failed.arm, failed.repeat, failed.position) == ("grape", 2, 1)
    assert failed.error == "EngineDiedError: the engine of grape is gone [dead]"
    assert "repeat 2, grape failed: EngineDiedError: the engine of grape is gone [dead]" in text
    assert bed.log.count("open grape") == 2 == bed.log.count("close grape")
    assert bed.log.count("open vllm") == 1 == bed.log.count("close vllm")
    assert sorted(got.records("grape")) == [1, 3]
    assert sorted(got.records("vllm")) == [1, 2, 3]
    assert got.equal("grape").compared == 2 * 2 * 5


def test_an_engine_that_does_not_start_is_tried_again_with_its_first_run():
    bed = TestBed()
    bed.starts_fail = {"grape": 1}
    got, text = compare("vllm,grape", bed)
    assert "the grape engine did not start: no engine for grape [yet]" in text
    assert got.failures == ()
    assert sorted(got.records("grape")) == [1, 2, 3]


def test_an_engine_that_never_starts_leaves_the_others_their_figures():
    bed = TestBed()
    bed.starts_fail = {"grape": 99}
    got, text = compare("vllm,grape", bed)
    assert "code, repeat 2, grape failed: EngineStartError: no engine for grape [yet]" in text
    assert [run.arm for run in got.failures] == ["grape"] * 3
    assert got.metrics("vllm")["tokens_per_s"] is not None
    assert got.metrics("grape")["tokens_per_s"] is None
    assert got.equal("grape") == (0, 0)


def test_a_run_that_hangs_is_given_up():
    bed = TestBed()
    bed.delays["grape"] = 1.0
    got, text = compare("vllm,grape", bed, WORKLOADS[:1], limit_s=3.0)
    (failed,) = got.failures
    assert failed.arm == "grape"
    assert "EngineError: only 0 of 2 programs ended within 3 s (3 s after the last arrival)" in text
    assert bed.log[-2:] == ["close grape", "close vllm"]


def test_wrong_arguments_end_the_comparison_and_its_engines(monkeypatch: pytest.MonkeyPatch):
    bed = TestBed()
    make = bed.engine_of

    def engine_of(arm: Arm, shared: dict[str, Any]) -> BenchScript:
        if arm.name == "grape":
            raise ConfigError("vLLM does not take these engine arguments")
        return make(arm, shared)

    monkeypatch.setattr(bed, "engine_of", engine_of)
    with pytest.raises(ConfigError):
        compare("vllm,grape", bed)
    assert bed.log == ["open vllm", "close vllm"]
