"""The text that a recipe needs: a small one that holds what the recipe reads beside plain text."""

from dataclasses import dataclass
from pathlib import Path

from bertwright.errors import UserError
from bertwright.examples.coordinates import Need
from bertwright.recipes import Recipe
from bertwright.studies.corpora import Corpus, Duo, Grammar, Items, Sample
from bertwright.studies.corpora.duo import Other
from bertwright.studies.running import prepared_for
from bertwright.text.shards import Data
from bertwright.text.tokenizers import ItemsChoice, TokenizerChoice, WordPieceChoice

MADE_TO_ORDER: dict[Need, tuple[Corpus, TokenizerChoice]] = {
    "histories": (Items(users=500), ItemsChoice()),
    "dialogues": (
        Grammar(documents=1_000, annotated=True, dialogues=500),
        WordPieceChoice(size=1024),
    ),
    "connectives": (
        Grammar(documents=1_000, annotated=True, connected=True),
        WordPieceChoice(size=1024),
    ),
    "phrases": (Grammar(documents=1_000, annotated=True), WordPieceChoice(size=1024)),
    "capitals": (Grammar(documents=1_000, annotated=True), WordPieceChoice(size=1024)),
    "translations": (
        Duo(stories=800, others={"de": Other(stories=800, translations=4_000)}),
        WordPieceChoice(size=1024),
    ),
    "languages": (Duo(stories=800, others={"de": Other(stories=800)}), WordPieceChoice(size=1024)),
}
"""The text for recipes with such a need; the first that a recipe has decides."""

SAMPLE = (Sample(), WordPieceChoice(size=4096))
"""The text for those that read nothing but text."""


@dataclass(frozen=True)
class Text:
    """A prepared data set; ``name`` says which text it is, where it is not one's own."""

    data: Path
    name: str = ""


def text_for(recipe: Recipe, out: Path, given: Path | None = None) -> Text:
    """The text that is ``given``, if it holds all that a recipe reads; else the embedded sample, or
    what is made to order for those that need more, prepared below ``out`` where it is not there."""
    if given is not None and is_enough(Data.open(given), recipe):
        return Text(given)
    corpus, tokenizer = SAMPLE
    for need, chosen in MADE_TO_ORDER.items():
        if need in recipe.needs:
            corpus, tokenizer = chosen
            break
    return Text(prepared_for(corpus, tokenizer, out).data, f"read {corpus.kind}")  # type: ignore[attr-defined]


def is_enough(data: Data, recipe: Recipe) -> bool:
    """Whether a data set holds everything that a recipe reads."""
    manifest, counts = data.manifest, data.manifest.splits["train"]
    of_items = manifest.tokenizer.kind == "items"
    held: dict[Need, bool] = {
        "translations": counts.translations > 0,
        "languages": bool(manifest.languages),
        "histories": of_items,
        "dialogues": manifest.dialogues,
        "connectives": "connectives" in recipe.needs and _has_connectives(data, recipe),
        "phrases": manifest.annotated,
        "capitals": manifest.capitals,
    }
    return all(held[need] for need in recipe.needs) and of_items == ("histories" in recipe.needs)


def _has_connectives(data: Data, recipe: Recipe) -> bool:
    """Whether sentences of every split begin with those that a recipe asks for."""
    asked = [o for n in range(len(recipe.phases)) for o in recipe.objectives_of(n).values()]
    own = [rows for o in asked if "connectives" in o.needs and (rows := o.own_rows) is not None]
    try:
        for rows in own:
            for name in data.manifest.splits:
                rows.plan(data.split(name), data.tokenizer.specials, recipe.seed)
    except UserError:
        return False
    return True
