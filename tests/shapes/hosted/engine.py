"""An engine for the host process that answers as the scripted one does and checks the table.

The host, its sockets, the prompt table and the splicer are the real ones. A token is a character.
Prompts that were opened are compared with those that calls send, and orders that make no sense
are counted.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from grape_lc.engine.base import CallDelta, CallRequest, Usage
from grape_lc.errors import EmptyPromptError
from grape_lc.runtime.scripted import ScriptedEngine
from grape_lc.scheduler.types import Hint
from tests.shapes.answers import hostile, reply

ANSWERS = {"reply": reply, "hostile": hostile}


class ShapeCall:
    """A prompt as characters."""

    def __init__(self, request: CallRequest, text: str) -> None:
        self.request = request
        self.token_ids = [ord(char) for char in text]


class ShapeEngine:
    """See the module. args: ``answer`` is a key of ANSWERS."""

    failed = False
    early_refusal: str | None = None
    markers: Sequence[str] = ("<|im_end|>",)

    def __init__(self, model: str, scheduler: str, args: dict[str, Any]) -> None:
        self._scripted = ScriptedEngine(ANSWERS[args.get("answer", "reply")])
        self._open: dict[str, list[int]] = {}
        self._used = set[str]()
        self._final = set[str]()
        self._running = 0
        self.counts: Counter[str] = Counter()

    def info(self) -> dict[str, Any]:
        return {"scheduler": "grape", "early_refusal": None}

    async def self_test(self) -> None:
        return None

    def render(
        self, prompt: list[dict[str, Any]] | str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        if isinstance(prompt, str):
            return prompt
        head = f"{[tool['function']['name'] for tool in tools] or ''}"
        return (
            head
            + "".join(f"<{m['role']}>{m['content']}<|im_end|>\n" for m in prompt)
            + "<assistant>"
        )

    def encode(self, text: str, *, chat: bool) -> tuple[Sequence[int], Sequence[int] | None]:
        del chat
        return [ord(char) for char in text], list(range(1, len(text) + 1))

    async def prepare(self, request: CallRequest) -> ShapeCall:
        prompt = request.text or [dict(message) for message in request.messages or ()]
        text = self.render(prompt, request.tools)
        if not prompt:
            raise EmptyPromptError("no text")
        return ShapeCall(request, text)

    async def generate(
        self, call: ShapeCall, *, adopt: str | None, hint: Hint
    ) -> AsyncIterator[CallDelta]:
        ahead = self._adopt(call, adopt)
        self._running += 1
        try:
            async for delta in self._scripted.astream(call.request):
                # Pieces come one at a time, so that prompts grow in between.
                await asyncio.sleep(0)
                if delta.usage is None:
                    yield delta._replace(at=time.monotonic())
                    continue
                usage = Usage(
                    len(call.token_ids),
                    delta.usage.completion_tokens,
                    ahead,
                    ahead,
                    "adopted" if ahead else "none",
                )
                yield delta._replace(at=time.monotonic(), usage=usage)
        finally:
            self._running -= 1

    def _adopt(self, call: ShapeCall, key: str | None) -> int:
        if key is None:
            return 0
        ids = self._open.pop(key, None)
        if ids is None:
            self.counts["adopted an unknown key"] += 1
            return 0
        pairs = zip(ids, call.token_ids, strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(ids))
        self.counts["as foreseen" if same == len(ids) else "otherwise"] += 1
        return min(same, len(call.token_ids) - 1)

    async def open(self, key: str, ids: Sequence[int], hint: Hint) -> None:
        del hint
        self.counts["opened twice"] += key in self._used
        self.counts["opened empty"] += not ids
        self._used.add(key)
        self._open[key] = list(ids)

    async def append(
        self, key: str, ids: Sequence[int], hops: int, final: bool, source: str | None
    ) -> None:
        del hops, source
        self.counts["appended to an unknown key"] += key not in self._open
        self.counts["appended behind the end"] += key in self._final
        if final:
            self._final.add(key)
        if key in self._open:
            self._open[key] += ids

    async def release(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._open.pop(key, None)

    async def reset_prefix_cache(self) -> bool:
        return self._running == 0

    async def stats(self) -> dict[str, Any]:
        return {
            "open_prompts": len(self._open),
            "running": self._running,
            "counts": {name: count for name, count in self.counts.items() if count},
        }

    async def steps(self) -> list[list[float]]:
        return []

    async def records(self) -> list[str]:
        return []

    async def shutdown(self) -> None:
        return None
