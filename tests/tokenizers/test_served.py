"""vLLM's own loader, renderer and wraps of tokenizers, as the product uses them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given

from grape_lc.errors import UnsupportedRequestError
from grape_lc.runtime.splicer import Splicer
from tests.tokenizers.engines import CONFIG_JSON, Served
from tests.tokenizers.examples import FEW, RANDOMS
from tests.tokenizers.families import BY_NAME, folder_of, plain
from tests.tokenizers.prompts import case
from tests.tokenizers.texts import pieces, text
from tests.tokenizers.vocabularies import mistral_file


@pytest.fixture(scope="module")
def served() -> Served:
    """The product's code on vLLM's loader and renderer."""
    return Served(folder_of(BY_NAME["Mistral v3"]))


@FEW
@given(random=RANDOMS)
def test_the_engine_renders_and_tokenises_alike(served: Served, random: Random) -> None:
    """So what holds of the two libraries holds of vLLM's way to them."""
    ours = plain("Mistral v3")
    assert set(served.markers) <= set(ours.markers)
    real = case(random, served.markers).real
    assert served.render(real) == ours.render(real)
    assert served.ids(real) == ours.ids(real)
    rendered = ours.render(real)
    assert [list(part or ()) for part in served.encode(rendered, chat=True)] == [
        list(part or ()) for part in ours.encode(rendered, chat=True)
    ]


OWN = ["tekken_240911.json", "mistral_instruct_tokenizer_240323.model.v3"]


@pytest.fixture(scope="module", params=OWN)
def mistral(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """vLLM's wrap of Mistral's own tokenizers, which tells no offsets and renders to ids."""
    folder = tmp_path_factory.mktemp("mistral")
    source = mistral_file(request.param)
    name = "tekken.json" if source.suffix == ".json" else source.name
    Path(folder / name).symlink_to(source)
    (folder / "config.json").write_text(CONFIG_JSON)
    return Served(folder, "mistral")


@FEW
@given(random=RANDOMS)
def test_texts_with_mistrals_own_tokenizer(mistral: Served, random: Random) -> None:
    whole = text(random, ["[INST]", "</s>"], 6) + "."
    real = mistral.ids(whole)
    splicer = Splicer(lambda known: mistral.encode(known, chat=False), markers=mistral.markers)
    for piece in pieces(random, whole):
        splicer.feed(piece)
        splicer.commit()
    splicer.commit(final=True)
    assert splicer.broken or list(splicer.committed) == real


def test_chats_with_mistrals_own_tokenizer_go_without(mistral: Served) -> None:
    """They are rendered to ids at once, so nothing can be prepared: a reason, not a guess."""
    chat = [{"role": "user", "content": "Hello"}]
    assert mistral.ids(chat)
    with pytest.raises(UnsupportedRequestError, match="to tokens, not to text"):
        mistral.render(chat)
