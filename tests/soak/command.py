"""``scripts/soak``: start an engine, soak it, write what was found."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grape_lc import GrapeEngine
from grape_lc.files import write_whole
from tests.soak.moments import Workplace
from tests.soak.report import lines, report
from tests.soak.soak import Soak, SoakSettings

ENGINE: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 512,
    # Little KV: it is soon all in use, so that memory that is touched late looks like no leak, and
    # open prompts have to give way now and then.
    "num_gpu_blocks_override": 192,
    "grape": {"validate": True},
}
"""Of the soak's engine: fp32, so that equal programs are answered alike; checked in each step."""


# Two things grow for thousands of programs and look like a leak. Large buffers that the model frees
# are kept by the C library in its heap: here they go back to the system at once. And oneDNN keeps
# the machine code of its last 1024 matrix products, of which every number of rows in a step has its
# own (264 KiB each): here only of the last 64.
_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(256 * 1024),
    "MALLOC_ARENA_MAX": "2",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
}


def options() -> argparse.ArgumentParser:
    """What the command takes."""
    known = SoakSettings()
    parser = argparse.ArgumentParser(
        prog="scripts/soak",
        description="Runs short programs on a real engine, about one in ten of them with a fault, "
        "and checks that nothing is left behind. The exit status is 1 if anything is.",
    )
    parser.add_argument("--programs", type=_positive, default=known.programs)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    parser.add_argument(
        "--seconds", type=float, help="begin no program after this time (default: no limit)"
    )
    parser.add_argument("--seed", type=int, default=known.seed, help="the same programs again")
    parser.add_argument("--share", type=float, default=known.share, help="of programs with a fault")
    parser.add_argument(
        "--every", type=_positive, default=known.every, help="programs between two readings"
    )
    parser.add_argument("--at-once", type=_positive, default=known.at_once, help="programs")
    parser.add_argument("--model", help="path or name (default: the embedded model)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


async def soaked(
    engine: GrapeEngine, settings: SoakSettings, *, interruptible: bool = False
) -> dict[str, Any]:
    """The report of a soak of a running engine, which nobody else uses."""
    soak = Soak(Workplace.of(engine), settings, _say)
    loop = asyncio.get_running_loop()
    if interruptible:
        loop.add_signal_handler(signal.SIGINT, _interrupt, soak, loop)
    try:
        record = await soak.run()
    finally:
        if interruptible:
            loop.remove_signal_handler(signal.SIGINT)
    stats = await asyncio.to_thread(engine.stats)
    return report(record, settings, engine.info(), stats)


def _interrupt(soak: Soak, loop: asyncio.AbstractEventLoop) -> None:
    """The first Ctrl-C ends the soak, the next one Python."""
    soak.stop("it was interrupted")
    loop.remove_signal_handler(signal.SIGINT)
    _say("no further program begins; once more ends at once")


def _say(text: str) -> None:
    sys.stderr.write(f"soak: {text}\n")
    sys.stderr.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; returns the exit status."""
    given = options().parse_args(argv)
    settings = SoakSettings(
        programs=given.programs,
        seconds=given.seconds,
        seed=given.seed,
        share=given.share,
        every=given.every,
        at_once=given.at_once,
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # What runs of graphs teach is not kept.
        os.environ["GRAPE_LC_GRAPHS"] = folder
        for name, value in _MEMORY.items():
            os.environ.setdefault(name, value)
        with GrapeEngine(given.model, **ENGINE) as engine:
            found = asyncio.run(soaked(engine, settings, interruptible=True))
    found["date"] = time.strftime("%Y-%m-%d")
    if given.json is not None:
        write_whole(given.json, json.dumps(found, indent=1) + "\n", shared=True)
    for line in lines(found):
        sys.stdout.write(f"{line}\n")
    return 1 if found["problems"] else 0
