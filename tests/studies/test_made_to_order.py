"""Every recipe finds a text that holds what it reads."""

from pathlib import Path
from typing import get_args

import pytest
from toy_stories import stories

from bertwright.examples.coordinates import Need
from bertwright.recipes import Recipe
from bertwright.recipes.loading import systems
from bertwright.studies import made_to_order
from bertwright.studies.corpora import Corpus, Duo
from bertwright.studies.corpora.duo import Other
from bertwright.studies.made_to_order import MADE_TO_ORDER, is_enough, text_for
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import TokenizerChoice, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    texts = stories(60)
    (folder / "stories.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, WordPieceChoice(size=120))
    prepare(folder / "stories.txt", folder / "data", tokenizer, num_workers=1)
    return folder / "data"


def test_there_is_a_text_for_every_need() -> None:
    assert set(MADE_TO_ORDER) == set(get_args(Need))


def test_what_is_given_is_read_where_it_is_enough(plain: Path, tmp_path: Path) -> None:
    for system in systems():
        recipe = Recipe.load(f"{system}-tiny")
        if not recipe.needs:
            text = text_for(recipe, tmp_path, plain)
            assert (text.data, text.name) == (plain, "")
    needy = {s for s in systems() if not is_enough(Data.open(plain), Recipe.load(f"{s}-tiny"))}
    assert {"xlm", "xlm-r", "xlm-e", "bert4rec", "ernie", "ernie-2"} <= needy


def test_languages_and_translations_are_made_where_they_are_needed(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Duo(stories=50, others={"de": Other(stories=50, translations=100)})
    small: dict[Need, tuple[Corpus, TokenizerChoice]] = {
        need: (corpus, WordPieceChoice(size=400)) for need in ("translations", "languages")
    }
    monkeypatch.setattr(made_to_order, "MADE_TO_ORDER", small)
    for system in ("xlm", "xlm-r", "xlm-e"):
        recipe = Recipe.load(f"{system}-tiny")
        text = text_for(recipe, tmp_path, plain)
        assert text.name == "read duo"
        assert is_enough(Data.open(text.data), recipe)
    assert not is_enough(Data.open(text.data), Recipe.load("bert4rec-tiny"))
