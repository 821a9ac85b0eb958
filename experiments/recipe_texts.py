"""Small texts for recipes, with the annotations that a recipe needs."""

from dataclasses import dataclass
from pathlib import Path

from bertwright.batches.token_info import DataRequirement
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import (
    ItemTokenizerConfig,
    TokenizerConfig,
    WordPieceConfig,
)
from bertwright.recipes import Recipe
from bertwright.studies.corpora import (
    Corpus,
    ItemHistoryCorpus,
    MultilingualCorpus,
    SampleCorpus,
    StoryCorpus,
)
from bertwright.studies.corpora.multilingual import OtherLanguage
from bertwright.studies.run import prepare_corpus

CORPUS_BY_NEED: dict[DataRequirement, tuple[Corpus, TokenizerConfig]] = {
    "histories": (ItemHistoryCorpus(users=500), ItemTokenizerConfig()),
    "dialogues": (
        StoryCorpus(documents=1_000, annotated=True, dialogues=500),
        WordPieceConfig(vocab_size=1024),
    ),
    "connectives": (
        StoryCorpus(documents=1_000, annotated=True, connected=True),
        WordPieceConfig(vocab_size=1024),
    ),
    "phrases": (StoryCorpus(documents=1_000, annotated=True), WordPieceConfig(vocab_size=1024)),
    "capitals": (StoryCorpus(documents=1_000, annotated=True), WordPieceConfig(vocab_size=1024)),
    "translations": (
        MultilingualCorpus(
            stories=800, others={"de": OtherLanguage(stories=800, translations=4_000)}
        ),
        WordPieceConfig(vocab_size=1024),
    ),
    "languages": (
        MultilingualCorpus(stories=800, others={"de": OtherLanguage(stories=800)}),
        WordPieceConfig(vocab_size=1024),
    ),
}
"""The corpus for each need; the first need of a recipe decides."""

DEFAULT_CORPUS = (SampleCorpus(), WordPieceConfig(vocab_size=4096))
"""The corpus for recipes that need plain text only."""


@dataclass(frozen=True)
class RecipeText:
    """A prepared data set; ``name`` is empty for a data set of the user."""

    data: Path
    name: str = ""


def text_for_recipe(recipe: Recipe, output: Path, data: Path | None = None) -> RecipeText:
    """Return ``data`` if it has all that a recipe needs, else the sample or a synthetic corpus.

    The latter are prepared below ``output`` on first use.
    """
    if data is not None and has_needs(Dataset.open(data), recipe):
        return RecipeText(data)
    corpus, tokenizer = DEFAULT_CORPUS
    for need, need_corpus in CORPUS_BY_NEED.items():
        if need in recipe.data_requirements:
            corpus, tokenizer = need_corpus
            break
    return RecipeText(prepare_corpus(corpus, tokenizer, output).data, f"read {corpus.kind}")  # type: ignore[attr-defined]


def has_needs(data: Dataset, recipe: Recipe) -> bool:
    """Return whether a data set has all that a recipe needs."""
    manifest, counts = data.manifest, data.manifest.splits["train"]
    has_items = manifest.tokenizer.kind == "items"
    available: dict[DataRequirement, bool] = {
        "translations": counts.translations > 0,
        "languages": bool(manifest.languages),
        "histories": has_items,
        "dialogues": manifest.has_dialogues,
        "connectives": "connectives" in recipe.data_requirements and _has_connectives(data, recipe),
        "phrases": manifest.has_annotations,
        "capitals": manifest.has_capitals,
    }
    requirements = recipe.data_requirements
    return all(available[need] for need in requirements) and has_items == (
        "histories" in requirements
    )


def _has_connectives(data: Dataset, recipe: Recipe) -> bool:
    """Return whether sentences of every split start with a recipe's connectives."""
    objectives = [o for n in range(len(recipe.phases)) for o in recipe.objectives_of(n).values()]
    formats = [
        o.input_format
        for o in objectives
        if "connectives" in o.data_requirements and o.input_format is not None
    ]
    try:
        for input_format in formats:
            for name in data.manifest.splits:
                input_format.plan(data.split(name), data.tokenizer.special_tokens, recipe.seed)
    except UserError:
        return False
    return True
