"""ChatGrape: a LangChain chat model that is served by an engine of this package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput, ModelProfile
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field

from grape_lc.adapters import chat_serving as serving
from grape_lc.adapters.chat_calls import Reader
from grape_lc.adapters.chat_request import CHAT_OPTIONS, HERMES, form_of
from grape_lc.adapters.chat_results import Chunks, chat_result
from grape_lc.adapters.chat_settings import RunManager, ServedModel
from grape_lc.adapters.chat_structured import Method, structured
from grape_lc.adapters.chat_tools import choose, describe_tools
from grape_lc.adapters.messages import to_chat
from grape_lc.adapters.tenants import TenantCalls
from grape_lc.engine.base import EngineClient


class ChatGrape(TenantCalls, ServedModel, BaseChatModel):
    """A chat model on an engine of this package; by default vLLM in a process of its own.

        llm = ChatGrape(temperature=0, max_tokens=200)
        llm = ChatGrape("org/model", dtype="float32", max_model_len=4096)
        llm = ChatGrape(engine=engine)

    The settings are those of ServedModel and:

    logprobs: whether answers come with the log probability of each token, in
        ``response_metadata["logprobs"]`` and in OpenAI's form.
    top_logprobs: and of so many of the likeliest tokens in its place.
    tool_parser: how calls of tools are read that the model makes of its own accord: ``hermes`` for
        ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, or the name of one of vLLM's
        parsers for a model that writes them otherwise.

    What a call asks for may be overridden with the call, as ``llm.invoke(x, temperature=1)``, or by
    ``llm.bind``; so may the model, by that of another engine which this process has loaded. Usable
    from threads and event loops; cancelling the task, or closing the stream, ends the call in the
    engine.

    Raises RequestError for a call that cannot be served as asked (EmptyPromptError,
    UnsupportedRequestError, PromptTooLongError) and EngineError when the engine cannot serve it,
    or not in time (CallTimeoutError).
    """

    call_options: ClassVar[frozenset[str]] = ServedModel.call_options | CHAT_OPTIONS

    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0)
    tool_parser: str = HERMES

    def __init__(self, model: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{"model": model, **kwargs})

    # -- what LangChain asks for ------------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return "grape-chat"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            **self._identity(),
            "logprobs": self.logprobs,
            "top_logprobs": self.top_logprobs,
            "tool_parser": self.tool_parser,
        }

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self._traced("chat", stop, kwargs)

    def _resolve_model_profile(self) -> ModelProfile:
        """What the model can do; how much it holds where that is known without starting it."""
        profile = ModelProfile(
            name=self._name(),
            text_inputs=True,
            text_outputs=True,
            image_inputs=False,
            audio_inputs=False,
            video_inputs=False,
            tool_calling=True,
            tool_choice=True,
            tool_call_streaming=True,
            structured_output=True,
        )
        size = self.engine_args.get("max_model_len")
        if self.engine is not None and getattr(self.engine, "is_open", False):
            size = _model_len(self.engine) or size
        return _with_size(profile, size)

    def bind_tools(
        self,
        tools: Sequence[Any],
        *,
        tool_choice: str | bool | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with tools that it may, or must, call.

        tools: functions, pydantic classes, TypedDicts, LangChain tools, or dictionaries.
        tool_choice: ``auto`` (or None, False): the model decides; ``none``: it cannot, and is shown
            no tools; ``any``, ``required`` or True: the answer is a call; a tool's name, or
            ``{"type": "function", "function": {"name": ...}}``: it is a call of that tool.
        parallel_tool_calls: True lets an answer that has to be a call be several. An answer
            of the model's own accord may hold any number.
        strict: as OpenAI's; True closes the schemas to arguments they do not name.
        kwargs: further options of the calls, such as ``response_format``: an answer is then
            either a call or JSON of that form.

        Raises RequestError for tools that cannot be described and choices that name none of them.
        """
        described = describe_tools(tools, strict=strict)
        options: dict[str, Any] = {"tools": described, **kwargs}
        if tool_choice is not None:
            options["tool_choice"] = choose(tool_choice, described)
        if parallel_tool_calls is not None:
            options["parallel_tool_calls"] = parallel_tool_calls
        return self.bind(**options)

    def with_structured_output(
        self,
        schema: Any = None,
        *,
        method: Method = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        tools: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """This model with answers that are objects of a schema.

        schema: a pydantic class, whose objects come back, or a TypedDict, a JSON schema or a
            function in OpenAI's form, for dictionaries.
        method: ``json_schema``: the engine lets through nothing but JSON of the schema. The
            prompt stays as it is, and says what the fields are for, or the model has to guess.
            ``function_calling``: the same, of the arguments of a tool that the prompt describes.
            ``json_mode``: as json_schema, or any JSON object if there is no schema.
        include_raw: a dictionary of ``raw`` (the message), ``parsed`` and ``parsing_error``.
        strict: for function_calling as in ``bind_tools``; with json_schema the schema always binds.
        tools: with json_schema, tools that may be called instead of giving the answer. ``parsed``
            is None for such a message, which include_raw shows.

        Raises RequestError for a schema or a method that is not known. An answer that ends at
        max_tokens, or does not fit a pydantic class, is an OutputParserException.
        """
        return structured(
            self,
            schema,
            method=method,
            include_raw=include_raw,
            strict=strict,
            tools=tools,
            options=kwargs,
        )

    def get_num_tokens(self, text: str) -> int:
        """Number of tokens of a text in the served model."""
        return self._client({}).count_tokens(text)

    # -- calls ------------------------------------------------------------------------------

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        n = self._answers(kwargs)
        engine = self._client(kwargs)
        call, reader = self._request(engine, messages, stop, run_manager, kwargs)
        answers = serving.collect(engine, call.several(n), self.max_retries)
        return chat_result(answers, [reader() for _ in answers], engine.model_name)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        n = self._answers(kwargs)
        engine = await self._aclient(kwargs)
        call, reader = self._request(engine, messages, stop, run_manager, kwargs)
        answers = await serving.acollect(engine, call.several(n), self.max_retries)
        return chat_result(answers, [reader() for _ in answers], engine.model_name)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        self._answers(kwargs, streamed=True)
        engine = self._client(kwargs)
        call, reader = self._request(engine, messages, stop, run_manager, kwargs)
        chunks = Chunks(reader(), engine.model_name)
        with serving.closing(serving.stream(engine, call, self.max_retries)) as deltas:
            for delta in deltas:
                if (chunk := chunks.of(delta)) is not None:
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
        self._answers(kwargs, streamed=True)
        engine = await self._aclient(kwargs)
        call, reader = self._request(engine, messages, stop, run_manager, kwargs)
        chunks = Chunks(reader(), engine.model_name)
        answer = serving.astream(engine, call, self.max_retries)
        async with serving.aclosing(answer) as deltas:
            async for delta in deltas:
                if (chunk := chunks.of(delta)) is not None:
                    if run_manager is not None:
                        await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    def _request(
        self,
        engine: EngineClient,
        messages: list[BaseMessage],
        stop: list[str] | None,
        run_manager: RunManager,
        options: Mapping[str, Any],
    ) -> tuple[serving.Call, type[Reader]]:
        chat = to_chat(messages)
        form = form_of(
            self._sampling(stop, options),
            options,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs,
            tool_parser=self.tool_parser,
        )
        own = options.get("model") is None
        if own and self.profile is not None and "max_input_tokens" not in self.profile:
            # The engine runs by now, and says what it holds.
            self.profile = _with_size(self.profile, _model_len(engine))
        prompt = {"messages": chat, "tools": form.tools, "tool_parser": form.parser}
        return self._call(engine, prompt, form.sampling, run_manager, options), form.reader


def _model_len(engine: EngineClient) -> int | None:
    """Tokens that a call on a running engine may have in all, if it says so."""
    info = getattr(engine, "info", None)
    return info().get("max_model_len") if info is not None else None


def _with_size(profile: ModelProfile, size: object) -> ModelProfile:
    if not isinstance(size, int):
        return profile
    return {**profile, "max_input_tokens": size, "max_output_tokens": size}
