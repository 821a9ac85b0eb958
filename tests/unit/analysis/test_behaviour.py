"""Behaviour: planted predictions that follow negation and agreement, and some that do not."""

from collections import Counter
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pytest
import torch

from bertwright.analysis.behaviour.agreement import (
    PARADIGMS,
    PLURAL,
    SubjectVerbAgreement,
    sample_pair,
)
from bertwright.analysis.behaviour.cloze import word_log_probabilities
from bertwright.analysis.behaviour.facts import FACT_RELATIONS, FactualKnowledge
from bertwright.analysis.behaviour.negation import CATEGORY_EXAMPLES, Negation, negation_items
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import AnalysisResult, StoredResult
from bertwright.analysis.core.texts import SentenceWords, encode_sentences, encode_texts
from bertwright.analysis.geometry.word_senses import WordSenses
from bertwright.analysis.probing.main_auxiliary import MainAuxiliary
from bertwright.analysis.probing.numeracy import Numeracy
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.scoring.likelihood import causal_visibility
from bertwright.models.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import WORDS, small_model


def make_inputs(system: str = "bert", *changes: str) -> AnalysisInput:
    return AnalysisInput(small_model(system, *changes), [])


def values(result: AnalysisResult) -> dict[str, float]:
    return {finding.metric: finding.value for finding in result.findings}


