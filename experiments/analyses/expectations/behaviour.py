"""Bag-of-words models, which ignore order; and what the toy model was trained on: agreement, facts
and negation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.behaviour import coreference_names
from bertwright.analysis.behaviour.checklist.checklist import SUITE_FAILURES, CheckListSuites
from bertwright.analysis.behaviour.checklist.invariance_suites import SWAPPED_LETTERS_SUITE
from bertwright.analysis.behaviour.checklist.sentiment_suites import SLOTS
from bertwright.analysis.behaviour.coherence import (
    CONTINUATION,
    SENTENCE_ORDER,
    InterSentenceCoherence,
)
from bertwright.analysis.behaviour.coreference_names import CoreferenceNames
from bertwright.analysis.behaviour.facts import PRECISION
from bertwright.analysis.behaviour.malformed_input import (
    CONFIDENCE_DROP,
    PERTURBATIONS,
    UNCHANGED_PREDICTIONS,
    MalformedInput,
)
from bertwright.analysis.behaviour.name_substitution import (
    CHANGED_AT_LEAST_ONCE,
    CHANGED_FRACTION,
    NAME_MINUS_NOUN,
    OTHER_CASE,
    OTHER_NAME,
    OTHER_NOUN,
    NameSubstitution,
)
from bertwright.analysis.behaviour.negation import AFFIRMED, NEGATED
from bertwright.analysis.behaviour.triggers.trigger_search import (
    TOKEN_EMBEDDINGS_TAP,
    TriggerProbe,
    TriggerSearch,
    TriggerTokens,
    allowed_tokens,
    first_order_scores,
    token_embedding_matrix,
    trigger_gradient,
)
from bertwright.analysis.behaviour.triggers.universal_triggers import (
    UniversalTriggers,
)
from bertwright.analysis.behaviour.word_substitution import COMMON_NOUNS, PROPER_NAMES
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import StoredResult
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.syntax.stories import sample_stories
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from experiments.analyses.attention import UNIFORM_HEADS, plant_attention
from experiments.analyses.classifiers import bag_of_tokens_model
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_same,
    expect_verdicts,
)
from experiments.analyses.models import SENTENCES, WORDS, small_inputs, small_model


def expect_coherence() -> Iterator[ExpectedValue]:
    """Check that a model without positions cannot tell the order of two texts."""
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, 10)) for _ in range(24)]
    inputs = small_inputs(
        "bert", "encoder.positions={kind: none}", "encoder.embeddings.segments=0", texts=texts
    )
    analysis = InterSentenceCoherence()
    runs = [analysis.run(replace(inputs, seed=seed)).findings for seed in range(12)]
    values = [{f.metric: f.value for f in findings} for findings in runs]
    order = [by_metric[SENTENCE_ORDER] for by_metric in values]
    yield expect_equal("the order, by a bag of words", order, 0.5, 1e-9)
    continuation = np.mean([by_metric[CONTINUATION] for by_metric in values])
    yield expect_equal("continuation of random words", continuation, 0.5, 0.1)


def expect_malformed_input() -> Iterator[ExpectedValue]:
    """Check that only removed words matter without positions, and order with them."""
    bag = _untrained_classifier_findings("encoder.positions={kind: none}")
    reordered = [name for name in PERTURBATIONS if name != "without function words"]
    unchanged = [bag[f"{UNCHANGED_PREDICTIONS}{name}"] for name in reordered]
    yield expect_equal("unchanged predictions of a bag of words", unchanged, 1)
    drops = [bag[f"{CONFIDENCE_DROP}{name}"] for name in reordered]
    yield expect_equal("its confidence drop", drops, 0, 1e-5)
    drop = bag[f"{CONFIDENCE_DROP}without function words"]
    yield expect_above("its confidence drop with fewer words", abs(drop), 1e-5)
    ordered = _untrained_classifier_findings("encoder.positions={kind: learned}")
    drop = ordered[f"{CONFIDENCE_DROP}words shuffled"]
    yield expect_above("confidence drop with positions", abs(drop), 1e-5)


def _untrained_classifier_findings(*changes: str) -> dict[str, float]:
    """Return the values for a small model with an untrained head."""
    examples = [Example(text, None, "yn"[n % 2]) for n, text in enumerate(SENTENCES)]
    run = finetune(
        small_model("bert", *changes).text_model,
        table_task("drawn", Columns()),
        train=examples,
        dev=examples,
        epochs=0,
        head={"kind": "plain", "pooling": "mean"},
    )
    model = AnalysedModel("drawn", run.model)
    result = MalformedInput().run(AnalysisInput(model, encode_texts(model, examples)))
    return {finding.metric: finding.value for finding in result.findings}


def expect_suites() -> Iterator[ExpectedValue]:
    """Check models with a sentiment lexicon, a reversed one, none, and unknown words."""
    lexicon = dict.fromkeys(f"{SLOTS['good']} {SLOTS['love']} loved".split(), 20.0)
    lexicon |= dict.fromkeys(f"{SLOTS['bad']} {SLOTS['hate']} hated".split(), -20.0)
    bag, _ = _failure_fractions(lexicon)
    yield expect_equal("a lexicon", [bag[name] for name in ("plain words", *APPENDED_SUITES)], 0)
    negations = [bag[n] for n in ("not good", "not, far from good")]
    yield expect_equal("a lexicon, negation", negations, 1)
    mixed = [bag[n] for n in ("formerly and now", "others and I")]
    yield expect_equal("a lexicon, mixed opinions", mixed, 0.5, 0.05)
    reverse, _ = _failure_fractions({word: -weight for word, weight in lexicon.items()})
    failures = [reverse[n] for n in ("plain words", *APPENDED_SUITES[1:])]
    yield expect_equal("a reversed lexicon", failures, 1)
    yield expect_equal("a reversed lexicon, negation", reverse["not good"], 0)
    constant, by_others = _failure_fractions({})
    yield expect_equal("constant output", list(constant.values()), list(by_others.values()))
    failures = [constant[name] for name in (*INVARIANCE_SUITES, *APPENDED_SUITES)]
    yield expect_equal("constant output, changed texts", failures, 0)
    speller, _ = _failure_fractions({"[UNK]": -90.0})
    yield expect_equal("unknown words", [speller[n] for n in INVARIANCE_SUITES], [1, 0, 1])


APPENDED_SUITES = ("very", "praise added", "blame added")
INVARIANCE_SUITES = (SWAPPED_LETTERS_SUITE, "a full stop more or less", "another name")


def _failure_fractions(weights: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the failures of each suite by a bag of tokens, and by predictions for other texts."""
    known = (*WORDS, "Mary", *" ".join(SLOTS.values()).split(), "loved", "hated")
    model = bag_of_tokens_model(weights, known, ("negative", "positive"), bias=0.1)
    texts = [Example(text) for text in (*SENTENCES, "the boat , near Mary , leaves .")]
    inputs = AnalysisInput(model, encode_texts(model, texts))
    failures: dict[str, float] = {}
    by_others: dict[str, float] = {}
    for finding in CheckListSuites(items_per_suite=24).run(inputs).findings:
        if finding.metric.startswith(SUITE_FAILURES) and finding.baseline is not None:
            name = finding.metric.removeprefix(SUITE_FAILURES)
            failures[name], by_others[name] = finding.value, finding.baseline.value
    return failures, by_others


