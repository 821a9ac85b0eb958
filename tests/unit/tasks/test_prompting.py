"""Prompting: labels are chosen by likelihood, and shots are drawn by seed."""

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import ByteBpeConfig, Tokenizer
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.zero_shot.prompting import (
    PromptConfig,
    _build_candidate,
    _choose_shots,
    _full_prompt,
    _score_candidates,
    _shuffle,
    prompt,
)
from small_tasks import ENGLISH, classes, pairs
from toy_recipes import shaken, toy

EXAMPLES = classes()[:12]
TEMPLATE = "{text} . it is {label} ."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([ENGLISH + " it is . label"] * 3, ByteBpeConfig(vocab_size=340))


def make_model(tokenizer: Tokenizer, system: str, *changes: str) -> TextModel:
    recipe = toy(system, f"text.tokenizer.vocab_size={tokenizer.vocab_size}", *changes)
    model = shaken(Model.build(recipe, tokenizer.vocab_size), 0.1)
    return TextModel(model, tokenizer, "float32")


def test_causal_model_scores_the_words_after_the_prompt(tokenizer: Tokenizer) -> None:
    model, config = make_model(tokenizer, "gpt"), PromptConfig(template=TEMPLATE)
    for label in ("old", "new"):
        whole, start, stop = _full_prompt(config, EXAMPLES[1:3], EXAMPLES[0], label)
        assert whole[start:stop] == f" {label}"
        scores = _score_candidates(
            model, config, [_build_candidate(model, config, EXAMPLES[1:3], EXAMPLES[0], label)]
        )
        with_words, without = model.score([whole[:stop], whole[:start]])
        assert float(scores[0]) == pytest.approx(with_words - without, abs=1e-4)


def test_masked_model_scores_the_masked_words(tokenizer: Tokenizer) -> None:
    model, config = make_model(tokenizer, "bert"), PromptConfig(template=TEMPLATE)
    whole, start, stop = _full_prompt(config, [], EXAMPLES[0], "old")
    candidate = _build_candidate(model, config, [], EXAMPLES[0], "old")
    assert tokenizer.decode(list(candidate.token_ids[candidate.label_slice])) == " old"
    logs = _score_candidates(model, config, [candidate])
    number = candidate.label_slice.stop - candidate.label_slice.start
    masked_text = whole[:start] + "[MASK]" * number + whole[stop:]
    mask_predictions = model.fill_mask(masked_text, top_k=tokenizer.vocab_size)
    tokens = [tokenizer.id_to_token(p) for p in candidate.token_ids[candidate.label_slice]]
    probabilities = [
        next(g.probability for g in candidates if g.token == token)
        for candidates, token in zip(mask_predictions, tokens, strict=True)
    ]
    assert float(logs[0]) == pytest.approx(sum(map(math.log, probabilities)), abs=1e-4)


@pytest.mark.parametrize("system", ["gpt", "bert"])
def test_without_prior_a_generally_likely_word_wins(tokenizer: Tokenizer, system: str) -> None:
    model = make_model(tokenizer, system, "output.bias=true")
    ids, offsets = tokenizer.encode_with_offsets("it is new")
    label_start = [start for start, _ in offsets].index(6)
    with torch.no_grad():
        model.model.output.bias[ids[label_start]] += 20.0
    settings = {"template": TEMPLATE, "words": {"old": "old", "new": "new"}}
    for comparison in ("sum", "mean"):
        result = prompt(model, EXAMPLES, 2, seeds=2, comparison=comparison, **settings)
        assert {label for seed in result.predictions for label in seed} == {"new"}
        assert result.scores == (result.majority_accuracy, result.majority_accuracy)


@pytest.mark.parametrize("system", ["gpt", "bert"])
def test_prior_is_the_score_for_an_empty_text(tokenizer: Tokenizer, system: str) -> None:
    model, config = make_model(tokenizer, system), PromptConfig(template=TEMPLATE)
    result = prompt(model, EXAMPLES, 0, comparison="prior", template=TEMPLATE)

    def margin_of(example: Example) -> float:
        candidates = [
            _build_candidate(model, config, [], example, label) for label in result.labels
        ]
        first, second = _score_candidates(model, config, candidates)
        return float(first - second)

    margins = [margin_of(example) - margin_of(Example("")) for example in EXAMPLES]
    expected = [result.labels[0] if margin > 0 else result.labels[1] for margin in margins]
    assert list(result.predictions[0]) == expected


