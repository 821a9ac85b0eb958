"""Texts for analyses: words, categories of tokens, and truncation."""

import numpy as np
import pytest
import torch

from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import TOKEN_CATEGORIES, encode_texts
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.formats.examples import Example, TaggedSentence
from bertwright.tasks.heads.task_visibility import with_global_question_attention
from bertwright.tasks.outputs import SpanOutput
from experiments.analyses.models import small_model
from toy_recipes import SYSTEMS, toy


def test_categories_of_tokens() -> None:
    model = small_model()
    plain, pair, tagged = encode_texts(
        model,
        [
            Example("the keeper , near a ship ."),
            Example("the keeper", "a ship ."),
            TaggedSentence(("the", "keeper", ".")),
        ],
    )
    assert plain.words == ("the", "keeper", ",", "near", "a", "ship", ".")
    assert pair.words == ("the", "keeper", "a", "ship", ".")
    assert tagged.words == ("the", "keeper", ".")
    for text in (plain, pair, tagged):
        special = text.category_masks["opening"] | text.category_masks["separator"]
        np.testing.assert_array_equal(special, text.word_ids < 0)
        assert text.category_masks["first"].sum() == len(text.words)
        decoded = [model.tokenizer.decode([token]) for token in text.token_ids]
        for position, word in enumerate(text.word_ids):
            assert decoded[position] == ("" if word < 0 else text.words[word])
        assert set(text.category_masks) == set(TOKEN_CATEGORIES)
    assert plain.category_masks["punctuation"].sum() == 2
    assert pair.category_masks["separator"].sum() == 2
    assert pair.segment_ids == [0, 0, 0, 0, 1, 1, 1, 1]


def test_the_start_token_of_xlnet_closes_a_sequence() -> None:
    (text,) = encode_texts(small_model("xlnet"), [Example("the keeper near a ship .")])
    positions = {name: mask.nonzero()[0].tolist() for name, mask in text.category_masks.items()}
    assert positions["opening"] == [len(text) - 1]
    assert positions["separator"] == [len(text) - 2]
    assert positions["first"] == list(range(len(text) - 2))


def test_truncation_keeps_whole_words() -> None:
    model = small_model()
    (text,) = encode_texts(model, [Example("the keeper sees a ship")], max_length=5)
    assert text.words == ("the", "keeper", "sees")
    assert len(text) == 5


@pytest.mark.parametrize("length", [8, 11, 12, 13, 16])
@pytest.mark.parametrize("pair", [("a ship .", "the keeper sees a lamp , a ship"), ("a", "a ship")])
def test_pairs_are_truncated_as_in_fine_tuning(pair: tuple[str, str], length: int) -> None:
    model = small_model()
    for first, second in (pair, pair[::-1]):
        example = Example(first, second)
        (text,) = encode_texts(model, [example], length)
        encoder = ExampleEncoder.from_recipe(
            model.text_model.model.recipe, model.tokenizer, None, length
        )
        # Every word is one token here, so that no word is cut in two.
        assert text.token_ids == encoder.encode([example])[0].token_ids


@pytest.mark.parametrize("system", ["bert", "roberta", "longformer"])
def test_pairs_are_encoded_as_in_training(system: str) -> None:
    tokenizer, example = small_model().tokenizer, Example("the keeper", "a ship .")
    recipe = with_global_question_attention(toy(system), [SpanOutput()])
    model = Model.build(recipe, tokenizer.vocab_size, tokenizer)
    (text,) = encode_texts(AnalysedModel(system, TextModel(model, tokenizer, "float32")), [example])
    (sequence,) = ExampleEncoder.from_recipe(recipe, tokenizer, model.encoder.max_length).encode(
        [example]
    )
    assert text.token_ids == sequence.token_ids
    assert (text.segment_ids if text.has_segments else None) == sequence.segment_ids


@pytest.mark.parametrize("system", ["bert", "roberta", "gpt-2", "elmo"])
def test_missing_activations_are_stated(system: str) -> None:
    tokenizer = small_model().tokenizer
    model = Model.build(toy(system), tokenizer.vocab_size, tokenizer)
    analysed = AnalysedModel(system, TextModel(model, tokenizer, "float32"))
    assert (analysed.missing_taps("blocks.*.attention.weights") is not None) == (system == "elmo")
    assert analysed.missing_taps("blocks.*.residual") is None


@pytest.mark.parametrize("system", SYSTEMS)
def test_recorded_weights_produce_the_context(system: str) -> None:
    tokenizer, taps = small_model().tokenizer, ("weights", "value", "context")
    model = Model.build(toy(system), tokenizer.vocab_size, tokenizer)
    analysed = AnalysedModel(system, TextModel(model, tokenizer, "float32"))
    names = [f"blocks.*.attention.{tap}" for tap in taps]
    if analysed.missing_taps(*names) is None:
        token_ids = torch.randint(
            5, tokenizer.vocab_size, (1, 20), generator=torch.Generator().manual_seed(0)
        )
        with torch.no_grad(), analysed.encoder.record(*names) as values:
            analysed.encoder(token_ids)
        for layer in range(analysed.num_layers):
            weights, value, context = (values[f"blocks.{layer}.attention.{tap}"] for tap in taps)
            torch.testing.assert_close(weights @ value, context)
