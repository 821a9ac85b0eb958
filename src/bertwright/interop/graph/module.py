"""A model as a module with tensor inputs, traceable for any batch size and length."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.encoder.bottleneck import BottleneckProjection
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.knowledge_adapter import KnowledgeAdapterLayer
from bertwright.interop.graph.inputs import (
    ATTENTION_MASK,
    INPUT_IDS,
    LANGS,
    LAST_HIDDEN_STATE,
    LOGITS,
    SENTENCE_EMBEDDING,
    TOKEN_TYPE_IDS,
    GraphInputs,
)
from bertwright.interop.graph.lstm import use_padded_lstm_mixers
from bertwright.interop.graph.outputs import GraphOutputs
from bertwright.interop.huggingface.head_types import EncoderModel
from bertwright.models.layer_selection import LayerSelection
from bertwright.models.model import Model
from bertwright.models.text_batches import TextBatch
from bertwright.modules.attention.attention import Attention
from bertwright.modules.attention.fixed_patterns import FixedPatternAttention
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe


def graph_input_names(recipe: Recipe) -> tuple[str, ...]:
    """Return the input names of a recipe's graph, in order."""
    encoder = recipe.encoder
    segments = [TOKEN_TYPE_IDS] if encoder.distinguishes_segments else []
    languages = [LANGS] if encoder.embeddings.languages else []
    return (INPUT_IDS, ATTENTION_MASK, *segments, *languages)


def make_graph_inputs(batch: TextBatch, input_names: Sequence[str]) -> GraphInputs:
    """Return a batch as graph inputs; missing segment and language ids are 0."""
    token_info, shape = batch.token_info, tuple(batch.token_ids.shape)
    documents = token_info.document_ids
    tensors = {
        INPUT_IDS: batch.token_ids,
        ATTENTION_MASK: None if documents is None else (documents >= 0).long(),
        TOKEN_TYPE_IDS: token_info.segment_ids,
        LANGS: token_info.language_ids,
    }
    return {
        name: np.full(shape, int(name == ATTENTION_MASK))
        if values is None
        else values.cpu().numpy()
        for name, values in ((name, tensors[name]) for name in input_names)
    }


class ExportModule(nn.Module):
    """A model with tensors as positional arguments and return values."""

    def __init__(
        self, model: EncoderModel, input_names: tuple[str, ...], outputs: GraphOutputs
    ) -> None:
        super().__init__()
        self.model, self.input_names, self.outputs = model, input_names, outputs

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Map inputs (B, L) int64 to the outputs."""
        by_name = dict(zip(self.input_names, inputs, strict=True))
        token_ids, document_ids = by_name[INPUT_IDS], by_name[ATTENTION_MASK] - 1
        token_info = replace(
            TokenInfo.from_token_ids(token_ids),
            document_ids=document_ids,
            segment_ids=by_name.get(TOKEN_TYPE_IDS),
            language_ids=by_name.get(LANGS),
        )
        if isinstance(self.model, Model):
            states = self.model.encoder(token_ids, token_info)
            embeddings = self.outputs.pool(states, document_ids, self.model.vector_projection)
            values = {SENTENCE_EMBEDDING: embeddings}
            if LOGITS in self.outputs.names:
                values[LOGITS] = self.model.full_logits(states)
        else:
            states, head_outputs = self._task_outputs(token_ids, token_info)
            values = dict(self.outputs.from_head(head_outputs))
        values[LAST_HIDDEN_STATE] = states
        return tuple(values[name] for name in self.outputs.names)

    def _task_outputs(self, token_ids: Tensor, token_info: TokenInfo) -> tuple[Tensor, Tensor]:
        """Return the hidden states and the outputs of the task head."""
        assert not isinstance(self.model, Model)
        encoder, head, depth = self.model.encoder, self.model.head, len(self.model.encoder.blocks)
        if head.layers.is_output(encoder):
            head_input = states = encoder(token_ids, token_info)
        else:
            widths = (head.layers.width, self.model.recipe.encoder.width)
            selection = LayerSelection(
                (*head.layers.indices, depth), "concat", sum(widths), head.layers.num_adapters
            )
            both = selection.hidden_states(encoder, token_ids, token_info)
            head_input, states = both.split(widths, dim=-1)
        every = torch.arange(token_ids.shape[0] * token_ids.shape[1], device=token_ids.device)
        positions = head.output_positions(token_ids, token_info.document_ids, every)
        if positions is not None:
            head_input = head_input.flatten(0, 1).index_select(0, positions)
        outputs = head(head_input, token_info.document_ids, segment_ids=token_info.segment_ids)
        return states, outputs.unflatten(0, token_ids.shape) if positions is every else outputs


def prepare_for_export(model: EncoderModel, with_onnx_operators: bool) -> EncoderModel:
    """Return a float32 CPU copy without fused kernels, for any sequence length.

    The token embedding becomes a single table. Norms without statistics are folded into the
    preceding matrix if nothing is added in between (Sun et al. 2020).
    """
    exported = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    encoder = exported.encoder
    encoder.tiling = "never"
    for module in encoder.modules():
        if isinstance(module, Attention | FixedPatternAttention):
            module.kernel = "explicit"
        elif isinstance(module, KnowledgeAdapterLayer):
            module.tiling = "never"
        elif isinstance(module, BottleneckProjection):
            module.fold_norm()
    use_padded_lstm_mixers(encoder, with_onnx_operators)
    _materialise_token_embeddings(encoder, model.vocab_size)
    return exported


@torch.no_grad()
def _materialise_token_embeddings(encoder: Encoder, vocab_size: int) -> None:
    embedding = encoder.embeddings.tokens
    if not isinstance(embedding, nn.Embedding):
        table = cast(Tensor, embedding(torch.arange(vocab_size)))
        encoder.embeddings.tokens = nn.Embedding.from_pretrained(table)
