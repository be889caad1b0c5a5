"""An engine for tests of the host: answers a prompt with its own words, one a delta.

It runs in the host process, so that processes, sockets, cancellation and death are the real ones
and only the model is not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

from grape_lc.engine.base import CallDelta, CallRequest, Usage
from grape_lc.errors import EmptyPromptError, ModelNotFoundError
from grape_lc.scheduler.types import Hint


@dataclass(frozen=True)
class WordCall:
    """A prompt as words; ids are positions."""

    words: list[str]
    token_ids: list[int]


def core(told: str) -> None:
    """Does nothing for ever, in a process of its own, as an engine core of vLLM would.

    Holds shared memory and a semaphore. told: the file that gets its process id and their names.
    """
    memory = SharedMemory(create=True, size=4096)
    lock = multiprocessing.get_context("spawn").Lock()
    names = f"{os.getpid()} {memory.name} sem.{lock._semlock.name.strip('/')}"  # type: ignore[attr-defined]
    Path(f"{told}.new").write_text(names)
    Path(f"{told}.new").rename(told)
    time.sleep(1000)


class WordEngine:
    """Special words.

    ``die`` kills the host; ``dieonce`` too, unless the file ``died`` of the arguments is there.
    ``corefails``: the engine has ended. ``fail`` raises, ``slow`` outlasts any test.

    args: ``core``: a file for what is to be known of the core, which is started; ``hangs``: it
    never comes up.
    """

    failed = False
    markers: Sequence[str] = ()

    def __init__(self, model: str, scheduler: str, args: dict[str, Any]) -> None:
        if "missing" in model:
            raise ModelNotFoundError(f"no model {model!r}")
        if args.get("crash"):
            os.kill(os.getpid(), signal.SIGKILL)
        if args.get("broken"):
            raise RuntimeError("the weights are broken")
        self._died = Path(args.get("died", "/"))
        if told := args.get("core"):
            multiprocessing.get_context("spawn").Process(target=core, args=(told,)).start()
        if args.get("hangs"):
            time.sleep(1000)
        self._scheduler = scheduler
        self.early_refusal: str | None = None
        self._hook_missing = args.get("hook_missing")
        self._open: dict[str, list[int]] = {}
        self._hints: dict[str, dict[str, Any]] = {}
        self._running = 0
        self._adopted = 0
        self._aborted = 0

    def info(self) -> dict[str, Any]:
        return {"scheduler": self._scheduler, "early_refusal": self.early_refusal}

    async def last_words(self) -> str:
        return "the core (process 7) was killed by SIGKILL"

    async def self_test(self) -> None:
        self.early_refusal = self._hook_missing

    def render(
        self, prompt: list[dict[str, Any]] | str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        del tools
        return prompt if isinstance(prompt, str) else "\n".join(m["content"] for m in prompt)

    def encode(self, text: str, *, chat: bool) -> tuple[Sequence[int], Sequence[int] | None]:
        del chat
        return [ord(c) for c in text], list(range(1, len(text) + 1))

    async def prepare(self, request: CallRequest) -> WordCall:
        text = self.render(request.text or [dict(m) for m in request.messages or ()])
        if not text:
            raise EmptyPromptError("no text")
        return WordCall(text.split(), [ord(c) for c in text])

    async def generate(
        self, call: WordCall, *, adopt: str | None, hint: Hint
    ) -> AsyncIterator[CallDelta]:
        self._hints[hint.task or ""] = dataclasses.asdict(hint)
        ahead = len(self._open.pop(adopt)) if adopt in self._open else 0
        self._adopted += ahead > 0
        self._running += 1
        try:
            for index, word in enumerate(call.words):
                if word == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                if word == "dieonce" and not self._died.exists():
                    self._died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                if word == "corefails":
                    self.failed = True
                if word == "fail":
                    raise RuntimeError("the engine failed this call")
                await asyncio.sleep(1000 if word == "slow" else 0.001)
                last = index == len(call.words) - 1
                usage = Usage(len(call.token_ids), index + 1, ahead, ahead, "adopted")
                yield CallDelta(
                    f"{word} ",
                    (index,),
                    time.monotonic(),
                    "stop" if last else None,
                    usage if last else None,
                )
        except (asyncio.CancelledError, GeneratorExit):
            self._aborted += 1
            raise
        finally:
            self._running -= 1

    async def open(self, key: str, ids: Sequence[int], hint: Hint) -> None:
        del hint
        self._open[key] = list(ids)

    async def append(
        self, key: str, ids: Sequence[int], hops: int, final: bool, source: str | None
    ) -> None:
        del hops, final, source
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
            "adopted": self._adopted,
            "aborted": self._aborted,
            "pid": os.getpid(),
            "hints": self._hints,
        }

    async def steps(self) -> list[list[float]]:
        return [[1, 1, 40 + self._running, 0.0, 0.001]]

    async def records(self) -> list[str]:
        return ['{"v":1}', f'{{"step":{self._running}}}']

    async def shutdown(self) -> None:
        return None
