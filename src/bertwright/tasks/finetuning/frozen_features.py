"""Features of a frozen encoder for its heads: computed once and reused in every epoch."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from bertwright.core.config import Precision
from bertwright.models.saving import model_from_tensors
from bertwright.models.text_batches import text_batches
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.example_encoder import TaskSequence, document_ids_of
from bertwright.tasks.fine_tuned_model import FineTunedModel, flat_positions
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.heads.standardiser import Standardiser
from bertwright.tasks.multi_task_model import MultiTaskModel
from bertwright.tasks.outputs import FloatArray, Prediction
from bertwright.tasks.text_encoder import ENCODER_ONLY


class FrozenFeatures:
    """The features that each task's head reads, for training and held-out sequences.

    They are stored in the precision that heads are trained in.
    """

    def __init__(
        self,
        source: TextModel,
        model: MultiTaskModel,
        encoded_tasks: Sequence[EncodedTask],
        precision: Precision,
    ) -> None:
        self._source = _with_visibility_of(model.recipe, source)
        self._encoded_tasks = encoded_tasks
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._training_features: list[list[Tensor]] = []
        self._held_out_features: list[list[Tensor]] = []
        self._held_out_sequences: list[list[TaskSequence]] = []
        self._heads = [model.head_of(index) for index in range(len(encoded_tasks))]

    def gather(
        self, task_index: int, sequence_indices: Sequence[int]
    ) -> tuple[Tensor, Tensor | None]:
        """Return the features (M, W) of training sequences, and the tokens (M,) read there.

        The tokens are None for heads that read whole texts.
        """
        features = self.training_features(task_index)
        sequences = self._encoded_tasks[task_index].sequences
        tokens = self._read_tokens([sequences[index] for index in sequence_indices])
        joined = torch.cat([features[index] for index in sequence_indices])
        return joined.to(self._source.device), tokens

    def _read_tokens(self, sequences: Sequence[TaskSequence]) -> Tensor | None:
        """Return the tokens (M,) at the output positions of sequences; None without positions."""
        if not any(sequence.positions for sequence in sequences):
            return None
        tokens = [s.token_ids[position] for s in sequences for position in s.positions]
        return torch.tensor(tokens, device=self._source.device)

    @torch.no_grad()
    def fit_standardiser(self, task_index: int) -> Standardiser:
        """Fit the standardiser of a task's mixed training features."""
        mix, device = self._heads[task_index].mix, self._source.device
        return Standardiser.fit(
            mix(features.to(device).float()) for features in self.training_features(task_index)
        )

    def training_features(self, task_index: int) -> list[Tensor]:
        """Return the features of each training sequence of a task: (k, W) each."""
        if not self._training_features:
            self._training_features = [
                self._read_features(n, p.sequences) for n, p in enumerate(self._encoded_tasks)
            ]
        return self._training_features[task_index]

    def held_out_features(self, task_index: int) -> list[Tensor]:
        """Return the features of each held-out sequence; call it after prediction."""
        return self._held_out_features[task_index]

    @torch.inference_mode()
    def predict(self, task_index: int, model: FineTunedModel) -> list[Prediction]:
        """Predict for the held-out examples."""
        if not self._held_out_features:
            self._held_out_sequences = [
                task.output_decoder.encode(model.example_encoder, task.dev)
                for task in self._encoded_tasks
            ]
            self._held_out_features = [
                self._read_features(n, s) for n, s in enumerate(self._held_out_sequences)
            ]
        sequences = self._held_out_sequences[task_index]
        outputs: list[FloatArray] = []
        for start in range(0, len(sequences), 256):
            chunk = self._held_out_features[task_index][start : start + 256]
            lengths = [len(features) for features in chunk]
            features = torch.cat(chunk).to(self._source.device).float()
            tokens = self._read_tokens(sequences[start : start + 256])
            projected = model.task_model.head.project(features, lengths, token_ids=tokens)
            outputs += np.split(projected.cpu().numpy(), np.cumsum(lengths)[:-1])
        task = self._encoded_tasks[task_index]
        return task.output_decoder.decode(sequences, outputs, task.dev)

    @torch.inference_mode()
    def _read_features(self, task_index: int, sequences: Sequence[TaskSequence]) -> list[Tensor]:
        """Compute the features of each sequence, in order: (k, W) each."""
        head = self._heads[task_index]
        is_token_level = self._encoded_tasks[task_index].task.output_type.level == "token"
        by_sequence: list[Tensor] = [torch.empty(0)] * len(sequences)
        has_segments = bool(sequences) and sequences[0].segment_ids is not None
        for batch in text_batches(
            [sequence.token_ids for sequence in sequences],
            self._source.tokenizer.special_tokens.pad,
            self._source.device,
            [sequence.segment_ids or [] for sequence in sequences] if has_segments else None,
            document_ids=document_ids_of(sequences),
        ):
            indices: list[int] = batch.indices.tolist()
            members = [sequences[index] for index in indices]
            length, document_ids = batch.token_ids.shape[1], batch.token_info.document_ids
            positions = None
            if is_token_level:
                positions = flat_positions(members, length).to(batch.token_ids.device)
            positions = head.output_positions(batch.token_ids, document_ids, positions)
            states = self._source.hidden_states(head.layers, batch, positions)
            features = head.pool(states, document_ids).to("cpu", self._dtype)
            lengths = [len(s.positions) if is_token_level else 1 for s in members]
            for index, part in zip(indices, features.split(lengths), strict=True):
                by_sequence[index] = part.clone()
        return by_sequence


def _with_visibility_of(recipe: Recipe, source: TextModel) -> TextModel:
    """Return a model with the attention mask of a recipe, as for siamese pairs."""
    model = source.model
    if recipe.encoder.visibility == model.recipe.encoder.visibility:
        return source
    # Sublayers that blocks share occur once, unlike in the state of a module.
    named = chain(model.encoder.named_parameters(), model.encoder.named_buffers())
    tensors = {f"encoder.{name}": tensor.detach() for name, tensor in named}
    encoder_recipe = recipe.model_copy(update=ENCODER_ONLY)
    masked = model_from_tensors(encoder_recipe, model.vocab_size, tensors, recipe.name)
    return TextModel(masked, source.tokenizer, source.precision)
