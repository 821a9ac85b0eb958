"""Every recipe gets a corpus with the annotations that it needs."""

from pathlib import Path
from typing import get_args

import pytest

from bertwright.batches.token_info import DataRequirement
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import TokenizerConfig, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.recipes import Recipe
from bertwright.recipes.loading import system_names
from bertwright.studies.corpora import Corpus, MultilingualCorpus
from bertwright.studies.corpora.multilingual import OtherLanguage
from experiments import recipe_texts
from experiments.recipe_texts import CORPUS_BY_NEED, has_needs, text_for_recipe
from toy_stories import stories


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    texts = stories(60)
    (folder / "stories.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, WordPieceConfig(vocab_size=120))
    prepare(folder / "stories.txt", folder / "data", tokenizer, num_workers=1)
    return folder / "data"


def test_every_requirement_has_a_corpus() -> None:
    assert set(CORPUS_BY_NEED) == set(get_args(DataRequirement))


def test_sufficient_data_are_used(plain: Path, tmp_path: Path) -> None:
    for system in system_names():
        recipe = Recipe.load(f"{system}-tiny")
        if not recipe.data_requirements:
            assert text_for_recipe(recipe, tmp_path, plain).data == plain
    data = Dataset.open(plain)
    needy = {s for s in system_names() if not has_needs(data, Recipe.load(f"{s}-tiny"))}
    assert {"xlm", "xlm-r", "xlm-e", "bert4rec", "ernie", "ernie-2"} <= needy


def test_languages_and_translations_are_synthesised_if_needed(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = MultilingualCorpus(
        stories=50, others={"de": OtherLanguage(stories=50, translations=100)}
    )
    small: dict[DataRequirement, tuple[Corpus, TokenizerConfig]] = {
        need: (corpus, WordPieceConfig(vocab_size=400)) for need in ("translations", "languages")
    }
    monkeypatch.setattr(recipe_texts, "CORPUS_BY_NEED", small)
    for system in ("xlm", "xlm-r", "xlm-e"):
        recipe = Recipe.load(f"{system}-tiny")
        text = text_for_recipe(recipe, tmp_path, plain)
        assert has_needs(Dataset.open(text.data), recipe)
    assert not has_needs(Dataset.open(text.data), Recipe.load("bert4rec-tiny"))
