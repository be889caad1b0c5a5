"""From a request to token ids and sampling parameters, exactly as vLLM's endpoints make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from vllm.exceptions import VLLMValidationError
from vllm.platforms import current_platform
from vllm.renderers.hf import resolve_chat_template
from vllm.renderers.params import ChatParams
from vllm.sampling_params import (
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
)
from vllm.utils.mistral import is_mistral_tokenizer

from grape_lc.engine.base import CallRequest
from grape_lc.engine.call_limits import check_call
from grape_lc.engine.deterministic import check_repeatable
from grape_lc.engine.salts import what_mixes_tenants
from grape_lc.engine.tokens import cuts_parts_alike
from grape_lc.engine.vllm_tools import template_reads, with_calls, with_tools
from grape_lc.errors import (
    EmptyPromptError,
    PromptTooLongError,
    RequestError,
    UnsupportedRequestError,
)
from grape_lc.flow.sampling import Sampling

if TYPE_CHECKING:
    from grape_lc.engine.vllm_tool_parsers import ToolCallParser

_BAD_SAMPLING = (
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    msgspec.MsgspecError,
    VLLMValidationError,
)
_LONG_CHAT_CHARS = 50_000


@dataclass(frozen=True)
class PreparedCall:
    """A call that was tokenised and checked.

    token_ids: the whole prompt.
    params: vLLM's sampling parameters, defaults filled in.
    priority: vLLM's, lower values first.
    parser: reads calls of tools out of the answer, where the request asked for that.
    """

    token_ids: list[int]
    params: SamplingParams
    priority: int = 0
    parser: ToolCallParser | None = None


def _size(messages: list[dict[str, Any]]) -> int:
    return sum(len(str(message.get("content"))) for message in messages)


class RequestMaker:
    """Renders, tokenises and checks requests for one engine.

    config: vLLM's configuration of the engine. renderer, tokenizer: the engine's own.
    deterministic: calls whose answers could not be given again are refused.
    """

    def __init__(
        self, config: Any, renderer: Any, tokenizer: Any, *, deterministic: bool = False
    ) -> None:
        self._config = config
        self._renderer = renderer
        self._tokenizer = tokenizer
        # What vLLM's chat endpoint asks its renderer for.
        self._chat = ChatParams(
            chat_template_kwargs={
                "add_generation_prompt": True,
                "continue_final_message": False,
                "tokenize": is_mistral_tokenizer(tokenizer),
            }
        )
        # Mistral's own calls itself fast, and takes no such argument. Where offsets would be of no
        # use, none are given, and the splicer looks at the whole text each time.
        fast = bool(getattr(tokenizer, "is_fast", False)) and not is_mistral_tokenizer(tokenizer)
        self._has_offsets = fast and cuts_parts_alike(getattr(tokenizer, "backend_tokenizer", None))
        self.markers = sorted(getattr(tokenizer, "get_added_vocab", dict)())
        self._defaults: dict[str, Any] = config.model_config.get_diff_sampling_param()
        self._max_len: int = config.model_config.max_model_len
        self._drafts = config.speculative_config is not None
        self._deterministic = deterministic
        self._on_cpu = current_platform.is_cpu()

    def render(
        self, prompt: list[dict[str, Any]] | str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """Text of a prompt, through the same renderer as vLLM's chat endpoint."""
        if isinstance(prompt, str):
            return prompt
        messages, chat = self._with_tools(prompt, tools)
        _, rendered = self._renderer.render_messages(messages, chat)
        if "prompt" not in rendered:
            raise UnsupportedRequestError(
                "this model's tokenizer renders chats to tokens, not to text"
            )
        return str(rendered["prompt"])

    def encode(self, text: str, *, chat: bool) -> tuple[Sequence[int], Sequence[int] | None]:
        """Ids as the endpoint makes them; a completion prompt gets the special tokens added."""
        if not self._has_offsets:
            return self._tokenizer.encode(text, add_special_tokens=not chat), None
        out = self._tokenizer(text, add_special_tokens=not chat, return_offsets_mapping=True)
        return out["input_ids"], [end for _, end in out["offset_mapping"]]

    async def prepare(self, request: CallRequest) -> PreparedCall:
        """Tokenise and check a request, as vLLM's endpoints do. Raises RequestError."""
        check_call(request)
        ids = await self._prompt_ids(request)
        room = self._max_len - len(ids)
        asked = request.sampling.max_tokens
        if room < max(asked or 1, 1):
            raise PromptTooLongError(
                f"the prompt has {len(ids)} tokens and max_tokens is {asked or 'not set'}, "
                f"but the model holds {self._max_len} tokens (max_model_len) in all"
            )
        params = self._sampling(request.sampling, room)
        budget = self._config.scheduler_config.max_num_batched_tokens
        seeded = params.seed is not None and params.temperature > 0
        if self._on_cpu and seeded and len(ids) > budget:
            raise UnsupportedRequestError(
                f"seed={params.seed} with a prompt of {len(ids)} tokens, more than one step of "
                f"this CPU engine takes ({budget}, max_num_batched_tokens): vLLM's CPU worker "
                "ends when a seeded prompt is cut. Raise max_num_batched_tokens, or leave seed out"
            )
        self._check_priority(request.priority)
        if request.tenant and (mixes := what_mixes_tenants(self._config.speculative_config)):
            raise UnsupportedRequestError(f"tenant={request.tenant!r:.60}: {mixes}")
        parser = None
        if request.tool_parser is not None:
            # Brings in much of vLLM's server, which few calls need.
            from grape_lc.engine.vllm_tool_parsers import ToolCallParser

            parser = ToolCallParser(
                request.tool_parser,
                self._tokenizer,
                self._config.model_config,
                request.tools,
            )
        return PreparedCall(ids, params, request.priority, parser)

    def _check_priority(self, priority: int) -> None:
        policy = self._config.scheduler_config.policy
        if priority and policy != "priority":
            raise UnsupportedRequestError(
                f"priority={priority}: this engine serves calls in the order {policy!r}; "
                "priorities need scheduling_policy='priority'"
            )

    async def _prompt_ids(self, request: CallRequest) -> list[int]:
        given = [x for x in (request.messages, request.text, request.token_ids) if x is not None]
        if len(given) != 1:
            raise RequestError(
                f"exactly one of messages, text and token_ids must be given, got {len(given)}"
            )
        if request.token_ids is not None:
            ids = list(request.token_ids)
        elif request.text is not None:
            ids = list(self._encoded(request.text, chat=False))
        else:
            ids = await self._chat_ids(request)
        if not ids:
            raise EmptyPromptError("the prompt has no tokens; give it at least one")
        vocabulary = self._config.model_config.get_vocab_size()
        if not all(0 <= i < vocabulary for i in (min(ids), max(ids))):
            raise RequestError(
                f"token ids must lie in 0..{vocabulary - 1}, got {min(ids)}..{max(ids)}"
            )
        return ids

    async def _chat_ids(self, request: CallRequest) -> list[int]:
        messages = [dict(m) for m in request.messages or ()]
        if not messages:
            raise EmptyPromptError("the call has no messages; give it at least one")
        try:
            messages, chat = self._with_tools(messages, request.tools)
            if _size(messages) < _LONG_CHAT_CHARS:
                # Quicker than the way into vLLM's thread pool, and a task switch waits for it.
                _, rendered = self._renderer.render_messages(messages, chat)
            else:
                _, rendered = await self._renderer.render_messages_async(messages, chat)
        except Exception as error:
            # Templates raise whatever they like about messages that do not suit them.
            raise RequestError(f"the messages do not fit the chat template: {error!r}") from error
        if "prompt_token_ids" in rendered:
            return list(rendered["prompt_token_ids"])
        return list(self._encoded(rendered["prompt"], chat=True))

    def _encoded(self, text: str, *, chat: bool) -> Sequence[int]:
        """The ids of a text that may fit: of one that cannot, nobody waits for the tokens."""
        longest = getattr(self._tokenizer, "max_chars_per_token", None)
        if isinstance(longest, int) and len(text) > longest * self._max_len:
            raise PromptTooLongError(
                f"the prompt has {len(text)} characters, and no token more than {longest}, "
                f"but the model holds {self._max_len} tokens (max_model_len) in all"
            )
        return self.encode(text, chat=chat)[0]

    def _with_tools(
        self, messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], ChatParams]:
        """Messages and template arguments that show the model its tools and their use so far."""
        if not (tools or any(m.get("tool_calls") or m["role"] == "tool" for m in messages)):
            return messages, self._chat
        if "tool_calls" not in self._template_reads:
            messages = with_calls(messages)
        if "tools" not in self._template_reads:
            return with_tools(messages, tools), self._chat
        given = {**self._chat.chat_template_kwargs, "tools": [dict(tool) for tool in tools]}
        return messages, replace(self._chat, chat_template_kwargs=given) if tools else self._chat

    @cached_property
    def _template_reads(self) -> frozenset[str]:
        if not hasattr(self._tokenizer, "get_chat_template"):
            return frozenset({"tools", "tool_calls"})  # a renderer without a template has its own
        template = resolve_chat_template(
            self._tokenizer, None, [], model_config=self._config.model_config
        )
        return template_reads(template or "")

    def _sampling(self, sampling: Sampling, room: int) -> SamplingParams:
        """vLLM's parameters; what is not set comes from the model's generation config."""
        fields: dict[str, Any] = dict(self._defaults)
        fields.pop("max_tokens", None)
        chosen = sampling.model_dump(exclude={"extra", "stop"}, exclude_none=True)
        fields |= chosen | sampling.extra
        fields.setdefault("max_tokens", min(room, self._defaults.get("max_tokens") or room))
        if sampling.stop:
            fields["stop"] = list(sampling.stop)
        try:
            if fields.get("logit_bias"):  # JSON has no integer keys
                fields["logit_bias"] = {int(k): v for k, v in fields["logit_bias"].items()}
            if isinstance(rules := fields.get("structured_outputs"), Mapping):
                fields["structured_outputs"] = StructuredOutputsParams(**rules)
            params = SamplingParams(**fields, output_kind=RequestOutputKind.DELTA)
            # Said here, a bad schema is a bad request; the engine core would fail the call.
            params.verify(
                self._config.model_config,
                self._config.speculative_config,
                self._config.structured_outputs_config,
                self._tokenizer,
            )
            # The engine core checks types only when it reads the request, and dies of bad ones.
            msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams)
        except _BAD_SAMPLING as error:
            raise RequestError(f"bad sampling parameters: {error}") from error
        if params.n != 1:
            raise UnsupportedRequestError(f"n={params.n}: one answer a call is served")
        if self._deterministic:
            check_repeatable(params.temperature, params.seed)
        if self._drafts and self._on_cpu and params.temperature > 0:
            raise UnsupportedRequestError(
                f"temperature={params.temperature} on a CPU engine that drafts "
                "(speculative_config): vLLM's CPU sampler would divide the logits of other calls "
                "in the batch by uninitialised memory. Use temperature=0, or an engine without "
                "speculative_config"
            )
        return params
