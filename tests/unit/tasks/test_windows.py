"""Windows of long texts: every word is tagged once, with the most context; predictions combine."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.batches.word_windows import word_windows
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example, TaggedSentence
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.outputs.probabilities import sigmoid, softmax
from bertwright.tasks.task import Task
from small_tasks import tagged
from toy_recipes import toy

UNTRAINED = {"epochs": 0, "calibrate": False, "compile": False, "max_length": 16}

SENTENCE = "the red bird is old and the brown house is remarkably large"

WORDS = tuple(SENTENCE.split())

WORD_LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(WORD_LENGTHS, st.integers(1, 20), st.integers(1, 25))
def test_every_word_is_tagged_once_with_the_most_context(
    lengths: list[int], size: int, stride: int
) -> None:
    bounds = np.cumsum([0, *lengths]).tolist()
    starts, num_words = bounds[:-1], len(lengths)
    windows = word_windows(starts, bounds[-1], size, stride)

    def context(word: int, words: range) -> float:
        left = starts[word] - starts[words.start] if words.start else np.inf
        right = bounds[words.stop] - bounds[word + 1] if words.stop < num_words else np.inf
        return min(left, right)

    assert [word for window in windows for word in window.tagged] == list(range(num_words))
    for window in windows:
        num_tokens = bounds[window.words.stop] - starts[window.words.start]
        assert len(window.words) == 1 or num_tokens <= size
        for word in window.tagged:
            others = [context(word, w.words) for w in windows if word in w.words]
            assert context(word, window.words) == max(others)


@given(WORD_LENGTHS, st.integers(1, 20))
def test_without_a_stride_windows_do_not_overlap(lengths: list[int], size: int) -> None:
    bounds = np.cumsum([0, *lengths]).tolist()
    windows = word_windows(bounds[:-1], bounds[-1], size, None)
    assert all(window.words == window.tagged for window in windows)
    assert word_windows(bounds[:-1], bounds[-1], size, size + 6) == windows
    (whole,) = word_windows(bounds[:-1], bounds[-1], max(bounds[-1], 1), 1)
    assert whole.words == whole.tagged == range(len(lengths))


def test_output_positions_are_first_tokens_of_words(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 10)
    sequences = encoder.encode([TaggedSentence(WORDS)], stride=3)
    read = [
        (sequence.first_word + n, sequence.token_ids[position])
        for sequence in sequences
        for n, position in enumerate(sequence.positions)
    ]
    assert read == [(n, wordpiece.encode(word)[0]) for n, word in enumerate(WORDS)]
    assert all(len(sequence.token_ids) <= 10 for sequence in sequences)


def tagger(pretrained: Any, **output_settings: Any) -> Any:
    task = Task("words", OutputType.parse({"kind": "tags", **output_settings}))
    return finetune(pretrained(), task, train=tagged(), dev=tagged(), **UNTRAINED).model


def test_the_tag_of_a_word_is_that_of_its_window(pretrained) -> None:
    model = tagger(pretrained, stride=4)
    words = WORDS * 2
    (prediction,) = model.predict([TaggedSentence(words)])
    ids, starts = model.tokenizer.encode_pretokenized(list(words))
    windows = word_windows(starts, len(ids), 16 - 2, 4)
    assert len(windows) > 3
    for window in windows:
        alone = model.predict([TaggedSentence(words[window.words.start : window.words.stop])])[0]
        for word in window.tagged:
            index = word - window.words.start
            assert prediction.value[word] == alone.value[index]
            assert prediction.probabilities[word] == pytest.approx(
                alone.probabilities[index], abs=1e-5
            )


def test_sentences_that_are_split_without_overlap_are_counted(pretrained) -> None:
    examples = [TaggedSentence(WORDS * 2, ("O", "B-X") * len(WORDS)), *tagged()[:3]]
    for settings, expected in (({}, True), ({"stride": 4}, False)):
        task = Task("words", OutputType.parse({"kind": "tags", **settings}))
        result = finetune(pretrained(), task, train=examples, dev=examples, **UNTRAINED)
        message = "1 training example is longer than 16 tokens and split without overlap"
        assert any(message in warning for warning in result.warnings) == expected


def test_windows_longer_than_the_text_change_nothing(pretrained) -> None:
    plain, windowed = tagger(pretrained), tagger(pretrained, stride=4)
    assert plain.predict(tagged()) == windowed.predict(tagged())


LOGITS = np.array([[2.0, -1.0, 0.5], [-3.0, 1.0, 0.0]], np.float32)
"""Outputs of two windows."""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "class",
            {
                "mean": (softmax(LOGITS[:1]) + softmax(LOGITS[1:]))[0] / 2,
                "max": softmax(LOGITS.max(0)),
            },
        ),
        ("labels", {"mean": sigmoid(LOGITS).mean(0), "max": sigmoid(LOGITS.max(0))}),
        ("number", {"mean": np.array([-0.5]), "max": np.array([2.0])}),
        (
            "relevance",
            {"mean": sigmoid(LOGITS)[:, :1].mean(0), "max": sigmoid(LOGITS[:1, 0])},
        ),
    ],
)
def test_outputs_of_windows_are_pooled(kind: str, expected: dict[str, Any]) -> None:
    outputs = LOGITS if kind in ("class", "labels") else LOGITS[:, :1]
    parts = [(TaskSequence([1, 2], 0), row[None]) for row in outputs]
    for pooling, values in expected.items():
        output_type = OutputType.parse({"kind": kind, "stride": 4, "window_pooling": pooling})
        decoder = output_type.build_decoder(("a", "b", "c") if len(values) > 1 else ())
        prediction = decoder.decode_example(Example("a", "b"), parts)
        probabilities: Any = prediction.probabilities
        predicted = [*probabilities.values()] if probabilities else [prediction.value]
        np.testing.assert_allclose(predicted, values, rtol=1e-5)
        if kind == "class":
            (calibrated,) = decoder.decision_probabilities(parts)
            np.testing.assert_allclose(calibrated, values, rtol=1e-5)


def test_a_long_text_is_ranked_by_its_most_relevant_window(pretrained) -> None:
    settings = {"kind": "relevance", "stride": 4}
    examples = [Example("the bird", "old red " * 10, 1.0), Example("the bird", "the house", 0.0)]
    task = Task("rank", OutputType.parse(settings))
    model = finetune(pretrained(), task, train=examples, dev=examples, **UNTRAINED).model
    predictions, truncated = model.predict_examples(examples)
    assert not truncated
    sequences = model.output_decoder.encode(model.example_encoder, examples)
    assert len(sequences) > 3
    outputs = model.head_outputs([s for s in sequences if s.example_index == 0])
    assert predictions[0].value == pytest.approx(float(sigmoid(np.concatenate(outputs)).max()))