@pytest.mark.parametrize("negates", [False, True])
def test_a_model_that_ignores_negation_prefers_the_false_completion(
    negates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    category_of = {
        example.split()[-1]: category
        for category, examples in CATEGORY_EXAMPLES.items()
        for example in examples
    }

    def scores(
        _: AnalysedModel, sentences: Sequence[SentenceWords], indices: Sequence[int]
    ) -> np.ndarray:
        result = []
        for words, index in zip(sentences, indices, strict=True):
            is_true = any(category_of.get(word) == words[index] for word in words[:index])
            result.append(float(is_true != (negates and "not" in words)))
        return np.array(result)

    monkeypatch.setattr("bertwright.analysis.behaviour.negation.word_log_probabilities", scores)
    result = values(Analysis.parse("negation").run(make_inputs()))
    assert result["true completions preferred, affirmed"] == 1
    assert result["true completions preferred, negated"] == negates
    assert result["affirmed minus negated"] == 1 - negates


def test_categories_are_as_often_correct_as_wrong() -> None:
    items = negation_items()
    assert Counter(item.category for item in items) == Counter(
        item.other_category for item in items
    )
    for item in items:
        assert item.category != item.other_category
        for negated in (False, True):
            sentence = item.sentence(negated, "kind")
            assert sentence[item.category_index(negated)] == item.category
            assert ("not" in sentence) == negated


@pytest.mark.parametrize("follows", ["subject", "nearest"])
def test_agreement_with_the_subject_or_with_the_nearest_noun(
    follows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plural_verbs = {"are", "were", "have", "like", "know", "see", "help"}

    def scores(
        _: AnalysedModel, sentences: Sequence[SentenceWords], indices: Sequence[int]
    ) -> np.ndarray:
        result = []
        for words, index in zip(sentences, indices, strict=True):
            nouns = [n for n in range(index) if words[n - 1] == "the"]
            noun = nouns[-1 if follows == "nearest" or "whom" in words else 0]
            result.append(float((words[noun] in PLURAL) == (words[index] in plural_verbs)))
        return np.array(result)

    monkeypatch.setattr("bertwright.analysis.behaviour.agreement.word_log_probabilities", scores)
    result = values(Analysis.parse({"kind": "agreement", "num_pairs": 40}).run(make_inputs()))
    assert result["simple"] == result["inside a clause"] == 1
    assert result["attractor"] == result["behind a clause"] == (follows == "subject")
    assert result["simple minus attractor"] == (follows == "nearest")


def test_pairs_differ_in_the_verb_only() -> None:
    generator = np.random.default_rng(0)
    for paradigm in PARADIGMS.values():
        for _ in range(20):
            pair = sample_pair(paradigm, generator)
            correct, wrong = pair.sentence(True), pair.sentence(False)
            assert [n for n, (a, b) in enumerate(zip(correct, wrong, strict=True)) if a != b] == [
                pair.verb_index
            ]


@pytest.mark.parametrize("negates", [False, True])
def test_known_facts_with_and_without_negation(
    negates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {fact for relation in FACT_RELATIONS for fact in relation.facts}

    def scores(
        _: AnalysedModel, sentences: Sequence[SentenceWords], indices: Sequence[int]
    ) -> np.ndarray:
        result = []
        for words, index in zip(sentences, indices, strict=True):
            is_true = any((word, words[index]) in facts for word in words)
            result.append(float(is_true != (negates and "not" in words)))
        return np.array(result)

    monkeypatch.setattr("bertwright.analysis.behaviour.facts.word_log_probabilities", scores)
    result = values(Analysis.parse("facts").run(make_inputs()))
    assert result["precision at 1"] == 1
    assert (result["same answer when negated"] == 1) != negates


def test_facts_follow_their_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    def score(words: Sequence[str]) -> float:
        return float(crc32(" ".join(words).encode()))

    monkeypatch.setattr(
        "bertwright.analysis.behaviour.facts.word_log_probabilities",
        lambda _, sentences, __: np.array([score(words) for words in sentences]),
    )
    result = Analysis.parse("facts").run(make_inputs())
    expected: dict[str, float] = {}
    correct, most_frequent, same = [], [], []
    for relation in FACT_RELATIONS:
        ranks, answers = [], Counter(answer for _, answer in relation.facts)
        for subject, answer in relation.facts:
            orders = [
                sorted(
                    relation.candidates,
                    key=lambda other: -score(relation.sentence(subject, other, negated)),
                )
                for negated in (False, True)
            ]
            ranks.append(1 + orders[0].index(answer))
            same.append(orders[0][0] == orders[1][0])
        correct += [rank == 1 for rank in ranks]
        most_frequent += [max(answers.values()) / len(ranks)] * len(ranks)
        expected[f"precision at 1, {relation.name}"] = np.mean([rank == 1 for rank in ranks])
        expected[f"mean reciprocal rank, {relation.name}"] = np.mean([1 / rank for rank in ranks])
    expected["precision at 1"] = np.mean(correct)
    expected["precision at 1, minus the most frequent answer"] = np.mean(correct) - np.mean(
        most_frequent
    )
    expected["same answer when negated"] = np.mean(same)
    assert values(result) == pytest.approx(expected)
    assert len(set(expected.values())) > 8


def test_equal_scores_are_no_knowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    def scores(
        _: AnalysedModel, sentences: Sequence[SentenceWords], indices: Sequence[int]
    ) -> np.ndarray:
        return np.zeros(len(sentences))

    monkeypatch.setattr("bertwright.analysis.behaviour.facts.word_log_probabilities", scores)
    assert values(Analysis.parse("facts").run(make_inputs()))["precision at 1"] == 0


def test_candidates_are_in_their_position() -> None:
    for relation in FACT_RELATIONS:
        assert len(relation.candidates) > 5
        for subject, target in relation.facts:
            for negated in (False, True):
                sentence = relation.sentence(subject, target, negated)
                assert sentence[relation.candidate_index(negated)] == target
                assert ("not" in sentence) == negated


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_words_are_scored_without_seeing_themselves(system: str) -> None:
    model = small_model(system)
    sentence = WORDS[:6]
    others = [(*sentence[:3], word, *sentence[4:]) for word in WORDS]
    scores = word_log_probabilities(model, others, [3] * len(others))
    # The word itself is masked, so the probabilities of the whole vocabulary add up.
    assert 0.5 < np.exp(scores).sum() <= 1 + 1e-9
    again = word_log_probabilities(model, others[:1], [3])
    assert again[0] == pytest.approx(scores[0], rel=1e-9)


@pytest.mark.parametrize("system", ["bert", "gpt-2"])
def test_the_score_of_a_word_is_of_all_its_tokens(system: str) -> None:
    """The second word has the tokens b, ##c and ##d."""
    config, letters = WordPieceConfig(vocab_size=40), "abcdef"
    tokenizer = train_tokenizer([" ".join(letters), letters], config)
    recipe = small_model(system).text_model.model.recipe
    model = Model.build(recipe, tokenizer.vocab_size, tokenizer).double()
    analysed = AnalysedModel(system, TextModel(model, tokenizer, "float32"))
    sentence = ("a", "fbd", "e")
    (text,) = encode_sentences(analysed, [sentence])
    span = np.flatnonzero(text.word_ids == 1)
    assert len(span) == 3
    token_ids, shift = torch.tensor([text.token_ids]), int(system == "gpt-2")
    read = token_ids.clone()
    if not shift:
        read[0, span] = tokenizer.special_tokens.mask
    with torch.inference_mode():
        logits = model.logits(model(read, visibility=causal_visibility(model) if shift else None))
    scores = logits[0].log_softmax(-1)
    expected = sum(float(scores[n - shift, token_ids[0, n]]) for n in span)
    (actual,) = word_log_probabilities(analysed, [sentence], [1])
    assert actual == pytest.approx(expected)


def test_a_model_without_language_model_head() -> None:
    model = small_model()
    model.text_model.model.output = None
    for kind in ("negation", "agreement", "facts"):
        assert (
            Analysis.parse(kind).not_applicable(AnalysisInput(model, []))
            == "the model has no language-model head"
        )


@pytest.mark.parametrize(
    "analysis",
    [
        SubjectVerbAgreement(),
        FactualKnowledge(),
        Negation(),
        MainAuxiliary(),
        WordSenses(),
        Numeracy(),
    ],
    ids=lambda analysis: analysis.kind_name(),
)
@pytest.mark.parametrize("size", [8, 12])
def test_a_short_maximum_length_is_stated_or_enough(analysis: Analysis, size: int) -> None:
    inputs = make_inputs(
        "bert",
        f"encoder.positions.size={size}",
        f"phases=[{{length: {size}, fraction: 1}}]",
    )
    reason = analysis.not_applicable(inputs)
    if reason is None:
        assert analysis.run(inputs).findings
    else:
        assert reason == (
            f"its maximum length of {size} is too short for the sentences of this analysis"
        )


def test_results_of_a_small_model() -> None:
    torch.manual_seed(0)
    words = [
        word
        for item in negation_items()
        for word in (*item.sentence(True, "kind"), item.other_category)
    ]
    inputs = AnalysisInput(small_model(words=tuple(dict.fromkeys(words))), [])
    assert Analysis.parse("negation").run(inputs).arrays["differences"].shape == (2, 24)
    result = Analysis.parse({"kind": "agreement", "num_pairs": 5}).run(inputs)
    assert len(result.findings) == len(PARADIGMS) + 1


@pytest.mark.parametrize("end", ["", " .", " , ."])
def test_final_punctuation_and_random_weights_tell_nothing(end: str) -> None:
    generator, model = np.random.default_rng(0), small_model()
    texts = [" ".join(generator.choice(WORDS[:-2], 10)) for _ in range(24)]
    analysis = Analysis.parse("inter-sentence-coherence")

    def run(end: str) -> StoredResult:
        inputs = AnalysisInput(model, encode_texts(model, [Example(text + end) for text in texts]))
        result = analysis.run(inputs)
        return StoredResult({}, [f.as_dict() for f in result.findings], result.arrays)

    np.testing.assert_equal(run(end).arrays, run("").arrays)
    assert {claim.verdict for claim in analysis.check_claims(run(end))[:2]} == {"undecided"}
