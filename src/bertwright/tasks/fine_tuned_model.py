"""A fine-tuned model with its tokenizer and its task, and its folder.

A folder holds the files of every model folder, and ``task.json``, which describes the task.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.core.files import write_text
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.layer_selection import LayerSelection
from bertwright.models.model import Model
from bertwright.models.retrieval_encoder import RetrievalEncoder
from bertwright.models.saving import (
    CARD_FILE,
    RECIPE_FILE,
    TASK_FILE,
    TRAINING_FILE,
    WEIGHTS_FILE,
    is_fine_tuned,
    load_recipe,
    load_tensors,
    read_tensors,
    save_weights,
    stored_vocab_size,
)
from bertwright.models.text_batches import TextBatch, text_batches
from bertwright.models.text_model import TextModel
from bertwright.modules.sentence_pooling import Pooling
from bertwright.recipes import SentenceVectorSettings
from bertwright.runtime.finite import require_finite_outputs
from bertwright.tasks.conformal.calibration import ConformalCalibration
from bertwright.tasks.conformal.predictor import ConformalPredictor
from bertwright.tasks.example_encoder import (
    ExampleEncoder,
    TaskSequence,
    document_ids_of,
    num_truncated_tokens,
)
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.heads.head import TaskHead, parameter_shapes
from bertwright.tasks.heads.text_vectors import StaticTokenWeights
from bertwright.tasks.inputs import TaskInputs, as_examples
from bertwright.tasks.model_card import model_card
from bertwright.tasks.outputs import (
    FloatArray,
    GeneratedOutput,
    Prediction,
    SimilarityOutput,
)
from bertwright.tasks.outputs.vectors.late_interaction import LateInteractionDecoder
from bertwright.tasks.outputs.vectors.sparse import SparseDecoder
from bertwright.tasks.outputs.vectors.text_vectors import SparseEntries
from bertwright.tasks.retrieval_encoders import TokenVectorEncoder, TokenWeightEncoder
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import TaskModel

if TYPE_CHECKING:  # a model loads without SciPy
    from scipy.sparse import csr_matrix
from bertwright.tasks.task_metadata import TaskMetadata, read_task_metadata
from bertwright.tasks.text_encoder import embedding_config, encoder_of


class FineTunedModel(TextModel):
    """A :class:`TextModel` fine-tuned for a task, with ``predict``.

    It has no language-model head, unless its outputs are texts or weights of tokens: ``fill_mask``
    and ``score`` need the pretrained model.
    ``max_length`` is the maximum sequence length; the default is the encoder's, at most 512.
    ``temperature`` divides the logits. ``conformal``, if set, has the thresholds of prediction sets
    and of abstention. ``folder`` is the folder that the model was loaded from, if
    any. A model trained for similarity embeds texts as its head does.
    """

    folder: Path | None = None
    conformal: ConformalCalibration | None = None

    def __init__(
        self,
        task_model: TaskModel,
        tokenizer: Tokenizer,
        task: Task,
        max_length: int | None = None,
        precision: InferencePrecision | None = None,
        temperature: float = 1.0,
    ) -> None:
        self.example_encoder = ExampleEncoder.from_recipe(
            task_model.recipe,
            tokenizer,
            task_model.encoder.max_length,
            max_length,
            is_siamese=task_model.head_config.pooling == "siamese",
        )
        longest = self.example_encoder.max_length
        vectors = embedding_config(
            task.output_type,
            task_model.head_config,
            longest,
            task_model.recipe.assembly.ends_with_start_token,
        )
        embeds_texts = isinstance(task.output_type, SimilarityOutput)
        self._embeds_with_head = embeds_texts and vectors is None
        if embeds_texts:
            vectors = vectors or SentenceVectorSettings(longest=longest)
        else:
            vectors = task_model.recipe.vectors.without_projection()
        super().__init__(encoder_of(task_model, vectors), tokenizer, precision)
        self.task_model = task_model.to(self.device).eval()
        self.task = task
        self.temperature = temperature
        self.output_decoder = task.output_type.build_decoder(task.labels, temperature)

    @property
    def is_int8(self) -> bool:
        """Return whether outputs are computed in int8."""
        return self.precision == "int8"

    def has_task(self, task: Task, head: TaskHead) -> bool:
        """Return whether the model was trained for this task with the same kind of head."""
        return (task.name, type(task.output_type), task.labels, head.config) == (
            self.task.name,
            type(self.task.output_type),
            self.task.labels,
            self.task_model.head_config,
        ) and parameter_shapes(head) == parameter_shapes(self.task_model.head)

    def calibrate(self, examples: Examples) -> Mapping[str, float]:
        """Set temperature and no-answer threshold on held-out examples.

        Returns the measured values; an empty mapping for output types without calibration.
        """
        sequences = self.output_decoder.encode(self.example_encoder, examples)
        result = self.task.output_type.calibrate(
            self.output_decoder, sequences, lambda: self.head_outputs(sequences), examples
        )
        if result is None:
            return {}
        self.task = replace(self.task, output_type=result.output_type)
        self.temperature = result.temperature
        self.output_decoder = result.output_type.build_decoder(self.task.labels, self.temperature)
        return result.metrics

    def predict(
        self, inputs: TaskInputs, coverage: float | None = None, max_risk: float | None = None
    ) -> list[Prediction]:
        """Predict for a text, or for examples, plain texts or text pairs, in their order.

        Inputs are tokenized, truncated and batched by length. Apart from rounding, predictions do
        not depend on the order or on the rest of the batch. With a ``coverage``, predictions have
        sets or intervals, and with a ``max_risk`` they say whether the model abstains: see
        :class:`~bertwright.tasks.conformal.predictor.ConformalPredictor`.
        """
        is_plain = coverage is None and max_risk is None
        predictor = self if is_plain else ConformalPredictor(self, coverage, max_risk)
        return predictor.predict_examples(as_examples(inputs, self.task))[0]

    def predict_examples(self, examples: Examples) -> tuple[list[Prediction], Mapping[int, int]]:
        """Return the predictions, and the number of truncated tokens of each truncated example."""
        sequences = self.output_decoder.encode(self.example_encoder, examples)
        predictions = self.output_decoder.predict(self, sequences, examples)
        return predictions, num_truncated_tokens(sequences)

    def set_generation(self, **settings: Any) -> None:
        """Change how predictions are generated: ``num_beams``, ``length_penalty``, ...

        ``settings`` are fields of :class:`GeneratedOutput`. Errors: UserError for a task whose
        outputs are not generated, and for invalid settings.
        """
        if not isinstance(self.task.output_type, GeneratedOutput):
            raise UserError(
                f"{', '.join(settings)}: task {self.task.name} predicts output type "
                f"{self.task.output_type.kind_name()}, which is not generated: leave them out"
            )
        try:
            output_type = self.task.output_type.copy_with("generation", **settings)
        except ValueError as error:
            raise UserError(str(error)) from None
        self.task = replace(self.task, output_type=output_type)
        self.output_decoder = output_type.build_decoder(self.task.labels, self.temperature)

    def require_task_head(self, command: str) -> None:
        """Raise UserError if the outputs are texts, which a decoder generates without a head."""
        if self.task_model.decoder is not None:
            raise UserError(
                f"{command} reads the outputs of a task head, and this model for "
                f"{self.task.name} generates text with its decoder: use predict or generate"
            )

    @property
    def can_use_stride(self) -> bool:
        """Return whether the model could read long texts in windows, but truncates them."""
        return self.task.output_type.can_use_stride and not self.example_encoder.is_siamese

    @torch.inference_mode()
    def text_vectors(
        self, layers: LayerSelection, batch: TextBatch, pooling: Pooling | None
    ) -> Tensor:
        if self._reads_head(layers, pooling):
            return self.batch_outputs(batch, None, ())
        return super().text_vectors(layers, batch, pooling)

    def vector_width(self, layers: LayerSelection, pooling: Pooling | None) -> int:
        if self._reads_head(layers, pooling):
            return self.task_model.head.width
        return super().vector_width(layers, pooling)

    def require_chunk_pooling(self, pooling: Pooling | None) -> None:
        if self._embeds_with_head and pooling is None:
            raise UserError(
                f"the vector of a chunk is the mean over its tokens, and the vectors of this model "
                f"come from its head (pooling {self.task_model.head_config.pooling}): choose "
                f"pooling mean, or embed without chunks"
            )
        super().require_chunk_pooling(pooling)

    def _reads_head(self, layers: LayerSelection, pooling: Pooling | None) -> bool:
        """Return whether vectors with these settings come from the head."""
        is_default = pooling is None and layers.is_output(self.model.encoder)
        return self._embeds_with_head and is_default

    def head_outputs(self, sequences: Sequence[TaskSequence]) -> list[FloatArray]:
        """Return the head outputs of each sequence: (k, K) float32 each."""
        self.require_task_head("this")
        num_outputs = self.task_model.head_spec.num_outputs
        results: list[FloatArray] = [np.empty((0, num_outputs), np.float32)] * len(sequences)
        for indices, outputs in self._per_sequence(sequences, self.batch_outputs):
            for index, output in zip(indices, outputs, strict=True):
                results[index] = output
        return results

    def features(self, examples: Examples) -> list[FloatArray]:
        """Return the features of each example that the head reads: (k, W) float32."""
        sequences = self.output_decoder.encode(self.example_encoder, examples)
        by_sequence: dict[int, FloatArray] = {}
        for indices, features in self._per_sequence(sequences, self._batch_features):
            by_sequence.update(zip(indices, features, strict=True))
        by_example: list[list[FloatArray]] = [[] for _ in examples]
        for index, sequence in enumerate(sequences):
            by_example[sequence.example_index].append(by_sequence[index])
        # A sentence without words has no sequence.
        nothing = np.empty((0, self.task_model.head.features_width), np.float32)
        return [np.concatenate([nothing, *features]) for features in by_example]

    def _batch_features(
        self, batch: TextBatch, positions: Tensor | None, output_lengths: Sequence[int]
    ) -> Tensor:
        head, document_ids = self.task_model.head, batch.token_info.document_ids
        output_positions = head.output_positions(batch.token_ids, document_ids, positions)
        return head.pool(
            self.hidden_states(head.layers, batch, output_positions).float(), document_ids
        )

    @torch.inference_mode()
    def _per_sequence(
        self,
        sequences: Sequence[TaskSequence],
        compute: Callable[[TextBatch, Tensor | None, Sequence[int]], Tensor],
    ) -> Iterator[tuple[list[int], list[FloatArray]]]:
        """Iterate over batches: sequence indices, and (k, K) of ``compute`` for each."""
        for batch, positions, output_lengths in self._sequence_batches(sequences):
            outputs = require_finite_outputs(compute(batch, positions, output_lengths).cpu())
            indices: list[int] = batch.indices.tolist()
            yield indices, np.split(outputs.numpy(), np.cumsum(output_lengths)[:-1])

    def _sequence_batches(
        self, sequences: Sequence[TaskSequence]
    ) -> Iterator[tuple[TextBatch, Tensor | None, list[int]]]:
        """Iterate over batches, their flat output positions, and the outputs of each sequence."""
        has_segments = self.example_encoder.has_segments
        for batch in text_batches(
            [sequence.token_ids for sequence in sequences],
            self.tokenizer.special_tokens.pad,
            self.device,
            [sequence.segment_ids or [] for sequence in sequences] if has_segments else None,
            self.batch_tokens,
            document_ids_of(sequences),
        ):
            members = [sequences[index] for index in batch.indices]
            positions = None
            if self.task.output_type.has_output_positions:
                positions = flat_positions(members, batch.token_ids.shape[1]).to(self.device)
            yield batch, positions, [self.output_decoder.output_length(s) for s in members]

    def batch_outputs(
        self, batch: TextBatch, positions: Tensor | None, output_lengths: Sequence[int]
    ) -> Tensor:
        """Return the head outputs of a batch: (B, K) float32, or (M, K) at flat ``positions`` (M,).

        ``output_lengths`` holds the number of positions of each sequence.
        """
        head, document_ids = self.task_model.head, batch.token_info.document_ids
        output_positions = head.output_positions(batch.token_ids, document_ids, positions)
        states = self.hidden_states(head.layers, batch, output_positions).float()
        inputs = batch.token_ids, batch.token_info, positions, output_lengths
        return self.task_model.head_outputs(states, *inputs)

    @torch.inference_mode()
    def token_weights(self, sequences: Sequence[TaskSequence]) -> "csr_matrix":
        """Return the weights (N, V) of all tokens in texts, for a head that weights tokens.

        Only the weights above 0 are copied from the device. Queries with static weights do not pass
        through the encoder.
        """
        entries = SparseEntries(len(sequences), self.task_model.vocab_size)
        static = self._static_token_weights()
        is_static = [static is not None and bool(s.positions) for s in sequences]
        for row, sequence in enumerate(sequences):
            if static is not None and is_static[row]:
                tokens = np.unique(
                    [sequence.token_ids[position] for position in sequence.positions]
                )
                entries.add(np.full(len(tokens), row), tokens, static[tokens])
        encoded = np.flatnonzero(~np.array(is_static, bool))
        for batch, positions, output_lengths in self._sequence_batches(
            [sequences[row] for row in encoded.tolist()]
        ):
            outputs = self.batch_outputs(batch, positions, output_lengths)
            rows, tokens = outputs.nonzero(as_tuple=True)
            weights = require_finite_outputs(outputs[rows, tokens].cpu()).numpy()
            rows = encoded[batch.indices[rows.cpu().numpy()]]
            entries.add(rows, tokens.cpu().numpy(), weights)
        return entries.matrix()

    def _static_token_weights(self) -> FloatArray | None:
        """Return the weights (V,) of the tokens of queries, if they do not depend on the query."""
        classifier = self.task_model.head.classifier
        if not isinstance(classifier, StaticTokenWeights):
            return None
        return classifier.weights.cpu().numpy()

    def retrieval_encoder(self) -> RetrievalEncoder:
        """Return the encoder of the representation that the model was trained for."""
        match self.output_decoder:
            case SparseDecoder():
                return TokenWeightEncoder(self, self.output_decoder, self.task_model.vocab_size)
            case LateInteractionDecoder():
                return TokenVectorEncoder(self, self.output_decoder)
            case _:
                return super().retrieval_encoder()

    def save(self, folder: str | Path, training: Mapping[str, Any] | None = None) -> None:
        """Write the model folder, weights last: a new folder with weights is complete."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save(folder)
        write_text(folder / RECIPE_FILE, self.task_model.recipe.as_yaml())
        write_text(folder / TASK_FILE, self.task_metadata_json())
        write_text(folder / TRAINING_FILE, json.dumps(dict(training or {}), indent=2) + "\n")
        write_text(
            folder / CARD_FILE, model_card(self.task_model.recipe.name, self.task, training or {})
        )
        save_weights(folder / WEIGHTS_FILE, self.task_model, self.task_model.grids)

    def task_metadata_json(self, has_same_weights: bool = True) -> str:
        """Return the content of ``task.json``.

        Rounded weights need thresholds of prediction sets of their own: these are left out.
        """
        metadata = TaskMetadata(
            task=self.task,
            head=self.task_model.head_config,
            adaptation=self.task_model.adaptation,
            max_length=self.example_encoder.max_length,
            temperature=self.temperature,
            conformal=self.conformal if has_same_weights else None,
        )
        return json.dumps(metadata.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def network_of(model: TextModel) -> Model | TaskModel:
    """Return the module that a model computes with; for a fine-tuned model it includes the head."""
    return model.task_model if isinstance(model, FineTunedModel) else model.model


def load_fine_tuned_model(
    folder: Path, precision: InferencePrecision | None = None
) -> FineTunedModel:
    """Load the folder of a fine-tuned model.

    Errors: UserError for a folder that is missing, incomplete, or holds other parameters.
    """
    if not is_fine_tuned(folder):
        raise UserError(
            f"{folder} is not a fine-tuned model: it has no {TASK_FILE}: run finetune first"
        )
    metadata = read_task_metadata(folder)
    tokenizer = Tokenizer.load(folder)
    tensors = read_tensors(folder / WEIGHTS_FILE)
    vocab_size = stored_vocab_size(tensors, tokenizer, str(folder))
    recipe = load_recipe(folder)
    with torch.device("meta"):
        task_model = TaskModel(recipe, vocab_size, metadata.head_spec, metadata.adaptation)
    load_tensors(task_model, tensors, str(folder / WEIGHTS_FILE))
    model = FineTunedModel(
        task_model, tokenizer, metadata.task, metadata.max_length, precision, metadata.temperature
    )
    model.folder, model.conformal = folder, metadata.conformal
    return model


def flat_positions(sequences: Sequence[TaskSequence], length: int) -> Tensor:
    """Return the output positions of a batch as flat indices (M,) int64."""
    return torch.tensor(
        [
            length * index + position
            for index, sequence in enumerate(sequences)
            for position in sequence.positions
        ],
        dtype=torch.int64,
    )
