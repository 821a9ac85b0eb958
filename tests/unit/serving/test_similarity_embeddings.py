"""Embeddings of similarity models come from their head."""

import numpy as np
import pytest

from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.heads.kinds import LinearHeadConfig
from small_tasks import ENGLISH, TEXTS
from toy_recipes import toy

HEADS = {
    "bert": LinearHeadConfig(pooling="mean"),
    "bert first": LinearHeadConfig(pooling="first"),
    "bert last": LinearHeadConfig(pooling="last"),
    "bert last-max-mean": LinearHeadConfig(pooling="last-max-mean"),
    "bert all": LinearHeadConfig(pooling="mean", layers="all", mix="mean"),
    "roberta layers": LinearHeadConfig(pooling="first", layers="1,2"),
    "gpt-2": None,
}
"""Heads by recipe; None for the default head."""


@pytest.mark.parametrize("name", HEADS)
def test_a_similarity_model_returns_the_vectors_that_it_compares(
    name: str, serving, make_task_model
) -> None:
    model = make_task_model(_encoder(name.split()[0]), find_task("similarity"), HEADS[name])
    texts = [TEXTS[0], "red", "bird " * 600]
    predictions = model.predict([(text, TEXTS[1]) for text in texts])
    body = {"inputs": texts, "normalize": False, "truncate": True}
    vectors = np.array(serving({"similarity": model}).post("/embed", json=body).json())
    np.testing.assert_allclose(vectors, [p.vectors[0] for p in predictions], atol=1e-4)


def _encoder(system: str) -> TextModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    recipe = toy(system, "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, "float32")
