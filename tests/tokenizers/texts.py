# ruff: noqa: RUF001
"""Hostile texts: what tokenizers and chat templates stumble over.

All is drawn from a ``Random``: Hypothesis hands one of its own in, a long run a seeded one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

SPACE = ["", " ", "  ", "\n", "\n\n", "\t", " \n ", "\r\n", "\u00a0", "\u3000", "\u200b", " " * 17]

LOOK_ALIKES = [
    *("<|im_end|>", "<|im_end|", "<|im_", "<|", "<", "</s>", "<s>", "[INST]", "[/INST]", "[/IN"),
    *("<think>", "</think>", "<think>\nhm\n</think>\n\n", "<|eot_id|>", "<|eot_id", "<bos>"),
    *("<start_of_turn>", "<end_of_turn>", "<｜User｜>", "<｜", "<0x0A>", "▁", "▁▁", "<unk>"),
    *("<|end|>", "<|endoftext|>", "|>", "Ġ", "Ċ"),
]

PIECES = [
    *("The quick brown fox", " jumps", " over", " a", "A", "uncommon", "ly", "don", "'t", "'LL"),
    *("def f(x):\n    return x\n", "```python\n", "://", "...", "});\n", "// ", "\\n", "{{", "}}"),
    *(
        "🦊",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "👍🏽",
        "é",
        "e\u0301",
        "\u0301",
        "a\u0323\u0307",
        "\u200d",
        "\ufe0f",
    ),
    *("日本語", "の文章です。", "我们", "你好,世界", "한국어", "\u1112\u1161\u11ab", "ไทย", "สวัสดี"),
    *("שלום", "مرحبا بالعالم", "\u202e", "\u0627\u0653", "नमस्ते", "क्षि", "Ελλάδα", "привет"),
    *("1", "12", "1234567890", "3.14159", "1,000,000", "0x1F", "١٢٣", "²", "ﬁ", "\ufffd"),
    *("HTTPServer", "camelCase", "snake_case_name", "AbCdEfGh", "a1b2c3", "e3b0c44298fc1c149afb"),
]

_REPEATED: list[str] = [*"=-_#*.a09\t\n~", "あ", "\u0301", "ab", "\r\n", "🦊", "ha", "=-=", " "]
_WORDS: list[str] = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "each",
    "how",
    "up",
    "out",
]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "abcdefABCDEF0123456789+/"
# Latin to symbols, CJK, Hangul, emoji, marks; no surrogates, none of the package's own marks.
_BLOCKS = ((0x20, 0x3000), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F6FF), (0x300, 0x36F))


def fragment(random: Random, special: Sequence[str]) -> str:
    """A short text. special: what the tokenizer turns into one token each."""
    kind = random.randrange(12)
    if kind < 3:
        return random.choice(PIECES)
    if kind == 3:
        return random.choice(SPACE)
    if kind == 4:
        return random.choice(LOOK_ALIKES)
    if kind == 5:
        return random.choice(_REPEATED) * random.randint(2, 70)
    if kind == 6:
        return "".join(random.choice(_LETTERS) for _ in range(random.randint(1, 30)))
    if kind == 7:
        return "".join(random.choice(_DIGITS) for _ in range(random.randint(1, 50)))
    if kind == 8:
        low, high = random.choice(_BLOCKS)
        return "".join(chr(random.randint(low, high)) for _ in range(random.randint(1, 12)))
    if kind == 9 and special:
        text = random.choice(special)
        return text[: random.randint(1, len(text))]
    return " " + " ".join(random.choice(_WORDS) for _ in range(random.randint(1, 8)))


def text(random: Random, special: Sequence[str], most: int) -> str:
    """Up to ``most`` fragments."""
    return "".join(fragment(random, special) for _ in range(random.randint(0, most)))


def pieces(random: Random, whole: str) -> tuple[str, ...]:
    """A text as it arrives: in pieces of one length, or of any."""
    if not whole:
        return ()
    size = random.randint(1, 8) if random.random() < 0.1 else random.randint(8, 200)
    same = random.random() < 0.5
    found, at = [], 0
    while at < len(whole):
        end = at + (size if same else random.randint(1, 2 * size))
        found.append(whole[at:end])
        at = end
    return tuple(found)
