"""Tokens counted without an engine, by the tokenizer of a model's folder; what kind it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from grape_lc.engine.models import Progress, resolve_model
from grape_lc.errors import ModelNotFoundError

_FILE = "tokenizer.json"


def token_counter(model: str | None, *, progress: Progress) -> Callable[[str], int]:
    """A function that counts the tokens of a text, special tokens left out.

    model, progress: as for ``resolve_model``; a folder with tokenizer.json, or the embedded model.

    Raises ModelNotFoundError as ``resolve_model`` does, and when the tokenizer cannot be read.
    """
    folder = Path(resolve_model(model, progress=progress))
    file = folder / _FILE
    if not file.is_file():
        raise ModelNotFoundError(
            f"no tokens can be counted for model {model!r}: there is no {file}; give a folder that "
            f"has {_FILE}"
        )
    try:
        from tokenizers import Tokenizer  # comes with an engine
    except ImportError as error:
        raise ModelNotFoundError(
            "tokens are counted by the package tokenizers, which comes with an engine: pip install "
            "'grape-lc[cpu]' or 'grape-lc[gpu]'"
        ) from error
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        # It raises no type of its own.
        raise ModelNotFoundError(f"{file} is no tokenizer: {error}") from error

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count


def cuts_parts_alike(backend: Any) -> bool:
    """Whether a ``tokenizers.Tokenizer`` cuts a part of a text as it cuts the whole.

    Apart from the part's edges, that is. Unigram does not: of cuts that are as likely as each
    other, such as those of a repeated character, rounding of what stands before chooses one.
    """
    return type(getattr(backend, "model", None)).__name__ != "Unigram"
