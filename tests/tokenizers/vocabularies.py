"""Vocabularies that packages carry, as Hugging Face's fast tokenizers.

The functions here do what the conversions that model repositories were made with do; those that
are in transformers are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.tokenizers.engines import CONFIG_JSON
from tests.tokenizers.wheels import WheelFile

Build = Callable[[Path], Any]
"""Makes a ``tokenizers.Tokenizer``; the folder is for what has to be fetched."""

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4 = _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
QWEN2 = _QWEN
QWEN3_6 = _QWEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+"
)
_SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SUFFIX}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SUFFIX}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def ready(file: WheelFile) -> Build:
    """A tokenizer.json."""

    def build(folder: Path) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file.fetch(folder)))

    return build


def tiktoken(
    file: WheelFile, pattern: str, special: Sequence[str], *, normaliser: str | None = None
) -> Build:
    """Byte-level BPE from a list of tokens by rank; normaliser: ``NFC`` and the like."""

    def build(folder: Path) -> Any:
        from tokenizers import normalizers
        from transformers.convert_slow_tokenizer import TikTokenConverter

        made = TikTokenConverter(
            vocab_file=str(file.fetch(folder)), pattern=pattern, extra_special_tokens=list(special)
        ).converted()
        if normaliser is not None:
            made.normalizer = getattr(normalizers, normaliser)()
        return made

    return build


def gpt2(vocabulary: WheelFile, merges: WheelFile) -> Build:
    """The byte-level BPE of GPT-2."""

    def build(folder: Path) -> Any:
        from tokenizers import AddedToken
        from tokenizers.implementations.byte_level_bpe import ByteLevelBPETokenizer

        made = ByteLevelBPETokenizer(str(vocabulary.fetch(folder)), str(merges.fetch(folder)))
        made.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
        return made._tokenizer

    return build


def mistral_file(name: str) -> Path:
    """A file that mistral_common carries."""
    import mistral_common

    return Path(mistral_common.__file__).parent / "data" / name


def tekken(name: str) -> Build:
    """Mistral's byte-level BPE."""

    def build(folder: Path) -> Any:
        from transformers.integrations.mistral.tokenizer import MistralConverter

        del folder
        return MistralConverter(str(mistral_file(name))).converted()

    return build


def sentencepiece(name: str, *, legacy: bool) -> Build:
    """BPE of SentencePiece with a blank put in front: of every part (legacy), or of the text."""

    def build(folder: Path) -> Any:
        from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers
        from tokenizers.models import BPE
        from transformers.convert_slow_tokenizer import SentencePieceExtractor

        del folder
        found = SentencePieceExtractor(str(mistral_file(name))).extract(BPE)
        model = BPE(found["vocab"], found["merges"], fuse_unk=True, byte_fallback=True)
        made = Tokenizer(model)
        if legacy:
            made.normalizer = normalizers.Sequence(
                [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            )
        else:
            made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        made.add_special_tokens([AddedToken("<unk>", normalized=False)])
        made.add_special_tokens(found["additional_special_tokens"])
        return made

    return build


def gemma_like(name: str, special: Sequence[str]) -> Build:
    """The same vocabulary with the steps of Gemma's tokenizer: no blank in front, all one word."""

    def build(folder: Path) -> Any:
        from tokenizers import AddedToken, normalizers, pre_tokenizers

        made = sentencepiece(name, legacy=True)(folder)
        made.normalizer = normalizers.Replace(" ", "▁")
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        made.add_special_tokens([AddedToken(text, normalized=False) for text in special])
        return made

    return build


def unigram(file: WheelFile, special: Sequence[str]) -> Build:
    """Unigram of SentencePiece, with its normaliser; tokens may hold several words."""

    def build(folder: Path) -> Any:
        from sentencepiece import sentencepiece_model_pb2
        from tokenizers import AddedToken, Tokenizer, normalizers
        from tokenizers.models import Unigram

        proto: Any = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
        proto.ParseFromString(file.fetch(folder).read_bytes())
        pieces = [(piece.piece, piece.score) for piece in proto.pieces]
        made = Tokenizer(Unigram(pieces, proto.trainer_spec.unk_id, byte_fallback=True))
        made.normalizer = normalizers.Sequence(
            [
                normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap),
                normalizers.Replace(" ", "▁"),
            ]
        )
        known = [p.piece for p in proto.pieces if p.type in (3, 4)]
        made.add_special_tokens([AddedToken(text, normalized=False) for text in known])
        made.add_special_tokens([AddedToken(text, normalized=False) for text in special])
        return made

    return build


def save(made: Any, template: str, folder: Path) -> None:
    """Write a tokenizer as model folders have it."""
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "TokenizersBackend", "backend": "tokenizers"})
    )
    (folder / "config.json").write_text(CONFIG_JSON)
    (folder / "chat_template.jinja").write_text(template)
