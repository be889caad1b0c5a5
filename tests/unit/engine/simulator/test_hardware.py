from __future__ import annotations

import pytest

from grape_lc.engine.simulator.hardware import GPUS, MODELS, machine
from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import StepLoad

DECODES = StepLoad.of([(1, 2000)] * 32)


def test_sizes_of_the_models_are_those_of_their_cards():
    llama, qwen = MODELS["llama3-8b"], MODELS["qwen3-14b"]
    assert llama.block_weights + 2 * llama.head_weights == pytest.approx(8.03e9, rel=0.001)
    assert qwen.block_weights + 2 * qwen.head_weights == pytest.approx(14.8e9, rel=0.005)
    assert llama.kv_bytes == 131072


@pytest.mark.parametrize("gpu", sorted(GPUS))
def test_a_step_of_decodes_is_bound_by_reading_weights_and_kv(gpu):
    chip, model = GPUS[gpu], MODELS["llama3-8b"]
    weights = 2 * (model.block_weights + model.head_weights)
    least = (weights + DECODES.kv_tokens * model.kv_bytes) / chip.bytes_per_s
    seconds = machine(gpu, "llama3-8b").cost.seconds(DECODES)
    assert least < seconds < least / chip.memory_share + 0.002


@pytest.mark.parametrize("gpu", sorted(GPUS))
def test_a_long_prefill_is_bound_by_the_peak(gpu):
    model = MODELS["llama3-8b"]
    least = 2 * model.block_weights * 8192 / GPUS[gpu].flops
    seconds = machine(gpu, "llama3-8b").cost.seconds(StepLoad.of([(8192, 0)]))
    assert least < seconds < 2.5 * least


def test_few_prefill_tokens_are_nearly_free_beside_decodes_but_not_over_pcie():
    def share(**how: object) -> float:
        cost = machine("a100-40gb", "qwen3-14b", tp=2, **how).cost  # type: ignore[arg-type]
        return cost.seconds(DECODES.plus(64)) / cost.seconds(DECODES) - 1

    assert share(link="nvlink") < 0.02
    assert share(link="pcie") > 0.05


def test_kv_blocks_follow_from_memory():
    small, large = machine("a100-40gb", "llama3-8b"), machine("h200", "llama3-8b")
    assert 130_000 < small.blocks * small.block_size < 170_000
    assert large.blocks > 5 * small.blocks
    assert machine("a100-40gb", "llama3-8b", block_size=32).blocks * 2 == pytest.approx(
        small.blocks, abs=2
    )


def test_two_gpus_are_faster_than_one_and_slower_than_twice_as_fast():
    one, two = (machine("h100", "qwen3-14b", tp=tp).cost.seconds(DECODES) for tp in (1, 2))
    assert one / 2 < two < one


@pytest.mark.parametrize(
    ("gpu", "model", "how", "words"),
    [
        ("b100", "llama3-8b", {}, "unknown GPU 'b100'; known: a100-40gb, h100, h200"),
        ("h100", "gpt", {}, "unknown model 'gpt'; known: llama3-8b, qwen3-14b"),
        ("h100", "llama3-8b", {"link": "pcie"}, "unknown link of h100 'pcie'; known: nvlink"),
        ("h100", "llama3-8b", {"tp": 4}, "tensor parallelism: 1 or 2, not 4"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(gpu, model, how, words):
    with pytest.raises(ConfigError, match=words):
        machine(gpu, model, **how)
