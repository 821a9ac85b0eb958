"""A dependency parser that uses attention weights (Clark et al. 2019, section 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.core.activations import (
    ActivationBatch,
    Measured,
    Measurements,
    collect_measurements,
)
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.requirements import missing_trees
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.texts import AnalysedText
from bertwright.core.rng import stream_key
from bertwright.core.significance import split_halves
from bertwright.tasks.formats.dependency_trees import DependencyTree

MAX_DISTANCE = 6
"""Maximum distance from a dependent, on either side; larger distances count as this one."""

BATCH_SIZE = 20
"""Number of sentences per step."""


class AttentionParser(StreamingAnalysis):
    """The accuracy (UAS) of a parser that scores heads by a weighted sum of attention.

    The features of a word pair are the attention of all heads in both directions; a root is scored
    by attention to special tokens. Weights are trained on half of the sentences and tested on the
    other half, without punctuation. Baselines use only distances, a model with random weights, or
    the next word. Only the first ``max_sentences`` sentences are used; word identities are not.
    """

    kind: Literal["attention-parser"] = "attention-parser"
    max_sentences: int = Field(default=400, ge=2)
    epochs: int = Field(default=30, ge=1)
    learning_rate: float = Field(default=0.1, gt=0)
    survey_id = "B7"
    title = "Do all heads together tell the dependencies?"
    source = "Clark et al. 2019"
    taps = ("blocks.*.attention.weights",)
    requires = (missing_trees,)
    claims = (
        Claim(
            "attention predicts dependencies better than distance",
            "61 % and 58 %, the latter with word vectors",
            "UAS, attention minus distances",
        ),
        Claim(
            "attention predicts them better than the attention of an untrained model",
            "77 % and 30 %, both with word vectors",
            "UAS, attention minus untrained",
        ),
    )
    plots = (
        FindingBars(
            "UAS", ("UAS, attention", "UAS, untrained", "UAS, distances", "UAS, next word")
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        return super().not_applicable(inputs) or self._missing_words(inputs)

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        layers = [batch.attention(layer) for layer in range(inputs.model.num_layers)]
        special = batch.category_columns("opening", "separator")
        examples: list[ParserExample | None] = [None] * len(batch.texts)
        for index, (number, text) in enumerate(zip(batch.text_indices, batch.texts, strict=True)):
            if number >= self.max_sentences or (tree := complete_tree(text)) is None:
                continue
            weights = torch.cat([layer[index] for layer in layers]).float()
            between = batch.word_attention(index, weights)
            to_tokens = batch.word_to_token_attention(index, weights)
            masks = special[index, : len(text)].to(to_tokens).T
            examples[index] = ParserExample(
                torch.cat((between, between.mT)).permute(1, 2, 0).cpu(),
                torch.cat([to_tokens @ mask for mask in masks]).T.cpu(),
                torch.tensor(tree.heads),
                torch.tensor([tag != "PUNCT" for tag in tree.tags]),
            )
        return {"examples": examples}

    def read_examples(self, inputs: AnalysisInput) -> list["ParserExample"]:
        """Return examples for the sentences that are not truncated."""
        texts, measure = inputs.texts[: self.max_sentences], partial(self.measure, inputs)
        (measured,) = collect_measurements(inputs.model, texts, self.taps, [measure])
        return [example for example in measured["examples"] if example is not None]

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        examples = [example for example in measured["examples"] if example is not None]
        variants = {
            "attention": examples,
            "untrained": self.read_examples(inputs.untrained()),
            "distances": [distance_example(example) for example in examples],
        }
        train, test = split_halves(len(examples), inputs.seed)
        num_words = np.array([int(examples[n].is_scored.sum()) for n in test])
        num_correct = {"next word": np.array([_num_next_word_heads(examples[n]) for n in test])}
        arrays: dict[str, NDArray[np.float32]] = {}
        for name, variant in variants.items():
            weights = train_parser([variant[n] for n in train], self, inputs.seed)
            num_correct[name] = np.array([num_correct_heads(variant[n], weights) for n in test])
            if name == "attention":
                arrays["weights"] = weights[0].numpy()
        findings = Findings(inputs.seed)
        for name, values in num_correct.items():
            findings.add_ratio(f"UAS, {name}", values, num_words)
        for other in ("distances", "untrained"):
            findings.add_difference(
                f"UAS, attention minus {other}",
                (num_correct["attention"], num_words),
                (num_correct[other], num_words),
            )
        return AnalysisResult(findings, arrays)

    def _missing_words(self, inputs: AnalysisInput) -> str | None:
        trees = [
            tree for text in inputs.texts[: self.max_sentences] if (tree := complete_tree(text))
        ]
        if len(trees) < 4:
            return "it needs four sentences that are not truncated: two to train on, two to test on"
        for half in split_halves(len(trees), inputs.seed):
            if all(tag == "PUNCT" for n in half for tag in trees[n].tags):
                return "half of the sentences are punctuation alone: give more sentences"
        return None


@dataclass(frozen=True)
class ParserExample:
    """Features of a sentence of W words.

    Attributes:
        pairs: (W, W, F) features of a dependent and a possible head; attention from dependent to
            head comes first, then from head to dependent.
        roots: (W, G) features of a word as the root.
        heads: (W,) indices of the true heads, -1 for the root.
        is_scored: (W,) True for words that are not punctuation.
    """

    pairs: Tensor
    roots: Tensor
    heads: Tensor
    is_scored: Tensor

    def scores(self, weights: tuple[Tensor, Tensor]) -> Tensor:
        """Return scores of possible heads (W, W + 1), the root last; no word is its own head."""
        itself = torch.eye(len(self.pairs), dtype=torch.bool)
        pairs = (self.pairs @ weights[0]).masked_fill(itself, -torch.inf)
        return torch.cat((pairs, (self.roots @ weights[1])[:, None]), 1)

    @property
    def target(self) -> Tensor:
        """Column of each word's true head in the scores, (W,)."""
        return torch.where(self.heads < 0, len(self.heads), self.heads)


