"""vLLM's real scheduler with a worker that stores, per KV slot, what was written there.

The worker has no model. For each slot it keeps a hash of the token prefix that the slot's KV
stands for, and at every step it checks that all slots below a request's computed tokens hold
what the request's own tokens require. A block handed over wrongly, freed too early or written
by two requests is an error in the step where it happens.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from grape_lc.engine.vllm_scheduler import GrapeAsyncScheduler, GrapeScheduler

BLOCK = 16
MAX_LEN = 512
VOCABULARY = 1000

init_none_hash(sha256)
_hasher = get_request_block_hasher(BLOCK, sha256)


@dataclasses.dataclass(frozen=True)
class Kind:
    """Which scheduler base, which form of worker data, how many steps in flight."""

    name: str
    scheduler: type
    v2: bool
    asynchronous: bool

    @property
    def depth(self) -> int:
        return 2 if self.asynchronous else 1


KINDS = (
    Kind("sync-v1", GrapeScheduler, v2=False, asynchronous=False),
    Kind("sync-v2", GrapeScheduler, v2=True, asynchronous=False),
    Kind("async-v1", GrapeAsyncScheduler, v2=False, asynchronous=True),
    Kind("async-v2", GrapeAsyncScheduler, v2=True, asynchronous=True),
)


def write_model_config(directory: Path) -> Path:
    """A directory that vLLM's ModelConfig accepts as a model, without weights or tokenizer."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_LEN,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (directory / "config.json").write_text(json.dumps(config))
    return directory


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_scheduler(
    model: Path,
    kind: Kind,
    *,
    blocks: int = 200,
    step_tokens: int = 64,
    rows: int = 8,
    policy: str = "fcfs",
    drafts: int = 0,
    caching: bool = True,
    finished_sets: bool = False,
    device: str = "cpu",
    settings: dict[str, Any] | None = None,
    extra: dict[str, Any] | None = None,
) -> Any:
    model_config = ModelConfig(
        model=str(model), dtype="float32", max_model_len=MAX_LEN, skip_tokenizer_init=True
    )
    scheduler_config = SchedulerConfig(
        max_num_seqs=rows,
        max_num_batched_tokens=step_tokens,
        max_model_len=MAX_LEN,
        enable_chunked_prefill=True,
        async_scheduling=kind.asynchronous,
        is_encoder_decoder=False,
        policy=policy,
    )
    cache_config = CacheConfig(block_size=BLOCK, enable_prefix_caching=caching)
    config = VllmConfig(
        scheduler_config=scheduler_config,
        model_config=model_config,
        cache_config=cache_config,
        device_config=DeviceConfig("cpu"),
        additional_config={"grape": {"validate": True, **(settings or {})}, **(extra or {})},
    )
    # The CPU platform changes both; the scheduler classes do not care which platform it is.
    config.device_config.device_type = device
    config.scheduler_config.async_scheduling = kind.asynchronous
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    cache_config.num_gpu_blocks = blocks
    scheduler = kind.scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        block_size=BLOCK,
        log_stats=False,
        include_finished_set=finished_sets,
        structured_output_manager=StructuredOutputManager(config),
    )
    scheduler.use_v2_model_runner = kind.v2
    if drafts:
        scheduler.num_spec_tokens = drafts
        if kind.asynchronous:
            scheduler._spec_token_placeholders = [-1] * drafts
    return scheduler


def next_token(tokens: list[int]) -> int:
    """The model: the next token is a function of all tokens before it."""
    return hash(tuple(tokens)) % (VOCABULARY - 3) + 3


