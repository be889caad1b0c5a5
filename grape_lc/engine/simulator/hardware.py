"""How long a step takes on a GPU, and how much KV fits: a roofline from published figures.

A step reads all weights once and multiplies them with every token; whichever of the two is slower
counts. Attention reads the KV of each row once, and compares further tokens of a chunk with it:

    T = max(weights / (bandwidth x share), 2 x weights x tokens / (peak x share))
      + KV bytes / (bandwidth x share) + attention operations / (peak x share)
      + all-reduce + overhead

The maximum of a constant and a line is a hinge, so T has the form of ``LinearCost``. Peak,
bandwidth and memory are published; shares and overheads are assumed, and nothing here was
measured. For a machine at hand, ``grape profile`` measures T; its coefficients take the place of
all this.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import LinearCost

_T = TypeVar("_T")

_BYTES = 2  # of a weight and of a KV value in bfloat16


class Link(NamedTuple):
    """How GPUs of one host reach each other.

    bytes_per_s: one direction, published. share: of it that an all-reduce reaches, assumed.
    latency_s: of one all-reduce of few bytes, assumed from what NCCL's own tests commonly show.
    """

    bytes_per_s: float
    share: float
    latency_s: float


PCIE4 = Link(32e9, 0.75, 30e-6)  # 16 lanes of 16 GT/s
NVLINK3 = Link(300e9, 0.75, 10e-6)  # half of 600 GB/s
NVLINK4 = Link(450e9, 0.75, 10e-6)  # half of 900 GB/s


class Gpu(NamedTuple):
    """One GPU.

    flops: dense bfloat16 operations a second; bytes_per_s: memory bandwidth; both from NVIDIA's
        data sheets. memory: bytes, as ``nvidia-smi`` reports them.
    links: by name, the default first.
    compute_share, memory_share: of peak and bandwidth that long matrix products and reading the
        weights reach. Assumed: served models are commonly reported at 50-65% of peak in prefill
        and 75-85% of bandwidth in decode.
    """

    flops: float
    bytes_per_s: float
    memory: float
    links: dict[str, Link]
    compute_share: float = 0.6
    memory_share: float = 0.8


GPUS: dict[str, Gpu] = {
    "a100-40gb": Gpu(312e12, 1555e9, 40536 * 2**20, {"pcie": PCIE4, "nvlink": NVLINK3}),
    "h100": Gpu(989.4e12, 3350e9, 81559 * 2**20, {"nvlink": NVLINK4}, compute_share=0.55),
    "h200": Gpu(989.4e12, 4800e9, 143771 * 2**20, {"nvlink": NVLINK4}, compute_share=0.55),
}


class Model(NamedTuple):
    """A dense decoder with grouped-query attention and gated MLP; sizes from its model card."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int

    @property
    def block_weights(self) -> int:
        """Weights that every token is multiplied with."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_weights(self) -> int:
        """Weights of the output head; the embedding table, of the same size, is only looked up."""
        return self.hidden * self.vocabulary

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV that one token takes, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * _BYTES

    @property
    def pair_flops(self) -> int:
        """Operations to compare one token with another: scores and values, all layers."""
        return 4 * self.layers * self.heads * self.head_size


MODELS: dict[str, Model] = {
    "llama3-8b": Model(32, 4096, 14336, 32, 8, 128, 128256),
    "qwen3-14b": Model(40, 5120, 17408, 40, 8, 128, 151936),
}

STEP_OVERHEAD_S = 1.5e-3
"""Assumed: launching, sampling and the scheduler, per step."""

ROW_OVERHEAD_S = 5e-6
"""Assumed: preparing and sampling one row."""

MEMORY_SHARE = 0.9
"""Of the GPU's memory that vLLM takes by default."""

ACTIVATION_BYTES = 2e9
"""Assumed: activations, CUDA graphs and libraries."""


class Rating(NamedTuple):
    """What utilisation is computed from: the operations of a model, and those of its GPUs.

    peak: operations a second of all ``devices`` together, published. per_token: for each token, its
    products with the weights, the output head left out. per_context: for each token that it attends
    to. per_logit: the output head, for each token that is sampled. kv_bytes: of a token, on each
    device.
    """

    peak: float
    devices: int
    per_token: int
    per_context: int
    per_logit: int
    kv_bytes: float


class Machine(NamedTuple):
    """What a replica runs on: how long steps take, and its KV blocks.

    rating: None where a fitted cost says nothing about it.
    """

    cost: LinearCost
    blocks: int
    block_size: int
    rating: Rating | None = None


def machine(
    gpu: str, model: str, *, tp: int = 1, link: str | None = None, block_size: int = 16
) -> Machine:
    """A model on ``tp`` GPUs of a kind, joined by ``link`` (default: the kind's first).

    Raises ConfigError for unknown names, for tp other than 1 and 2, and where the model does not
    fit.
    """
    chip, shape = _known("GPU", gpu, GPUS), _known("model", model, MODELS)
    if tp not in {1, 2}:
        raise ConfigError(f"tensor parallelism: 1 or 2, not {tp}")
    joined = _known(f"link of {gpu}", link or next(iter(chip.links)), chip.links)
    weights = _BYTES * (shape.block_weights + shape.head_weights)
    compute = chip.flops * chip.compute_share * tp
    reading = chip.bytes_per_s * chip.memory_share * tp
    weights_s, token_s = weights / reading, 2 * shape.block_weights / compute
    rounds = 2 * shape.layers if tp > 1 else 0  # one all-reduce behind attention, one behind MLP
    moved = 2 * (tp - 1) / tp * shape.hidden * _BYTES
    cost = LinearCost(
        base=weights_s + STEP_OVERHEAD_S + rounds * joined.latency_s,
        per_row=ROW_OVERHEAD_S,
        per_token=rounds * moved / (joined.bytes_per_s * joined.share),
        per_kv=shape.kv_bytes / reading,
        per_pair=shape.pair_flops / compute,
        hinges=((round(weights_s / token_s), token_s),),
    )
    embedding = _BYTES * shape.head_weights
    room = MEMORY_SHARE * chip.memory - (weights + embedding) / tp - ACTIVATION_BYTES
    blocks = int(room * tp / (shape.kv_bytes * block_size))
    if blocks < 1:
        raise ConfigError(f"{model} leaves no memory for KV on {tp} x {gpu}")
    rating = Rating(
        chip.flops * tp,
        tp,
        2 * shape.block_weights,
        shape.pair_flops,
        2 * shape.head_weights,
        shape.kv_bytes / tp,
    )
    return Machine(cost, blocks, block_size, rating)


def _known(what: str, name: str, known: dict[str, _T]) -> _T:
    try:
        return known[name]
    except KeyError:
        raise ConfigError(f"unknown {what} {name!r}; known: {', '.join(known)}") from None
