"""``grape demo`` ended by Ctrl-C: everything is real but the engines in its two host processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

HOSTED = Path(__file__).parents[1] / "runtime" / "hosted"

# A word a second once it is warm: no program is done before it is interrupted.
ENGINE = """
import asyncio, dataclasses
from word_engine import WordEngine

class SlowEngine(WordEngine):
    calls = 0

    async def prepare(self, request):
        call = await super().prepare(request)
        return dataclasses.replace(call, words=["word"] * 100)

    async def generate(self, call, **fields):
        self.calls += 1
        warm = self.calls > 5
        async for delta in super().generate(call, **fields):
            yield delta
            await asyncio.sleep(warm)
"""

# What runs in the background of a shell has SIGINT ignored, and so has all that it starts.
INTERRUPTIBLE = """
import signal
from grape_lc.cli import main
from grape_lc.runtime import client
client._VLLM = "slow_engine:SlowEngine"
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "slow_engine.py").write_text(ENGINE)
    command = [sys.executable, "-c", INTERRUPTIBLE, "demo", "--model", "someone/words"]
    paths = os.pathsep.join([str(tmp_path), str(HOSTED)])
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as demo:
        try:
            assert demo.stdout is not None
            shown = []
            for line in demo.stdout:
                shown.append(line)
                if line.startswith("run 1 vllm (running): 0/") and " 0 tokens" not in line:
                    break
            below = psutil.Process(demo.pid).children(recursive=True)
            assert len(below) >= 2, shown  # two hosts
            demo.send_signal(signal.SIGINT)
            rest, _ = demo.communicate(timeout=240)
        finally:
            demo.kill()
    assert demo.returncode == 130, rest
    assert "interrupted" in rest
    assert "Traceback" not in rest
    _, alive = psutil.wait_procs(below, timeout=120)
    assert alive == []
