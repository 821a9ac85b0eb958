"""Token embeddings from characters: the equations and the spelling."""

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.character_ids import character_ids, token_character_ids
from bertwright.data.tokenization.tokenizer import WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.saving import load_model, save_model
from bertwright.recipes import Recipe
from toy_recipes import VOCABULARY, shaken, toy

TEXT = "a cat is no cataract, and a café is no cat"


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT], WordLevelConfig(vocab_size=20))


def build_model(*overrides: str) -> Model:
    return shaken(Model.build(toy("elmo", *overrides), VOCABULARY).double(), 0.2)


def embed_by_hand(table, characters):
    """Embed one token of characters (C,), filter by filter and window by window."""
    names = dict(table.named_parameters())
    x = names["characters.weight"][characters]
    pooled = []
    for number in range(len(table.filters)):
        weight, bias = names[f"filters.{number}.weight"], names[f"filters.{number}.bias"]
        kernel = weight.view(len(weight), x.shape[1], -1)
        width = kernel.shape[2]
        outputs = [
            torch.einsum("kf,nfk->n", x[start : start + width], kernel) + bias
            for start in range(len(x) - width + 1)
        ]
        pooled.append(torch.relu(torch.stack(outputs).amax(0)))
    features = torch.cat(pooled)
    for number in range(len(table.highways)):
        projected = names[f"highways.{number}.transform_and_gate.weight"] @ features
        projected = projected + names[f"highways.{number}.transform_and_gate.bias"]
        transformed, gate = projected.chunk(2)
        gate = torch.sigmoid(gate - 2.0)
        features = gate * torch.relu(transformed) + (1 - gate) * features
    return names["projection.weight"] @ features + names["projection.bias"]


def test_embeddings_follow_the_equations():
    model = build_model()
    table = model.encoder.embeddings.tokens
    token_ids = torch.tensor([[7, 3, 7], [39, 0, 12]])
    expected = [embed_by_hand(table, table.spelling[t].long()) for t in token_ids.flatten()]
    embeddings = table(token_ids)
    torch.testing.assert_close(
        embeddings.flatten(0, 1), torch.stack(expected), atol=1e-9, rtol=1e-9
    )


def test_both_directions_start_with_the_same_embedding():
    model = build_model()
    with model.record("embeddings.output") as values:
        model(torch.tensor([[7, 3, 7]]))
    first, second = values["embeddings.output"].chunk(2, -1)
    assert torch.equal(first, second)


def test_other_tokens_do_not_change_an_embedding():
    table = build_model().encoder.embeddings.tokens
    alone, together = table(torch.tensor([9])), table(torch.tensor([4, 9, 30]))
    torch.testing.assert_close(alone[0], together[1], atol=1e-12, rtol=1e-12)


def test_words_are_framed_truncated_and_padded():
    assert character_ids(["cat", ""], 7).tolist() == [
        [259, 100, 98, 117, 260, 261, 261],
        [259, 260, 261, 261, 261, 261, 261],
    ]
    assert character_ids(["cataract"], 5).tolist() == [[259, 100, 98, 117, 260]]


def test_spelling_of_every_token(tokenizer):
    spelling = token_character_ids(tokenizer, 22, 8)
    assert spelling.shape == (22, 8)
    assert spelling[tokenizer.special_tokens.pad].tolist() == [0] * 8
    assert spelling[tokenizer.special_tokens.start].tolist() == [259, 257, 260, *[261] * 5]
    assert spelling[tokenizer.special_tokens.end].tolist() == [259, 258, 260, *[261] * 5]
    cafe = tokenizer.token_to_id("café")
    assert [c - 1 for c in spelling[cafe][1:6]] == list("café".encode())
    assert len(np.unique(spelling[: tokenizer.vocab_size], axis=0)) == tokenizer.vocab_size


def test_a_model_folder_keeps_the_spelling(tokenizer, tmp_path):
    model = Model.build(toy("elmo"), tokenizer.vocab_size, tokenizer)
    expected = torch.from_numpy(token_character_ids(tokenizer, tokenizer.vocab_size, 6))
    assert torch.equal(model.encoder.embeddings.tokens.spelling, expected)
    save_model(tmp_path / "m", model, tokenizer)
    again, _ = load_model(tmp_path / "m")
    assert torch.equal(again.encoder.embeddings.tokens.spelling, expected)


def test_token_ids_are_ordered_by_frequency(tokenizer):
    assert tokenizer.kind == "words"
    assert [tokenizer.id_to_token(i) for i in range(5, 10)] == ["a", "cat", "is", "no", ","]
    assert tokenizer.encode("a cat unseen") == [5, 6, tokenizer.special_tokens.unknown]
    assert tokenizer.decode(tokenizer.encode("a cat is")) == "a cat is"


@pytest.mark.parametrize(
    "change",
    [
        "output={kind: tied, transform: false}",
        "objectives={causal: null, masked: {}, span-boundary: {}}",
    ],
)
def test_sharing_needs_a_single_table(change):
    with pytest.raises(UserError, match="no table to share"):
        Recipe.load("lstm-lm", "encoder.embeddings={kind: characters, norm: false}", change)
