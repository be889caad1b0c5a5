# ruff: noqa: T201
"""How many tokens are certain before the end, for each tokenizer; and many cases of hostile text.

    python -m tests.tokenizers.shares                          the table of docs/exactness.md
    python -m tests.tokenizers.shares --cases N --prompts M --seed S [--family NAME]

N rendered chats that arrive in pieces, and M whole prompts with slots, for each tokenizer, each
drawn from its seed, family and number. Exit code 1 if one is wrong: ids were sent that are not the
call's, and nothing noticed. ``broken``: the splicer noticed. ``rewritten``: the template changed
what had been sent, which was noticed before the call came.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from grape_lc.flow.template import PromptTemplate
from tests.tokenizers.cases import Case, run, splice
from tests.tokenizers.families import BY_NAME, FAMILIES, Family, plain
from tests.tokenizers.prompts import case
from tests.tokenizers.texts import pieces

STEP = 100
"""Cases of each tokenizer between two lines that tell how far it is."""

_ROOT = Path(__file__).resolve().parents[2]
_PROMPT = PromptTemplate.of(
    [
        ("system", "Answer in one paragraph."),
        ("user", "Here is a text.\n\n{a}\n\nWhat does it say? Give reasons."),
    ]
)
# Prose, code and a table; about 2,000 characters each, as an answer of some 500 tokens.
_ANSWERS = ("docs/scheduler.md", "grape_lc/runtime/splicer.py", "docs/open-prompts.md")
_CHINESE = "模型先写出计划,然后写出草稿,最后检查草稿。每一步都要等前一步的文字。" * 12


def ordinary() -> list[Case]:
    """Prompts that read an ordinary answer, which comes four characters at a time."""
    texts = [(_ROOT / name).read_text()[:2000].strip() for name in _ANSWERS]
    return [
        Case(_PROMPT, {"a": [text[i : i + 4] for i in range(0, len(text), 4)]}, ["a"])
        for text in [*texts, _CHINESE]
    ]


def share(family: Family) -> tuple[float, float]:
    """The part of ordinary prompts that is certain before the answer's end, and tokens held back.

    The answer's end is what the application waits for: all that is certain by then may be
    prefilled already.
    """
    outcomes = [run(plain(family.name), item) for item in ordinary()]
    held = sum(outcome.tokens - outcome.certain for outcome in outcomes) / len(outcomes)
    tokens = sum(outcome.tokens for outcome in outcomes)
    return sum(outcome.certain for outcome in outcomes) / tokens, held


def rendered(family: Family, seed: int, number: int) -> Counter[str]:
    """What came of a rendered chat that arrives in pieces; ``wrong`` must not be among it."""
    engine, random = plain(family.name), Random(f"{seed}/{family.name}/{number}")
    text = engine.render(case(random, engine.markers).real)
    right, broken = splice(engine, text, pieces(random, text))
    return Counter(["cases", "wrong" if not right and not broken else "broken" if broken else "ok"])


def prompt(family: Family, seed: int, number: int) -> Counter[str]:
    """The same of a whole prompt with slots."""
    engine, random = plain(family.name), Random(f"{seed}/{family.name}/prompt/{number}")
    outcome = run(engine, case(random, engine.markers))
    rewritten = "template_rewrote_slot" in outcome.reasons
    what = "exact" if outcome.exact else "rewritten" if rewritten else "broken"
    return Counter(["prompts", "wrong" if outcome.silent else what])


def hostile(
    families: Sequence[Family], seed: int, cases: int, prompts: int
) -> dict[str, Counter[str]]:
    """What came of many cases of each family. Tells now and then how far it is."""
    counts = {family.name: Counter[str]() for family in families}
    for number in range(max(cases, prompts)):
        for family in families:
            found: Counter[str] = Counter()
            if number < cases:
                found += rendered(family, seed, number)
            if number < prompts:
                found += prompt(family, seed, number)
            if found["wrong"]:
                print(f"wrong: seed {seed}, {family.name}, number {number}", file=sys.stderr)
            counts[family.name] += found
        if (number + 1) % STEP == 0:
            total = sum(counts.values(), Counter[str]())
            print(f"{number + 1}: {dict(total)}", file=sys.stderr, flush=True)
    return counts


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--prompts", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", action="append", choices=sorted(BY_NAME))
    options = parser.parse_args(argv)
    families = [f for f in FAMILIES if not options.family or f.name in options.family]
    counts = hostile(families, options.seed, options.cases, options.prompts)
    print("| tokenizer | kind | certain before the end | held back | hostile text |")
    print("|---|---|---:|---:|---|")
    for family in families:
        ahead, held = share(family)
        told = ", ".join(f"{n} {name}" for name, n in counts[family.name].items() if n)
        print(f"| {family.name} | {family.kind} | {ahead:.0%} | {held:.0f} | {told} |", flush=True)
    total = sum(counts.values(), Counter[str]())
    print(dict(total))
    return 1 if total["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
