"""A model with its tokenizer: the same results however texts are batched."""

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.saving import load_model, save_model
from bertwright.models.scoring.likelihood import _word_ends
from bertwright.models.scoring.masked_states import masked_hidden_states
from bertwright.models.text_batches import text_batches
from bertwright.models.text_model import TextModel
from bertwright.modules.attention.mask import PermutationVisibility
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import SYSTEMS, toy

TEXTS = ["a dog sees the cat", "", "the cat", "dogs, cats and the sea " * 3]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 5, WordPieceConfig(vocab_size=60, lowercase=True))


def build_model(system, tokenizer, precision="float32"):
    uses_positions = not toy(system).encoder.mixer.is_recurrent
    recipe = toy(
        system,
        *(["encoder.positions={kind: rotary}"] if uses_positions else []),
        f"text.tokenizer.vocab_size={tokenizer.vocab_size}",
    )
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, precision)


@pytest.mark.parametrize("system", SYSTEMS)
def test_batching_does_not_change_vectors(system, tokenizer):
    model = build_model(system, tokenizer)
    batched = model.embed(TEXTS)
    for index, text in enumerate(TEXTS):
        np.testing.assert_allclose(batched[index], model.embed([text])[0], atol=1e-5)


@pytest.mark.parametrize("system", SYSTEMS)
def test_saving_and_loading_changes_nothing(system, tokenizer, tmp_path):
    model = build_model(system, tokenizer)
    save_model(tmp_path / "m", model.model, tokenizer)
    loaded = TextModel(*load_model(tmp_path / "m"), "float32")
    np.testing.assert_array_equal(model.embed(TEXTS), loaded.embed(TEXTS))
    assert loaded.model.recipe == model.model.recipe


