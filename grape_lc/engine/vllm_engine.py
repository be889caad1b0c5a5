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
from dataclasses import dataclass
from itertools import count
from os import cpu_count
from typing import Any

import msgspec
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.inputs import tokens_input
from vllm.platforms import current_platform
from vllm.renderers.params import ChatParams
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.utils.mistral import is_mistral_tokenizer
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from grape_lc.engine.base import CallDelta, CallRequest, FinishReason, Usage
from grape_lc.errors import (
    CallFailedError,
    ConfigError,
    EmptyPromptError,
    EngineDiedError,
    PromptTooLongError,
    RequestError,
    UnsupportedRequestError,
)
from grape_lc.flow.sampling import Sampling

logger = logging.getLogger(__name__)

_OP_VERSION = 1
_BAD_SAMPLING = (
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    msgspec.MsgspecError,
    VLLMValidationError,
)
_LONG_CHAT_CHARS = 50_000
_RELEASE_LIMIT_S = 5.0
# Compiling costs more than it gains here; small blocks make more prefixes shareable.
_CPU_DEFAULTS: dict[str, Any] = {"enforce_eager": True, "block_size": 32}
# On a small machine the worker lives in the engine core: one process less on the way of every
# step, and 8 s less at start. Larger ones keep vLLM's worker process, which binds its threads.
_SMALL_MACHINE_CORES = 8
_IN_CORE_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
_FINISH: dict[str | None, FinishReason] = {"stop": "stop", "length": "length"}


@dataclass(frozen=True)
class PreparedCall:
    """A call that was tokenised and checked.

    token_ids: the whole prompt.
    params: vLLM's sampling parameters, defaults filled in.
    """

    token_ids: list[int]
    params: SamplingParams
    program: str | None
    task: str | None


def _size(messages: list[dict[str, Any]]) -> int:
    return sum(len(str(message.get("content"))) for message in messages)


def _world_size(args: dict[str, Any]) -> int:
    return int(args.get("tensor_parallel_size", 1)) * int(args.get("pipeline_parallel_size", 1))


