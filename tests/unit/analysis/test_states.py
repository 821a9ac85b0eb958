"""Hidden states: means over tokens, probes, senses and pooling."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.core.word_states import (
    WORD_STATE_TAPS,
    compute_word_states,
    word_means,
)
from bertwright.analysis.geometry.sense_sentences import SENSE_SENTENCES
from bertwright.analysis.geometry.sentence_vectors import (
    CENTRED_WORD_MEAN,
    POOLINGS,
    pool_sentences,
)
from bertwright.analysis.geometry.word_senses import same_sense_fraction
from bertwright.analysis.identifiability.token_identity import TokenIdentity
from bertwright.analysis.probing.linear_probe import control_tags
from bertwright.analysis.probing.numeracy import (
    EXTRAPOLATION,
    EXTRAPOLATION_LOSS,
    GAIN_BY_TRAINING,
    INTERPOLATION,
    Numeracy,
    NumeracyTask,
)
from bertwright.encoder.layer_stack import AdaptiveComputationTime
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from bertwright.testing.toy import toy_text_model
from experiments.analyses.models import SENTENCES, WORDS, small_model


def test_states_are_means_over_tokens_and_are_cached(tmp_path: Path) -> None:
    model = small_model()
    inputs = AnalysisInput(
        model, encode_texts(model, [Example(t) for t in SENTENCES]), cache_folder=tmp_path
    )
    word_states = compute_word_states(inputs)
    (file,) = tmp_path.iterdir()
    modified = file.stat().st_mtime_ns
    text = inputs.texts[2]
    with torch.inference_mode(), model.encoder.record("blocks.1.residual") as values:
        model.encoder(torch.tensor([text.token_ids]))
    means = word_means(values["blocks.1.residual"][0], text.word_ids).float().numpy()
    np.testing.assert_allclose(word_states.states[2][word_states.text_ids == 2], means, rtol=1e-6)
    assert tuple(np.array(word_states.words)[word_states.text_ids == 2]) == text.words
    compute_word_states(inputs)
    assert file.stat().st_mtime_ns == modified


@pytest.mark.parametrize("system", ["awd-lstm", "bilstm-student"])
def test_narrower_states_end_with_zeros(system: str, tmp_path: Path) -> None:
    model = AnalysedModel(system, toy_text_model([*SENTENCES], recipe=system))
    inputs = AnalysisInput(model, encode_texts(model, [Example(t) for t in SENTENCES]))
    plain = compute_word_states(inputs)
    cached = compute_word_states(replace(inputs, cache_folder=tmp_path))
    np.testing.assert_array_equal(plain.states, cached.states)
    with torch.inference_mode(), model.encoder.record(*WORD_STATE_TAPS) as values:
        model.encoder(torch.tensor([inputs.texts[0].token_ids]))
    names = ["embeddings.output", *(f"blocks.{n}.residual" for n in range(model.num_layers))]
    widths = [values[name].shape[-1] for name in names]
    assert len(set(widths)) > 1
    for states, name, width in zip(plain.states, names, widths, strict=True):
        means = word_means(values[name][0], inputs.texts[0].word_ids)
        np.testing.assert_allclose(states[plain.text_ids == 0, :width], means, atol=1e-5)
        assert not states[:, width:].any()
    reason = Analysis.parse("sentence-vectors").not_applicable(inputs)
    assert reason is None or "averages the last two layers" in reason


def test_states_of_halted_words_stay_the_same() -> None:
    model = small_model("universal-transformer")
    halting = model.encoder.layer_stack
    assert isinstance(halting, AdaptiveComputationTime)
    with torch.no_grad():
        halting.halting_unit.bias.fill_(60.0)
    inputs = AnalysisInput(model, encode_texts(model, [Example(t) for t in SENTENCES]))
    states = compute_word_states(inputs).states
    assert (states[0] != states[1]).any()
    assert all((layer == states[1]).all() for layer in states[2:])


def trees(number: int = 60) -> list[DependencyTree]:
    """Return sentences whose tags are determined by their words."""
    generator = np.random.default_rng(0)
    tags = {word: ("NOUN", "VERB", "DET")[n % 3] for n, word in enumerate(WORDS)}
    sentences = []
    for _ in range(number):
        words = tuple(generator.choice(WORDS, 8))
        of_words = tuple(tags[word] for word in words)
        sentences.append(
            DependencyTree(words, (-1,) + (0,) * 7, ("root",) + ("dep",) * 7, of_words)
        )
    return sentences


def test_tags_of_words_are_predicted_from_embeddings(tmp_path: Path) -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, trees()), cache_folder=tmp_path)
    result = Analysis.parse("linear-probe").run(inputs)
    accuracy, control = result.arrays["scores"].T
    # Control tags are also determined by words, so that nothing is selective.
    assert accuracy[0] > 0.98
    assert control[0] > 0.98
    (first, *_) = [f for f in result.findings if f.metric == "selectivity"]
    assert first.interval[0] <= 0.02


@pytest.mark.parametrize(
    "config",
    [
        TokenIdentity.kind_name(),
        "word-positions",
        "linear-probe",
        "description-length",
        {"kind": "structural-probe", "epochs": 1},
        {"kind": "edge-probe", "epochs": 1, "num_seeds": 2},
        {"kind": "numbers", "max_value": 40, "num_values": 20},
        {"kind": "main-auxiliary", "num_train": 20, "num_test": 10},
    ],
)
def test_the_last_layer_has_the_number_of_layers(config: str | dict[str, Any]) -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, trees(8)))
    findings = [finding.as_dict() for finding in Analysis.parse(config).run(inputs).findings]
    assert max(f["layer_from_1"] for f in findings if "layer" in f) == model.num_layers


def test_words_are_lost_between_the_embeddings_and_a_constant_last_layer() -> None:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, trees(20)))
    with model.encoder.replace("blocks.1.residual", torch.ones_like):
        result = TokenIdentity().run(inputs)
    findings = {f.metric: f for f in result.findings if f.layer is None}
    first, *_, last = result.arrays["fraction_identified"][:, 0]
    assert first > 0.9 > 0.6 > last
    difference = findings["linear map, first layer minus last"]
    assert difference.value == pytest.approx(first - last)
    assert difference.interval is not None
    assert difference.interval[0] > 0
    over_positions = findings["linear map, last layer minus positions alone"]
    assert over_positions.baseline is not None
    assert over_positions.value == pytest.approx(last - over_positions.baseline.value)


def test_random_tags_are_not_predicted(tmp_path: Path) -> None:
    model, generator = small_model(), np.random.default_rng(1)
    texts = [
        DependencyTree(t.words, t.heads, t.relations, tuple(generator.choice(["A", "B"], 8)))
        for t in trees()
    ]
    result = Analysis.parse("linear-probe").run(
        AnalysisInput(model, encode_texts(model, texts), cache_folder=tmp_path)
    )
    assert abs(result.arrays["scores"][:, 0] - 0.5).max() < 0.12


def test_control_tags_are_fixed_by_word_and_distributed_as_tags() -> None:
    words = [str(n % 500) for n in range(2000)]
    tags = np.array(["A"] * 1500 + ["B"] * 500)
    controls = control_tags(words, tags, 0)
    assert (controls != control_tags(words, tags, 0, 1)).any()
    assert all(len(set(controls[n::500])) == 1 for n in range(500))
    assert (controls == "A").mean() == pytest.approx(0.75, abs=0.06)


def test_nearest_occurrences_of_separate_senses() -> None:
    senses = np.repeat([0, 1], 6)
    separate = np.zeros((12, 4))
    separate[np.arange(12), senses] = 1
    assert same_sense_fraction(separate, senses) == 1
    assert same_sense_fraction(separate, np.tile([0, 1], 6)) == pytest.approx(2 / 5)
    assert same_sense_fraction(np.ones((12, 4)) / 2, senses) == pytest.approx(5 / 11)


def test_every_sentence_has_its_word_once() -> None:
    for word, senses in SENSE_SENTENCES.items():
        assert [len(sense) for sense in senses] == [6, 6]
        assert all(text.split().count(word) == 1 for sense in senses for text in sense)


def test_unknown_numbers_have_the_error_of_the_mean() -> None:
    analysis = Numeracy(max_value=100, num_values=40)
    result = analysis.run(AnalysisInput(small_model(), []))
    values = {(f.metric, f.layer): f.value for f in result.findings}
    for task in analysis.numeracy_tasks(0):
        train, test = task.values[task.is_train], task.values[~task.is_train]
        expected = ((test - train.mean()) ** 2).mean() / task.values.var()
        for layer in (0, 2):
            assert values[task.name, layer] == pytest.approx(expected)


def test_training_gains_are_those_of_the_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    inputs = AnalysisInput(model, [])
    tasks = {task.name: n for n, task in enumerate(Numeracy().numeracy_tasks(0))}

    def errors_by_layer(task: NumeracyTask, of: AnalysisInput) -> list[tuple[Any, Any]]:
        """The error is 1, 4 and 9 for the model, 10 and so on for a task, 100 for an untrained."""
        offset = 10 * tasks[task.name] + 100 * (of.model is not model)
        return [(np.full(8, offset + error), np.full(8, 2.0)) for error in (1.0, 4.0, 9.0)]

    monkeypatch.setattr(NumeracyTask, "errors_by_layer", errors_by_layer)
    result = Numeracy().run(inputs)
    values = {f.metric: f.value for f in result.findings if f.layer is None}
    assert values == {GAIN_BY_TRAINING: 50, EXTRAPOLATION_LOSS: 5}
    by_layer = {f.layer: f for f in result.findings if f.metric == EXTRAPOLATION}
    assert {n: f.value for n, f in by_layer.items()} == {0: 5.5, 1: 7, 2: 9.5}
    baselines = {n: f.baseline.value for n, f in by_layer.items() if f.baseline}
    assert baselines == {0: 55.5, 1: 57, 2: 59.5}
    assert result.arrays[INTERPOLATION].tolist() == [0.5, 2, 4.5]


def test_number_tasks_are_about_the_numbers_in_their_sentences() -> None:
    """Wallace et al. 2019: interpolation within, extrapolation beyond the training range."""
    inside, outside, sums = Numeracy(max_value=100, num_values=40).numeracy_tasks(0)
    for task in (inside, outside, sums):
        values = [sum(int(s[i]) for i in task.word_indices) for s in task.sentences]
        assert values == task.values.tolist()
        assert task.is_train.sum() == 20
    assert inside.values[~inside.is_train].min() < inside.values[inside.is_train].max()
    assert outside.values[~outside.is_train].min() > outside.values[outside.is_train].max()


def test_poolings_of_equal_states_are_equal() -> None:
    """One word repeated, without positions, with blocks that output zeros."""
    model = small_model("bert", "encoder.positions.kind=none")
    with torch.no_grad():
        for name, parameter in model.encoder.blocks.named_parameters():
            if "output" in name or "down" in name:
                parameter.zero_()
    vectors = dict(
        zip(POOLINGS, pool_sentences(AnalysisInput(model, []), [("lamp",) * 5]), strict=True)
    )
    assert vectors["mean of words"].shape == (1, 32)
    last_two = vectors["mean of the last two layers"]
    np.testing.assert_allclose(last_two, vectors["mean of words"], rtol=1e-6)


def test_all_poolings_are_reported() -> None:
    model = small_model()
    texts = [" ".join(np.random.default_rng(n).choice(WORDS, 10)) for n in range(6)]
    result = Analysis.parse("sentence-vectors").run(
        AnalysisInput(model, encode_texts(model, [Example(text) for text in texts]))
    )
    assert [f.metric for f in result.findings[:8]] == [*POOLINGS, CENTRED_WORD_MEAN]
    assert all(0 <= f.value <= 1 for f in result.findings[:8])
    fractions = dict(zip(POOLINGS, result.arrays["is_match"].mean(1), strict=False))
    (difference,) = [f.value for f in result.findings if f.metric == "mean minus first"]
    assert difference == pytest.approx(fractions["mean"] - fractions["first"]) != 0


def test_two_texts_of_eight_words_have_halves_to_compare() -> None:
    model, analysis = small_model(), Analysis.parse("sentence-vectors")
    for sizes, is_enough in (((8, 8), True), ((8, 7, 7), False), ((30,), False)):
        texts = [Example(" ".join((WORDS * 2)[:size])) for size in sizes]
        reason = analysis.not_applicable(AnalysisInput(model, encode_texts(model, texts)))
        assert reason == (None if is_enough else "it needs two texts of 8 words"), sizes