def test_the_language_of_a_text_counts(tokenizer):
    model = build_model("xlm", tokenizer)
    languages = model.model.recipe.encoder.embeddings.languages
    default, first, second = (model.embed(TEXTS, language=name) for name in (None, *languages[:2]))
    np.testing.assert_array_equal(default, first)
    assert np.abs(default - second).max() > 1e-3
    assert model.score(TEXTS, language=languages[0]) != model.score(TEXTS, language=languages[1])
    with torch.no_grad():
        table = model.model.encoder.embeddings.languages.weight
        table[1] = table[0]
    for actual, expected in zip(
        model.encode(TEXTS, language=languages[1]), model.encode(TEXTS), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
    assert model.fill_mask("the [MASK]", language=languages[1]) == model.fill_mask("the [MASK]")
    assert model.score(TEXTS, language=languages[0]) == model.score(TEXTS, language=languages[1])
    with pytest.raises(UserError, match="no embedding for the language 'xx'"):
        model.embed(TEXTS, language="xx")


def test_the_mean_of_hidden_states_is_the_embedding(tokenizer):
    model = build_model("modern", tokenizer)
    states = model.encode(TEXTS)
    assert [len(s) for s in states] == [len(tokenizer.encode(t)) + 2 for t in TEXTS]
    np.testing.assert_allclose(states[3].mean(0), model.embed([TEXTS[3]])[0], atol=1e-5)
    np.testing.assert_allclose(states[2][0], model.embed([TEXTS[2]], "cls")[0], atol=1e-5)


@pytest.mark.parametrize("system", ["gpt-2", "transformer-xl", "awd-lstm", "elmo"])
def test_causal_models_do_not_fill_masks(tokenizer, system):
    with pytest.raises(UserError, match="predicts next tokens: use generate or score"):
        build_model(system, tokenizer).fill_mask("the [MASK] sees")


def test_an_encoder_without_languages_refuses_one(tokenizer):
    with pytest.raises(UserError, match="leave --language out"):
        build_model("bert", tokenizer).embed(TEXTS, language="en")


def test_the_last_four_blocks_are_concatenated(tokenizer):
    assert build_model("modern", tokenizer).embed(TEXTS, layers="last-4").shape == (4, 2 * 32)
    assert build_model("modern", tokenizer).embed([]).shape == (0, 32)


def test_bfloat16_vectors_are_close(tokenizer):
    exact, fast = build_model("bert", tokenizer), build_model("bert", tokenizer, "bf16")
    one, other = exact.embed(TEXTS, normalise=True), fast.embed(TEXTS, normalise=True)
    assert (one * other).sum(1).min() > 0.999


@pytest.mark.processor
def test_int8_vectors_are_close_and_need_a_fast_processor(tokenizer, monkeypatch):
    monkeypatch.setattr("bertwright.models.text_model.int8_is_fast", lambda: True)
    exact, fast = build_model("bert", tokenizer), build_model("bert", tokenizer, "int8")
    one, other = exact.embed(TEXTS, normalise=True), fast.embed(TEXTS, normalise=True)
    assert (one * other).sum(1).min() > 0.99
    alone = np.concatenate([fast.embed(text, normalise=True) for text in TEXTS])
    np.testing.assert_allclose(alone, other, atol=0.01)
    monkeypatch.setattr("bertwright.models.text_model.int8_is_fast", lambda: False)
    with pytest.raises(UserError, match="int8 needs an x86 processor"):
        build_model("bert", tokenizer, "int8")


def test_masks_are_filled_with_probabilities(tokenizer):
    model = build_model("modern", tokenizer)
    predictions = model.fill_mask("the [MASK] sees a [MASK]", top_k=3)
    assert [len(prediction) for prediction in predictions] == [3, 3]
    probabilities = [prediction.probability for prediction in predictions[0]]
    assert probabilities == sorted(probabilities, reverse=True)
    with pytest.raises(UserError, match="the text has no mask"):
        model.fill_mask("no mask at all")
    with pytest.raises(UserError, match="unknown pooling 'max'"):
        model.embed(TEXTS, "max")


@pytest.mark.processor
def test_a_score_is_the_sum_over_masked_tokens(tokenizer):
    model = build_model("modern", tokenizer)
    ids, starts = tokenizer.encode_with_word_starts("a dog")
    ends = _word_ends(starts, len(ids))
    total = 0.0
    for index, token_id in enumerate(ids):
        sequence = [tokenizer.special_tokens.start, *ids, tokenizer.special_tokens.end]
        for position in range(index + 1, ends[index] + 1):
            sequence[position] = tokenizer.special_tokens.mask
        with torch.no_grad():
            states = model.model(torch.tensor([sequence]))[0, index + 1 : index + 2]
            total += float(torch.log_softmax(model.model.logits(states), -1)[0, token_id])
    assert model.score(["a dog"])[0] == pytest.approx(total, abs=1e-4)


@pytest.mark.processor
def test_permutation_models_never_see_a_mask(tokenizer):
    """The order masks a position for all others; a query-stream position predicts it."""
    model = build_model("xlnet", tokenizer)
    before, after = tokenizer.encode("the"), tokenizer.encode("sees")
    ids = [tokenizer.special_tokens.start, *before, 0, *after, tokenizer.special_tokens.end]
    position, index = 1 + len(before), torch.arange(len(ids) + 1)[None]
    order = ((index == position) | (index == len(ids))).long()
    position_ids = index.where(index < len(ids), position)
    token_info = TokenInfo(
        index,
        position_ids=position_ids,
        factorisation_order=order,
        is_query_stream=index == len(ids),
    )
    with torch.no_grad():
        states = model.model(
            torch.tensor([[*ids, 0]]),
            token_info,
            PermutationVisibility() & model.model.encoder.visibility,
        )
        expected = torch.softmax(model.model.logits(states[0, -1:]), -1)[0].tolist()
    [predictions] = model.fill_mask("the [MASK] sees", top_k=len(expected))
    for prediction in predictions:
        assert prediction.probability == pytest.approx(
            expected[tokenizer.token_to_id(prediction.token)], abs=1e-6
        )


@pytest.mark.parametrize("system", ["bert", "gpt-bert", "xlnet"])
def test_masked_tokens_are_not_visible(system, tokenizer):
    text_model = build_model(system, tokenizer)
    model, device = text_model.model, text_model.device
    token_ids = torch.tensor([[1, 9, 10, 11, 12, 2]], device=device)
    is_masked = torch.tensor([[False, False, True, True, False, False]], device=device)
    changed = token_ids.masked_fill(is_masked, 13)
    positions, token_info = (
        torch.tensor([[2, 3]], device=device),
        TokenInfo.from_token_ids(token_ids),
    )
    original, modified = (
        masked_hidden_states(model, ids, token_info, is_masked, positions, 4)
        for ids in (token_ids, changed)
    )
    assert original.shape == (1, 2, 32)
    assert torch.equal(original, modified)
    assert not torch.equal(original[:, 0], original[:, 1])


def test_later_tokens_of_a_word_are_masked_with_the_scored_one():
    assert _word_ends([0, 3], 5) == [3, 3, 3, 5, 5]
    assert _word_ends([1], 3) == [1, 3, 3]


def test_batches_hold_every_text_once_within_the_budget():
    sequences = [[1] * n for n in (3, 9, 1, 5, 5, 2)]
    batches = list(text_batches(sequences, 0, torch.device("cpu"), batch_tokens=10))
    assert sorted(n for b in batches for n in b.indices) == list(range(6))
    assert all(b.token_ids.numel() <= 10 for b in batches)


def test_damaged_and_missing_folders_are_refused(tokenizer, tmp_path):
    with pytest.raises(UserError, match="is not a model folder"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        UserError, match="is a Hugging Face folder: convert it with 'bertwright imp"
    ):
        load_model(tmp_path)
    model = build_model("bert", tokenizer)
    save_model(tmp_path / "m", model.model, tokenizer)
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(UserError, match=r"model.safetensors is damaged"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_replaced_values_count_inside_the_context(tokenizer, precision):
    model = TextModel(build_model("roberta", tokenizer).model, tokenizer, precision)
    before = model.embed(TEXTS)
    with model.replace("blocks.0.residual", torch.zeros_like):
        assert np.abs(model.embed(TEXTS) - before).max() > 1e-3
    with model.record("blocks.*.attention.weights") as values:
        model.encode(TEXTS[:1])
    assert values
    np.testing.assert_array_equal(model.embed(TEXTS), before)


def test_nested_recordings_end_separately(tokenizer):
    model = build_model("roberta", tokenizer)
    with model.record("output") as outer:
        with model.record("output") as inner:
            model.embed(TEXTS[:1])
        assert inner
        model.embed(TEXTS[1:])
        assert not torch.equal(inner["output"], outer["output"])
    assert model.model.encoder.taps.is_idle


@pytest.mark.processor
def test_unknown_tap_names_are_refused(tokenizer):
    model = build_model("roberta", tokenizer)
    message = "no value is named blocks.0.residaul: did you mean 'blocks.0.residual'"
    with pytest.raises(UserError, match=message), model.model.record("blocks.0.residaul"):
        model.embed(TEXTS)
    with pytest.raises(UserError, match="no value"), model.model.replace("blocks.9.*", torch.abs):
        model.embed(TEXTS)
    with pytest.raises(UserError, match="stop_after is 99"):
        model.model(torch.zeros(1, 8, dtype=torch.int64), stop_after=99)
    with model.model.record("nothing.of.this"):
        pass


def test_other_types_than_text_are_refused(tokenizer):
    with pytest.raises(UserError, match="texts must be strings, and 1 is not"):
        build_model("bert", tokenizer).embed([1, 2])


def test_a_single_text_equals_a_list_of_one(tokenizer):
    model = build_model("roberta", tokenizer)
    np.testing.assert_array_equal(model.embed(TEXTS[0]), model.embed(TEXTS[:1]))
    np.testing.assert_array_equal(model.encode(TEXTS[0])[0], model.encode(TEXTS[:1])[0])
    assert model.score(TEXTS[0]) == model.score(TEXTS[:1])


def test_an_unknown_precision_is_refused(tokenizer):
    with pytest.raises(
        UserError, match="unknown precision 'fp16': choose one of float32, bf16, int8"
    ):
        TextModel(build_model("roberta", tokenizer).model, tokenizer, "fp16")
