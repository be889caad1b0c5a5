"""What a simulated engine is started with."""

from __future__ import annotations

from dataclasses import dataclass

from grape_lc.engine.simulator.drafting import Drafting
from grape_lc.errors import ConfigError
from grape_lc.scheduler.settings import PolicyConfig, Rule


@dataclass(frozen=True)
class EngineSettings:
    """What an engine is started with.

    max_tokens: token budget of a step. rows: most requests of a step. by_priority: vLLM's
    ``priority`` scheduling policy instead of ``fcfs``. noise: spread (of the logarithm) of step
    times around F. drafting: n-gram drafting; None for none. validate: check all state after
    every step.
    """

    max_tokens: int = 2048
    rows: int = 256
    by_priority: bool = False
    noise: float = 0.0
    drafting: Drafting | None = None
    validate: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.rows < 1 or not 0 <= self.noise < 1:
            raise ConfigError(
                "an engine needs max_tokens >= 1, rows >= 1 and 0 <= noise < 1, not "
                f"{self.max_tokens}, {self.rows} and {self.noise}"
            )


def fitting(config: PolicyConfig, settings: EngineSettings) -> PolicyConfig:
    """Settings without what such an engine cannot do: by priority, vLLM's own order stands."""
    if settings.by_priority:
        return config.but(rule=Rule.FCFS, admission=False, two_phase=False)
    return config
