"""Scripted language models that copy their training data, recombine it, or invent."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bertwright.analysis.behaviour.novelty import (
    GENERATED,
    LONGEST_SPAN,
    NOVEL_FRACTION,
    REAL,
    GeneratedTextNovelty,
)
from bertwright.data.shards.dataset import Dataset
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_verdicts,
)
from experiments.analyses.writers import (
    prepare_chains,
    sample_chain,
    scripted_inputs,
    shuffled_texts,
    training_words,
)

NUM_TEXTS = 12
NOVELTY = GeneratedTextNovelty(prompt_tokens=4, new_tokens=16)
PAIRS, LONG_NGRAMS = "pairs of tokens are novel less often", "n-grams of 10 tokens are novel"


def expect_novelty() -> Iterator[ExpectedValue]:
    """Check the novelty of copies, of inventions, and of new chains of known pairs."""
    with TemporaryDirectory() as folder:
        data = prepare_chains(Path(folder))
        yield from _expect_copies(data)
        yield from _expect_inventions(data)
        yield from _expect_recombinations(data)


def _expect_copies(data: Dataset) -> Iterator[ExpectedValue]:
    inputs = scripted_inputs(data, shuffled_texts(NUM_TEXTS), lambda n: training_words(data, n))
    result = NOVELTY.run(inputs)
    values = {finding.metric: finding.value for finding in result.findings}
    fractions = [values[f"{NOVEL_FRACTION}, {GENERATED}, n={n}"] for n in range(1, 17)]
    yield expect_equal("novel n-grams of copies", fractions, 0)
    yield expect_equal("span of copies", values[f"{LONGEST_SPAN}, {GENERATED}"], 16)
    yield expect_below("span of random words", values[f"{LONGEST_SPAN}, {REAL}"], 8)
    expected = {PAIRS: "seen", LONG_NGRAMS: "opposite"}
    yield from expect_verdicts("copies", NOVELTY, result, expected)


def _expect_inventions(data: Dataset) -> Iterator[ExpectedValue]:
    copies = [data.tokenizer.decode(training_words(data, n, 0)) for n in range(NUM_TEXTS)]
    words = [data.tokenizer.encode(text) for text in shuffled_texts(NUM_TEXTS)]
    result = NOVELTY.run(scripted_inputs(data, copies, lambda n: words[n][:16]))
    values = {finding.metric: finding.value for finding in result.findings}
    yield expect_equal("novel n-grams, copies", values[f"{NOVEL_FRACTION}, {REAL}, n=16"], 0)
    yield expect_equal("novel words", values[f"{NOVEL_FRACTION}, {GENERATED}, n=1"], 0)
    yield expect_above("novel pairs", values[f"{NOVEL_FRACTION}, {GENERATED}, n=2"], 0.5)
    expected = {PAIRS: "opposite", LONG_NGRAMS: "seen"}
    yield from expect_verdicts("inventions", NOVELTY, result, expected)


def _expect_recombinations(data: Dataset) -> Iterator[ExpectedValue]:
    def recombine(number: int) -> list[int]:
        chain = sample_chain(np.random.default_rng(100 + number), 16)
        return data.tokenizer.encode(" ".join(chain))

    result = NOVELTY.run(scripted_inputs(data, shuffled_texts(NUM_TEXTS), recombine))
    values = {finding.metric: finding.value for finding in result.findings}
    yield expect_equal("novel pairs of chains", values[f"{NOVEL_FRACTION}, {GENERATED}, n=2"], 0)
    long = values[f"{NOVEL_FRACTION}, {GENERATED}, n=16"]
    yield expect_above("novel n-grams of chains", long, 0.8)
    yield from expect_verdicts("chains", NOVELTY, result, {PAIRS: "seen"})
