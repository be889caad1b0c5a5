"""vLLM's asynchronous engine as the host drives it: calls, open prompts, tokenisation.

Runs in the host process only. The engine core, with our scheduler in it, is a further process
that vLLM starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from itertools import count
from multiprocessing.connection import wait
from os import cpu_count
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from grape_lc.engine import vllm_messages as messages
from grape_lc.engine.base import CallDelta, CallPiece, FinishReason, TokenLogprob, Usage
from grape_lc.engine.deterministic import deterministic_args
from grape_lc.engine.endings import how_it_ended
from grape_lc.engine.salts import CacheSalts
from grape_lc.engine.vllm_choice import COUNTED, OURS, why_not_importable, why_not_sent
from grape_lc.engine.vllm_figures import (
    model_flops,
    model_shape,
    sheet_peak,
    wants_measured_peak,
)
from grape_lc.engine.vllm_profile import profile_key, stored_cost
from grape_lc.engine.vllm_requests import PreparedCall, RequestMaker
from grape_lc.errors import (
    CallFailedError,
    ConfigError,
    EngineDiedError,
    RequestError,
)
from grape_lc.scheduler.types import Hint

logger = logging.getLogger(__name__)

_RELEASE_LIMIT_S = 5.0
_CORE_END_S = 2.0
# Compiling costs more than it gains here; small blocks make more prefixes shareable.
_CPU_DEFAULTS: dict[str, Any] = {"enforce_eager": True, "block_size": 32}
# On a small machine the worker lives in the engine core: one process less on the way of every
# step, and 8 s less at start. Larger ones keep vLLM's worker process, which binds its threads.
_SMALL_MACHINE_CORES = 8
_IN_CORE_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
_LEAST_LOGPROB = -9999.0
_FINISH: dict[str | None, FinishReason] = {"stop": "stop", "length": "length"}


def _world_size(args: dict[str, Any]) -> int:
    return int(args.get("tensor_parallel_size", 1)) * int(args.get("pipeline_parallel_size", 1))


def _logprobs(completion: Any, asked: int | None) -> tuple[TokenLogprob, ...]:
    """Those of the tokens of a delta; none when the call did not ask for any."""
    if asked is None or not completion.logprobs:
        return ()
    out = []
    for token, found in zip(completion.token_ids, completion.logprobs, strict=False):
        # The sampled token stands among the likeliest, wherever it ranks.
        likeliest = sorted(found.values(), key=lambda item: item.rank)[:asked]
        out.append(TokenLogprob(*_token(found[token]), tuple(map(_token, likeliest))))
    return tuple(out)


def _token(found: Any) -> tuple[str, float]:
    # JSON has no minus infinity, which is the logarithm of a probability of 0.
    return found.decoded_token or "", max(found.logprob, _LEAST_LOGPROB)


class VLLMEngine(RequestMaker):
    """Owns an ``AsyncLLM``. Every method runs on the event loop that serves the calls.

    model: local path or hub name. scheduler: ``grape`` (ours) or ``stock`` (vLLM's own, whose use
    of KV is counted).
    args: any further vLLM engine argument; ``grape`` holds settings of our scheduler, and
    ``deterministic`` is told of in ``deterministic``.

    Each tenant has a prefix cache of its own, by a salt (``CacheSalts``).

    Raises ConfigError for arguments that vLLM does not know or that contradict each other.
    """

    def __init__(self, model: str, scheduler: str, args: dict[str, Any]) -> None:
        args = dict(args)
        grape = args.pop("grape", None) or {}
        deterministic = args.pop("deterministic", False)
        if deterministic:
            args = deterministic_args(args, on_cpu=current_platform.is_cpu())
        self._salts = CacheSalts.from_environment()
        # Of open prompts that have one: what is appended has to carry it, too.
        self._open_salts: dict[str, str] = {}
        if current_platform.is_cpu():
            args = {**_CPU_DEFAULTS, **args}
            if (cpu_count() or 1) <= _SMALL_MACHINE_CORES and _world_size(args) == 1:
                args.setdefault("distributed_executor_backend", _IN_CORE_EXECUTOR)
        try:
            engine_args = AsyncEngineArgs(model=model, **args)
        except TypeError as error:
            raise ConfigError(f"vLLM does not take these engine arguments: {error}") from error
        engine_args.enable_log_requests = False
        engine_args.disable_log_stats = args.get("disable_log_stats", True)
        config = engine_args.create_engine_config()
        self._profile_key = profile_key(config)
        self.early_refusal: str | None = "vLLM's own scheduler was asked for"
        overlaps = config.scheduler_config.async_scheduling
        unfit = why_not_importable(OURS) if scheduler == "grape" else None
        if unfit is not None:
            logger.warning("no early work, vLLM's own scheduler serves: %s", unfit)
            scheduler, self.early_refusal = "stock", unfit
        if scheduler == "grape":
            self.early_refusal = self._why_not_early(config)
            # Chosen after vLLM settled on synchronous or asynchronous scheduling: a scheduler
            # class given earlier would decide that question.
            kind = "GrapeAsyncScheduler" if overlaps else "GrapeScheduler"
            config.scheduler_config.scheduler_cls = f"grape_lc.engine.vllm_scheduler.{kind}"
            extra = dict(config.additional_config or {})
            if "grape_cost" not in extra:
                extra["grape_cost"] = stored_cost(self._profile_key)
            config.additional_config = {**extra, "grape": grape}
        elif config.scheduler_config.scheduler_cls is None and not why_not_importable(COUNTED):
            kind = "CountedAsyncScheduler" if overlaps else "CountedScheduler"
            config.scheduler_config.scheduler_cls = f"grape_lc.engine.vllm_counted.{kind}"
        # vLLM asks for another scheduler of its own for some models: nothing is counted there.
        self._told = str(config.scheduler_config.scheduler_cls).startswith("grape_lc.")
        self._llm = AsyncLLM.from_vllm_config(config)
        super().__init__(
            config,
            self._llm.renderer,
            self._llm.get_tokenizer(),
            deterministic=deterministic,
        )
        self._scheduler = scheduler
        self._peak: float | None = sheet_peak(config)
        self._facts = {**model_shape(config), "model_flops": model_flops(config)}
        self._serial = count()

    @staticmethod
    def _why_not_early(config: Any) -> str | None:
        """Configurations in which open prompts were never run: refused rather than hoped for."""
        if config.parallel_config.data_parallel_size > 1:
            return "data parallel engines are not supported yet"
        if config.kv_transfer_config is not None:
            return "a KV connector would free the blocks of an open prompt"
        if config.model_config.is_multimodal_model:
            return "multimodal prompts are not plain token lists"
        return None

    @property
    def failed(self) -> bool:
        """Whether vLLM's engine core ended by itself."""
        return bool(self._llm.errored)

    async def last_words(self) -> str:
        """How the engine core ended. One that reported an error needs a moment to end."""
        manager = self._llm.engine_core.resources.engine_manager
        cores = list(getattr(manager, "processes", ()))
        await asyncio.to_thread(wait, [core.sentinel for core in cores], _CORE_END_S)
        # Of several, one that has ended tells more than one that has not.
        ends = sorted(((c.pid, c.exitcode) for c in cores), key=lambda end: end[1] is None)
        return how_it_ended("vLLM's engine core", *(ends or [(None, None)])[0])

    async def self_test(self) -> None:
        """Ask the scheduler whether this vLLM has all that open prompts need.

        Measures the peak of the CPU as well, where that was asked for.
        """
        if self.early_refusal is None:
            self.early_refusal = why_not_sent(self._llm.engine_core, EngineCoreRequest)
        if self.early_refusal is None:
            self.early_refusal = (await self.stats()).get("disabled")
        if self._told and wants_measured_peak(self._config):
            self._peak = await self._llm.engine_core.call_utility_async("grape_peak_flops")

    def info(self) -> dict[str, Any]:
        """What the client shows and checks."""
        cache = self._config.cache_config
        return {
            "max_model_len": self._max_len,
            "block_size": cache.block_size,
            "num_blocks": cache.num_gpu_blocks,
            "max_num_seqs": self._config.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": self._config.scheduler_config.max_num_batched_tokens,
            "vocab_size": self._config.model_config.get_vocab_size(),
            "dtype": str(self._config.model_config.dtype).removeprefix("torch."),
            "device": "cpu" if self._on_cpu else current_platform.device_name,
            "scheduler": self._scheduler,
            "early_refusal": self.early_refusal,
            "drafting": self._drafts,
            "deterministic": self._deterministic,
            **self._facts,
            "peak_flops": self._peak,
            "profile": self._profile_key,
            "profiled": bool((self._config.additional_config or {}).get("grape_cost")),
        }

    # ------------------------------------------------------------------ calls

    async def generate(
        self, call: PreparedCall, *, adopt: str | None, hint: Hint
    ) -> AsyncIterator[CallDelta]:
        """Run a call, taking over the KV of open prompt ``adopt`` where it fits."""
        params = call.params
        if self._scheduler == "grape":
            message = messages.call(adopt, hint)
            params.extra_args = {**(params.extra_args or {}), "grape": message}
        if adopt is not None:
            self._open_salts.pop(adopt, None)
        outcome, ahead, sampled = "none", 0, 0
        try:
            async for out in self._llm.generate(
                tokens_input(call.token_ids, cache_salt=self._salts.of(hint.tenant)),
                params,
                f"call-{next(self._serial)}",
                priority=call.priority,
            ):
                at = time.monotonic()
                completion = out.outputs[0]
                sampled += len(completion.token_ids)
                if out.kv_transfer_params and "grape" in out.kv_transfer_params:
                    report = out.kv_transfer_params["grape"]
                    outcome, ahead = report["outcome"], report["tokens"]
                usage = None
                if out.finished:
                    cached = out.num_cached_tokens or 0
                    usage = Usage(len(call.token_ids), sampled, cached, ahead, outcome)
                text: str = completion.text
                calls: tuple[CallPiece, ...] = ()
                if call.parser is not None:
                    text, calls = call.parser.feed(text, completion.token_ids, last=out.finished)
                yield CallDelta(
                    text,
                    tuple(completion.token_ids),
                    at,
                    _FINISH.get(completion.finish_reason, "abort") if out.finished else None,
                    usage,
                    _logprobs(completion, params.logprobs),
                    calls,
                )
        except EngineDeadError as error:
            raise EngineDiedError(await self.last_words()) from error
        except VLLMValidationError as error:
            raise RequestError(str(error)) from error
        except Exception as error:
            raise CallFailedError(f"vLLM failed this call: {error!r}") from error

    # ------------------------------------------------------------------ open prompts

    async def open(self, key: str, ids: Sequence[int], hint: Hint) -> None:
        """Begin an open prompt; ``key`` must never have been used before."""
        salt = self._salts.of(hint.tenant)
        if salt is not None:
            self._open_salts[key] = salt
        await self._control(key, ids, messages.open_prompt(hint), salt)

    async def append(
        self, key: str, ids: Sequence[int], hops: int, final: bool, source: str | None
    ) -> None:
        """Extend an open prompt; an unknown key is ignored by the scheduler."""
        fresh = f"{key}/+{next(self._serial)}"
        message = messages.append(key, hops, source, final=final)
        await self._control(fresh, ids, message, self._open_salts.get(key))

    async def release(self, keys: Sequence[str]) -> None:
        """Give open prompts back; unknown keys are ignored."""
        for key in keys:
            self._open_salts.pop(key, None)
        await self._llm.engine_core.abort_requests_async(list(keys))

    async def _control(
        self, request_id: str, ids: Sequence[int], message: dict[str, Any], salt: str | None
    ) -> None:
        # Not registered with the output processor: no answer ever comes back.
        await self._llm.engine_core.add_request_async(
            EngineCoreRequest(
                request_id=request_id,
                prompt_token_ids=list(ids),
                mm_features=None,
                sampling_params=SamplingParams(
                    temperature=0.0, max_tokens=1, extra_args={"grape": message}
                ),
                pooling_params=None,
                arrival_time=time.time(),
                lora_request=None,
                cache_salt=salt,
                data_parallel_rank=None,
            )
        )

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False while calls hold blocks."""
        if self._scheduler == "grape":
            await self._llm.engine_core.call_utility_async("grape_release_all")
        return bool(await self._llm.reset_prefix_cache())

    async def stats(self) -> dict[str, Any]:
        """Counters of the scheduler; of vLLM's own only those of its KV, if any."""
        if not self._told:
            return {}
        stats: dict[str, Any] = await self._llm.engine_core.call_utility_async("grape_stats")
        if "sizes" in stats:
            stats["sizes"] |= {
                "answering": len(self._llm.output_processor.request_states),
                "open_salts": len(self._open_salts),
            }
        return stats

    async def steps(self) -> list[list[float]]:
        """Steps measured since the last question; see ``vllm_utilities.grape_steps``."""
        if self._scheduler != "grape":
            return []
        steps: list[list[float]] = await self._llm.engine_core.call_utility_async("grape_steps")
        return steps

    async def records(self) -> list[str]:
        """Settings and records of the last steps; see ``vllm_utilities.grape_records``."""
        if self._scheduler != "grape":
            return []
        lines: list[str] = await self._llm.engine_core.call_utility_async("grape_records")
        return lines

    async def shutdown(self) -> None:
        """Release every open prompt, then end vLLM's processes."""
        if self._scheduler == "grape" and not self.failed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._llm.engine_core.call_utility_async("grape_release_all"), _RELEASE_LIMIT_S
                )
        self._llm.shutdown(timeout=5)
