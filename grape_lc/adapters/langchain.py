"""ChatGrape: a LangChain chat model that is served by an engine of this package."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field, SkipValidation, ValidationError, model_validator

from grape_lc.adapters.callsite import current_call_site
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.messages import to_chat
from grape_lc.adapters.recording import recording_engine
from grape_lc.engine.base import CallDelta, CallRequest, EngineClient, Usage
from grape_lc.errors import ConfigError, RequestError, UnsupportedRequestError
from grape_lc.flow.sampling import Sampling

_SAMPLING_FIELDS = frozenset(Sampling.model_fields) - {"extra"}

# Fields of vllm.SamplingParams that Sampling has no name for and whose values are plain numbers,
# texts or lists. Others that change the form of an answer (n, logprobs) could not be returned.
_EXTRA_FIELDS = frozenset(
    {
        "allowed_token_ids",
        "bad_words",
        "frequency_penalty",
        "include_stop_str_in_output",
        "min_p",
        "presence_penalty",
        "repetition_penalty",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "stop_token_ids",
        "thinking_token_budget",
    }
)

# What LangChain passes on for its own use.
_LANGCHAIN_FIELDS = frozenset({"stream", "ls_structured_output_format"})


class ChatGrape(BaseChatModel):
    """A chat model on an engine of this package; by default vLLM in a process of its own.

        llm = ChatGrape(temperature=0, max_tokens=200)
        llm = ChatGrape("org/model", dtype="float32", max_model_len=4096)
        llm = ChatGrape(engine=engine)

    model: name or path; ``None`` is the embedded model.
    temperature, max_tokens, min_tokens, top_p, top_k, seed, stop, ignore_eos: as in Sampling.
    sampling_extra: further fields of ``vllm.SamplingParams``. Those that are common may also
        be given as keyword arguments of their own, here and with a call.
    engine: the engine that serves; without one, ``GrapeEngine.shared(model, **engine_args)``
        at the first call.
    engine_args: vLLM's engine arguments. Any keyword argument that is no field is one.

    All sampling fields may be overridden with a call, as ``llm.invoke(x, temperature=1)`` or
    by ``llm.bind``. Usable from threads and event loops; cancelling the task, or closing the
    stream, ends the call in the engine.

    Raises RequestError for a call that cannot be served as asked (EmptyPromptError,
    UnsupportedRequestError, PromptTooLongError) and EngineError when the engine cannot serve.
    """

    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: list[str] | None = None
    ignore_eos: bool = False
    streaming: bool = False
    sampling_extra: dict[str, Any] = Field(default_factory=dict)
    engine: SkipValidation[EngineClient | None] = Field(default=None, exclude=True, repr=False)
    engine_args: dict[str, Any] = Field(default_factory=dict)

    def __init__(self, model: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{"model": model, **kwargs})

    @model_validator(mode="before")
    @classmethod
    def _sort_keywords(cls, data: dict[str, Any]) -> dict[str, Any]:
        known = set(cls.model_fields)
        known |= {item.alias for item in cls.model_fields.values() if item.alias}
        fields = {key: value for key, value in data.items() if key in known}
        others = {key: value for key, value in data.items() if key not in known}
        extra = {key: others.pop(key) for key in sorted(_EXTRA_FIELDS & others.keys())}
        if extra:
            fields["sampling_extra"] = {**fields.get("sampling_extra", {}), **extra}
        for name in others:
            if close := difflib.get_close_matches(name, sorted(known | _EXTRA_FIELDS), 1, 0.85):
                raise ConfigError(f"ChatGrape has no field {name!r}; did you mean {close[0]!r}?")
        if others:
            fields["engine_args"] = {**fields.get("engine_args", {}), **others}
        if isinstance(fields.get("stop"), str):
            fields["stop"] = [fields["stop"]]
        return fields

    @model_validator(mode="after")
    def _check(self) -> ChatGrape:
        if self.engine is not None and self.engine_args:
            raise ConfigError(
                f"engine arguments {sorted(self.engine_args)} have no effect: the engine "
                f"{self.engine.model_name!r} was given. Sampling options are "
                f"{sorted(_SAMPLING_FIELDS | _EXTRA_FIELDS)}"
            )
        self._sampling(None, {})
        return self

    # -- what LangChain asks for ------------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return "grape-chat"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """What tells two models apart; LangChain's caches take it for the key."""
        return {
            "model": self._model_name(),
            **self._sampling(None, {}).model_dump(mode="json"),
            "engine_args": self.engine_args,
        }

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        sampling = self._sampling(stop, kwargs)
        params = LangSmithParams(
            ls_provider="grape",
            ls_model_type="chat",
            ls_model_name=str(kwargs.get("model") or self._model_name()),
        )
        if sampling.temperature is not None:
            params["ls_temperature"] = sampling.temperature
        if sampling.max_tokens is not None:
            params["ls_max_tokens"] = sampling.max_tokens
        if sampling.stop:
            params["ls_stop"] = list(sampling.stop)
        return params

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> NoReturn:
        """Not offered: answers are text only.

        Raises UnsupportedRequestError, as does ``with_structured_output``, which needs it.
        """
        raise UnsupportedRequestError(
            f"ChatGrape serves no tool calls and no structured output; {len(tools)} tools given"
        )

    def get_num_tokens(self, text: str) -> int:
        """Number of tokens of a text in the served model."""
        return self._client().count_tokens(text)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        engine = self._client()
        request = self._request(engine, messages, stop, run_manager, kwargs)
        with _closing(engine.stream(request)) as deltas:
            return _result(list(deltas), engine.model_name)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        engine = await self._aclient()
        request = self._request(engine, messages, stop, run_manager, kwargs)
        deltas = engine.astream(request)
        try:
            return _result([delta async for delta in deltas], engine.model_name)
        finally:
            await _aclose(deltas)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        engine = self._client()
        request = self._request(engine, messages, stop, run_manager, kwargs)
        with _closing(engine.stream(request)) as deltas:
            for delta in deltas:
                if (chunk := _chunk(delta, engine.model_name)) is not None:
                    if run_manager is not None:
                        run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        engine = await self._aclient()
        request = self._request(engine, messages, stop, run_manager, kwargs)
        deltas = engine.astream(request)
        try:
            async for delta in deltas:
                if (chunk := _chunk(delta, engine.model_name)) is not None:
                    if run_manager is not None:
                        await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk
        finally:
            await _aclose(deltas)

    # -- a call -----------------------------------------------------------------------------

    def _model_name(self) -> str:
        return self.engine.model_name if self.engine is not None else self.model or "default"

    def _client(self) -> EngineClient:
        """The engine that serves a call made here, started if it has not been yet."""
        if (recorder := recording_engine.get()) is not None:
            return recorder
        if self.engine is not None:
            engine = self.engine
        else:
            from grape_lc.runtime.client import GrapeEngine

            engine = GrapeEngine.shared(self.model, **self.engine_args)
        start = getattr(engine, "start", None)
        if start is not None and not getattr(engine, "is_open", True):
            start()
        return engine

    async def _aclient(self) -> EngineClient:
        if (recorder := recording_engine.get()) is not None:
            return recorder
        if self.engine is not None and getattr(self.engine, "is_open", True):
            return self.engine
        # An engine takes tens of seconds to start.
        return await asyncio.to_thread(self._client)

    def _request(
        self,
        engine: EngineClient,
        messages: list[BaseMessage],
        stop: list[str] | None,
        run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None,
        options: Mapping[str, Any],
    ) -> CallRequest:
        model = options.get("model")
        if model is not None and model not in (self.model, engine.model_name):
            raise UnsupportedRequestError(
                f"the call asks for the model {model!r}; the engine serves {engine.model_name!r}"
            )
        chat = to_chat(messages)
        sampling = self._sampling(stop, options)
        program = task = label = None
        site = current_call_site(run_manager)
        if site is not None:
            label = site.name()
            # Of nested attached graphs the innermost knows the call best.
            inside = [
                (depth, handler)
                for handler in site.handlers
                if isinstance(handler, ProgramHandler)
                and (depth := handler.depth(site)) is not None
            ]
            if inside:
                program, task = min(inside, key=lambda item: item[0])[1].bind(site, engine)
        return CallRequest(
            messages=chat, sampling=sampling, program=program, task=task, label=label
        )

    def _sampling(self, stop: list[str] | None, options: Mapping[str, Any]) -> Sampling:
        """The model's own settings, overridden by those of a call."""
        known = _SAMPLING_FIELDS | _EXTRA_FIELDS | _LANGCHAIN_FIELDS | {"model", "extra"}
        if unknown := sorted(options.keys() - known):
            raise UnsupportedRequestError(
                f"ChatGrape has no call option {', '.join(map(repr, unknown))}; known: "
                f"{', '.join(sorted(_SAMPLING_FIELDS | _EXTRA_FIELDS | {'extra', 'model'}))}"
            )
        fields = {name: getattr(self, name) for name in _SAMPLING_FIELDS}
        fields |= {name: options[name] for name in _SAMPLING_FIELDS & options.keys()}
        if stop is not None:
            fields["stop"] = stop
        stops = fields["stop"] or ()
        fields["stop"] = (stops,) if isinstance(stops, str) else tuple(stops)
        extra = {
            **self.sampling_extra,
            **options.get("extra", {}),
            **{name: options[name] for name in _EXTRA_FIELDS & options.keys()},
        }
        try:
            return Sampling(**fields, extra=extra)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, item['loc']))}={item['input']!r}: {item['msg']}"
                for item in error.errors(include_url=False)
            )
            raise RequestError(f"sampling options: {faults}") from None


