"""A short run that finds out how fast the tuned vLLM is when saturated, and how large calls are.

Closed loop: all programs arrive at once. Tokens per second of that run over the tokens of a
program is the rate of programs that the engine can just carry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from grape_lc.bench.collect import Live
from grape_lc.bench.metrics import RunRecord, measure
from grape_lc.bench.server import ArmServer
from grape_lc.bench.workload import Arrival


class Probe(NamedTuple):
    """What a closed-loop run showed.

    tokens_per_s: output tokens of all programs. program_tokens: mean output tokens of a program.
    largest: prompt and output tokens of each program's largest call, in order of the programs.
    block_size: tokens of a KV block.
    """

    tokens_per_s: float
    program_tokens: float
    largest: tuple[int, ...]
    block_size: int

    @property
    def saturated_rate(self) -> float:
        """Programs a second."""
        return self.tokens_per_s / self.program_tokens

    def kv_blocks(self, share: float) -> int:
        """Blocks that hold ``share`` of the largest calls of all programs at once.

        At least what the very largest call needs alone, and the block that vLLM keeps empty.
        """
        wanted = math.ceil(share * sum(self.largest) / self.block_size)
        least = math.ceil(max(self.largest) / self.block_size)
        return max(wanted, least) + 1


def closed_loop(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The same programs, all at once."""
    return [arrival._replace(at=0.0) for arrival in arrivals]


def run_probe(
    server: ArmServer,
    arrivals: Sequence[Arrival],
    on_tick: Callable[[int, Live], None] = lambda done, live: None,
) -> Probe:
    """Run the programs at once on a server, which stays open. Raises what it raises."""
    record, _ = server.run(closed_loop(arrivals), 0, on_tick)
    return probe_of(record, int(server.info["block_size"]))


def probe_of(record: RunRecord, block_size: int) -> Probe:
    """What a closed-loop run showed. Raises ValueError for one without tokens."""
    speed = measure([record])["tokens_per_s"]
    calls = [program.calls for program in record.programs if program.calls]
    tokens = sum(call.output_tokens for program in calls for call in program)
    if not speed or not tokens:
        raise ValueError("the closed-loop run gave no tokens")
    largest = [max(call.prompt_tokens + call.output_tokens for call in c) for c in calls]
    return Probe(speed, tokens / len(calls), tuple(largest), block_size)