def expect_name_substitution() -> Iterator[ExpectedValue]:
    """Check a model that knows nouns but no names, and one that knows three names only."""
    nouns = _change_rates({"lamp": 3.0, "film": -3.0, "book": -3.0}, 0.01)
    fractions = [nouns[f"{m}{OTHER_NAME}"] for m in (CHANGED_FRACTION, CHANGED_AT_LEAST_ONCE)]
    yield expect_equal("without names, another name", fractions, 0)
    noun = f"{CHANGED_FRACTION}{OTHER_NOUN}"
    yield expect_above("without names, another noun", nouns[noun], 0.5)
    yield expect_below("without names, difference", nouns[NAME_MINUS_NOUN], 0)
    names = _change_rates({"Mary": 9.0, "John": 9.0, "Germany": 9.0}, -0.01)
    fractions = [names[f"{m}{OTHER_NAME}"] for m in (CHANGED_FRACTION, CHANGED_AT_LEAST_ONCE)]
    yield expect_equal("three names, another name", fractions, 1)
    yield expect_equal("three names, other letters", names[f"{CHANGED_FRACTION}{OTHER_CASE}"], 1)
    yield expect_equal("three names, another noun", names[noun], 0)
    yield expect_equal("three names, difference", names[NAME_MINUS_NOUN], 1)


