"""Weights of tokens for retrieval: every text is a sparse vector over the vocabulary (SPLADE).

The score of a document is the sum over all tokens of its weight times the weight of the query. A
document also weights tokens that it does not contain but that the language-model head predicts.
Queries are weighted by the same head, or by a table with one weight for each of their tokens.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.layer_selection import select_layers
from bertwright.models.text_batches import text_batches
from bertwright.models.text_model import TextModel
from bertwright.objectives.heads.adaptive_lm_head import AdaptiveLMHead
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.heads.text_vectors import StaticTokenWeights
from bertwright.tasks.outputs.output_decoder import OutputDecoder, SequenceOutputs
from bertwright.tasks.outputs.prediction import PredictingModel, Prediction
from bertwright.tasks.outputs.vectors.matching import RetrievalDecoder, RetrievalOutput
from bertwright.tasks.outputs.vectors.text_vectors import FloatArray

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

NUM_SAMPLE_DOCUMENTS = 128
"""Number of documents whose logits the start is chosen from."""

WARMUP_FRACTION = 1 / 3
"""Fraction of a run in which the weight of the penalty rises (Formal et al. 2021: 50k of 150k)."""


@dataclass(frozen=True)
class SparseDecoder(RetrievalDecoder):
    """The decoder of :class:`SparseOutput`."""

    config: "SparseOutput"
    documents: tuple[str, ...] = ()
    """The distinct documents of the training examples, from which weights are initialised."""

    @property
    def num_outputs(self) -> int:
        return 0

    def fit(self, examples: Sequence[Example]) -> Self:
        fitted = super().fit(examples)
        texts = (text for e in examples for text in (e.pair, *e.negatives) if text is not None)
        return replace(fitted, documents=tuple(dict.fromkeys(texts)))

    def init_classifier(self, classifier: nn.Module, source: TextModel) -> None:
        """Set the weights of static queries; UserError without a masked language model."""
        source.require_lm_head("output type sparse")
        if not source.is_masked_lm or isinstance(source.model.output, AdaptiveLMHead):
            name = source.model.recipe.name
            raise UserError(
                f"output type sparse needs a masked language model with one output for each token, "
                f"and {name} has none: choose output_type.kind=late-interaction or similarity"
            )
        if isinstance(classifier, StaticTokenWeights):
            weights = inverse_document_frequencies(
                source.tokenizer, self.documents, source.model.vocab_size
            )
            classifier.set_weights(torch.from_numpy(weights))

    def init_lm_head(self, lm_head: LMHead, source: TextModel) -> None:
        """Shift the bias so that documents have the stated number of weights above 0."""
        if self.config.initial_weights is None or lm_head.bias is None or not self.documents:
            return
        maxima = largest_logits(source, self.documents[:NUM_SAMPLE_DOCUMENTS])
        logits = maxima[np.isfinite(maxima)]
        count = min(self.config.initial_weights * len(maxima), len(logits) - 1)
        threshold = np.partition(logits, -count - 1)[-count - 1]
        with torch.no_grad():
            lm_head.bias.sub_(float(threshold))

    def encode_queries(
        self, example_encoder: ExampleEncoder, queries: Sequence[str]
    ) -> list[TaskSequence]:
        """Return one sequence for every query; a static one names the positions of its text."""
        sequences = example_encoder.encode_texts(queries)
        if self.config.queries == "model":
            return sequences
        start = example_encoder.text_start
        return [
            replace(sequence, positions=tuple(range(start, start + len(sequence.token_ids) - 2)))
            for sequence in sequences
        ]

    def encode_documents(
        self, example_encoder: ExampleEncoder, documents: Sequence[str]
    ) -> list[TaskSequence]:
        return example_encoder.encode_texts(documents)

    def penalty(self, outputs: Tensor, output_lengths: Sequence[int], fraction: float) -> Tensor:
        """Return the FLOPS penalties of queries and documents, with weights that rise first."""
        scale = min(fraction / WARMUP_FRACTION, 1.0) ** 2
        starts = np.cumsum([0, *output_lengths[:-1]])
        is_query = torch.zeros(len(outputs), dtype=torch.bool, device=outputs.device)
        is_query[torch.from_numpy(starts).to(outputs.device)] = True
        penalty = self.config.document_penalty * flops_penalty(outputs[~is_query])
        if self.config.queries == "model":
            penalty = penalty + self.config.query_penalty * flops_penalty(outputs[is_query])
        return scale * penalty

    def vectors(self, model: PredictingModel, sequences: Sequence[TaskSequence]) -> "csr_matrix":
        return model.token_weights(sequences)

    def predict(
        self, model: PredictingModel, sequences: Sequence[TaskSequence], examples: Examples
    ) -> list[Prediction]:
        weights: Any = self.vectors(model, sequences)
        rows: list[list[Any]] = [[] for _ in examples]
        for row, sequence in enumerate(sequences):
            rows[sequence.example_index].append(weights[row])
        return [self._predict_example(vectors) for vectors in rows]

    def decode_example(self, example: Example, parts: Sequence[SequenceOutputs]) -> Prediction:
        from scipy.sparse import csr_matrix  # a model loads without it

        return self._predict_example([csr_matrix(outputs) for _, outputs in parts])

    def _predict_example(self, vectors: Sequence[Any]) -> Prediction:
        """Return the prediction for token weights (1, V) of a query and its documents."""
        self.require_document(vectors)
        return Prediction(float((vectors[0] @ vectors[1].T).sum()), vectors=vectors)


class SparseOutput(RetrievalOutput):
    """The score of a document for a query: the product of the weights of their tokens.

    Attributes:
        queries: ``model`` weights the tokens of queries as those of documents; ``static`` has a
            table of weights, which starts from inverse document frequencies and is trained, so that
            a query needs no model (Geng et al. 2024).
        double_log: take the logarithm of weights twice, which makes long documents sparser (Shen et
            al. 2025).
        initial_weights: mean number of weights above 0 of a document when training starts. Logits
            of a language model have no fixed zero, since a softmax ignores a shift of all of them:
            the shift is chosen so that only the most probable tokens have weights. None for none.
        query_penalty, document_penalty: weights of the FLOPS penalty (Paria et al. 2020), which
            makes vectors sparse. They rise with the square of the step in the first third of a run
            (Formal et al. 2021, section 4).
    """

    kind: Literal["sparse"] = "sparse"
    queries: Literal["model", "static"] = "model"
    double_log: bool = False
    initial_weights: int | None = Field(default=256, ge=1, le=1 << 24)
    query_penalty: float = Field(default=3e-4, ge=0)
    document_penalty: float = Field(default=1e-4, ge=0)
    decoder_type: ClassVar[type[OutputDecoder]] = SparseDecoder
    is_penalised: ClassVar[bool] = True

    @property
    def has_output_positions(self) -> bool:
        return self.queries == "static"

    @property
    def has_in_batch_negatives(self) -> bool:
        """True: the penalty is of the mean over all texts of a step."""
        return True


@torch.inference_mode()
def largest_logits(model: TextModel, texts: Sequence[str]) -> FloatArray:
    """Return the largest logit (N, V) of every token over the positions of texts."""
    selection = select_layers("last", "concat", model.model.recipe.encoder.hidden_widths)
    assert model.model.output is not None, "logits need an LM head"
    maxima = np.empty((len(texts), model.model.vocab_size), np.float32)
    pad, table = model.tokenizer.special_tokens.pad, model.model.embedding_table
    for batch in text_batches(model.encode_ids(texts), pad, model.device):
        states, document_ids = model.hidden_states(selection, batch), batch.token_info.document_ids
        is_token = torch.ones_like(batch.token_ids) if document_ids is None else document_ids + 1
        logits = model.model.output.max_logits(states.float(), table, is_token > 0)
        maxima[batch.indices] = logits.cpu().numpy()
    return maxima


def flops_penalty(weights: Tensor) -> Tensor:
    """Return the sum over tokens of their squared mean weight in texts (N, V) (Paria et al. 2020).

    It is the expected number of products in a score, if every weight counts as its frequency.
    """
    return weights.mean(0).square().sum()


def inverse_document_frequencies(
    tokenizer: Tokenizer, documents: Sequence[str], vocab_size: int
) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Return log(1 + (N - n + 1/2) / (n + 1/2)) of every token, which n of N documents have.

    Source: Robertson and Zaragoza 2009, equation 3.3; 1 is added so that no weight is negative.
    """
    counts = Counter[int]()
    for token_ids in tokenizer.encode_batch(list(documents)):
        counts.update(set(token_ids))
    frequencies = np.zeros(vocab_size, np.float64)
    frequencies[list(counts)] = list(counts.values())
    odds = (len(documents) - frequencies + 0.5) / (frequencies + 0.5)
    return np.log1p(odds).astype(np.float32)
