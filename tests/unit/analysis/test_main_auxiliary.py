"""The main auxiliary: its sentences, and results of a small model."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.probing.main_auxiliary import (
    AUXILIARIES,
    NOUNS,
    PREPOSITIONS,
    RELATIVE_PRONOUNS,
    TRANSITIVE_VERBS,
    UPPER_LAYER_GAIN,
    AuxiliarySentence,
    sample_sentence,
)
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import small_model


def sentences(behind_clause: bool, number: int = 200) -> list[AuxiliarySentence]:
    generator = np.random.default_rng(int(behind_clause))
    return [sample_sentence(generator, behind_clause) for _ in range(number)]


def test_the_first_auxiliary_is_the_main_one_only_without_a_clause() -> None:
    for behind_clause in (False, True):
        for sentence in sentences(behind_clause):
            first = next(n for n, word in enumerate(sentence.words) if word in AUXILIARIES)
            assert sentence.words[sentence.main_index] in AUXILIARIES
            assert first == (sentence.other_index if behind_clause else sentence.main_index)
    assert any(sentence.other_index > sentence.main_index for sentence in sentences(False))


def test_modifiers_of_subjects_and_objects_are_as_frequent_as_their_absence() -> None:
    samples = [sentence.words for sentence in sentences(behind_clause=False, number=2000)]
    subjects = [words[: first_auxiliary(words)] for words in samples]
    assert fraction(bool(set(words) & {*PREPOSITIONS}) for words in subjects) == HALF
    rests = [words[first_auxiliary(words) + 1 :] for words in samples]
    with_object = [words for words in rests if words[0] in TRANSITIVE_VERBS]
    assert fraction(words in with_object for words in rests) == HALF
    assert all(len(words) == 2 for words in rests if words not in with_object)
    has_clause = [bool(set(words) & {*RELATIVE_PRONOUNS}) for words in with_object]
    assert fraction(has_clause) == HALF
    others = [words for words, has in zip(with_object, has_clause, strict=True) if not has]
    assert fraction(bool(set(words) & {*PREPOSITIONS}) for words in others) == HALF
    behind = [sentence.words for sentence in sentences(behind_clause=True)]
    assert all(set(words[:5]) & {*RELATIVE_PRONOUNS} for words in behind)


HALF = pytest.approx(0.5, abs=0.06)


def fraction(values: Iterable[bool]) -> float:
    return float(np.mean(list(values)))


def first_auxiliary(words: Sequence[str]) -> int:
    return next(n for n, word in enumerate(words) if word in AUXILIARIES)


def test_results_of_a_small_model() -> None:
    model = small_model(words=(*NOUNS, *AUXILIARIES))
    inputs = AnalysisInput(model, encode_texts(model, [Example("dog")]))
    analysis = Analysis.parse({"kind": "main-auxiliary", "num_train": 40, "num_test": 20})
    result = analysis.run(inputs)
    assert {array.shape for array in result.arrays.values()} == {(3,)}
    assert (result.arrays["main auxiliary, as in training"] > 0.1).all()
    (difference,) = [f for f in result.findings if f.metric.endswith("minus untrained")]
    assert difference.value == 0, "the model is untrained"


def test_the_gain_is_compared_with_that_of_random_weights() -> None:
    model = small_model(words=(*NOUNS, *AUXILIARIES)).with_random_weights(5)
    inputs = AnalysisInput(model, encode_texts(model, [Example("dog")]))
    analysis = Analysis.parse({"kind": "main-auxiliary", "num_train": 40, "num_test": 20})
    results = [analysis.run(inputs), analysis.run(inputs.untrained())]
    gain, untrained_gain = (
        next(f.value for f in result.findings if f.metric == UPPER_LAYER_GAIN) for result in results
    )
    (difference,) = [f for f in results[0].findings if f.metric.endswith("minus untrained")]
    assert gain != untrained_gain
    assert difference.value == pytest.approx(gain - untrained_gain)
