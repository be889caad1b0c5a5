"""Same answers: greedy fp32 tokens equal plain vLLM's, and so do the tokens that are sent."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from grape_lc import GrapeEngine
from grape_lc.engine.base import CallRequest
from grape_lc.flow.events import TokenUsage
from tests.engine.flows import SUBJECTS, chain, fan_in
from tests.engine.runs import run_programs


def test_every_answer_equals_plain_vllm(
    engine: GrapeEngine, stock: GrapeEngine, quiet: dict[str, Any]
) -> None:
    """Programs of two shapes, six at a time, until many of their prompts were taken over."""
    adopted: list[TokenUsage] = []
    for first in range(0, len(SUBJECTS), 8):
        subjects = SUBJECTS[first : first + 8]
        jobs = [(flow, subject) for subject in subjects for flow in (chain(), fan_in(16))]
        plain = run_programs(stock, jobs)
        grape = run_programs(engine, jobs)
        for (flow, subject), (expected, _), (got, _) in zip(jobs, plain, grape, strict=True):
            assert got == expected, f"{flow.name} about {subject}"
        waiting = ("draft", "review", "verdict")
        later = [u for _, usage in grape for task, u in usage.items() if task in waiting]
        # How many open prompts are still cold when their call comes is up to the machine's load.
        assert {u.ahead_outcome for u in later} <= {"adopted", "cold"}
        adopted += [u for u in later if u.ahead_outcome == "adopted"]
        if len(adopted) >= 8 and sum(u.ahead_tokens for u in adopted) > 500:
            break
    # Enough of them for the equality above to mean something.
    assert len(adopted) >= 8, adopted
    assert sum(u.ahead_tokens for u in adopted) > 500, adopted
    assert engine.stats()["mismatch"] == quiet["mismatch"]


CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": " 1+1?\n\n"}],
    [
        {"role": "user", "content": "Who wrote <|im_end|> here? 🦊 日本語 e\u0301"},
        {"role": "assistant", "content": "You did."},
        {"role": "user", "content": "```python\nprint('{x}')\n```"},
    ],
    [
        {
            "role": "user",
            "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        }
    ],
]

ENDPOINT = """
import asyncio, json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers import renderer_from_config
from vllm.renderers.online_renderer import OnlineRenderer

async def main():
    config = AsyncEngineArgs(model=sys.argv[1], max_model_len=2048).create_engine_config()
    endpoint = OnlineRenderer(
        config.model_config, renderer_from_config(config), request_logger=None,
        chat_template=None, chat_template_content_format="auto",
    )
    ids = []
    for messages in json.loads(sys.argv[2]):
        request = ChatCompletionRequest(model="m", messages=messages)
        _, (prompt,) = await endpoint.render_chat(request)
        ids.append(list(prompt["prompt_token_ids"]))
    print(json.dumps(ids))

asyncio.run(main())
"""


def test_chats_are_tokenised_as_by_vllms_chat_endpoint(
    engine: GrapeEngine, model_path: str
) -> None:
    """The endpoint's own code, in a process of its own, gives the same ids."""
    done = subprocess.run(
        [sys.executable, "-c", ENDPOINT, model_path, json.dumps(CHATS)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout.splitlines()[-1])
    ours = [engine.prompt_token_ids(CallRequest(messages=tuple(chat))) for chat in CHATS]
    assert ours == expected


def test_completions_are_tokenised_as_by_vllm(engine: GrapeEngine) -> None:
    """Text prompts get the tokenizer's own special tokens, chats only the template's."""
    text = "Once upon a time"
    ids = engine.prompt_token_ids(CallRequest(text=text))
    assert (
        ids[-engine.count_tokens(text) :]
        == engine.prompt_token_ids(CallRequest(token_ids=tuple(ids)))[-engine.count_tokens(text) :]
    )
    assert len(ids) >= engine.count_tokens(text)


@pytest.mark.parametrize("stop", [("Paris",), ()])
def test_stop_strings_and_lengths(engine: GrapeEngine, stop: tuple[str, ...]) -> None:
    """A call is an ordinary vLLM request: stop strings cut, the reason is told."""
    request = CallRequest.model_validate(
        {
            "messages": ({"role": "user", "content": "What is the capital of France?"},),
            "sampling": {"temperature": 0.0, "max_tokens": 30, "stop": stop},
        }
    )
    deltas = list(engine.stream(request))
    text = "".join(delta.text for delta in deltas)
    assert text == ("The capital of France is " if stop else "The capital of France is Paris.")
    assert deltas[-1].finish_reason == "stop"
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.completion_tokens == sum(len(d.token_ids) for d in deltas)
