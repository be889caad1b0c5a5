"""Adopted answers equal plain answers, token for token, on a real model in this process.

In fp32: in bf16 plain vLLM differs from itself when the batch has another shape.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.engine import EngineCoreRequest

pytestmark = [
    pytest.mark.engine,
    # vLLM looks at every attribute of every torch module when it starts on a CPU.
    pytest.mark.filterwarnings("ignore:.torch.distributed.reduce_op. is deprecated:FutureWarning"),
    # vLLM still passes it to xgrammar.
    pytest.mark.filterwarnings("ignore:max_rollback_tokens is deprecated:DeprecationWarning"),
]

TEXTS = (
    "Write a short story about a grape that wanted to become wine, and what it learned. " * 4,
    "def fibonacci(n):\n    '''Return the n-th Fibonacci number.'''\n" * 3,
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
)


class Engine:
    """An LLM in this process, stepped by hand."""

    def __init__(self, model: str, **args: Any) -> None:
        self.llm = LLM(
            model,
            dtype="float32",
            enforce_eager=True,
            block_size=32,
            max_model_len=1024,
            max_num_seqs=6,
            disable_log_stats=True,
            scheduler_cls="grape_lc.engine.vllm_scheduler.GrapeScheduler",
            additional_config={"grape": {"validate": True}},
            **args,
        )
        self.core = self.llm.llm_engine.engine_core.engine_core
        self._serial = itertools.count()

    @property
    def scheduler(self) -> Any:
        return self.core.scheduler

    def tokens(self, text: str) -> list[int]:
        return list(self.llm.get_tokenizer().encode(text))

    def control(self, request_id: str, tokens: list[int], **message: Any) -> None:
        request = EngineCoreRequest(
            request_id=request_id,
            prompt_token_ids=tokens,
            mm_features=None,
            # Whatever a client sends, an open prompt's row is plain greedy.
            sampling_params=SamplingParams(
                max_tokens=1, temperature=0.7, extra_args={"grape": {"v": 1, **message}}
            ),
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self.llm.llm_engine.engine_core.add_request(request)

    def open(self, tokens: list[int]) -> str:
        key = f"open-{next(self._serial)}"
        self.control(key, tokens, op="open", hops=1)
        return key

    def append(self, key: str, tokens: list[int], **fields: Any) -> None:
        self.control(f"append-{next(self._serial)}", tokens, op="append", key=key, **fields)

    def work(self) -> None:
        """Step until the engine would sleep."""
        while self.scheduler.has_requests():
            self.llm.llm_engine.step()

    def generate(
        self, prompts: list[list[int]], keys: list[str | None], n: int = 24, **sampling: Any
    ) -> list[Any]:
        """Answers to all prompts at once, each with the open prompt of its key."""
        params = [
            SamplingParams(
                temperature=0.0,
                max_tokens=n,
                ignore_eos=True,
                extra_args=None
                if key is None
                else {"grape": {"v": 1, "op": "call", "adopt": key, "feeds": False}},
                **sampling,
            )
            for key in keys
        ]
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        return self.llm.generate(inputs, params, use_tqdm=False)  # type: ignore[no-any-return]

    def plain(self, prompt: list[int], **fields: Any) -> list[int]:
        """The answer of vLLM alone, from an empty prefix cache."""
        self.llm.reset_prefix_cache()
        (output,) = self.generate([prompt], [None], **fields)
        self.llm.reset_prefix_cache()
        return list(output.outputs[0].token_ids)


def started(model_path: str, monkeypatch: pytest.MonkeyPatch, **args: Any) -> Iterator[Engine]:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"))
    engine = Engine(model_path, **args)
    yield engine
    engine.core.shutdown()
    del engine
    gc.collect()


@pytest.fixture(scope="module")
def engine(model_path: str) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield from started(model_path, monkeypatch)


@pytest.fixture(autouse=True)
def at_rest(engine: Engine) -> Iterator[None]:
    yield
    engine.work()
    assert not engine.scheduler.requests
    stats = engine.core.grape_stats()
    assert stats["free_blocks"] == stats["total_blocks"]


def outcome(output: Any) -> tuple[str, int]:
    report = output.kv_transfer_params["grape"]
    return report["outcome"], report["tokens"]


def test_adopted_answers_equal_plain_answers(engine):
    """Opened in pieces that end anywhere in a block, while other calls decode."""
    prompts = [engine.tokens(text) for text in TEXTS]
    expected = [engine.plain(prompt) for prompt in prompts]
    keys = []
    for prompt in prompts:
        cuts = [0, len(prompt) // 3, len(prompt) // 2 + 1, len(prompt) - 2]
        key = engine.open(prompt[: cuts[1]])
        for low, high in itertools.pairwise(cuts[1:]):
            engine.append(key, prompt[low:high], final=high == cuts[-1])
            engine.llm.llm_engine.step()
        keys.append(key)
    engine.work()
    outputs = engine.generate(prompts, keys)
    for prompt, output, tokens in zip(prompts, outputs, expected, strict=True):
        assert list(output.outputs[0].token_ids) == tokens
        assert outcome(output) == ("adopted", len(prompt) - 3)
        assert output.num_cached_tokens == len(prompt) - 3


def test_adopted_at_the_last_token(engine):
    prompt = engine.tokens(TEXTS[0])
    expected = engine.plain(prompt)
    key = engine.open(prompt)
    engine.work()
    (output,) = engine.generate([prompt], [key])
    assert list(output.outputs[0].token_ids) == expected
    assert outcome(output) == ("adopted", len(prompt) - 1)


@pytest.mark.parametrize(("keep", "what"), [(20, "mismatch"), (70, "truncated")])
def test_other_prompt_than_predicted(engine, keep, what):
    predicted = engine.tokens(TEXTS[0])[:80]
    prompt = predicted[:keep] + engine.tokens(TEXTS[1])
    expected = engine.plain(prompt)
    key = engine.open(predicted)
    engine.work()
    (output,) = engine.generate([prompt], [key])
    assert list(output.outputs[0].token_ids) == expected
    assert outcome(output) == (what, keep if what == "truncated" else 0)


def test_dropped_and_prefilled_again(engine):
    prompt = engine.tokens(TEXTS[0])
    expected = engine.plain(prompt)
    key = engine.open(prompt[:-5])
    engine.work()
    engine.llm.reset_prefix_cache()
    assert engine.scheduler.requests[key].num_computed_tokens == 0
    engine.work()
    (output,) = engine.generate([prompt], [key])
    assert list(output.outputs[0].token_ids) == expected
    assert outcome(output) == ("adopted", len(prompt) - 6)


def test_calls_around_early_work_are_not_changed(engine):
    """Calls decode while open prompts grow beside them, in the same steps."""
    prompts = [engine.tokens(text) for text in TEXTS]
    expected = [engine.plain(prompt, n=40) for prompt in prompts]
    early = engine.tokens(TEXTS[0] * 3)
    key = engine.open(early)
    outputs = engine.generate(prompts, [None] * len(prompts), n=40)
    for output, tokens in zip(outputs, expected, strict=True):
        assert list(output.outputs[0].token_ids) == tokens
    assert engine.scheduler.requests[key].num_computed_tokens == len(early) - 1
    engine.scheduler.grape_release_all()


def test_sampling_with_a_seed_is_the_same(engine):
    prompt = engine.tokens(TEXTS[1])
    fields = {"temperature": 0.8, "seed": 11, "max_tokens": 24, "logprobs": 2}
    inputs = [{"prompt_token_ids": prompt}]
    engine.llm.reset_prefix_cache()
    (plain,) = engine.llm.generate(inputs, SamplingParams(**fields), use_tqdm=False)
    engine.llm.reset_prefix_cache()
    key = engine.open(prompt[:-3])
    engine.work()
    call = {"grape": {"v": 1, "op": "call", "adopt": key}}
    params = SamplingParams(**fields, extra_args=call)
    (adopted,) = engine.llm.generate(inputs, params, use_tqdm=False)
    assert outcome(adopted)[0] == "adopted"
    assert adopted.outputs[0].token_ids == plain.outputs[0].token_ids
    assert len(adopted.outputs[0].logprobs) == len(plain.outputs[0].logprobs)


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 3},
        {"prompt_logprobs": 1},
        {"repetition_penalty": 1.3},
        {"presence_penalty": 0.5, "frequency_penalty": 0.4},
        {"logit_bias": {30: 2.0}, "min_tokens": 4},
        {"bad_words": ["grape", "the"]},
        {"stop": ["the", "."]},
        {"structured_outputs": StructuredOutputsParams(regex="[a-f]{12}")},
        {"structured_outputs": StructuredOutputsParams(choice=["wine", "vinegar"])},
        {"temperature": 0.9, "seed": 4, "top_p": 0.9, "top_k": 40, "min_p": 0.02},
    ],
    ids="-".join,
)
def test_any_sampling_cut_or_adopted(engine, fields):
    """Cut by the step cap beside a decoding call, and adopted: both equal vLLM alone."""
    prompt = engine.tokens(TEXTS[0])
    fields = {"temperature": 0.0, "max_tokens": 16, **fields}

    def run(busy: bool, key: str | None) -> Any:
        core = engine.llm.llm_engine
        if busy:
            params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
            core.add_request("busy", {"prompt_token_ids": engine.tokens(TEXTS[2])}, params)
            for _ in range(3):
                core.step()
        call = {"grape": {"v": 1, "op": "call", "adopt": key}}
        core.add_request(
            "call", {"prompt_token_ids": prompt}, SamplingParams(**fields, extra_args=call)
        )
        last = None
        while core.has_unfinished_requests():
            for output in core.step():
                last = output if output.request_id == "call" and output.finished else last
        engine.llm.reset_prefix_cache()
        return last

    plain = run(busy=False, key=None)
    cut = run(busy=True, key=None)
    key = engine.open(prompt[:-2])
    engine.work()
    adopted = run(busy=True, key=key)
    for output in (cut, adopted):
        (mine,), (other,) = output.outputs, plain.outputs
        assert list(mine.token_ids) == list(other.token_ids)
        assert mine.text == other.text
        assert mine.finish_reason == other.finish_reason
        assert (output.prompt_logprobs is None) == ("prompt_logprobs" not in fields)
    refused = "prompt_logprobs" in fields
    assert (outcome(adopted)[0] == "adopted") != refused


def test_long_prompt_with_a_seed_beside_a_decoding_call(engine):
    """The step cap must not cut it: a chunk would end vLLM's CPU engine."""
    prompt = engine.tokens(TEXTS[0] * 2)
    fields = {"temperature": 0.8, "seed": 11, "max_tokens": 12, "ignore_eos": True}
    engine.llm.reset_prefix_cache()
    inputs = [{"prompt_token_ids": prompt}]
    (plain,) = engine.llm.generate(inputs, SamplingParams(**fields), use_tqdm=False)
    engine.llm.reset_prefix_cache()
    core = engine.llm.llm_engine
    busy = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
    core.add_request("busy", {"prompt_token_ids": engine.tokens(TEXTS[2])}, busy)
    for _ in range(4):
        core.step()
    core.add_request("seeded", {"prompt_token_ids": prompt}, SamplingParams(**fields))
    answers = {}
    while core.has_unfinished_requests():
        for output in core.step():
            if output.finished:
                answers[output.request_id] = list(output.outputs[0].token_ids)
    assert answers["seeded"] == list(plain.outputs[0].token_ids)
    assert len(answers["busy"]) == 60


def test_several_answers(engine):
    """vLLM makes one request per answer; the first adopts, none is lost."""
    prompt = engine.tokens(TEXTS[2])
    inputs = [{"prompt_token_ids": prompt}]
    fields = {"temperature": 0.8, "seed": 3, "n": 3, "max_tokens": 12, "ignore_eos": True}
    engine.llm.reset_prefix_cache()
    (plain,) = engine.llm.generate(inputs, SamplingParams(**fields), use_tqdm=False)
    engine.llm.reset_prefix_cache()
    key = engine.open(prompt[:-1])
    engine.work()
    before = engine.core.grape_stats()["adopted"]
    call = {"grape": {"v": 1, "op": "call", "adopt": key}}
    params = SamplingParams(**fields, extra_args=call)
    (adopted,) = engine.llm.generate(inputs, params, use_tqdm=False)
    answers = [list(answer.token_ids) for answer in adopted.outputs]
    assert answers == [list(answer.token_ids) for answer in plain.outputs]
    assert len({tuple(answer) for answer in answers}) > 1
    assert engine.core.grape_stats()["adopted"] == before + 1
