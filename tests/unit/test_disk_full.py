"""No room on the disk: runs go on, it is said once, old files stay, and nothing half-written does.

A limit on the size of files stands in for the full disk: the system ends writes in their middle.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grape_lc.engine.vllm_trace import StepTrace
from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.policy import plan
from grape_lc.scheduler.settings import PolicyConfig
from tests.unit.scheduler.factories import make_snapshot

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import json, logging, os, resource, sys
from pathlib import Path
from grape_lc import attach
from grape_lc.adapters import savings, template_store
from grape_lc.adapters.flow_file import FlowFile, save_flow_file
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.engine import profile_store
from grape_lc.errors import ConfigError
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock
from tests.unit.adapters.conftest import ANSWERS, make_team_flow, team_graph
from tests.unit.engine.test_profile_store import KEY, profile

here, graphs = Path.cwd(), Path(os.environ["GRAPE_LC_GRAPHS"])
said = []

class Notes(logging.Handler):
    def emit(self, record):
        said.append([record.levelname, record.name, record.getMessage()])

logging.getLogger("grape_lc").addHandler(Notes())
save_flow_file(FlowFile(flow=make_team_flow()), here / "flow.json")
kept = profile_store.save(KEY, profile())
before = [(here / "flow.json").read_bytes(), kept.read_bytes()]

resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
engine = ScriptedEngine(ANSWERS, clock=VirtualClock())
plain = team_graph(ChatGrape(engine=engine))
graph = attach(plain, model=engine)
answers, opened = [], []
for problem in ("p", "q", "r", "s", "t"):
    answers.append(graph.invoke({"problem": problem}) == plain.invoke({"problem": problem}))
    graph.config["callbacks"][0].savings.flush()
    template_store._write_all()
    opened.append(len(engine.programs))
refused = []
for write in (
    lambda: save_flow_file(FlowFile(flow=make_team_flow()), here / "flow.json"),
    lambda: save_flow_file(FlowFile(flow=make_team_flow()), here / "new.json"),
    lambda: profile_store.save(KEY, profile()),
):
    try:
        write()
    except ConfigError as error:
        refused.append(str(error))
after = [(here / "flow.json").read_bytes(), kept.read_bytes()]
print(json.dumps({
    "answers": answers, "opened": opened, "said": said, "refused": refused,
    "unchanged": before == after,
    "left": sorted(str(p.relative_to(here)) for p in here.rglob("*") if p.is_file()),
}))
"""


def test_runs_go_on_and_files_stay_whole(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GRAPE_LC_GRAPHS": str(tmp_path / "graphs"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["answers"] == [True] * 5
    assert seen["opened"] == [0, 0, 1, 2, 3], "what runs teach is used all the same"
    warnings = [name for level, name, _ in seen["said"] if level == "WARNING"]
    assert sorted(warnings) == ["grape_lc.adapters.savings", "grape_lc.adapters.template_store"]
    assert len(seen["refused"]) == 3
    assert all("cannot write" in text for text in seen["refused"])
    assert seen["unchanged"]
    (profile,) = [name for name in seen["left"] if name.startswith("cache/")]
    assert seen["left"] == [profile, "flow.json"]


def test_a_record_of_steps_that_has_no_room_ends_and_the_engine_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As many steps as fill the buffer and more; those in memory are kept."""
    config = PolicyConfig()
    trace = StepTrace("/dev/full", config)
    with caplog.at_level(logging.WARNING):
        for step in range(300):
            snapshot = make_snapshot(step=step)
            decided = plan(snapshot, config)
            trace.began(trace.planned(snapshot, decided), decided, {}, StepLoad(1, 1, 10))
            trace.measured(0.001)
        trace.close()
    (record,) = caplog.records
    assert record.getMessage().startswith("no more records of steps are written")


def test_nor_one_whose_last_records_have_none(caplog: pytest.LogCaptureFixture) -> None:
    trace = StepTrace("/dev/full", PolicyConfig())
    with caplog.at_level(logging.WARNING):
        trace.close()
        trace.close()
    assert len(caplog.records) == 1
