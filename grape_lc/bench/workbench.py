"""What the parts of a comparison work with: engines, programs, records, and the console."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType

from grape_lc.bench.arms import Arm
from grape_lc.bench.compare import Comparison, Part, Workloads, run_comparison
from grape_lc.bench.engine_pool import EnginePool
from grape_lc.bench.examples import Example, load_example
from grape_lc.bench.matrix import Cell
from grape_lc.bench.matrix_progress import MatrixProgress
from grape_lc.bench.options import BenchSettings
from grape_lc.bench.plan import pace_of
from grape_lc.bench.pooled_server import PooledServer
from grape_lc.bench.run_log import RunLog
from grape_lc.bench.workload import dealt


class Programs:
    """The programs of each workload and each repeat.

    Raises ConfigError when made, and then before any engine starts, if there are too few inputs.
    """

    def __init__(self, settings: BenchSettings) -> None:
        self._settings = settings
        self._examples = {w: self._example(w) for w in settings.parsed_workloads()}
        for workload in self._examples:
            self.drawn(workload, None, max(settings.repeats, settings.sweep_repeats))

    def example(self, workload: str) -> Example:
        """A workload; its answers are judged only where that was asked for."""
        return self._examples[workload]

    def drawn(self, workload: str, rate: float | None, repeats: int) -> Workloads:
        """The programs of each repeat; without a rate where their times do not matter."""
        settings = self._settings
        return [
            dealt(
                settings.pattern.schedule(
                    self._examples[workload].draw(settings.programs, seed), rate or 1.0, seed
                ),
                settings.tenants,
            )
            for seed in settings.seeds(repeats)
        ]

    def _example(self, workload: str) -> Example:
        example = load_example(workload, self._settings.data)
        return example if self._settings.quality else example._replace(scorer=None)


class Workbench:
    """Runs parts of a comparison on the engines of a pool.

    device: ``cpu`` or ``gpu``.
    """

    def __init__(
        self,
        settings: BenchSettings,
        device: str,
        programs: Programs,
        pool: EnginePool,
        log: RunLog,
        progress: MatrixProgress,
        console: Console,
    ) -> None:
        self.settings = settings
        self.programs = programs
        self.log = log
        self.progress = progress
        self._device = device
        self._pool = pool
        self._console = console
        self._servers: dict[tuple[str, str, str, int | None], PooledServer] = {}

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """Print a table."""
        self._console.print(what)

    def server(
        self, workload: str, arm: Arm, kv_blocks: int | None, in_flight: int | None
    ) -> PooledServer:
        """The server of an arm for a workload; the same one for the same arguments."""
        settings = self.settings
        made = PooledServer(
            arm,
            self.programs.example(workload),
            settings.max_tokens,
            self._pool,
            settings.engine_args(self._device, kv_blocks, self._pool.most),
            settings.limit_s,
            in_flight,
            fixed_lengths=settings.lengths == "fixed",
        )
        return self._servers.setdefault((workload, arm.name, made.key, in_flight), made)

    def compare(
        self,
        name: str,
        cell: Cell,
        arms: Sequence[Arm],
        workloads: Workloads,
        kv_blocks: int | None,
    ) -> Comparison:
        """Run arms on the programs of a cell. name: what the runs are kept under, and their title.

        Raises as ``run_comparison`` does.
        """
        in_flight = self.settings.pattern.in_flight
        servers = {arm.name: self.server(cell.workload, arm, kv_blocks, in_flight) for arm in arms}
        part = Part(name, cell.workload, pace_of(cell), self.log.part(name))
        return run_comparison(
            arms, workloads, servers, self._pool, self.progress, part, self.settings.targets()
        )
