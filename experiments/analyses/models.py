"""Small untrained models in which something is planted."""

from collections.abc import Sequence

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts
from bertwright.data.tokenization.tokenizer import WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.formats.examples import Example

_VOCABULARY = """the a keeper boat lamp river light ship wind tree lights sees takes finds leaves
red old small bright near . ,"""

WORDS = tuple(_VOCABULARY.split())

SENTENCES = (
    "the old keeper lights the lamp .",
    "a ship leaves .",
    "the small boat , near the river , finds the light .",
    "wind takes the bright red tree .",
    "the keeper sees a ship , a boat , a tree .",
    "the lamp finds the wind .",
)


def small_model(system: str = "bert", *changes: str, words: Sequence[str] = WORDS) -> AnalysedModel:
    """Build a model of two blocks and four heads with one token per word, in float64."""
    recipe = Recipe.load(
        system,
        "encoder.width=32",
        "encoder.depth.layers=2",
        "encoder.mixer.heads=4",
        "encoder.dropout=0",
        "encoder.initialisation={kind: width-aware}",
        *changes,
    )
    config = WordLevelConfig(vocab_size=len(words) + len(SPECIALS))
    tokenizer = train_tokenizer([" ".join(words)] * 2, config)
    model = Model.build(recipe, tokenizer.vocab_size, tokenizer).double()
    return AnalysedModel(recipe.name, TextModel(model, tokenizer, "float32"))


SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def small_inputs(
    system: str = "bert", *changes: str, texts: Sequence[str] = SENTENCES
) -> AnalysisInput:
    """Return the small model with sentences."""
    model = small_model(system, *changes)
    return AnalysisInput(model, encode_texts(model, [Example(text) for text in texts]))
