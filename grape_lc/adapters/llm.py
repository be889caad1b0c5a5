"""GrapeLLM: a LangChain model for plain text, served by an engine of this package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseLLM
from langchain_core.language_models.base import LangSmithParams
from langchain_core.outputs import Generation, GenerationChunk, LLMResult

from grape_lc.adapters import chat_serving as serving
from grape_lc.adapters.chat_results import llm_output, response_metadata, usage_metadata
from grape_lc.adapters.chat_settings import RunManager, ServedModel
from grape_lc.adapters.tenants import OwnTenant
from grape_lc.engine.base import CallDelta, EngineClient
from grape_lc.errors import EmptyPromptError
from grape_lc.flow.sampling import Sampling


class GrapeLLM(OwnTenant, ServedModel, BaseLLM):
    """A completion model: the prompt is the text as it stands, without a chat template.

        llm = GrapeLLM(temperature=0, max_tokens=200)
        llm.invoke("def fibonacci(n):")

    The settings are those of ServedModel; what a call asks for may be overridden with the call, as
    in ChatGrape. ``generation_info`` of an answer (of the last chunk of a stream) holds its
    ``finish_reason``, ``usage_metadata`` and ``grape``, as a message of ChatGrape does. Several
    prompts are served side by side, on behalf of one tenant.

    Raises RequestError and EngineError, as ChatGrape does.
    """

    def __init__(self, model: str | None = None, **kwargs: Any) -> None:
        super().__init__(**{"model": model, **kwargs})

    @property
    def _llm_type(self) -> str:
        return "grape-llm"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return self._identity()

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self._traced("llm", stop, kwargs)

    def get_num_tokens(self, text: str) -> int:
        """Number of tokens of a text in the served model."""
        return self._client({}).count_tokens(text)

    def _generate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        n, sampling = self._answers(kwargs), self._sampling(stop, kwargs)
        engine = self._client(kwargs)
        each = self._requests(engine, prompts, sampling, n, run_manager, kwargs)
        return _result(serving.collect(engine, each, self.max_retries), n, engine.model_name)

    async def _agenerate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        n, sampling = self._answers(kwargs), self._sampling(stop, kwargs)
        engine = await self._aclient(kwargs)
        each = self._requests(engine, prompts, sampling, n, run_manager, kwargs)
        answers = await serving.acollect(engine, each, self.max_retries)
        return _result(answers, n, engine.model_name)

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[GenerationChunk]:
        self._answers(kwargs, streamed=True)
        sampling = self._sampling(stop, kwargs)
        engine = self._client(kwargs)
        call = self._call(engine, {"text": _checked(prompt)}, sampling, run_manager, kwargs)
        with serving.closing(serving.stream(engine, call, self.max_retries)) as deltas:
            for delta in deltas:
                if (chunk := _chunk(delta, engine.model_name)) is not None:
                    if run_manager is not None:
                        run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    async def _astream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[GenerationChunk]:
        self._answers(kwargs, streamed=True)
        sampling = self._sampling(stop, kwargs)
        engine = await self._aclient(kwargs)
        call = self._call(engine, {"text": _checked(prompt)}, sampling, run_manager, kwargs)
        answer = serving.astream(engine, call, self.max_retries)
        async with serving.aclosing(answer) as deltas:
            async for delta in deltas:
                if (chunk := _chunk(delta, engine.model_name)) is not None:
                    if run_manager is not None:
                        await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    def _requests(
        self,
        engine: EngineClient,
        prompts: Sequence[str],
        sampling: Sampling,
        n: int,
        run_manager: RunManager,
        options: Mapping[str, Any],
    ) -> list[serving.Call]:
        """The calls of several prompts, ``n`` of each."""
        calls = [
            self._call(engine, {"text": _checked(prompt)}, sampling, run_manager, options)
            for prompt in prompts
        ]
        return [several for call in calls for several in call.several(n)]


def _checked(prompt: str) -> str:
    if not prompt:
        raise EmptyPromptError("the prompt is an empty text")
    return prompt


def _info(delta: CallDelta, model_name: str) -> dict[str, Any]:
    return {
        **response_metadata(delta, model_name),
        "usage_metadata": usage_metadata(delta.usage),
    }


def _chunk(delta: CallDelta, model_name: str) -> GenerationChunk | None:
    if delta.finish_reason is None:
        return GenerationChunk(text=delta.text) if delta.text else None
    return GenerationChunk(text=delta.text, generation_info=_info(delta, model_name))


def _result(answers: Sequence[list[CallDelta]], n: int, model_name: str) -> LLMResult:
    generations = [
        Generation(
            text="".join(delta.text for delta in deltas),
            generation_info=_info(deltas[-1], model_name),
        )
        for deltas in answers
    ]
    return LLMResult(
        generations=[generations[at : at + n] for at in range(0, len(generations), n)],
        llm_output=llm_output(answers, model_name),
    )
