"""A vector is what a model was trained to bring texts together by, whatever its head reads."""

import numpy as np
import pytest

from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.heads import Plain
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, TEXTS

HEADS = {
    "bert": Plain(read="mean"),
    "bert first": Plain(read="first"),
    "bert last": Plain(read="last"),
    "bert last-max-mean": Plain(read="last-max-mean"),
    "bert all": Plain(read="mean", layers="all", mix="mean"),
    "roberta beside": Plain(read="first", layers="1,2"),
    "gpt-2": None,
}
"""By a system; None is the head that its encoder usually has."""


@pytest.mark.parametrize("name", HEADS)
def test_a_model_of_closeness_gives_the_vectors_that_it_compares(
    name: str, serving, solving
) -> None:
    model = solving(_encoder(name.split()[0]), find_task("similarity"), HEADS[name])
    texts = [TEXTS[0], "red", "bird " * 600]
    vectors = model.predict([(text, TEXTS[1]) for text in texts])
    asked = {"inputs": texts, "normalize": False, "truncate": True}
    found = np.array(serving({"near": model}).post("/embed", json=asked).json())
    np.testing.assert_allclose(found, [said.vectors[0] for said in vectors], atol=1e-4)


def _encoder(system: str) -> TextModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=160))
    recipe = toy(system, "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(recipe, tokenizer.size, tokenizer), tokenizer, "float32")
