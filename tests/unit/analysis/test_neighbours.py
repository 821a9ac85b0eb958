"""Nearest neighbours of a word in context, and of its static vector."""

import numpy as np
import pytest
import torch

from bertwright.analysis.geometry import neighbours
from bertwright.analysis.geometry.neighbours import (
    MarkedWord,
    find_neighbours,
    find_static_neighbours,
    iter_sentences,
)
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from small_tasks import ENGLISH, TEXTS
from toy_recipes import shaken, toy

QUERY = MarkedWord.parse("The unbelievably [old] bird is red")


@pytest.fixture(scope="module", params=["bert", "xlnet", "transformer-xl"])
def model(request: pytest.FixtureRequest) -> TextModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=60))
    built = shaken(Model.build(toy(request.param), tokenizer.vocab_size), 0.2)
    return TextModel(built, tokenizer, "float32")


def word_vector(model: TextModel, text: str, index: int) -> np.ndarray:
    """Return the unit vector of a word of a text without punctuation, in layer 1."""
    tokens = [model.tokenizer.encode(word) for word in text.split()]
    start = model.model.recipe.assembly.text_start + sum(map(len, tokens[:index]))
    vector = model.encode(text, layers="1")[0][start : start + len(tokens[index])].mean(0)
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("same_word", [False, True])
def test_neighbours_are_the_most_similar_words(model, monkeypatch, same_word):
    query = word_vector(model, QUERY.text, 2)
    expected = sorted(
        (
            (float(word_vector(model, text, index) @ query), text, word)
            for text in TEXTS
            for index, word in enumerate(text.split())
            if not same_word or word == "old"
        ),
        reverse=True,
    )[:6]
    # A corpus of several chunks, with repeated sentences and the query itself.
    monkeypatch.setattr(neighbours, "SENTENCES_PER_CHUNK", 5)
    corpus = ["\n".join(TEXTS), QUERY.text, *TEXTS]
    result = find_neighbours(model, [QUERY], corpus, 6, "1", same_word)
    assert (result.num_sentences, result.num_words) == (65, 64 * 8 + 6)
    (nearest,) = result.neighbours
    assert [(n.occurrence.text, n.occurrence.word) for n in nearest] == [
        (text, word) for _, text, word in expected
    ]
    similarities = [n.similarity for n in nearest]
    np.testing.assert_allclose(similarities, [s for s, _, _ in expected], atol=1e-5)


def test_static_neighbours_are_the_most_similar_tokens(model):
    table = model.model.embedding_table.detach()
    ids = model.tokenizer.encode("remarkably")
    assert len(ids) > 1
    others = sorted(set(model.tokenizer.ids.tolist()) - {*ids, *model.tokenizer.special_tokens.all})
    cosines = torch.cosine_similarity(table[others], table[ids].mean(0, keepdim=True))
    best = cosines.topk(3)
    nearest = find_static_neighbours(model, "remarkably", 3)
    expected = [model.tokenizer.decode([others[i]]).strip() for i in best.indices.tolist()]
    assert [token for token, _ in nearest] == expected
    np.testing.assert_allclose([s for _, s in nearest], best.values.tolist(), atol=1e-5)
    assert find_static_neighbours(model, "日", 3) == []


def test_sentences_of_texts():
    assert list(iter_sentences(["One. Two!\nThree", " "])) == ["One.", "Two!", "Three"]


def test_a_marked_word_may_be_a_phrase():
    marked = MarkedWord.parse("in [New York] it rains")
    assert (marked.word, marked.text) == ("New York", "in New York it rains")
    assert marked.marked_text == "in [New York] it rains"


@pytest.mark.parametrize("text", ["no word", "[two] [words]", "an [] empty", "[a [b] c]", "[open"])
def test_other_marks_are_errors(text):
    with pytest.raises(UserError, match="mark exactly one word by brackets"):
        MarkedWord.parse(text)


@pytest.mark.parametrize("model", ["bert"], indirect=True)
def test_truncated_words_are_errors(model):
    long = MarkedWord.parse("bird " * 600 + "[old]")
    with pytest.raises(UserError, match="shorten the sentence"):
        find_neighbours(model, [long], TEXTS)
    with pytest.raises(UserError, match="no words"):
        find_neighbours(model, [QUERY], ["..."])
