"""What a user may ask a running engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from grape_lc.engine.base import CallRequest


class AsksEngine(ABC):
    """Questions of a handle; each is answered by the engine's host. They raise EngineError."""

    @abstractmethod
    def _ask(self, what: str, **args: Any) -> Any:
        """Ask the host and wait."""

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text, no special tokens added."""
        return len(self._ask("tokens", text=text))

    def prompt_token_ids(self, request: CallRequest) -> list[int]:
        """The token ids of the prompt that the engine would serve for ``request``."""
        ids: list[int] = self._ask("prompt", req=request.model_dump(exclude_defaults=True))
        return ids

    def stats(self) -> dict[str, Any]:
        """Counters of scheduler and open prompts, blocks and slots in use."""
        stats: dict[str, Any] = self._ask("stats")
        return stats

    def steps(self) -> list[list[float]]:
        """Steps of the engine since the last question, oldest first.

        Each as [rows, tokens, kv_tokens, attention, seconds]: a ``StepLoad`` and the time that
        it took. Empty unless the engine was made with
        ``additional_config={"grape_log_steps": N}``, which keeps the latest N.
        """
        steps: list[list[float]] = self._ask("steps")
        return steps

    def records(self) -> list[str]:
        """Settings and records of the engine's last steps, as lines of JSON.

        What each step saw, planned and ran, for ``grape replay`` and ``scheduler.record.read``.
        Empty unless the engine was made with ``additional_config={"grape_trace": N}``, which
        keeps the latest N; with a path instead of N they are written to that file.
        """
        lines: list[str] = self._ask("records")
        return lines

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes and open prompts; False while calls are running."""
        return bool(self._ask("reset"))
