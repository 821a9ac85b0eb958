"""Pooling hidden states into text vectors (Reimers and Gurevych 2019, section 4)."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import encode_sentences
from bertwright.analysis.core.word_states import WORD_STATE_TAPS
from bertwright.analysis.geometry.contextuality import unit_vectors
from bertwright.core.significance import FloatArray

POOLINGS: tuple[str, ...] = (
    "first",
    "last",
    "mean",
    "mean of words",
    "max",
    "mean of the last two layers",
    "embeddings",
)
"""The poolings: the first or last position, the mean or maximum over positions, the mean over
words; of the last layer, of the mean of the last two layers, or of the embeddings."""

CENTRED_WORD_MEAN = "mean of words, centred"

MIN_WORDS = 4
"""Minimum number of words in a half."""


class SentenceVectors(Analysis):
    """How often each half of a text finds the other among the halves of all texts.

    Texts are split in the middle and each half is pooled into a vector. The second half with the
    largest cosine to a first half should belong to the same text. No similarity labels are needed.
    """

    kind: Literal["sentence-vectors"] = "sentence-vectors"
    survey_id = "B38"
    title = "Which pooling represents best what a text is about?"
    source = "Reimers and Gurevych 2019"
    taps = WORD_STATE_TAPS
    claims = (
        Claim(
            "without fine-tuning, the mean of all positions represents a text better than the "
            "first position",
            "54.8 against 29.2 points of Spearman on STS, BERT-base",
            "mean minus first",
        ),
        Claim(
            "centring the vectors helps",
            "the cone that hidden states lie in conceals differences",
            f"{CENTRED_WORD_MEAN} minus mean of words",
        ),
    )
    plots = (
        FindingBars(
            "fraction of first halves whose nearest second half is of the same text",
            (*POOLINGS, CENTRED_WORD_MEAN),
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if sum(len(text.words) >= 2 * MIN_WORDS for text in inputs.texts) < 2:
            return f"it needs two texts of {2 * MIN_WORDS} words"
        *_, previous, last = 0, *inputs.model.text_model.model.recipe.encoder.hidden_widths
        if inputs.model.num_layers and previous != last:
            return f"it averages the last two layers, whose widths are {previous} and {last}"
        return super().not_applicable(inputs)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        texts = [text.words for text in inputs.texts if len(text.words) >= 2 * MIN_WORDS]
        first = pool_sentences(inputs, [words[: len(words) // 2] for words in texts])
        second = pool_sentences(inputs, [words[len(words) // 2 :] for words in texts])
        pairs = dict(zip(POOLINGS, zip(first, second, strict=True), strict=True))
        one, other = pairs["mean of words"]
        mean = np.concatenate((one, other)).mean(0)
        pairs[CENTRED_WORD_MEAN] = one - mean, other - mean
        is_match = {name: nearest_is_match(*halves) for name, halves in pairs.items()}
        chance = BaselineValue("random text", 1 / len(texts))
        findings = Findings(inputs.seed)
        for name, values in is_match.items():
            findings.add_ratio(name, values, baseline=chance)
        for name, other in (("mean", "first"), (CENTRED_WORD_MEAN, "mean of words")):
            findings.add_difference(f"{name} minus {other}", is_match[name], is_match[other])
        return AnalysisResult(findings, {"is_match": np.array(list(is_match.values()))})


def pool_sentences(inputs: AnalysisInput, sentences: list[tuple[str, ...]]) -> list[FloatArray]:
    """Return the vectors (N, D) of the sentences by pooling."""
    model = inputs.model
    texts = encode_sentences(model, sentences)
    names = ["embeddings.output", *(f"blocks.{n}.residual" for n in range(model.num_layers))]
    vectors: list[list[FloatArray]] = [[] for _ in texts]
    for batch in activation_batches(model, texts, sorted(WORD_STATE_TAPS)):
        for index, (number, text) in enumerate(zip(batch.text_indices, batch.texts, strict=True)):
            embeddings, previous, last = (
                batch.values[names[layer]][index, : len(text)].double() for layer in (0, -2, -1)
            )
            is_word = torch.from_numpy(text.word_ids >= 0).to(last.device)
            pooled: list[Tensor] = [
                last[0],
                last[-1],
                last.mean(0),
                last[is_word].mean(0),
                last.amax(0),
                ((previous + last) / 2)[is_word].mean(0),
                embeddings[is_word].mean(0),
            ]
            vectors[number] = [vector.cpu().numpy() for vector in pooled]
    return [np.stack(by_text) for by_text in zip(*vectors, strict=True)]


def nearest_is_match(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return which vectors (N, D) have their counterpart nearest, (N,); ties count in part."""
    cosines = unit_vectors(first) @ unit_vectors(second).T
    nearest = cosines >= cosines.max(1, keepdims=True) - 1e-12
    return np.diagonal(nearest) / nearest.sum(1)
