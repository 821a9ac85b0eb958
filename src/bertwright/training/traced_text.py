"""What a trace follows: a data set, or a few texts as one."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bertwright.errors import UserError
from bertwright.recipes import Recipe
from bertwright.text.little_data import little_data
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer
from bertwright.text.vocabularies import train_tokenizer


@contextmanager
def traced_data(folder: Path, tokenizer: Tokenizer | None) -> Generator[Data]:
    """A data folder, whose tokenizer is this one, if there is one.

    Errors: UserError where it is another.
    """
    data = Data.open(folder)
    if tokenizer is not None and data.tokenizer.hash != tokenizer.hash:
        raise UserError(f"{folder} was made with another tokenizer than the model's")
    yield data


@contextmanager
def traced_texts(
    recipe: Recipe, texts: Sequence[str], tokenizer: Tokenizer | None
) -> Generator[Data]:
    """Texts, a document each, in the first language that the encoder knows; without a tokenizer the
    recipe's kind learns from them."""
    tokenizer = tokenizer or train_tokenizer(texts, recipe.text.tokenizer)
    language = next(iter(recipe.encoder.embeddings.languages), "en")
    with little_data(texts, tokenizer, language) as data:
        yield data
