"""Queries for the texts of an index, written by a model with a decoder (Wang et al. 2022, GPL)."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.retrieval.mining import PositivePair
from bertwright.retrieval.search_index import SearchIndex
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import GeneratedOutput

TEXTS_AT_ONCE = 64


def generate_queries(index: SearchIndex, folder: str | Path) -> Iterator[PositivePair]:
    """Yield each text of an index with the query that a model generates from it.

    Texts without a generated word are left out. Errors: UserError for a model that was not
    fine-tuned to generate texts.
    """
    generator = load(folder)
    if not isinstance(generator, FineTunedModel) or not isinstance(
        generator.task.output_type, GeneratedOutput
    ):
        raise UserError(
            f"{folder} generates no queries: fine-tune a model with a decoder by "
            f"bertwright finetune --task titles or text-to-text"
        )
    return _generate(index, generator)


def _generate(index: SearchIndex, generator: FineTunedModel) -> Iterator[PositivePair]:
    texts = (text.content for text in index.whole_texts())
    while batch := list(islice(texts, TEXTS_AT_ONCE)):
        for text, prediction in zip(batch, generator.predict(batch), strict=True):
            query = str(prediction.value).strip()
            if query:
                yield PositivePair(query, text)
