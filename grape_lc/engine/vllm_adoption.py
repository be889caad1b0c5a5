"""Whether, and how far, a real request may go on from an open prompt's KV."""

from __future__ import annotations

from typing import Any


def why_not_open(request: Any) -> str | None:
    """Why a request cannot become an open prompt; ``None`` if it can."""
    return _first(
        (not request.prompt_token_ids, "no prompt tokens"),
        (request.prompt_embeds is not None, "embeddings"),
        (request.has_encoder_inputs, "multimodal"),
        (request.pooling_params is not None, "pooling"),
        (request.resumable, "streaming input"),
    )


def why_not_adopt(request: Any, opened: Any) -> str | None:
    """Why a request may not take over the KV of the request ``opened``; ``None`` if it may.

    Both have the same ``cache_salt``: to a request with another one there is no such open prompt.
    """
    return _first(
        (request.prompt_token_ids is None, "the prompt is given as embeddings"),
        (request.prompt_embeds is not None, "the prompt is given as embeddings"),
        (request.has_encoder_inputs, "multimodal"),
        (request.pooling_params is not None, "pooling"),
        (request.resumable, "streaming input"),
        (request.sampling_params.prompt_logprobs is not None, "prompt logprobs"),
        (request.skip_reading_prefix_cache, "the call reads no cached prefix"),
        (request.lora_request != opened.lora_request, "LoRA differs"),
    )


def fit(
    prompt: list[int], opened: list[int], computed: int, hashed: int, block_size: int
) -> tuple[str, int]:
    """How many computed tokens of an open prompt a call can go on from, and the outcome.

    prompt: the call's tokens, at least one. opened: the open prompt's tokens, of which the first
    ``computed`` have KV and the first ``hashed`` lie in blocks that must not be written again.

    Outcomes: ``adopted`` (one is a prefix of the other), ``truncated`` (up to the first
    difference, behind the hashed blocks), ``mismatch`` and ``cold`` (nothing; 0 tokens).
    """
    # The last token is computed again: its logits are the first answer token.
    most = min(computed, len(prompt) - 1)
    if most <= 0:
        return "cold", 0
    common = most
    if prompt[:most] != opened[:most]:
        common = next(i for i in range(most) if prompt[i] != opened[i])
    if common < most:
        return ("truncated", common) if common >= max(hashed, 1) else ("mismatch", 0)
    if common < hashed:
        # The prompt is shorter than what is hashed: it goes on from a block boundary.
        common -= common % block_size
    return ("adopted", common) if common else ("mismatch", 0)


def _first(*reasons: tuple[bool, str]) -> str | None:
    return next((why for applies, why in reasons if applies), None)
