"""An ONNX folder as a model: bertwright tokenizes and decodes, onnxruntime runs the graph."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.encoder.encoder import Encoder
from bertwright.interop.graph.inputs import (
    LAST_HIDDEN_STATE,
    LOGITS,
    SENTENCE_EMBEDDING,
    random_graph_inputs,
)
from bertwright.interop.graph.module import make_graph_inputs
from bertwright.interop.huggingface.sentence_transformers_config import read_projection_weights
from bertwright.interop.onnx.manifest import GRAPH_FILE, INT8_GRAPH_FILE, OnnxManifest
from bertwright.interop.onnx.session import OnnxSession
from bertwright.models.layer_selection import LayerSelection
from bertwright.models.model import Model
from bertwright.models.saving import is_fine_tuned, load_recipe, load_tensors
from bertwright.models.text_batches import TextBatch
from bertwright.models.text_model import FloatMatrix, TextModel
from bertwright.runtime.finite import is_finite
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.task_metadata import TaskMetadata, read_task_metadata
from bertwright.tasks.task_model import TaskModel
from bertwright.tasks.text_encoder import ENCODER_ONLY

AnyEncoderModel = TypeVar("AnyEncoderModel", Model, TaskModel)


class OnnxModel(TextModel):
    """A :class:`TextModel` without weights, which embeds and encodes texts with a graph.

    Anything that needs the weights raises UserError.
    """

    def __init__(
        self, manifest: OnnxManifest, session: OnnxSession, model: Model, tokenizer: Tokenizer
    ) -> None:
        super().__init__(model, tokenizer, "float32")
        self.manifest, self.session = manifest, session

    @property
    def main_output(self) -> str:
        """Name of the output that people read: an embedding, or the logits of a task."""
        return SENTENCE_EMBEDDING

    @torch.inference_mode()
    def hidden_states(
        self, layers: LayerSelection, batch: TextBatch, output_positions: Tensor | None = None
    ) -> Tensor:
        """Return the last hidden states (B, L, D), or (M, D) at the flat ``output_positions`` (M,).

        Raises UserError for other layers.
        """
        if layers.indices != (len(self.model.encoder.blocks),):
            raise UserError(
                f"the graph of {self.manifest.name} has the last layer only: leave --layers out, "
                f"or use the folder that it was exported from"
            )
        states = self.run(LAST_HIDDEN_STATE, batch)
        return (
            states
            if output_positions is None
            else states.flatten(0, 1).index_select(0, output_positions)
        )

    def run(self, output_name: str, batch: TextBatch) -> Tensor:
        """Return one output of the graph for a batch of texts.

        Raises UserError for NaN or infinity.
        """
        inputs = make_graph_inputs(batch, self.manifest.input_names)
        values = torch.from_numpy(self.session.run(output_name, inputs))
        if not is_finite(values):
            raise UserError(
                f"the graph of {self.manifest.name} returns NaN or infinity: its weights are "
                f"damaged, export the model again"
            )
        return values.to(self.device)

    def outputs_for_texts(self, output_name: str, texts: Sequence[str]) -> list[FloatMatrix]:
        """Return one output for every text: (K,), or (L, K) for its tokens."""
        result: list[FloatMatrix] = [np.empty(0, np.float32)] * len(texts)
        for batch in self._batches(self.encode_ids(texts)):
            values = self.run(output_name, batch).cpu().numpy()
            for row, index in enumerate(batch.indices):
                output = values[row]
                result[index] = output if output.ndim == 1 else output[: batch.lengths[row]]
        return result

    def save(self, folder: str | Path, training: Mapping[str, Any] | None = None) -> NoReturn:
        """Raise UserError, since the model has no weights."""
        self._refuse("save")

    def record(self, *patterns: str) -> NoReturn:
        """Raise UserError, since the model has no weights."""
        self._refuse("record")

    def replace(
        self, pattern: str, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Raise UserError, since the model has no weights."""
        self._refuse("replace")

    def require_lm_head(self, command: str) -> None:
        """Raise UserError, since the model has no weights."""
        self._refuse(command)

    def _refuse(self, verb: str) -> NoReturn:
        raise _missing_weights_error(verb, self.manifest.name)


