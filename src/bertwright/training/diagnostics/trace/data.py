"""The data that a trace follows: a data set, or a few texts."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.data.preparation import temporary_dataset
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.recipes import Recipe


@contextmanager
def open_traced_data(folder: Path, tokenizer: Tokenizer | None) -> Generator[Dataset]:
    """Open a data folder.

    Errors: UserError if the data were prepared with another ``tokenizer``.
    """
    data = Dataset.open(folder)
    if tokenizer is not None and data.tokenizer.hash != tokenizer.hash:
        raise UserError(f"{folder} was prepared with another tokenizer than the model's")
    yield data


@contextmanager
def prepare_traced_texts(
    recipe: Recipe, texts: Sequence[str], tokenizer: Tokenizer | None
) -> Generator[Dataset]:
    """Prepare texts, one document each, in the first language of the encoder.

    Without a tokenizer the recipe's kind is trained on the texts.
    """
    tokenizer = tokenizer or train_tokenizer(texts, recipe.text.tokenizer)
    language = next(iter(recipe.encoder.embeddings.languages), "en")
    with temporary_dataset(texts, tokenizer, language) as data:
        yield data
