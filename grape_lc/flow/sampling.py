"""How a call samples its tokens. Names and defaults are vLLM's."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Sampling(BaseModel):
    """Sampling parameters of one call; ``None`` means the model's own default.

    The defaults of a model are those of its ``generation_config.json``, as on vLLM's
    OpenAI server. ``max_tokens=None`` lets the answer fill what the model can hold.
    ``structured_outputs`` restricts the answer; it holds one of vLLM's constraints: ``json`` (a
    JSON schema), ``json_object`` (True), ``regex``, ``choice``, ``grammar`` or ``structural_tag``.
    ``logprobs`` asks for the log probability of each token, and of so many of the likeliest in
    its place. ``extra`` passes any further field of ``vllm.SamplingParams`` through unchanged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int | None = Field(default=None, ge=0)
    temperature: float | None = Field(default=None, ge=0.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = Field(default=None, ge=0)
    structured_outputs: dict[str, Any] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