def answer(prompt: list[int], count: int) -> list[int]:
    """What a call must answer."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def draft(tokens: list[int], count: int) -> list[int]:
    """Draft ``count`` tokens, of which the first few are right."""
    drafts = answer(tokens, count)
    right = hash(tuple(tokens)) % (count + 1)
    return drafts[:right] + [token - 1 for token in drafts[right:]]


def verify(tokens: list[int], drafts: list[int]) -> list[int]:
    """The tokens that a step yields: the drafts that are right, and one more."""
    found: list[int] = []
    for token in drafts:
        found.append(next_token(tokens + found))
        if token != found[-1]:
            return found
    return [*found, next_token(tokens + found)]


class Worker:
    """Executes steps on KV slots; see the module."""

    def __init__(self, scheduler: Any, kind: Kind) -> None:
        self._scheduler = scheduler
        self._v2 = kind.v2
        self._asynchronous = kind.asynchronous
        # Requests that decode: their last token is sampled, not computed.
        self._sampled: set[str] = set()
        # Requests with a seed: on a CPU a chunk of their prompt ends the engine.
        self._seeded: set[str] = set()
        self._slots: dict[tuple[int, int], int] = {}
        self._requests: dict[str, tuple[list[int], list[int], list[int]]] = {}

    def execute(self, step: Any) -> ModelRunnerOutput:
        self._update(step)
        ids = list(step.num_scheduled_tokens)
        assert len(ids) <= self._scheduler.max_num_running_reqs
        written: dict[tuple[int, int], str] = {}
        sampled = []
        for request_id in ids:
            tokens, blocks, computed = self._requests[request_id]
            drafts = list(step.scheduled_spec_decode_tokens.get(request_id, ()))
            count = step.num_scheduled_tokens[request_id]
            start = computed[0]
            if self._asynchronous and request_id in self._sampled:
                # The scheduler counts on all drafts; the worker knows better, and drafts itself.
                start = len(tokens) - 1
                drafts = draft(tokens, len(drafts))
            known = start + count - len(drafts)
            assert known <= len(tokens), f"{request_id}: {known} of {len(tokens)} tokens"
            assert -(-(start + count) // BLOCK) <= len(blocks), f"{request_id}: too few blocks"
            value = 0
            for position, token in enumerate(tokens[:known] + drafts):
                slot = (blocks[position // BLOCK], position % BLOCK)
                value = hash((value, token))
                if position >= start:
                    owner = written.setdefault(slot, request_id)
                    assert owner == request_id, f"{owner} and {request_id} both wrote {slot}"
                    self._slots[slot] = value
                else:
                    held = self._slots.get(slot)
                    assert held == value, f"{request_id}: wrong KV at {position} of {start}"
            if known == len(tokens):
                sampled.append(verify(tokens, drafts))
                tokens += sampled[-1]
                self._sampled.add(request_id)
            else:
                assert not drafts, f"{request_id}: drafts in a prompt chunk"
                fits = len(tokens) - start <= self._scheduler.max_num_scheduled_tokens
                cut = fits and request_id in self._seeded
                assert not cut, f"{request_id}: a chunk of a prompt with a seed, on a CPU"
                sampled.append([])
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=[list(tokens) for tokens in sampled],
        )

    def _update(self, step: Any) -> None:
        for request_id in step.finished_req_ids:
            self._requests.pop(request_id, None)
            self._sampled.discard(request_id)
        for request_id in step.preempted_req_ids or ():
            self._sampled.discard(request_id)
            if self._v2:
                self._requests.pop(request_id, None)
        for new in step.scheduled_new_reqs:
            self._sampled.discard(new.req_id)
            self._seeded.discard(new.req_id)
            if new.sampling_params.seed is not None and new.sampling_params.temperature > 0:
                self._seeded.add(new.req_id)
            tokens = new.prefill_token_ids if self._v2 else new.prompt_token_ids
            self._requests[new.req_id] = (
                list(tokens),
                list(new.block_ids[0]),
                [new.num_computed_tokens],
            )
        cached = step.scheduled_cached_reqs
        for index, request_id in enumerate(cached.req_ids):
            tokens, blocks, computed = self._requests[request_id]
            known = cached.all_token_ids.get(request_id, ())
            if request_id in cached.resumed_req_ids or len(known) >= len(tokens):
                tokens[:] = known
            new_blocks = cached.new_block_ids[index]
            if request_id in cached.resumed_req_ids:
                blocks[:] = new_blocks[0]
            elif new_blocks:
                blocks += new_blocks[0]
            computed[0] = cached.num_computed_tokens[index]
        assert len(self._requests) <= 4 * self._scheduler.max_num_running_reqs + 64


class Simulation:
    """An engine core loop: scheduler, worker, and up to ``kind.depth`` steps in flight."""

    def __init__(self, model: Path, kind: Kind, **settings: Any) -> None:
        self.kind = kind
        self.scheduler = make_scheduler(model, kind, **settings)
        self.clock = Clock()
        self.scheduler.grape_clock = self.clock
        # No request waited before it came in.
        self.scheduler.grape_wall_clock = lambda: 0.0
        self.worker = Worker(self.scheduler, kind)
        self.answers: dict[str, list[int]] = collections.defaultdict(list)
        self.outcomes: dict[str, dict[str, Any]] = {}
        self.finished: set[str] = set()
        self.told: set[str] = set()
        self.base = self.free
        self.opened: set[str] = set()
        self.work_s = 0.0
        self.drafts = self.scheduler.num_spec_tokens
        self._queue: collections.deque[tuple[Any, Any]] = collections.deque()
        self._ids = itertools.count()

    # -- messages

    def open(self, key: str, tokens: list[int], **fields: Any) -> None:
        if key not in self.scheduler.requests:
            self.opened.add(key)
        self.add(key, tokens, {"op": "open", "hops": 1, **fields})

    def append(self, key: str, tokens: list[int], **fields: Any) -> None:
        self.add(f"append-{next(self._ids)}", tokens, {"op": "append", "key": key, **fields})

    def call(
        self,
        request_id: str,
        tokens: list[int],
        *,
        adopt: str | None = None,
        n: int = 8,
        **fields: Any,
    ) -> None:
        message = {"op": "call", "adopt": adopt, "program": "p", **fields}
        self.add(request_id, tokens, message, n=n)

    def plain(self, request_id: str, tokens: list[int], n: int = 8, **request: Any) -> None:
        self.add(request_id, tokens, None, n=n, **request)

    def add(
        self,
        request_id: str,
        tokens: list[int],
        message: dict[str, Any] | None,
        *,
        n: int = 8,
        sampling: dict[str, Any] | None = None,
        **request: Any,
    ) -> None:
        extra = None if message is None else {"grape": {"v": 1, **message}}
        fields = {"max_tokens": n, "ignore_eos": True, "extra_args": extra, **(sampling or {})}
        params = SamplingParams(**fields)
        self.scheduler.add_request(
            Request(request_id, list(tokens), params, None, block_hasher=_hasher, **request)
        )

    def release(self, *keys: str) -> None:
        self.scheduler.finish_requests(list(keys), RequestStatus.FINISHED_ABORTED)

    # -- loop

    def step(self) -> None:
        """One turn of the loop: fill the pipeline, or take a result out of it."""
        self.clock.now += 0.001
        if self.scheduler.has_requests() and len(self._queue) < self.kind.depth:
            self.launch()
            if len(self._queue) < self.kind.depth:
                return
        if self._queue:
            self.collect()

    def launch(self) -> Any:
        """Schedule one more step and let the worker do it; its output stays on the way."""
        planned = self.scheduler.schedule()
        self.check(planned)
        self._queue.append((planned, self.worker.execute(planned)))
        return planned

    @property
    def in_flight(self) -> int:
        """Steps whose output is on the way."""
        return len(self._queue)

    def check(self, planned: Any) -> None:
        """No step is longer than its plan, and no plan runs what it preempts."""
        controller = getattr(self.scheduler, "_controller", None)
        if controller is None:
            return
        plan = controller.plan
        total = planned.total_num_scheduled_tokens
        assert total == sum(planned.num_scheduled_tokens.values()) <= plan.budget, plan
        items = (*plan.prefills, *(plan.starts or ()), *plan.opens)
        named = [item.id for item in items]
        assert len(named) == len(set(named)), f"named twice: {named}"
        assert not {*named} & {victim.id for victim in plan.preempt}, plan

    def collect(self) -> None:
        """Take the oldest step out of the pipeline."""
        self.clock.now += self.work_s
        planned, result = self._queue.popleft()
        for outputs in self.scheduler.update_from_output(planned, result).values():
            self.told |= outputs.finished_requests or set()
            for output in outputs.outputs:
                assert output.request_id not in self.opened, "an open prompt sampled"
                self.answers[output.request_id] += output.new_token_ids
                if output.kv_transfer_params:
                    self.outcomes[output.request_id] = output.kv_transfer_params["grape"]
                if output.finish_reason is not None:
                    self.finished.add(output.request_id)
        if self.drafts and not self.kind.asynchronous:
            requests = self.scheduler.requests
            ids = [i for i in planned.num_scheduled_tokens if i in requests]
            drafts = [draft(list(requests[i].all_token_ids), self.drafts) for i in ids]
            self.scheduler.update_draft_token_ids(DraftTokenIds(ids, drafts))

    def idle(self, turns: int = 3000) -> None:
        """Run until the engine core would sleep."""
        for _ in range(turns):
            if not self.scheduler.has_requests() and not self._queue:
                return
            self.step()
        raise AssertionError(f"still busy after {turns} turns: {self.scheduler.grape_stats()}")

    # -- insight

    @property
    def free(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    @property
    def counters(self) -> collections.Counter[str]:
        return self.scheduler.grape_counters  # type: ignore[no-any-return]

    def computed(self, request_id: str) -> int:
        return int(self.scheduler.requests[request_id].num_computed_tokens)

    def close(self) -> None:
        """Everything ends: all blocks are back, nothing is remembered."""
        self.scheduler.grape_validate()
        self.scheduler.grape_release_all()
        self.idle()
        assert not self.scheduler.requests
        assert self.free == self.base
        assert not self.scheduler._ledger.tracked
        self.scheduler.grape_validate()