def complete_tree(text: AnalysedText) -> DependencyTree | None:
    """Return the tree of a text; None if the text is truncated."""
    tree = text.source
    return tree if isinstance(tree, DependencyTree) and len(text.words) == len(tree.words) else None


def distance_example(example: ParserExample) -> ParserExample:
    """Return the same sentence with only distances as features."""
    positions = torch.arange(len(example.heads))
    distance = (positions - positions[:, None]).clamp(-MAX_DISTANCE, MAX_DISTANCE) + MAX_DISTANCE
    pairs = torch.nn.functional.one_hot(distance, 2 * MAX_DISTANCE + 1).float()
    return ParserExample(pairs, torch.ones(len(positions), 1), example.heads, example.is_scored)


def train_parser(
    examples: Sequence[ParserExample], config: AttentionParser, seed: int
) -> tuple[Tensor, Tensor]:
    """Train weights for pairs (F,) and roots (G,) by cross-entropy over possible heads."""
    generator = torch.Generator().manual_seed(stream_key(seed, "attention parser") >> 1)
    sizes = (examples[0].pairs.shape[-1], examples[0].roots.shape[-1])
    weights = tuple(torch.zeros(size, requires_grad=True) for size in sizes)
    pairs, roots = weights
    optimizer = torch.optim.Adam(weights, config.learning_rate)
    steps = config.epochs * -(-len(examples) // BATCH_SIZE)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(config.epochs):
        order = torch.randperm(len(examples), generator=generator).tolist()
        for start in range(0, len(order), BATCH_SIZE):
            batch = [examples[n] for n in order[start : start + BATCH_SIZE]]
            optimizer.zero_grad()
            _loss(batch, (pairs, roots)).backward()
            optimizer.step()
            scheduler.step()
    return pairs.detach(), roots.detach()


def _loss(examples: Sequence[ParserExample], weights: tuple[Tensor, Tensor]) -> Tensor:
    """Return the loss over all scored words at once: with threads, many small losses are slow."""
    widest = max(len(example.heads) for example in examples)
    scores = [
        torch.nn.functional.pad(
            example.scores(weights)[example.is_scored],
            (0, widest - len(example.heads)),
            value=-torch.inf,
        )
        for example in examples
    ]
    target = torch.cat([example.target[example.is_scored] for example in examples])
    return torch.nn.functional.cross_entropy(torch.cat(scores), target)


def num_correct_heads(example: ParserExample, weights: tuple[Tensor, Tensor]) -> int:
    """Return the number of scored words with a correct head."""
    is_correct = example.scores(weights).argmax(1) == example.target
    return int((is_correct & example.is_scored).sum())


def _num_next_word_heads(example: ParserExample) -> int:
    is_correct = example.heads == torch.arange(1, len(example.heads) + 1)
    return int((is_correct & example.is_scored).sum())