def test_shots_are_other_examples_in_random_order() -> None:
    for example in EXAMPLES:
        shots = _choose_shots(_shuffle(EXAMPLES, 3), example, 5)
        assert example not in shots
        assert len({e.text for e in shots}) == 5
        assert shots == _choose_shots(_shuffle(EXAMPLES, 3), example, 5)
    assert _shuffle(EXAMPLES, 3) != _shuffle(EXAMPLES, 4)
    assert sorted(map(str, _shuffle(EXAMPLES, 3))) == sorted(map(str, EXAMPLES))


def test_prompt_contains_shots_and_example() -> None:
    config = PromptConfig(
        template="{text} + {pair} = {label}!", words={"b": "two"}, separator=" / "
    )
    shots = [Example("x", "{label}", "a"), Example("z", "w", "b")]
    whole, start, stop = _full_prompt(config, shots, Example("p", "q"), "b")
    assert whole == "x + {label} = a! / z + w = two! / p + q = two!"
    assert whole[start:stop] == " two"


def test_several_seeds_give_an_interval_and_no_shots_need_only_one(tokenizer: Tokenizer) -> None:
    model = make_model(tokenizer, "gpt")
    several = prompt(model, EXAMPLES, 3, seeds=3, template=TEMPLATE).as_dict()
    assert len(several["scores"]) == 3
    assert several["interval"] is not None or len(set(several["scores"])) == 1
    none = prompt(model, EXAMPLES, 0, seeds=3, template=TEMPLATE).as_dict()
    assert (len(none["scores"]), none["interval"]) == (1, None)
    other = prompt(model, EXAMPLES, 1, demonstrations=classes()[20:], template=TEMPLATE)
    assert any(e.text in other.prompt for e in classes()[20:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"template": "{text}"}, "template: must contain {text}, and {label} once"),
        (
            {"template": "{text} {lable} {label}"},
            "supports {text}, {pair} and {label}, not {lable}",
        ),
        ({"template": "{text} {pair} {label}"}, "{pair} needs a column of second texts"),
        ({"words": {"odl": "x"}}, "no example has the label 'odl'"),
        ({"words": {"old": "new"}}, "every label needs different words"),
        (
            {"num_shots": 40},
            "a prompt with 40 shots needs as many other examples, and there are 11",
        ),
        ({"num_shots": 11, "separator": " . " * 40}, "use fewer shots"),
    ],
)
def test_invalid_prompt_setting_is_reported(
    tokenizer: Tokenizer, settings: dict, message: str
) -> None:
    model = make_model(tokenizer, "gpt")
    with pytest.raises(UserError, match=message):
        prompt(model, EXAMPLES, **({"num_shots": 0} | settings))


def test_prompt_template_without_pair_is_refused_for_pairs(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"template: add \{pair\}"):
        prompt(make_model(tokenizer, "gpt"), pairs()[:12], 0, template=TEMPLATE)


def test_prompt_command_prints_json(tokenizer: Tokenizer, tmp_path: Path) -> None:
    make_model(tokenizer, "gpt").save(tmp_path / "model")
    rows = [f"{e.text}\t{e.label}\n" for e in EXAMPLES]
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "".join(rows))
    words = [str(w) for w in ("prompt", tmp_path / "model", "--data", tmp_path / "rows.tsv")]
    more = ["--shots", "2", "--seeds", "2", "--words", "old=ancient", "--compare", "mean", "--json"]
    result = CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert set(output) == {
        *(
            "shots",
            "labels",
            "examples",
            "metric",
            "scores",
            "mean",
            "interval",
            "majority_accuracy",
        ),
        "prompt",
    }
    assert "\nLabel: ancient" in output["prompt"]


def test_contaminated_examples_are_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    contaminated_text = EXAMPLES[0].text
    (tmp_path / "a.txt").write_text(f"{contaminated_text}\n")
    training = prepare(tmp_path / "a.txt", tmp_path / "data", tokenizer, heldout=0.0, num_workers=1)
    model = make_model(tokenizer, "gpt")
    whole = prompt(model, EXAMPLES, 0, training_data=training, template=TEMPLATE)
    assert whole.is_contaminated == tuple(example.text == contaminated_text for example in EXAMPLES)
    others = prompt(model, EXAMPLES[1:], 0, template=TEMPLATE)
    assert whole.as_dict()["contaminated"] == 1
    assert whole.as_dict()["mean_uncontaminated"] == pytest.approx(others.scores[0])
    all_read = prompt(model, EXAMPLES[:1], 0, training_data=training, template=TEMPLATE)
    assert all_read.as_dict()["mean_uncontaminated"] is None