# -- answers ----------------------------------------------------------------------------------


def _usage(usage: Usage) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.cached_tokens),
    )


def _response(delta: CallDelta, model_name: str) -> dict[str, Any]:
    response: dict[str, Any] = {
        "model_name": model_name,
        "model_provider": "grape",
        "finish_reason": delta.finish_reason,
    }
    if delta.usage is not None:
        response["grape"] = {
            "ahead_tokens": delta.usage.ahead_tokens,
            "cached_tokens": delta.usage.cached_tokens,
            "ahead_outcome": delta.usage.ahead_outcome,
        }
    return response


def _result(deltas: list[CallDelta], model_name: str) -> ChatResult:
    last = deltas[-1]
    message = AIMessage(
        content="".join(delta.text for delta in deltas),
        response_metadata=_response(last, model_name),
        usage_metadata=None if last.usage is None else _usage(last.usage),
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunk(delta: CallDelta, model_name: str) -> ChatGenerationChunk | None:
    """A chunk for a delta; ``None`` for one that says nothing (part of a character, say)."""
    if delta.finish_reason is None:
        if not delta.text:
            return None
        return ChatGenerationChunk(message=AIMessageChunk(content=delta.text))
    message = AIMessageChunk(
        content=delta.text,
        response_metadata=_response(delta, model_name),
        usage_metadata=None if delta.usage is None else _usage(delta.usage),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=message)


@contextmanager
def _closing(deltas: Iterator[CallDelta]) -> Iterator[Iterator[CallDelta]]:
    """End the call when the caller goes away, not when the garbage collector comes by."""
    try:
        yield deltas
    finally:
        if (close := getattr(deltas, "close", None)) is not None:
            close()


async def _aclose(deltas: AsyncIterator[CallDelta]) -> None:
    if (aclose := getattr(deltas, "aclose", None)) is not None:
        await aclose()
