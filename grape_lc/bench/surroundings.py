"""When, by which command, on which machine and with which versions something was measured."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grape_lc.bench.settings import installed_versions
from grape_lc.engine.profile_store import processor


def environment(device: str) -> dict[str, Any]:
    """The command, the time, the machine and the versions, for the JSON file."""
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "versions": installed_versions(),
    }
