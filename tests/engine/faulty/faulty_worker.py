"""A worker extension for vLLM: a step that takes up a prompt with a certain token fails.

vLLM loads it where the model runs, by ``worker_extension_cls="faulty_worker.Faulty"``.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.worker_base import WorkerWrapperBase

POISON = 49151

_execute_model = WorkerWrapperBase.execute_model


def _fail_on_poison(self: WorkerWrapperBase, scheduler_output: Any) -> Any:
    for new in scheduler_output.scheduled_new_reqs:
        if POISON in (new.prompt_token_ids or ()):
            raise ZeroDivisionError(f"the model met token {POISON}")
    return _execute_model(self, scheduler_output)


WorkerWrapperBase.execute_model = _fail_on_poison


class Faulty:
    """Adds nothing; loading it is what counts."""
