"""A shared encoder with the heads of several tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bertwright.encoder.encoder import Encoder
from bertwright.models.layer_selection import LayerSelection
from bertwright.models.saving import build_empty, load_tensors
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo
from bertwright.objectives.model_output import Loss
from bertwright.recipes import Recipe
from bertwright.tasks.adapters import AdaptationConfig
from bertwright.tasks.finetuning.batching.packing import SequencePacking
from bertwright.tasks.finetuning.truncated_backprop import TruncatedBackpropConfig
from bertwright.tasks.heads.head import TaskHead, TaskHeadContext
from bertwright.tasks.heads.task_visibility import isolate_texts
from bertwright.tasks.heads.text_vectors import TextInputs, TextVectorHead
from bertwright.tasks.task_model import (
    DecoderInputs,
    HeadSpec,
    TaskModel,
    build_decoder,
    build_lm_head,
    is_real,
)


class MultiTaskModel(nn.Module):
    """An encoder in training, with the heads of one or several tasks and its adaptation.

    Tasks whose outputs are texts share one ``decoder`` and its ``lm_head``.

    ``dropout_rate`` applies to the heads; the encoder uses the recipe's dropout.
    ``num_embeddings``, if set, is the size of the reduced embedding table. With
    ``truncated_backprop`` texts are read in chunks. With ``is_packed``, the encoder can read
    several sequences in a row. ``distillation_loss`` may have trainable parameters too.
    """

    def __init__(
        self,
        recipe: Recipe,
        vocab_size: int,
        head_specs: Sequence[HeadSpec],
        adaptation: AdaptationConfig,
        dropout_rate: float,
        has_lm_head: bool = False,
        num_embeddings: int | None = None,
        truncated_backprop: TruncatedBackpropConfig | None = None,
        is_packed: bool = False,
    ) -> None:
        super().__init__()
        self.truncated_backprop = truncated_backprop
        self.recipe, self.head_specs, self.adaptation = recipe, tuple(head_specs), adaptation
        self.vocab_size = vocab_size
        encoder_config = isolate_texts(recipe.encoder) if is_packed else recipe.encoder
        self.encoder = Encoder(encoder_config, num_embeddings or vocab_size)
        adaptation.insert_modules(self.encoder, encoder_config)
        self.parametrisation = adaptation.build_parametrisation(self.encoder)
        num_adapters = len(self.encoder.knowledge_adapters)
        heads = [
            spec.config.build(
                TaskHeadContext(recipe, spec.num_outputs, dropout_rate, vocab_size, num_adapters)
            )
            for spec in head_specs
        ]
        self.heads = nn.ModuleList(heads)
        has_decoder = any(spec.has_decoder for spec in head_specs)
        self.decoder = build_decoder(recipe, self.encoder) if has_decoder else None
        has_lm_head = has_lm_head or any(spec.uses_lm_head for spec in head_specs)
        self.lm_head = build_lm_head(recipe, self.encoder, vocab_size) if has_lm_head else None
        self.distillation_loss: nn.Module | None = None

    def head_of(self, task_index: int) -> TaskHead:
        """Return the head of a task."""
        head = self.heads[task_index]
        assert isinstance(head, TaskHead)
        return head

    def hidden_states(
        self,
        task_index: int,
        token_ids: Tensor,
        token_info: TokenInfo,
        output_positions: Tensor | None = None,
        dropout_rng: DropoutRng | None = None,
        packing: SequencePacking | None = None,
    ) -> Tensor:
        """Return the hidden states (B, L, W) of the layers that the head of a task reads.

        token_ids: (B, L) int64. With flat ``output_positions`` (M,) the result is (M, W). With a
        ``packing`` the encoder reads the sequences in fewer rows.
        """
        if packing is None:
            return self._encode(task_index, token_ids, token_info, output_positions, dropout_rng)
        positions = packing.pack_positions(output_positions)
        states = self._encode(
            task_index, *packing.pack(token_ids, token_info), positions, dropout_rng
        )
        return packing.unpack(states) if positions is None else states

    def _encode(
        self,
        task_index: int,
        token_ids: Tensor,
        token_info: TokenInfo,
        output_positions: Tensor | None,
        dropout_rng: DropoutRng | None,
    ) -> Tensor:
        """Return the hidden states (B, L, W), or (M, W) at ``output_positions`` (M,)."""
        layers = self.head_of(task_index).layers
        reader = _LayerReader(self.encoder, layers, self.truncated_backprop)
        inputs = (token_ids, token_info, dropout_rng, output_positions)
        if self.parametrisation is None:
            return reader(*inputs)
        new_weights = self.parametrisation(dict(self.encoder.named_parameters()))
        weights = {f"encoder.{name}": weight for name, weight in new_weights.items()}
        with self.parametrisation.forward_context(token_info.document_ids, output_positions):
            # A sublayer shared by several blocks is one module: it is replaced once, under its
            # first name.
            return functional_call(reader, weights, inputs, tie_weights=False)

    def head_outputs(
        self,
        task_index: int,
        hidden_states: Tensor,
        document_ids: Tensor | None,
        output_lengths: Sequence[int] = (),
        dropout_rng: DropoutRng | None = None,
        first_output: int = 0,
        segment_ids: Tensor | None = None,
    ) -> Tensor:
        """Map hidden states (B, L, W) or (M, W) to float32 task outputs, (B', K) or (M, K).

        ``output_lengths`` holds the number of outputs of each of the first B' sequences; the others
        have no outputs. ``first_output`` is the index of the first output in the step, which seeds
        dropout. ``segment_ids`` (B, L) tell the texts of a pair apart.
        """
        head, num_sequences = self.head_of(task_index), len(output_lengths)
        head_rng = self.head_dropout_rng(dropout_rng, first_output)
        if head.config.pooling == "pair":
            assert segment_ids is not None, "pooling: pair requires segments"
            documents = None if document_ids is None else document_ids[:num_sequences]
            return head.project_pair(
                hidden_states[:num_sequences], documents, segment_ids[:num_sequences], head_rng
            )
        pooled = head.pool(hidden_states, document_ids)[: sum(output_lengths)]
        return head.project(pooled, output_lengths, head_rng)

    def text_vectors(
        self,
        task_index: int,
        hidden_states: Tensor,
        token_ids: Tensor,
        token_info: TokenInfo,
        positions: Tensor | None,
    ) -> Tensor:
        """Map hidden states (B, L, W) to the representations of B texts, float32."""
        head, table = self.head_of(task_index), self.encoder.embeddings.table
        assert isinstance(head, TextVectorHead), "the head represents texts"
        is_token = is_real(token_ids, token_info.document_ids)
        inputs = TextInputs(token_ids, is_token, positions, self.lm_head, table)
        return head.represent(hidden_states, inputs)

    @property
    def has_penalty(self) -> bool:
        """Return whether a penalty on parameters is added to the loss of a step."""
        return any(spec.config.mix_l2 > 0 for spec in self.head_specs) or (
            self.parametrisation is not None and self.parametrisation.has_penalty
        )

    def penalty(self) -> Tensor:
        """Return the penalty (), the sum over the heads and the reparametrisation."""
        heads = [self.head_of(index) for index in range(len(self.heads))]
        penalties = [head.penalty() for head in heads if head.config.mix_l2 > 0]
        if self.parametrisation is not None and self.parametrisation.has_penalty:
            penalties.append(self.parametrisation.penalty())
        return torch.stack(penalties).sum()

    def text_loss(
        self,
        hidden_states: Tensor,
        token_info: TokenInfo,
        inputs: DecoderInputs,
        labels: Tensor,
        dropout_rng: DropoutRng | None = None,
    ) -> Loss:
        """Return the loss of the target tokens, given hidden states (B, L, D) of the sources.

        labels: (M,) int64, one for each real decoder input.
        """
        assert self.decoder is not None, "a text is generated by a decoder"
        assert self.lm_head is not None, "a decoder has an LM head"
        source = CrossAttentionSource(hidden_states, token_info)
        states = self.decoder.decode(
            inputs.token_ids, source, None, inputs.language_ids, dropout_rng
        )
        table = self.encoder.embeddings.table
        loss, num_correct = self.lm_head.loss(states[inputs.is_real], table, labels, None)
        return Loss(loss, float(len(labels)), num_correct)

    def compile_parts(self) -> None:
        """Compile encoder and decoder for sequences of any length."""
        self.encoder.compile_parts(dynamic=True)
        if self.decoder is not None:
            self.decoder.compile_parts(dynamic=True)

    def head_dropout_rng(
        self, dropout_rng: DropoutRng | None, first_output: int
    ) -> DropoutRng | None:
        """Return the dropout RNG of a head."""
        if dropout_rng is None:
            return None
        first = torch.full_like(dropout_rng.first_sequence, first_output)
        return replace(dropout_rng.for_block(len(self.encoder.blocks)), first_sequence=first)

    def build_task_model(self, task_index: int, parameters: Mapping[str, Tensor]) -> TaskModel:
        """Return the model of one task with these parameters, on the CPU in float32.

        ``parameters`` contains the whole embedding table.
        """
        adaptation = self.adaptation.stored_with(self.recipe.encoder)
        settings = self.head_specs[task_index], adaptation
        model = build_empty(TaskModel, self.recipe, self.vocab_size, *settings)
        tensors = {**parameters, **dict(self.named_buffers())}
        if self.parametrisation is not None:
            tensors |= self._merge_weights(parameters)
        state = {n: t for n, t in tensors.items() if n.startswith("encoder.")}
        head = _without_prefix(tensors, f"heads.{task_index}.")
        state |= {f"head.{name}": tensor for name, tensor in head.items()}
        spec = self.head_specs[task_index]
        prefixes = ("decoder.",) * spec.has_decoder + ("lm_head.",) * spec.uses_lm_head
        state |= {n: t for n, t in tensors.items() if n.startswith(prefixes)}
        load_tensors(model, state, "snapshot")
        return model

    @torch.no_grad()
    def _merge_weights(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the encoder's weights after reparametrisation, given float32 parameters."""
        assert self.parametrisation is not None
        encoder_weights = _without_prefix(parameters, "encoder.")
        state = _without_prefix(parameters, "parametrisation.")
        self.parametrisation.eval()
        new_weights = functional_call(self.parametrisation, state, (encoder_weights,))
        self.parametrisation.train()
        return {f"encoder.{name}": weight for name, weight in new_weights.items()}


def _without_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without it."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


class _LayerReader(nn.Module):
    """A module that computes the hidden states of some layers, for use in ``functional_call``."""

    def __init__(
        self,
        encoder: Encoder,
        layers: LayerSelection,
        truncated_backprop: TruncatedBackpropConfig | None,
    ) -> None:
        super().__init__()
        self.encoder, self.layers = encoder, layers
        self.truncated_backprop = truncated_backprop

    def forward(
        self,
        token_ids: Tensor,
        token_info: TokenInfo,
        dropout_rng: DropoutRng | None,
        output_positions: Tensor | None,
    ) -> Tensor:
        if self.truncated_backprop is None:
            return self.layers.hidden_states(
                self.encoder, token_ids, token_info, dropout_rng, output_positions
            )
        states = self.truncated_backprop.hidden_states(
            self.encoder, self.layers, token_ids, token_info, dropout_rng
        )
        if output_positions is None:
            return states
        return states.flatten(0, 1).index_select(0, output_positions)
