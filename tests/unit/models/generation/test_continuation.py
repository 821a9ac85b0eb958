"""Left-to-right generation: the same text cached or not, batched or not."""

import math

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import ByteBpeConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.generation.generate import slow_generation_reason
from bertwright.models.generation.sequences import CachedSequences, UncachedSequences
from bertwright.models.scoring.likelihood import causal_visibility, token_log_probabilities
from bertwright.models.text_model import TextModel
from bertwright.objectives.causal import CausalLM
from toy_recipes import SYSTEMS, published, shaken, toy

TEXT = "the cat sees a dog and the dog sees the sea, and a cat sits by the sea"
PROMPTS = ["the cat", "", "a dog sees the cat and the", "dogs"]
CAUSAL = [
    system
    for system in SYSTEMS
    if any(
        isinstance(o, CausalLM) and o.direction != "backward"
        for o in published(system).objectives.values()
    )
]
CHANGES = [
    *((system,) for system in CAUSAL),
    *(
        ("gpt", f"encoder.positions.kind={kind}")
        for kind in ("sinusoidal", "alibi", "bucketed", "log-buckets", "none")
    ),
    ("gpt", "encoder.positions=rotary", "encoder.sliding_window={every: 2, window: 3}"),
    ("transformer-xl", "encoder.memory_length=5", "encoder.positions=rotary"),
    ("gpt", "encoder.depth={kind: sandwich, layers: 2, outside: 0.5}"),
    ("gpt", "encoder.depth.sharing=all"),
    ("gpt", "encoder.visibility={kind: or, rules: [{kind: window, size: 3}, {kind: global}]}"),
    ("gpt", "encoder.norm.placement=pre", "encoder.residual.kind=reversible"),
    ("gpt", "encoder.mixer={kind: fixed-patterns, head_width: 16, patterns: [left]}"),
    ("gpt", "encoder.mixer={kind: random-features, head_width: 16, features: 8}"),
    (
        "universal-transformer",
        "encoder.visibility.kind=causal",
        "assembly={kind: packed, length: 24}",
        "objectives={masked: null, causal: {}}",
    ),
]
every_causal = pytest.mark.parametrize("changes", CHANGES, ids="/".join)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT], ByteBpeConfig(vocab_size=290))


def build_model(tokenizer, system: str, *changes: str) -> TextModel:
    """A toy model with random weights large enough to prefer some tokens."""
    recipe = toy(system, f"text.tokenizer.vocab_size={tokenizer.vocab_size}", *changes)
    model = shaken(Model.build(recipe, tokenizer.vocab_size), 0.1)
    return TextModel(model, tokenizer, "float32")


@every_causal
def test_stepwise_log_probabilities_equal_one_pass(tokenizer, changes) -> None:
    model = build_model(tokenizer, *changes)
    specials, assembly = tokenizer.special_tokens, model.model.recipe.assembly
    for text in model.generate(PROMPTS, max_new_tokens=12, seed=1):
        prompt_ids = [assembly.start_token(specials), *tokenizer.encode(text.prompt)]
        (log_probabilities,) = token_log_probabilities(
            model.model, [[*prompt_ids, *text.token_ids]], specials.pad
        )
        assert text.log_probabilities == pytest.approx(
            log_probabilities[len(prompt_ids) - 1 :], abs=1e-5
        )


@every_causal
def test_batching_changes_nothing(tokenizer, changes) -> None:
    model = build_model(tokenizer, *changes)
    batched = model.generate(PROMPTS, max_new_tokens=8, num_samples=2, seed=3)
    assert [(text.prompt, text.sample) for text in batched] == [
        (prompt, sample) for prompt in PROMPTS for sample in (0, 1)
    ]
    for index, prompt in enumerate(PROMPTS):
        single = model.generate(prompt, max_new_tokens=8, num_samples=2, seed=3)
        for actual, expected in zip(single, batched[2 * index :], strict=False):
            assert (actual.token_ids, actual.text) == (expected.token_ids, expected.text)
            assert actual.log_probabilities == pytest.approx(expected.log_probabilities, abs=1e-5)


@every_causal
@torch.no_grad()
def test_the_cache_changes_nothing(tokenizer, changes) -> None:
    model = build_model(tokenizer, *changes).model
    supports_cache = model.recipe.encoder.supports_cache
    assert (slow_generation_reason(model.recipe) is None) == supports_cache
    if not supports_cache:
        return
    visibility, pad = causal_visibility(model), tokenizer.special_tokens.pad
    sequences = [[2, 9, 8, 7], [2], [2, 30, 11]]
    cached = CachedSequences(model, sequences, visibility, pad, model.memory_length or None, None)
    uncached = UncachedSequences(model, sequences, visibility, pad, None)
    for token_id in range(20, 32):
        torch.testing.assert_close(cached.logits(), uncached.logits(), atol=1e-5, rtol=1e-5)
        for growing in (cached, uncached):
            if token_id == 25:
                growing.select([2, 0])
            growing.append([token_id, token_id + 1, token_id + 2][: 3 if token_id < 25 else 2])


@pytest.mark.parametrize("system", ["gpt", "xlnet"])
def test_a_text_continues_in_its_language(tokenizer, system) -> None:
    model = build_model(tokenizer, system, "encoder.embeddings.languages=[en, de]")
    greedy = {"temperature": 0, "max_new_tokens": 9}
    english, german = (
        model.generate("the", language=language, **greedy)[0] for language in ("en", "de")
    )
    assert english.token_ids == model.generate("the", **greedy)[0].token_ids
    assert german.token_ids != english.token_ids
    with torch.no_grad():
        table = model.model.encoder.embeddings.languages.weight
        table[0] = table[1]
    text = model.generate("the", **greedy)[0]
    assert text.token_ids == german.token_ids
    assert text.log_probabilities == pytest.approx(german.log_probabilities, abs=1e-5)
    with pytest.raises(UserError, match="did you mean 'de'"):
        model.generate("the", language="dee")
    with pytest.raises(UserError, match="in the language of the prompt"):
        model.generate("the", target_language="de")