class VLLMEngine:
    """Owns an ``AsyncLLM``. Every method runs on the event loop that serves the calls.

    model: local path or hub name. scheduler: ``grape`` (ours) or ``stock`` (vLLM's, untouched).
    args: any further vLLM engine argument; ``grape`` holds settings of our scheduler.

    Raises ConfigError for arguments that vLLM does not know or that contradict each other.
    """

    def __init__(self, model: str, scheduler: str, args: dict[str, Any]) -> None:
        args = dict(args)
        grape = args.pop("grape", None) or {}
        self._on_cpu = current_platform.is_cpu()
        if self._on_cpu:
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
        self.early_refusal: str | None = "vLLM's own scheduler was asked for"
        if scheduler == "grape":
            self.early_refusal = self._why_not_early(config)
            # Chosen after vLLM settled on synchronous or asynchronous scheduling: a scheduler
            # class given earlier would decide that question.
            name = (
                "GrapeAsyncScheduler"
                if config.scheduler_config.async_scheduling
                else "GrapeScheduler"
            )
            config.scheduler_config.scheduler_cls = f"grape_lc.engine.vllm_scheduler.{name}"
            config.additional_config = {**(config.additional_config or {}), "grape": grape}
        self._llm = AsyncLLM.from_vllm_config(config)
        self._config = config
        self._scheduler = scheduler
        self._renderer = self._llm.renderer
        self._tokenizer = self._llm.get_tokenizer()
        # What vLLM's chat endpoint asks its renderer for.
        self._chat = ChatParams(
            chat_template_kwargs={
                "add_generation_prompt": True,
                "continue_final_message": False,
                "tokenize": is_mistral_tokenizer(self._tokenizer),
            }
        )
        self._has_offsets = bool(getattr(self._tokenizer, "is_fast", False))
        self.markers = sorted(getattr(self._tokenizer, "get_added_vocab", dict)())
        self._defaults: dict[str, Any] = config.model_config.get_diff_sampling_param()
        self._max_len: int = config.model_config.max_model_len
        self._drafts = config.speculative_config is not None
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

    async def self_test(self) -> None:
        """Ask the scheduler whether this vLLM has all that open prompts need."""
        if self.early_refusal is None:
            self.early_refusal = (await self.stats()).get("disabled")

    def info(self) -> dict[str, Any]:
        """What the client shows and checks."""
        cache = self._config.cache_config
        return {
            "max_model_len": self._max_len,
            "block_size": cache.block_size,
            "num_blocks": cache.num_gpu_blocks,
            "dtype": str(self._config.model_config.dtype).removeprefix("torch."),
            "device": "cpu" if self._on_cpu else current_platform.device_name,
            "scheduler": self._scheduler,
            "early_refusal": self.early_refusal,
            "drafting": self._drafts,
        }

    # ------------------------------------------------------------------ text and tokens

    def render(self, prompt: list[dict[str, Any]] | str) -> str:
        """Text of a prompt, through the same renderer as vLLM's chat endpoint."""
        if isinstance(prompt, str):
            return prompt
        _, rendered = self._renderer.render_messages(prompt, self._chat)
        if "prompt" not in rendered:
            raise UnsupportedRequestError(
                "this model's tokenizer renders chats to tokens, not to text"
            )
        return str(rendered["prompt"])

    def encode(self, text: str, *, chat: bool) -> tuple[Sequence[int], Sequence[int] | None]:
        """Ids as the endpoint makes them; a completion prompt gets the special tokens added."""
        if not self._has_offsets:
            return self._tokenizer.encode(text, add_special_tokens=not chat), None
        out = self._tokenizer(text, add_special_tokens=not chat, return_offsets_mapping=True)
        return out["input_ids"], [end for _, end in out["offset_mapping"]]

    async def prepare(self, request: CallRequest) -> PreparedCall:
        """Tokenise and check a request, as vLLM's endpoints do. Raises RequestError."""
        ids = await self._prompt_ids(request)
        room = self._max_len - len(ids)
        asked = request.sampling.max_tokens
        if room < max(asked or 1, 1):
            raise PromptTooLongError(
                f"the prompt has {len(ids)} tokens and max_tokens is {asked or 'not set'}, "
                f"but the model holds {self._max_len} tokens (max_model_len) in all"
            )
        params = self._sampling(request.sampling, room)
        budget = self._config.scheduler_config.max_num_batched_tokens
        seeded = params.seed is not None and params.temperature > 0
        if self._on_cpu and seeded and len(ids) > budget:
            raise UnsupportedRequestError(
                f"seed={params.seed} with a prompt of {len(ids)} tokens, more than one step of "
                f"this CPU engine takes ({budget}, max_num_batched_tokens): vLLM's CPU worker "
                "ends when a seeded prompt is cut. Raise max_num_batched_tokens, or leave seed out"
            )
        return PreparedCall(ids, params, request.program, request.task)

    async def _prompt_ids(self, request: CallRequest) -> list[int]:
        given = [x for x in (request.messages, request.text, request.token_ids) if x is not None]
        if len(given) != 1:
            raise RequestError(
                f"exactly one of messages, text and token_ids must be given, got {len(given)}"
            )
        if request.token_ids is not None:
            ids = list(request.token_ids)
        elif request.text is not None:
            ids = list(self.encode(request.text, chat=False)[0])
        else:
            ids = await self._chat_ids(request)
        if not ids:
            raise EmptyPromptError("the prompt has no tokens; give it at least one")
        vocabulary = self._config.model_config.get_vocab_size()
        if not all(0 <= i < vocabulary for i in (min(ids), max(ids))):
            raise RequestError(
                f"token ids must lie in 0..{vocabulary - 1}, got {min(ids)}..{max(ids)}"
            )
        return ids

    async def _chat_ids(self, request: CallRequest) -> list[int]:
        messages = [dict(m) for m in request.messages or ()]
        if not messages:
            raise EmptyPromptError("the call has no messages; give it at least one")
        try:
            if _size(messages) < _LONG_CHAT_CHARS:
                # Quicker than the way into vLLM's thread pool, and a task switch waits for it.
                _, rendered = self._renderer.render_messages(messages, self._chat)
            else:
                _, rendered = await self._renderer.render_messages_async(messages, self._chat)
        except Exception as error:
            # Templates raise whatever they like about messages that do not suit them.
            raise RequestError(f"the messages do not fit the chat template: {error!r}") from error
        if "prompt_token_ids" in rendered:
            return list(rendered["prompt_token_ids"])
        return list(self.encode(rendered["prompt"], chat=True)[0])

    def _sampling(self, sampling: Sampling, room: int) -> SamplingParams:
        """vLLM's parameters; what is not set comes from the model's generation config."""
        fields: dict[str, Any] = dict(self._defaults)
        fields.pop("max_tokens", None)
        chosen = sampling.model_dump(exclude={"extra", "stop"}, exclude_none=True)
        fields |= chosen | sampling.extra
        fields.setdefault("max_tokens", min(room, self._defaults.get("max_tokens") or room))
        if sampling.stop:
            fields["stop"] = list(sampling.stop)
        try:
            if fields.get("logit_bias"):  # JSON has no integer keys
                fields["logit_bias"] = {int(k): v for k, v in fields["logit_bias"].items()}
            params = SamplingParams(**fields, output_kind=RequestOutputKind.DELTA)
            # The engine core checks types only when it reads the request, and dies of bad ones.
            msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams)
        except _BAD_SAMPLING as error:
            raise RequestError(f"bad sampling parameters: {error}") from error
        if params.n != 1:
            raise UnsupportedRequestError(f"n={params.n}: one answer a call is served")
        if self._drafts and self._on_cpu and params.temperature > 0:
            raise UnsupportedRequestError(
                f"temperature={params.temperature} on a CPU engine that drafts "
                "(speculative_config): vLLM's CPU sampler would divide the logits of other calls "
                "in the batch by uninitialised memory. Use temperature=0, or an engine without "
                "speculative_config"
            )
        return params

    # ------------------------------------------------------------------ calls

    async def generate(
        self, call: PreparedCall, *, adopt: str | None, feeds: bool
    ) -> AsyncIterator[CallDelta]:
        """Run a call, taking over the KV of open prompt ``adopt`` where it fits."""
        params = call.params
        if self._scheduler == "grape":
            hint = {
                "v": _OP_VERSION,
                "op": "call",
                "adopt": adopt,
                "feeds": feeds,
                "program": call.program,
                "task": call.task,
            }
            params.extra_args = {**(params.extra_args or {}), "grape": hint}
        outcome, ahead, sampled = "none", 0, 0
        try:
            async for out in self._llm.generate(
                tokens_input(call.token_ids), params, f"call-{next(self._serial)}"
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
                yield CallDelta(
                    completion.text,
                    tuple(completion.token_ids),
                    at,
                    _FINISH.get(completion.finish_reason, "abort") if out.finished else None,
                    usage,
                )
        except EngineDeadError as error:
            raise EngineDiedError("vLLM's engine core ended; see the engine log") from error
        except VLLMValidationError as error:
            raise RequestError(str(error)) from error
        except Exception as error:
            raise CallFailedError(f"vLLM failed this call: {error!r}") from error

    # ------------------------------------------------------------------ open prompts

    async def open(self, key: str, ids: Sequence[int], hops: int) -> None:
        """Begin an open prompt; ``key`` must never have been used before."""
        await self._control(key, ids, {"op": "open", "hops": hops})

    async def append(self, key: str, ids: Sequence[int], hops: int, final: bool) -> None:
        """Extend an open prompt; an unknown key is ignored by the scheduler."""
        fresh = f"{key}/+{next(self._serial)}"
        await self._control(fresh, ids, {"op": "append", "key": key, "hops": hops, "final": final})

    async def release(self, keys: Sequence[str]) -> None:
        """Give open prompts back; unknown keys are ignored."""
        await self._llm.engine_core.abort_requests_async(list(keys))

    async def _control(self, request_id: str, ids: Sequence[int], op: dict[str, Any]) -> None:
        # Not registered with the output processor: no answer ever comes back.
        await self._llm.engine_core.add_request_async(
            EngineCoreRequest(
                request_id=request_id,
                prompt_token_ids=list(ids),
                mm_features=None,
                sampling_params=SamplingParams(
                    temperature=0.0, max_tokens=1, extra_args={"grape": {"v": _OP_VERSION, **op}}
                ),
                pooling_params=None,
                arrival_time=time.time(),
                lora_request=None,
                cache_salt=None,
                data_parallel_rank=None,
            )
        )

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False while calls hold blocks."""
        if self._scheduler == "grape":
            await self._llm.engine_core.call_utility_async("grape_release_all")
        return bool(await self._llm.reset_prefix_cache())

    async def stats(self) -> dict[str, Any]:
        """Counters of the scheduler; empty for the stock one."""
        if self._scheduler != "grape":
            return {}
        stats: dict[str, Any] = await self._llm.engine_core.call_utility_async("grape_stats")
        return stats

    async def shutdown(self) -> None:
        """Release every open prompt, then end vLLM's processes."""
        if self._scheduler == "grape" and not self.failed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._llm.engine_core.call_utility_async("grape_release_all"), _RELEASE_LIMIT_S
                )
        self._llm.shutdown(timeout=5)
