"""What an open prompt is made of, before the call exists, is the beginning of the call's prompt.

For each tokenizer and chat template, with hostile text. The number of examples is small here
(``examples``); ``python -m tests.tokenizers.shares`` runs many.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given

from tests.tokenizers.cases import run, splice
from tests.tokenizers.engines import Plain
from tests.tokenizers.examples import FEW, RANDOMS
from tests.tokenizers.families import BY_NAME, folder_of, plain
from tests.tokenizers.prompts import case
from tests.tokenizers.shares import share
from tests.tokenizers.texts import pieces

every = pytest.mark.parametrize("name", list(BY_NAME))


@every
@FEW
@given(random=RANDOMS)
def test_committed_ids_are_those_of_the_whole_text(name: str, random: Random) -> None:
    """A rendered chat, cut anywhere. A splicer that was wrong says so."""
    engine = plain(name)
    rendered = engine.render(case(random, engine.markers).real)
    right, broken = splice(engine, rendered, pieces(random, rendered))
    assert right or broken


@every
@FEW
@given(random=RANDOMS)
def test_open_prompts_are_the_beginning_of_the_calls(name: str, random: Random) -> None:
    """Values arrive piece by piece; what a template rewrites is counted before the call comes."""
    engine = plain(name)
    outcome = run(engine, case(random, engine.markers))
    assert not outcome.silent, outcome
    assert outcome.exact or BY_NAME[name].rewrites or "splice_broken" in outcome.reasons, outcome
    assert outcome.reasons or outcome.sent == outcome.tokens, outcome


@FEW
@given(random=RANDOMS)
def test_prompts_of_one_text(random: Random) -> None:
    """Completion prompts get the tokenizer's own special tokens."""
    for name in ("GPT-2", "Mistral v3"):
        outcome = run(plain(name), case(random, [], chat=False))
        assert outcome.exact, outcome


@FEW
@given(random=RANDOMS)
def test_tokenizers_that_do_not_tell_where_ids_end(random: Random) -> None:
    engine = Plain(folder_of(BY_NAME["SmolLM2"]), offsets=False)
    rendered = engine.render(case(random, engine.markers).real)
    assert splice(engine, rendered, pieces(random, rendered)) == (True, False)


@pytest.mark.parametrize("name", [name for name in BY_NAME if "upper" not in name])
def test_most_of_an_ordinary_prompt_is_certain_before_the_end(name: str) -> None:
    ahead, held = share(BY_NAME[name])
    assert ahead > 0.9
    assert held < 40
