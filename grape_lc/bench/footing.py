"""What has to be known of a workload before it is compared: what the engine carries, and its KV."""

from __future__ import annotations

from grape_lc.bench.arms import TUNED, parse_arm
from grape_lc.bench.matrix import Footing
from grape_lc.bench.plan import SATURATION, needs_saturation
from grape_lc.bench.probe import Probe, run_probe
from grape_lc.bench.workbench import Workbench
from grape_lc.errors import ConfigError, GrapeError


def footing_of(bench: Workbench, workload: str) -> Footing:
    """KV blocks and saturated rate of a workload, as far as the settings ask for them.

    Found out by running all programs of the first repeat at once on vllm-opt. Raises EngineError
    when such a run failed, and failed again on another engine.
    """
    settings, probes = bench.settings, []
    kv_blocks = settings.kv_blocks
    if settings.kv_share is not None:
        probes.append(_probe(bench, workload, None))
        kv_blocks = probes[0].kv_blocks(settings.kv_share)
        mean = sum(probes[0].largest) / len(probes[0].largest)
        bench.say(
            f"{workload}: KV of {kv_blocks} blocks of {probes[0].block_size} tokens, "
            f"{settings.kv_share:g} of {settings.programs} programs whose largest calls hold "
            f"{mean:.0f} tokens each on the average"
        )
    if not needs_saturation(settings):
        return Footing(None, kv_blocks, tuple(probes))
    probes.append(_probe(bench, workload, kv_blocks))
    saturated = probes[-1].saturated_rate
    bench.say(
        f"{workload}: {TUNED} saturates at {saturated:.4f} programs/s, "
        f"{probes[-1].tokens_per_s:.1f} tokens/s with all {settings.programs} programs at once, "
        f"{probes[-1].program_tokens:.0f} tokens a program"
    )
    return Footing(saturated, kv_blocks, tuple(probes))


def _probe(bench: Workbench, workload: str, kv_blocks: int | None) -> Probe:
    found = bench.log.probe(workload, kv_blocks)
    if found is None:
        try:
            found = _run(bench, workload, kv_blocks)
        except ConfigError:
            raise
        except GrapeError as error:
            bench.say(f"{workload}: {type(error).__name__}: {error}; once more")
            found = _run(bench, workload, kv_blocks)
        bench.log.add_probe(workload, kv_blocks, found)
    return found


def _run(bench: Workbench, workload: str, kv_blocks: int | None) -> Probe:
    programs = bench.programs.drawn(workload, None, 1)[0]
    server = bench.server(workload, parse_arm(TUNED), kv_blocks, None)
    memory = "" if kv_blocks is None else f", {kv_blocks} KV blocks"
    try:
        server.start()
        title = f"{workload}, all at once on {TUNED}{memory}"
        bench.progress.begin(title, (workload, SATURATION), len(programs))
        found = run_probe(server, programs, bench.progress.tick)
    except GrapeError:
        server.drop()
        raise
    bench.progress.end()
    return found