class OnnxFineTunedModel(OnnxModel, FineTunedModel):
    """A :class:`FineTunedModel` without weights, which predicts with a graph."""

    def __init__(
        self,
        manifest: OnnxManifest,
        session: OnnxSession,
        task_model: TaskModel,
        tokenizer: Tokenizer,
        task_metadata: TaskMetadata,
        is_int8: bool,
    ) -> None:
        FineTunedModel.__init__(
            self,
            task_model,
            tokenizer,
            task_metadata.task,
            task_metadata.max_length,
            "float32",
            task_metadata.temperature,
        )
        self.conformal = task_metadata.conformal
        self.manifest, self.session = manifest, session
        self._is_int8 = is_int8

    @property
    def is_int8(self) -> bool:
        """Return whether the graph is the one in int8."""
        return self._is_int8

    @property
    def main_output(self) -> str:
        """Name of the output of the task head."""
        return LOGITS if LOGITS in self.manifest.output_names else SENTENCE_EMBEDDING

    def batch_outputs(
        self, batch: TextBatch, positions: Tensor | None, output_lengths: Sequence[int]
    ) -> Tensor:
        """Return outputs (B, K) float32, or (M, K) at flat ``positions`` (M,)."""
        outputs = self.run(self.main_output, batch)
        if self.main_output == LOGITS:
            outputs = outputs * self.temperature  # which the graph divides logits by
        return outputs if positions is None else outputs.flatten(0, 1).index_select(0, positions)


def load_onnx(
    folder: Path, precision: InferencePrecision | None = None, threads: int | None = None
) -> OnnxModel:
    """Open an ONNX folder; the int8 graph is the default if it exists.

    ``threads`` per operator defaults to the number of cores. Raises UserError for a damaged folder
    and an unavailable precision, and MissingExtra without onnxruntime.
    """
    if precision == "bf16":
        raise UserError(f"{folder} runs in float32 or int8 only: leave the precision out")
    manifest = OnnxManifest.read(folder)
    if precision == "int8" and INT8_GRAPH_FILE not in manifest.file_sha256:
        raise UserError(f"{folder} has no int8 graph: write one with export --to onnx --int8")
    if precision == "float32" and GRAPH_FILE not in manifest.file_sha256:
        raise UserError(f"{folder} has an int8 graph only: leave the precision out")
    name = (
        INT8_GRAPH_FILE
        if INT8_GRAPH_FILE in manifest.file_sha256 and precision != "float32"
        else GRAPH_FILE
    )
    session = OnnxSession(manifest.verify_graph(folder, name), threads)
    tokenizer, recipe = Tokenizer.load(folder), load_recipe(folder)
    _check_session(session, manifest, tokenizer.vocab_size, folder / name)
    metadata = read_task_metadata(folder) if is_fine_tuned(folder) else None
    with torch.device("meta"):
        if metadata is not None:
            task_model = TaskModel(
                recipe, tokenizer.vocab_size, metadata.head_spec, metadata.adaptation
            )
            task_model = _strip_weights(task_model, manifest)
            is_int8 = name == INT8_GRAPH_FILE
            return OnnxFineTunedModel(manifest, session, task_model, tokenizer, metadata, is_int8)
        model = Model(recipe.model_copy(update=ENCODER_ONLY), tokenizer.vocab_size)
        projection, model.vector_projection = model.vector_projection, None
        model = _strip_weights(model, manifest)
    if projection is not None:
        load_tensors(projection, read_projection_weights(folder), str(folder))
        model.vector_projection = projection
    return OnnxModel(manifest, session, model, tokenizer)


def _check_session(
    session: OnnxSession, manifest: OnnxManifest, vocab_size: int, graph_file: Path
) -> None:
    """Compute each output once; raise UserError if that fails or gives NaN or infinity."""
    for output in manifest.output_names:
        try:
            values = torch.from_numpy(
                session.run(output, random_graph_inputs(manifest.input_names, vocab_size, 1, 4))
            )
        except Exception as error:  # onnxruntime's classes have no common base
            raise UserError(f"{graph_file} is damaged ({error}): export the model again") from error
        if not is_finite(values):
            raise UserError(f"{graph_file} returns NaN or infinity: export the model again")


def _strip_weights(model: AnyEncoderModel, manifest: OnnxManifest) -> AnyEncoderModel:
    """Remove all parameters and buffers, and replace the encoder by a placeholder."""
    placeholder = EncoderPlaceholder(
        manifest.name, model.encoder.max_length, len(model.encoder.blocks)
    )
    model.encoder = cast(Encoder, placeholder)
    for module in model.modules():
        for name, _ in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, None)
        for name, _ in list(module.named_buffers(recurse=False)):
            module.register_buffer(name, None)
    return model


class EncoderPlaceholder(nn.Module):
    """A placeholder for an encoder whose weights are in a graph.

    It has the maximum length and the number of blocks; other attributes raise UserError.
    """

    def __init__(self, name: str, max_length: int | None, num_blocks: int) -> None:
        super().__init__()
        self.name, self.max_length = name, max_length
        self.blocks = nn.ModuleList(nn.Identity() for _ in range(num_blocks))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):  # Python probes for these
                raise
            raise _missing_weights_error("this", self.name) from None

    def forward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise UserError, since the weights are in a graph."""
        raise _missing_weights_error("this", self.name)


def _missing_weights_error(verb: str, name: str) -> UserError:
    return UserError(
        f"{verb} needs the weights, and an ONNX folder of {name} only embeds and predicts: use "
        f"the folder that it was exported from"
    )
