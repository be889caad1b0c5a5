"""vLLM's schedulers with open prompts.

An open prompt is a prompt that is prefilled before its call exists: open -> append* -> adopt or
release. It holds KV, never samples, has no run slot between steps and ranks below every real
request. Control messages are described in ``vllm_messages``; docs/open-prompts.md tells how the
parts work together. The parts are mixins, each of which uses those below it only:

    vllm_step       a step: plan, queue, vLLM's own, park
    vllm_insight    statistics, validation
    vllm_life       requests and open prompts as they come, are handed over, and end
    vllm_room       KV for real requests
    vllm_state      what all of them share
"""

from __future__ import annotations

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from grape_lc.engine.vllm_step import StepMixin
from grape_lc.engine.vllm_utilities import install_utilities


class OpenPromptMixin(StepMixin):
    """Open prompts on top of a vLLM scheduler class; put it in front of that class.

    Settings are read from ``vllm_config.additional_config["grape"]`` (see ``PolicyConfig``); a
    bad one raises ValueError. If vLLM lacks a part that this needs, the scheduler is vLLM's own
    and says so once in the log and in ``grape_stats()``.
    """


class GrapeScheduler(OpenPromptMixin, Scheduler):
    """vLLM's synchronous scheduler with open prompts."""


class GrapeAsyncScheduler(OpenPromptMixin, AsyncScheduler):
    """vLLM's asynchronous scheduler with open prompts."""


install_utilities()
