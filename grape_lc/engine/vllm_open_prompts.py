"""The open prompts of one engine: what each one knows, has computed, and how it ended.

Between steps an open prompt is a vLLM request with status WAITING that is in the scheduler's
``requests`` and in no queue. The table below holds the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from vllm import SamplingParams

from grape_lc.engine.vllm_kv import KVLedger
from grape_lc.scheduler.types import Hint, RequestView, Stage

# Ended keys are remembered so that a late call learns why its open prompt is gone.
_REMEMBERED = 4096


@dataclass(slots=True)
class OpenPrompt:
    """One open prompt.

    request: vLLM's request; its prompt grows, its last token is never computed.
    view: what the policy sees of it; always up to date.
    """

    request: Any
    view: RequestView


class OpenTable:
    """All open prompts by key, in the order of opening.

    max_tokens: most tokens of one open prompt; what is appended beyond that is cut off.
    hold_back: tokens at its end that are never computed, at least 1.
    """

    def __init__(self, ledger: KVLedger, max_tokens: int, hold_back: int) -> None:
        self._ledger = ledger
        self._max_tokens = max_tokens
        self._hold_back = max(1, hold_back)
        self._prompts: dict[str, OpenPrompt] = {}
        self._ended: OrderedDict[str, tuple[str, str | None]] = OrderedDict()
        self._stalled: set[str] = set()
        self._stalled_free = 0

    def __len__(self) -> int:
        return len(self._prompts)

    def __contains__(self, key: object) -> bool:
        return key in self._prompts

    def __iter__(self) -> Iterator[OpenPrompt]:
        return iter(self._prompts.values())

    def __getitem__(self, key: str) -> OpenPrompt:
        return self._prompts[key]

    def get(self, key: str) -> OpenPrompt | None:
        """The open prompt of a key, ``None`` if it is not open."""
        return self._prompts.get(key)

    def shown(self, key: str, salt: str | None) -> OpenPrompt | None:
        """The same for a client: an open prompt with another ``cache_salt`` is none of its."""
        prompt = self._prompts.get(key)
        return prompt if prompt is not None and prompt.request.cache_salt == salt else None

    @property
    def remembered(self) -> int:
        """Keys of which it is known how they ended."""
        return len(self._ended)

    def keys(self) -> list[str]:
        """All keys, in the order of opening."""
        return list(self._prompts)

    def open(self, request: Any, hint: Hint, seq: int, now: float) -> OpenPrompt:
        """Make an open prompt of a request that is in no queue; changes the request.

        Whatever sampling the client asked for, its row is plain greedy: on a CPU, a row with a
        temperature beside rows with drafts corrupts the greedy ones.
        """
        request.sampling_params = SamplingParams(temperature=0.0, max_tokens=1)
        request.max_tokens = 1
        request.structured_output_request = None
        request.status = type(request.status).WAITING
        surplus = request.num_tokens - self._max_tokens
        if surplus > 0:
            request.prompt_token_ids = request.prompt_token_ids[: self._max_tokens]
            del request._all_token_ids[self._max_tokens :]
            request.num_prompt_tokens = self._max_tokens
            del request.block_hashes[self._max_tokens // self._ledger.block_size :]
        view = RequestView(
            request.request_id,
            seq,
            now,
            Stage.OPEN,
            request.num_tokens,
            hint,
            hold_back=self._hold_back,
            touched=now,
        )
        prompt = self._prompts[view.id] = OpenPrompt(request, view)
        return prompt

    def append(
        self,
        prompt: OpenPrompt,
        tokens: list[int],
        now: float,
        *,
        final: bool,
        hops: int | None,
        source: str | None,
    ) -> None:
        """Append tokens to an open prompt; ``hops`` None: as before."""
        request, view = prompt.request, prompt.view
        tokens = tokens[: max(0, self._max_tokens - request.num_tokens)]
        # A new list: a worker in this process may still hold the old one.
        request.prompt_token_ids = request.prompt_token_ids + tokens
        request._all_token_ids.extend(tokens)
        request.num_prompt_tokens = len(request.prompt_token_ids)
        request.update_block_hashes()
        view.tokens = request.num_tokens
        view.touched = now
        view.final = final
        view.hint = replace(view.hint, hops=view.hint.hops if hops is None else hops, source=source)
        self._unstall(view)

    def end(self, key: str, how: str) -> OpenPrompt | None:
        """Forget an open prompt, remembering ``how`` it ended; its request is not touched."""
        prompt = self._prompts.pop(key, None)
        if prompt is not None:
            self._stalled.discard(key)
            self.remember(key, how, prompt.request.cache_salt)
        return prompt

    def remember(self, key: str, how: str, salt: str | None) -> None:
        """Remember why a key is not open, for those who ask with this ``cache_salt``."""
        self._ended[key] = (how, salt)
        self._ended.move_to_end(key)
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)

    def was_used(self, key: str) -> bool:
        """Whether it is remembered how the key ended."""
        return key in self._ended

    def how_ended(self, key: str, salt: str | None) -> str | None:
        """How a key ended, if that is remembered and the ``cache_salt`` was this."""
        how, own = self._ended.get(key, (None, salt))
        return how if own == salt else None

    def expired(self, now: float, ttl_s: float) -> list[str]:
        """Keys that were not touched for ``ttl_s`` seconds."""
        return [key for key, prompt in self._prompts.items() if now - prompt.view.touched > ttl_s]

    def allowed(self, prompt: OpenPrompt) -> int:
        """Most tokens of an open prompt that may be computed."""
        return int(prompt.request.num_tokens) - self._hold_back

    def look(self, prompt: OpenPrompt) -> None:
        """What an open prompt has computed or holds changed: bring its view up to date."""
        prompt.view.computed = prompt.request.num_computed_tokens
        prompt.view.held_blocks = self._ledger.held(prompt.view.id)

    def ran(self, prompt: OpenPrompt, now: float) -> None:
        """An open prompt computed something."""
        self.look(prompt)
        prompt.view.touched = now
        self._unstall(prompt.view)

    def stall(self, prompt: OpenPrompt) -> None:
        """vLLM refused to run it in an engine that did nothing else.

        It need not be tried again until it grows, or the number of free blocks changes.
        """
        self._stalled_free = self._ledger.free_blocks
        self._stalled.add(prompt.view.id)
        prompt.view.stalled = True

    def notice(self, free: int) -> None:
        """So many blocks are free now."""
        if self._stalled and free != self._stalled_free:
            for key in list(self._stalled):
                self._unstall(self._prompts[key].view)

    def _unstall(self, view: RequestView) -> None:
        view.stalled = False
        self._stalled.discard(view.id)

    def problems(self) -> list[str]:
        """Every broken invariant, each with its key and values."""
        found = []
        for key, prompt in self._prompts.items():
            request, view = prompt.request, prompt.view
            computed, tokens = request.num_computed_tokens, request.num_tokens
            checks = {
                f"status {request.status.name}": request.status.name == "WAITING",
                f"id {request.request_id}": request.request_id == key,
                f"{computed} of {tokens} tokens computed": 0 <= computed <= self.allowed(prompt)
                or computed == 0,
                f"{tokens} tokens, at most {self._max_tokens}": tokens <= self._max_tokens,
                "prompt and all tokens differ": list(request.prompt_token_ids)
                == list(request._all_token_ids),
                f"num_prompt_tokens {request.num_prompt_tokens}": request.num_prompt_tokens
                == tokens,
                f"{len(request.block_hashes)} block hashes": len(request.block_hashes)
                <= tokens // self._ledger.block_size,
                "has output or drafts": not (request.spec_token_ids or request.num_output_tokens),
                f"seen as {view}": (view.tokens, view.computed, view.held_blocks, view.stalled)
                == (tokens, computed, self._ledger.held(key), key in self._stalled),
            }
            found += [f"open prompt {key}: {text}" for text, holds in checks.items() if not holds]
            found += [f"open prompt {key}: {text}" for text in self._ledger.problems(key, computed)]
        return found
