"""What the self-test says of the vLLM that is imported: a program that prints JSON.

    python -m tests.contract.tier

version: vLLM's. problems: what the self-test of the parts found, for each kind of scheduler; an
import that failed stands for all. tier: ``full`` if there are none, ``plain`` otherwise.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def self_test() -> dict[str, Any]:
    """Run it on a scheduler of each kind."""
    import vllm

    problems: dict[str, list[str]] = {}
    try:
        from tests.contract.simulation import KINDS, make_scheduler, write_model_config
    except ImportError as error:
        problems["import"] = [repr(error)]
    else:
        with tempfile.TemporaryDirectory() as folder:
            model = write_model_config(Path(folder))
            for kind in KINDS:
                off = make_scheduler(model, kind)._off
                if off is not None:
                    problems[kind.name] = off.split("; ")
    return {
        "version": vllm.__version__,
        "problems": problems,
        "tier": "plain" if problems else "full",
    }


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    print(json.dumps(self_test()), file=sys.stdout)  # noqa: T201 - its output