def _change_rates(weights: Mapping[str, float], bias: float) -> dict[str, float]:
    """Return how often a bag of tokens changes its prediction."""
    known = (
        *WORDS,
        *(name for names in PROPER_NAMES.values() for name in names),
        *COMMON_NOUNS["one thing"],
    )
    model = bag_of_tokens_model(weights, tuple(dict.fromkeys(known)), bias=bias)
    texts = [
        Example("the lamp of Mary lights the film near Paris ."),
        Example("John sees a film ."),
        Example("the book of Germany", "Germany leaves ."),
        Example("a ship leaves ."),
    ]
    result = NameSubstitution().run(AnalysisInput(model, encode_texts(model, texts)))
    return {finding.metric: finding.value for finding in result.findings}


def expect_coreference_names() -> Iterator[ExpectedValue]:
    """Check heads that see nothing but names, no names, and nothing but nouns around mentions."""
    analysis = CoreferenceNames(num_stories=20, num_alternatives=6)
    most, fewer = "most antecedents change", "another name changes an antecedent less often"
    model, stories = _story_model(), sample_stories(60, np.random.default_rng(0))
    inputs, rates = AnalysisInput(model, []), (CHANGED_FRACTION, CHANGED_AT_LEAST_ONCE)
    result = analysis.run(inputs)
    values = {finding.metric: finding.value for finding in result.findings}
    yield expect_above("names only, another name", values[f"{rates[0]}{OTHER_NAME}"], 0.2)
    yield expect_equal("names only, another noun", values[f"{rates[0]}{OTHER_NOUN}"], 0)
    expected = {most: "seen", fewer: "opposite"}
    yield from expect_verdicts("names only", analysis, result, expected)
    with plant_attention(model, UNIFORM_HEADS):
        result = analysis.run(inputs)
    values = {finding.metric: finding.value for finding in result.findings}
    for kind in (OTHER_NAME, OTHER_NOUN, OTHER_CASE):
        fractions = [values[f"{rate}{kind}"] for rate in rates]
        yield expect_equal(f"uniform attention, {kind}", fractions, 0)
    yield from expect_verdicts("uniform attention", analysis, result, {most: "opposite"})
    mentions = {m.word for story in stories for m in story.mentions} | _every_name()

    def count_other_words(_: AnalysedModel, sentences: Sequence[Sequence[str]], *__: object) -> Any:
        return np.array([sum(len(w) for w in words if w not in mentions) for words in sentences])

    with patch.object(coreference_names, "predicted_antecedents", count_other_words):
        result = analysis.run(inputs)
    expected = {most: "opposite", fewer: "seen"}
    yield from expect_verdicts("other words only", analysis, result, expected)


def _every_name() -> set[str]:
    return {name for names in PROPER_NAMES.values() for name in names}


def _story_model() -> AnalysedModel:
    """Return a model without positions in which all words but names have the same embedding."""
    stories = sample_stories(200, np.random.default_rng(0))
    words = {word for story in stories for word in story.words} | _every_name()
    words |= {noun for nouns in COMMON_NOUNS.values() for noun in nouns}
    model = small_model("bert", "encoder.positions={kind: none}", words=sorted(words))
    table = model.text_model.model.encoder.embeddings.table
    tokens = [model.tokenizer.token_to_id(name) for name in sorted(_every_name())]
    with torch.no_grad():
        table[:] = table[0].clone()
        generator = torch.Generator().manual_seed(0)
        table[tokens] = torch.randn(len(tokens), table.shape[1], generator=generator).to(table)
    return model


