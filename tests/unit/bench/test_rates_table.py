from grape_lc.bench.compare import Comparison
from grape_lc.bench.matrix import BenchResult, Cell, CellResult, Footing
from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord
from grape_lc.bench.rates import Rate
from grape_lc.bench.rates_table import rates_table
from grape_lc.bench.server import ArmRun
from grape_lc.bench.slo import NO_SLO, Slo
from tests.unit.bench.fakes import console, printed


def run(arm: str, met: int, of: int = 10) -> ArmRun:
    """Of the programs ``met`` take a second, and the others ten."""
    programs = tuple(
        ProgramRecord(
            f"p{n}", 0.0, 1.0 if n < met else 10.0, (CallRecord(1, None, 0.0, ((0.5, 1),)),)
        )
        for n in range(of)
    )
    return ArmRun(arm, 1, 1, RunRecord(arm, programs), {}, offered=of)


def cell(workload: str, rate: float | None, slo: Slo, *runs: ArmRun) -> CellResult:
    asked = None if rate is None else Rate(rate, relative=False)
    comparison = Comparison(tuple(run.arm for run in runs), runs, {}, slo)
    return CellResult(Cell(workload, asked), Footing(None, None), rate, (), comparison, {})


def rows(*cells: CellResult) -> list[list[str]]:
    table = rates_table(BenchResult(cells))
    if table is None:
        return []
    to = console()
    to.print(table)
    lines = [line for line in printed(to).splitlines() if line.startswith("│")]
    return [[part.strip() for part in line.strip("│").split("│")] for line in lines]


SLO = Slo(program=5000)


def test_the_table_tells_how_far_each_variant_goes():
    failed = ArmRun("bad", 1, 1, None, {}, "EngineDiedError: gone", offered=10)
    assert rows(
        cell("code", 0.1, SLO, run("good", 10), run("soso", 10), failed),
        cell("code", 0.2, SLO, run("good", 9), run("soso", 8), run("bad", 10)),
    ) == [
        ["code", "good", ">= 0.2000"],
        ["code", "soso", "0.1500"],
        ["code", "bad", "below the lowest measured"],
    ]


def test_several_repeats_have_an_interval():
    cells = [
        cell("code", rate, SLO, run("a", met), run("a", met)._replace(repeat=2))
        for rate, met in ((0.1, 10), (0.2, 8))
    ]
    assert rows(*cells) == [["code", "a", "0.1500 [0.1500, 0.1500]"]]


def test_one_rate_a_closed_loop_or_no_target_make_no_table():
    assert rows(cell("code", 0.1, SLO, run("a", 9)), cell("search", 0.2, SLO, run("a", 9))) == []
    assert rows(cell("code", None, SLO, run("a", 9))) == []
    assert rows(*(cell("code", rate, NO_SLO, run("a", 9)) for rate in (0.1, 0.2))) == []
    assert rows() == []
