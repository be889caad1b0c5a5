"""What the host does with prompts, for a tokenizer and a chat template, without a model.

``Plain`` takes the two libraries that do the work, tokenizers and jinja2, and starts at once.
``Served`` is the product's own code on vLLM's own loader and renderer, which takes long to load;
a test compares the two.
"""

from __future__ import annotations

import asyncio
import copy
import json
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from grape_lc.config import cache_dir
from grape_lc.engine.base import CallRequest
from grape_lc.engine.tokens import cuts_parts_alike
from grape_lc.runtime.programs import PromptText

_MAX_LEN = 1 << 17

# A Llama of one narrow layer: vLLM wants to know which model it would load. There is room for the
# ids of every tokenizer.
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": _MAX_LEN,
    "rms_norm_eps": 1e-5,
    "dtype": "bfloat16",
    "vocab_size": 1 << 19,
}

CONFIG_JSON = json.dumps(_CONFIG)
"""What a folder needs beside a tokenizer to be taken for a model's."""

Prompt = list[dict[str, Any]] | str


class Engine(PromptText, Protocol):
    """What prompts are tested with."""

    def ids(self, prompt: Prompt) -> list[int]:
        """Token ids of a call's prompt."""
        ...


class Plain:
    """The tokenizer and the chat template of a folder. offsets: whether it tells where ids end."""

    def __init__(self, folder: Path, *, offsets: bool = True) -> None:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._offsets = offsets and cuts_parts_alike(self._tokenizer)
        # As transformers sets it up.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string((folder / "chat_template.jinja").read_text())
        self.markers = sorted(
            token.content for token in self._tokenizer.get_added_tokens_decoder().values()
        )

    def render(self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        del tools
        if isinstance(prompt, str):
            return prompt
        return self._template.render(messages=prompt, add_generation_prompt=True)

    def encode(self, text: str, *, chat: bool) -> tuple[Sequence[int], Sequence[int] | None]:
        found = self._tokenizer.encode(text, add_special_tokens=not chat)
        return found.ids, [end for _, end in found.offsets] if self._offsets else None

    def ids(self, prompt: Prompt) -> list[int]:
        return list(self.encode(self.render(prompt), chat=not isinstance(prompt, str))[0])


@cache
def _config() -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs

    folder = cache_dir() / "test-tokenizers" / "model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(CONFIG_JSON)
    arguments = AsyncEngineArgs(model=str(folder), skip_tokenizer_init=True, enforce_eager=True)
    return arguments.create_engine_config()


class Served:
    """The same as an engine does it. mode: vLLM's ``tokenizer_mode``."""

    def __init__(self, folder: Path, mode: str = "auto") -> None:
        from vllm.renderers import renderer_from_config

        from grape_lc.engine.vllm_requests import RequestMaker

        # One for all: making it takes seconds, and only the tokenizer differs.
        config = copy.copy(_config())
        config.model_config = copy.copy(config.model_config)
        config.model_config.tokenizer = str(folder)
        config.model_config.tokenizer_mode = mode
        config.model_config.skip_tokenizer_init = False
        renderer = renderer_from_config(config)
        self.maker = RequestMaker(config, renderer, renderer.get_tokenizer())
        self.markers, self.render, self.encode = (
            self.maker.markers,
            self.maker.render,
            self.maker.encode,
        )
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, self._loop.close)

    def ids(self, prompt: Prompt) -> list[int]:
        request = (
            CallRequest(text=prompt)
            if isinstance(prompt, str)
            else CallRequest(messages=tuple(prompt))
        )
        return self._loop.run_until_complete(self.maker.prepare(request)).token_ids