def expect_triggers() -> Iterator[ExpectedValue]:
    """Check that the search finds planted triggers, and its gradients by central differences."""
    weights = dict(zip(WORDS, np.linspace(-3, 3, len(WORDS)), strict=True))
    model = bag_of_tokens_model({**weights, "wind": -90.0, "tree": 80.0})
    search = TriggerSearch(token_embedding_matrix(model), allowed_tokens(model), 1)
    start = (model.tokenizer.token_to_id("the") or 0,)
    for label, expected in ((1, "wind"), (0, "tree")):
        (token,) = search.step(_probe(model, label), start)
        yield expect_same("after one step", model.tokenizer.id_to_token(token), expected)
    yield from _expect_first_order()
    for system in ("bert", "xlnet"):
        small = small_model(system)
        pair = (small.tokenizer.token_to_id("wind") or 0, small.tokenizer.token_to_id("red") or 0)
        yield from _expect_gradient(system, _probe(small, None), pair)
    model = bag_of_tokens_model({"lamp": 5.0, "wind": -90.0}, bias=1.0)
    result = UniversalTriggers(trigger_length=1, steps=1, num_random_triggers=30).run(
        _repeated_sentences(model)
    )
    finding = {f.metric: f for f in result.findings}["accuracy with the trigger, yes"]
    yield expect_equal("accuracy with the trigger", finding.value, 0)
    yield expect_same("the trigger", finding.note, "wind")
    random = finding.baseline.value if finding.baseline else 0
    yield expect_above("accuracy with random triggers", random, 0.8)
    constant = UniversalTriggers(steps=1, num_candidates=4, num_random_triggers=2).run(
        _repeated_sentences(bag_of_tokens_model({}, bias=1.0))
    )
    differences = [f.value for f in constant.findings if " minus " in f.metric]
    yield expect_equal("constant output, differences", differences, 0)


def _expect_first_order() -> Iterator[ExpectedValue]:
    """Check first-order scores where the loss is linear in the output."""
    generator = np.random.default_rng(0)
    weights: dict[str, float] = dict(zip(WORDS, generator.normal(0, 20, len(WORDS)), strict=True))
    model = bag_of_tokens_model(weights, bias=-90.0)
    probe, tokens = _probe(model, 1), np.flatnonzero(allowed_tokens(model).cpu())
    lamp, boat = (int(tokens[n]) for n in (3, 5))
    scores = first_order_scores(probe, (lamp, boat), token_embedding_matrix(model))[0, tokens]
    before = probe.evaluate((lamp, boat)).mean_loss
    changes = [probe.evaluate((token, boat)).mean_loss - before for token in tokens.tolist()]
    yield expect_equal("change of a linear loss", scores.cpu(), changes, 1e-4)
    yield expect_above("largest change", np.abs(changes).max(), 1)


def _expect_gradient(
    system: str, probe: TriggerProbe, trigger: TriggerTokens
) -> Iterator[ExpectedValue]:
    gradient = trigger_gradient(probe, trigger)
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype)
    direction = direction.to(gradient.device)
    start = probe.model.text_model.model.recipe.assembly.text_start

    def loss(step: float) -> float:
        def shift(embeddings: Tensor) -> Tensor:
            shifted = embeddings.clone()
            shifted[:, start : start + len(trigger)] += step * direction
            return shifted

        with probe.model.encoder.replace(TOKEN_EMBEDDINGS_TAP, shift):
            return probe.evaluate(trigger).mean_loss

    expected = (loss(1e-5) - loss(-1e-5)) / 2e-5
    ratio = float((gradient * direction).sum()) / expected
    yield expect_equal(f"gradient, {system}", ratio, 1, 1e-4)


def _probe(model: AnalysedModel, label: int | None) -> TriggerProbe:
    texts = _repeated_sentences(model).texts
    return TriggerProbe(model, texts, None if label is None else [label] * len(texts), 0)


def _repeated_sentences(model: AnalysedModel) -> AnalysisInput:
    """Return inputs with every sentence several times."""
    texts = [Example(text) for text in SENTENCES for _ in range(4)]
    return AnalysisInput(model, encode_texts(model, texts))


def expect_agreement(result: StoredResult) -> Iterator[ExpectedValue]:
    """Check that verbs agree, also across another noun."""
    yield expect_above("simple sentences", result.overall_finding("simple")["value"], 0.9)
    yield expect_above("across another noun", result.overall_finding("attractor")["value"], 0.7)


def expect_facts(result: StoredResult) -> Iterator[ExpectedValue]:
    """Check that repeated facts are known."""
    yield expect_above(PRECISION, result.overall_finding(PRECISION)["value"], 0.6)


def expect_negation(result: StoredResult) -> Iterator[ExpectedValue]:
    """Check that affirmed and negated categories are known."""
    for metric in (AFFIRMED, NEGATED):
        yield expect_above(metric, result.overall_finding(metric)["value"], 0.7)
