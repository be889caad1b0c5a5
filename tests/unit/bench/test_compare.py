import pytest

from grape_lc.bench.arms import parse_arms
from grape_lc.bench.compare import Comparison, rotated, run_comparison
from grape_lc.bench.examples import load_example
from grape_lc.bench.ranking import Standing, priority
from grape_lc.bench.server import ArmServer
from grape_lc.bench.workload import Arrival
from grape_lc.errors import ConfigError
from tests.unit.bench.fakes import STAGES, TestBed, console, printed, requests

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
    to = console()
    got = run_comparison(
        parse_arms(arms),
        workloads,
        to,
        lambda arm: ArmServer(
            arm, load_example("code"), 16, lambda arm: bed.engine_of(arm, {}), limit_s
        ),
    )
    return got, printed(to)


def test_the_order_rotates():
    assert [rotated(["a", "b", "c"], n) for n in (1, 2, 3, 4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_few_arms_keep_their_engines_and_take_turns():
    bed = TestBed()
    got, _ = compare("vllm,vllm-opt,grape", bed)
    assert bed.log == [
        *("open vllm", "open vllm-opt", "open grape"),
        *("run vllm", "run vllm-opt", "run grape"),
        *("run vllm-opt", "run grape", "run vllm"),
        *("run grape", "run vllm", "run vllm-opt"),
        *("close grape", "close vllm-opt", "close vllm"),
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


def test_more_arms_than_engines_may_be_open_start_and_end_their_own():
    bed = TestBed()
    arms = "vllm,vllm-opt,grape,grape:static=false,grape:incremental=false"
    got, text = compare(arms, bed, WORKLOADS[:2])
    assert "5 arms are more than the 4 engines" in text
    names = [arm.name for arm in parse_arms(arms)]
    expected = [n for turn in (names, [*names[1:], names[0]]) for n in turn]
    assert bed.log == [f"{what} {name}" for name in expected for what in ("open", "run", "close")]
    assert got.failures == ()


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
    assert "repeat 2 grape failed: EngineDiedError: the engine of grape is gone [dead]" in text
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
    assert "repeat 2 grape (failed): 0/2 programs, 0 tokens, agentic ITL -, 0 s" in text
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


def test_wrong_arguments_end_the_comparison_and_its_engines():
    bed = TestBed()

    def engine_of(arm):
        if arm.name == "grape":
            raise ConfigError("vLLM does not take these engine arguments")
        return bed.engine_of(arm, {})

    with pytest.raises(ConfigError):
        run_comparison(
            parse_arms("vllm,grape"),
            WORKLOADS,
            console(),
            lambda arm: ArmServer(arm, load_example("code"), 16, engine_of, 60.0),
        )
    assert bed.log == ["open vllm", "close vllm"]
