"""Skip-Thought: predict the neighbouring sentences of a sentence (Kiros et al. 2015)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.targets import BatchWithTargets, Targets, next_token_targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.attention.mask import (
    CausalVisibility,
    SameDocumentVisibility,
    Visibility,
    build_attention_mask,
    scan_directions,
)
from bertwright.modules.attention.mask.token_runs import find_token_runs
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.linear_cross_entropy import linear_cross_entropy
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.modules.recurrent.gru import GRUConfig, GRULayer
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import HeadContext, MaskingContext, Objective

DECODERS = ("previous", "next")
"""The decoders, named by the sentence that they predict."""


class NeighbouringSentences(Objective):
    """Predict the sentence before and the sentence after each sentence, token by token.

    Two decoders, one for each, read the tokens of the predicted sentence so far. The vector of the
    encoded sentence is added, times a matrix, to the input of every gate. The loss is the mean over
    the predicted tokens of both. It needs isolated sentences: ``assembly.kind: sentence-groups``.
    """

    kind: Literal["neighbouring-sentences"] = "neighbouring-sentences"

    capabilities: ClassVar[Capabilities] = Capabilities(uses_embedding_table=True)

    @property
    def visibility(self) -> Visibility:
        return SameDocumentVisibility()

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return batch, neighbour_targets(batch)

    def label_positions(self, targets: Targets) -> IntArray:
        return targets.positions + 1

    def build_head(self, context: HeadContext) -> nn.Module:
        return NeighbourDecoders(context.encoder_config, context.vocab_size)

    def head_flops(
        self, encoder: EncoderConfig, vocab_size: int, length: int, group: Mapping[str, Objective]
    ) -> float:
        width, inputs = encoder.width, encoder.token_embedding_width
        gates = 6 * width * (inputs + 2 * width)
        return len(DECODERS) * (gates + 2 * width * vocab_size)

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        assert isinstance(head, NeighbourDecoders)
        states = head(targets, output)
        loss, num_correct = linear_cross_entropy(
            states, head.output.weight, head.bias, targets.labels, targets.weights
        )
        return Loss(loss, targets.total_weight, num_correct)

    def logits(self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None) -> Tensor:
        assert isinstance(head, NeighbourDecoders)
        return linear(head(targets, output), head.output.weight, head.bias)


def neighbour_targets(batch: SequenceBatch) -> Targets:
    """Return the next-token targets of both decoders, first those of the previous sentence.

    ``extra_inputs`` holds ``is_next``, and the flattened positions of the first and the last token
    of the sentence that is encoded. Targets without such a sentence have weight 0.
    """
    targets = next_token_targets(batch)
    document_ids = batch.token_info.document_ids
    if document_ids is None:
        document_ids = np.zeros(batch.token_ids.shape, np.int32)
    predicted = document_ids.ravel()[targets.positions].astype(np.int64)
    rows = targets.positions // batch.token_ids.shape[1]
    encoded = [(rows, predicted + 1), (rows, predicted - 1)]
    bounds = [_sentence_bounds(document_ids, *sentences) for sentences in encoded]
    firsts, lasts, weights = (np.concatenate(values) for values in zip(*bounds, strict=True))
    return Targets(
        np.tile(targets.positions, 2),
        np.tile(targets.labels, 2),
        np.tile(targets.weights, 2) * weights,
        {
            "is_next": np.repeat(np.arange(2), len(targets.positions)),
            "first_positions": firsts,
            "last_positions": lasts,
        },
    )


def _sentence_bounds(
    document_ids: NDArray[np.int32], rows: IntArray, sentences: IntArray
) -> tuple[IntArray, IntArray, NDArray[np.float32]]:
    """Return the first and last flattened position of sentences (N,) of rows (N,), and a weight.

    The weight is 0 and the positions are those of the row if there is no such sentence.
    """
    num_sequences, length = document_ids.shape
    num_sentences = max(int(document_ids.max()) + 1, 1)
    ids = np.arange(num_sentences)
    is_member = document_ids[:, None, :] == ids[:, None]
    firsts = is_member.argmax(axis=2) + length * np.arange(num_sequences)[:, None]
    lasts = firsts + np.maximum(is_member.sum(axis=2), 1) - 1
    is_valid = (sentences >= 0) & (sentences < num_sentences)
    index = rows, np.clip(sentences, 0, num_sentences - 1)
    exists: BoolArray = is_member.any(axis=2)[index] & is_valid
    return firsts[index], lasts[index], exists.astype(np.float32)


class NeighbourDecoders(nn.Module):
    """The decoders of the previous and of the next sentence, with one output table."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"bias": ParameterRole("bias")}

    def __init__(self, encoder: EncoderConfig, vocab_size: int) -> None:
        super().__init__()
        width = encoder.width
        self.directions = scan_directions(encoder.visibility) if encoder.mixer.is_recurrent else ()
        self.decoders = nn.ModuleList(
            ConditionalGRU(encoder.token_embedding_width, width, width) for _ in DECODERS
        )
        self.output = empty_embedding(vocab_size, width)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, targets: DeviceTargets, output: ModelOutput) -> Tensor:
        """Return the state (M, D) of the decoder that predicts each target."""
        num_sequences, length = output.token_ids.shape
        token_info = output.token_info
        assert token_info is not None, "a batch has token info"
        rule = CausalVisibility() & SameDocumentVisibility()
        runs = find_token_runs(build_attention_mask(rule, token_info), "forward", output.token_ids)
        vectors = self.sentence_vectors(targets, output)
        embeddings = embedding_lookup(output.embedding_table, output.token_ids)
        states: list[Tensor] = []
        for index, decoder in enumerate(self.decoders):
            is_decoded = targets.extra_inputs["is_next"] == index
            positions = targets.positions[is_decoded]
            conditions = vectors.new_zeros(num_sequences * length, vectors.shape[1])
            conditions = conditions.index_copy(0, positions, vectors[is_decoded])
            conditions = conditions.view(num_sequences, length, -1)
            decoded = decoder(runs.gather(embeddings), runs.gather(conditions))
            states.append(runs.scatter(decoded, embeddings).flatten(0, 1)[positions])
        return torch.cat(states)

    def sentence_vectors(self, targets: DeviceTargets, output: ModelOutput) -> Tensor:
        """Return the vector (M, D) of the sentence that is encoded for each target.

        A layer that reads forward is read at the last token, one that reads backward at the first;
        other encoders at the first.
        """
        positions = {"forward": "last_positions", "backward": "first_positions"}
        directions = self.directions or ("backward",)
        states = output.hidden_states.flatten(0, 1).chunk(len(directions), dim=1)
        parts = [
            part[targets.extra_inputs[positions[direction]]]
            for part, direction in zip(states, directions, strict=True)
        ]
        return torch.cat(parts, dim=1)


class ConditionalGRU(nn.Module):
    """Gated recurrent units whose gates also read a condition, such as a sentence vector."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "condition.weight": ParameterRole("matrix", num_parts=3)
    }

    def __init__(self, input_width: int, condition_width: int, width: int) -> None:
        super().__init__()
        self.gru = GRULayer(GRUConfig(reset="before", biases=0), input_width, width)
        self.condition = nn.Linear(condition_width, 3 * width, bias=False)

    def forward(self, x: Tensor, conditions: Tensor) -> Tensor:
        """Return the states (R, T, H), given inputs (R, T, E) and conditions (R, T, D)."""
        return self.gru.run_gates(self.gru.input(x) + self.condition(conditions))
