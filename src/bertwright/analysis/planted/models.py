"""Small models as they are drawn, for something to be planted in."""

from collections.abc import Sequence

from bertwright.analysis.analysis import Case
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.formats.examples import Example
from bertwright.text.tokenizers import WordsChoice
from bertwright.text.vocabularies import train_tokenizer

_SAID = """the a keeper boat lamp river light ship wind tree lights sees takes finds leaves red old
small bright near . ,"""

WORDS = tuple(_SAID.split())

SENTENCES = (
    "the old keeper lights the lamp .",
    "a ship leaves .",
    "the small boat , near the river , finds the light .",
    "wind takes the bright red tree .",
    "the keeper sees a ship , a boat , a tree .",
    "the lamp finds the wind .",
)


def small_subject(system: str = "bert", *changes: str, words: Sequence[str] = WORDS) -> Subject:
    """Two blocks of four heads that know each word as one piece; parameters in float64."""
    recipe = Recipe.load(
        system,
        "encoder.width=32",
        "encoder.depth.layers=2",
        "encoder.mixer.heads=4",
        "encoder.dropout=0",
        "encoder.initialisation={kind: width-aware}",
        *changes,
    )
    choice = WordsChoice(size=len(words) + len(SPECIALS))
    tokenizer = train_tokenizer([" ".join(words)] * 2, choice)
    model = Model.build(recipe, tokenizer.size, tokenizer).double()
    return Subject(recipe.name, TextModel(model, tokenizer, "float32"))


SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def small_case(system: str = "bert", *changes: str, texts: Sequence[str] = SENTENCES) -> Case:
    """The small model and sentences of its words."""
    subject = small_subject(system, *changes)
    return Case(subject, read_texts(subject, [Example(text) for text in texts]))