def test_right_to_left_models_are_refused(tokenizer) -> None:
    changes = ("encoder.visibility=reversed", "encoder.memory_length=0")
    model = build_model(tokenizer, "lstm-lm", "objectives.causal.direction=backward", *changes)
    with pytest.raises(UserError, match="reads texts from right to left"):
        model.generate("the")
    with pytest.raises(UserError, match="reads texts from right to left"):
        model.score(["the cat"])


def test_greedy_takes_the_most_probable_token_whatever_the_seed(tokenizer) -> None:
    model = build_model(tokenizer, "gpt")
    text, repeated = (
        model.generate("the", temperature=0, seed=s, max_new_tokens=9)[0] for s in (0, 1)
    )
    assert text == repeated
    assert text.token_ids != model.generate("the", seed=1, max_new_tokens=9)[0].token_ids
    ids = [tokenizer.special_tokens.start, *tokenizer.encode("the")]
    for token_id in text.token_ids:
        with torch.no_grad():
            logits = model.model.logits(model.model(torch.tensor([ids]))[:, -1])[0]
        allowed = logits[[i for i in range(tokenizer.vocab_size) if i not in (0, 1, 3, 4)]]
        assert float(logits[token_id]) == pytest.approx(float(allowed.max()), abs=1e-4)
        ids.append(token_id)


def test_visibility_that_depends_on_the_length_is_refused(tokenizer) -> None:
    visibility = "{kind: or, rules: [{kind: window, size: 3}, {kind: global, last: 1}]}"
    with pytest.raises(UserError, match="depends on the text's length"):
        build_model(tokenizer, "gpt", f"encoder.visibility={visibility}").generate("the")


def test_finish_reasons(tokenizer) -> None:
    model = build_model(tokenizer, "gpt", "encoder.positions.size=24")
    texts = model.generate(PROMPTS, seed=2)
    assert {text.finish_reason for text in texts} <= {"end", "full"}
    for text in texts:
        length = 1 + len(tokenizer.encode(text.prompt)) + len(text.token_ids)
        assert (text.finish_reason == "full") == (length == 25)
        assert (text.finish_reason == "end") == (text.token_ids[-1] == tokenizer.special_tokens.end)
    (short,) = model.generate("the", max_new_tokens=2)
    assert (short.finish_reason, len(short.token_ids)) == ("limit", 2)


def test_a_text_ends_before_the_first_stop(tokenizer) -> None:
    model = build_model(tokenizer, "gpt")
    (unstopped,) = model.generate("the cat", max_new_tokens=20, seed=5)
    stop = unstopped.text[4:6]
    (text,) = model.generate("the cat", max_new_tokens=20, seed=5, stop=["never there", stop])
    assert text.finish_reason == "stop"
    assert text.text == unstopped.text[: unstopped.text.find(stop)]
    assert text.token_ids == unstopped.token_ids[: len(text.token_ids)]


def test_special_tokens_are_never_generated(tokenizer) -> None:
    texts = build_model(tokenizer, "gpt").generate(["a"], num_samples=40, temperature=3.0)
    specials = tokenizer.special_tokens
    assert not {token_id for text in texts for token_id in text.token_ids} & (
        specials.all - {specials.end}
    )
    assert len({text.token_ids for text in texts}) == 40


def test_memory_allows_texts_of_any_length(tokenizer) -> None:
    model = build_model(tokenizer, "transformer-xl", "encoder.memory_length=8")
    (text,) = model.generate("the cat " * 12, max_new_tokens=60, temperature=2.0)
    assert text.finish_reason in ("limit", "end")
    assert all(math.isfinite(value) for value in text.log_probabilities)


def test_a_causal_score_is_the_sum_of_log_probabilities(tokenizer) -> None:
    model = build_model(tokenizer, "gpt")
    ids = [tokenizer.special_tokens.start, *tokenizer.encode(TEXT)]
    with torch.no_grad():
        logs = model.model.logits(model.model(torch.tensor([ids]))[0, :-1]).log_softmax(-1)
    expected = sum(float(row[token_id]) for row, token_id in zip(logs, ids[1:], strict=True))
    assert model.score([TEXT, "a"])[0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "generate: temperature: must be 0 or more, not -1.0"),
        ({"temperature": math.nan}, "temperature: must be a finite number, not nan"),
        ({"top_p": 0.0}, "top_p: must be more than 0, not 0.0"),
        ({"top_p": 1.5}, "top_p: must be 1 or less, not 1.5"),
        ({"temprature": 0.0}, "generate: has no key 'temprature': did you mean 'temperature'"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: must be more than 0, not 0.0"),
        ({"stop": ""}, "stop: must hold no empty text"),
        ({"objective": "causual"}, "has no objective 'causual': did you mean 'causal'"),
        ({"prompts": "the cat " * 20}, "exceeds the model's maximum of 24: shorten it"),
    ],
)
def test_invalid_settings_are_refused(tokenizer, settings, message) -> None:
    model = build_model(tokenizer, "gpt", "encoder.positions.size=24")
    with pytest.raises(UserError, match=message):
        model.generate(**({"prompts": "the"} | settings))


def test_models_that_cannot_generate_are_refused(tokenizer) -> None:
    with pytest.raises(
        UserError, match=r"cannot generate with its objectives \(replaced-token, generated\)"
    ):
        build_model(tokenizer, "electra").generate("the")
