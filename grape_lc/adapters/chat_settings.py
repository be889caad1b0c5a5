"""What ChatGrape and GrapeLLM have in common: settings, calls made of them, the engine behind."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LangSmithParams
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    SkipValidation,
    ValidationError,
    model_validator,
)

from grape_lc.adapters.callsite import current_call_site
from grape_lc.adapters.chat_serving import Call
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.recording import recording_engine
from grape_lc.adapters.tenants import current_tenant
from grape_lc.engine.base import CallRequest, EngineClient
from grape_lc.errors import ConfigError, RequestError, UnsupportedRequestError
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.targets import Seconds, Targets
from grape_lc.runtime.off_loop import off_loop

RunManager = CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None

# Log probabilities have a form of their own here, that of OpenAI.
SAMPLING_FIELDS = frozenset(Sampling.model_fields) - {"extra", "logprobs"}

# What the scheduler goes by.
SERVICE_FIELDS = frozenset({*Targets.model_fields, "tenant"})

# Fields of vllm.SamplingParams that Sampling has no name for and whose values are plain numbers,
# texts or lists. Others that change the form of an answer could not be returned.
EXTRA_FIELDS = frozenset(
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


class ServedModel(BaseModel):
    """Settings of a model that an engine of this package serves.

    model: name or path; ``None`` is the embedded model.
    temperature, max_tokens, min_tokens, top_p, top_k, seed, stop, ignore_eos,
        structured_outputs: as in Sampling.
    n: answers for each prompt. With a seed, the answers after the first have the seeds after it.
    ttft_s, tbt_s, deadline_s: how soon answers are wanted, as in Targets.
    timeout: seconds after which a call is cancelled in the engine and raises CallTimeoutError. The
        start of an engine is not counted.
    max_retries: how often a call is made again when the engine died under it and could be started
        anew. No other error is cured by trying again.
    tenant: on whose behalf calls are made that say nothing else, themselves or by the config of
        their run (``metadata``). Tenants share the engine fairly; nothing that is computed for one
        is used for another.
    sampling_extra: further fields of ``vllm.SamplingParams``. Those that are common may also
        be given as keyword arguments of their own, here and with a call.
    api_key: not used, since nothing leaves the machine; for code that gives one to any model.
    engine: the engine that serves; without one, ``GrapeEngine.shared(model, **engine_args)``
        at the first call.
    engine_args: vLLM's engine arguments. Any keyword argument that is no field is one.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    call_options: ClassVar[frozenset[str]] = (
        SAMPLING_FIELDS | EXTRA_FIELDS | SERVICE_FIELDS | {"model", "extra", "n", "timeout"}
    )

    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: list[str] | None = None
    ignore_eos: bool = False
    structured_outputs: dict[str, Any] | None = None
    n: int = Field(default=1, ge=1)
    ttft_s: Seconds | None = None
    tbt_s: Seconds | None = None
    deadline_s: Seconds | None = None
    timeout: Seconds | None = None
    max_retries: int = Field(default=0, ge=0)
    tenant: str = ""
    streaming: bool = False
    sampling_extra: dict[str, Any] = Field(default_factory=dict)
    api_key: SecretStr | None = Field(default=None, exclude=True, repr=False)
    engine: SkipValidation[EngineClient | None] = Field(default=None, exclude=True, repr=False)
    engine_args: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _sort_keywords(cls, data: dict[str, Any]) -> dict[str, Any]:
        known = set(cls.model_fields)
        known |= {item.alias for item in cls.model_fields.values() if item.alias}
        fields = {key: value for key, value in data.items() if key in known}
        others = {key: value for key, value in data.items() if key not in known}
        extra = {key: others.pop(key) for key in sorted(EXTRA_FIELDS & others.keys())}
        if extra:
            fields["sampling_extra"] = {**fields.get("sampling_extra", {}), **extra}
        for name in others:
            if close := difflib.get_close_matches(name, sorted(known | EXTRA_FIELDS), 1, 0.85):
                raise ConfigError(
                    f"{cls.__name__} has no field {name!r}; did you mean {close[0]!r}?"
                )
        if others:
            fields["engine_args"] = {**fields.get("engine_args", {}), **others}
        if isinstance(fields.get("stop"), str):
            fields["stop"] = [fields["stop"]]
        return fields

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.engine is not None and self.engine_args:
            raise ConfigError(
                f"engine arguments {sorted(self.engine_args)} have no effect: the engine "
                f"{self.engine.model_name!r} was given. Sampling options are "
                f"{sorted(SAMPLING_FIELDS | EXTRA_FIELDS)}"
            )
        if self.streaming and self.n > 1:
            raise ConfigError(f"n={self.n} with streaming=True: a stream has one answer")
        self._sampling(None, {})
        return self

    # -- identity ---------------------------------------------------------------------------

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Whether LangChain's ``dumps`` takes it; the engine is left out."""
        return True

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """What ``dumps`` writes beside the fields: the model that a given engine serves."""
        return {} if self.engine is None else {"model": self.engine.model_name}

    def _name(self) -> str:
        return self.engine.model_name if self.engine is not None else self.model or "default"

    def _identity(self) -> dict[str, Any]:
        """What tells two models apart; LangChain's caches take it for the key."""
        return {
            "model": self._name(),
            **self._sampling(None, {}).model_dump(mode="json"),
            "n": self.n,
            **({"tenant": self.tenant} if self.tenant else {}),
            "engine_args": self.engine_args,
        }

    def _traced(
        self, kind: Any, stop: list[str] | None, options: Mapping[str, Any]
    ) -> LangSmithParams:
        sampling = self._sampling(stop, options)
        params = LangSmithParams(
            ls_provider="grape",
            ls_model_type=kind,
            ls_model_name=str(options.get("model") or self._name()),
        )
        if sampling.temperature is not None:
            params["ls_temperature"] = sampling.temperature
        if sampling.max_tokens is not None:
            params["ls_max_tokens"] = sampling.max_tokens
        if sampling.stop:
            params["ls_stop"] = list(sampling.stop)
        return params

    # -- the engine -------------------------------------------------------------------------

    def _client(self, options: Mapping[str, Any]) -> EngineClient:
        """The engine that serves a call made here, started if it has not been yet."""
        if (recorder := recording_engine.get()) is not None:
            return recorder
        engine = self._engine(options.get("model"))
        start = getattr(engine, "start", None)
        if start is not None and not getattr(engine, "is_open", True):
            start()
        return engine

    async def _aclient(self, options: Mapping[str, Any]) -> EngineClient:
        if (recorder := recording_engine.get()) is not None:
            return recorder
        if self.engine is not None and getattr(self.engine, "is_open", True):
            return self._engine(options.get("model"))
        # An engine takes tens of seconds to start.
        return await off_loop(lambda: self._client(options))

    def served_by(self) -> EngineClient:
        """The engine of calls that name no other model; not started by this."""
        from grape_lc.runtime.client import GrapeEngine

        return self.engine or GrapeEngine.shared(self.model, **self.engine_args)

    def _engine(self, model: str | None) -> EngineClient:
        """The engine of this model or, for a call that names another one, of that."""
        from grape_lc.runtime.client import GrapeEngine

        own = self.served_by()
        if model in (None, self.model, own.model_name):
            return own
        loaded = GrapeEngine.loaded()
        found = [engine for engine in loaded if engine.model_name == model]
        if len(found) == 1:
            return found[0]
        names = sorted({own.model_name, *(engine.model_name for engine in loaded)})
        raise UnsupportedRequestError(
            f"the call asks for the model {model!r}; "
            + (
                f"{len(found)} engines of this process have it loaded with different arguments: "
                "give the one that is meant as engine="
                if found
                else f"this process has {', '.join(map(repr, names))}. Load another one with "
                f"GrapeEngine.shared({model!r}).start()"
            )
        )

    # -- a call -----------------------------------------------------------------------------

    def _answers(self, options: Mapping[str, Any], *, streamed: bool = False) -> int:
        n = options.get("n", self.n)
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise RequestError(f"n={n!r}: the number of answers is 1 or more")
        if streamed and n > 1:
            raise UnsupportedRequestError(
                f"n={n}: a stream has one answer; use invoke, generate or batch for more"
            )
        return n

    def _call(
        self,
        engine: EngineClient,
        prompt: Mapping[str, Any],
        sampling: Sampling,
        run_manager: RunManager,
        options: Mapping[str, Any],
    ) -> Call:
        """A call of the engine; ``prompt`` is messages or text, and what goes with them."""
        program = task = label = ended = None
        tenant = self._tenant(run_manager, options)
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
                handler = min(inside, key=lambda item: item[0])[1]
                program, task, ended = handler.bind(site, engine, tenant)
        service = {name: options.get(name, getattr(self, name)) for name in SERVICE_FIELDS}
        service["tenant"] = tenant
        try:
            request = CallRequest(
                sampling=sampling,
                program=program,
                task=task,
                label=label,
                timeout_s=options.get("timeout", self.timeout),
                **prompt,
                **service,
            )
        except ValidationError as error:
            raise RequestError(f"call options: {faults(error)}") from None
        return Call(request, ended)

    def _tenant(self, run_manager: RunManager, options: Mapping[str, Any]) -> str:
        """On whose behalf a call is made. Raises RequestError for what is no name."""
        tenant = options.get("tenant")
        if tenant is None:
            tenant = current_tenant(run_manager)
        if tenant is None:
            tenant = self.tenant
        if not isinstance(tenant, str):
            raise RequestError(f"tenant={tenant!r:.60}: a tenant is named by a text")
        return tenant

    def _sampling(self, stop: list[str] | None, options: Mapping[str, Any]) -> Sampling:
        """The model's own settings, overridden by those of a call."""
        if unknown := sorted(options.keys() - self.call_options - _LANGCHAIN_FIELDS):
            raise UnsupportedRequestError(
                f"{type(self).__name__} has no call option {', '.join(map(repr, unknown))}; known: "
                f"{', '.join(sorted(self.call_options))}"
            )
        further = options.get("extra", {})
        if not isinstance(further, Mapping) or not all(isinstance(name, str) for name in further):
            raise RequestError(f"extra={further!r:.60}: write a mapping from names to values")
        fields = {name: getattr(self, name) for name in SAMPLING_FIELDS}
        fields |= {name: options[name] for name in SAMPLING_FIELDS & options.keys()}
        if stop is not None:
            fields["stop"] = stop
        stops = fields["stop"] or ()
        if not isinstance(stops, str | list | tuple):
            raise RequestError(f"stop={stops!r:.60}: write a text, or a list of texts")
        fields["stop"] = (stops,) if isinstance(stops, str) else tuple(stops)
        extra = {
            **self.sampling_extra,
            **further,
            **{name: options[name] for name in EXTRA_FIELDS & options.keys()},
        }
        try:
            return Sampling(**fields, extra=extra)
        except ValidationError as error:
            raise RequestError(f"sampling options: {faults(error)}") from None


def faults(error: ValidationError) -> str:
    """The fields that pydantic did not take, with their values."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])):.100}={item['input']!r:.200}: {item['msg']}"
        for item in error.errors(include_url=False)
    )
