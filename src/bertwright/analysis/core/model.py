"""A model to analyse."""

import fnmatch
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.encoder.encoder import Encoder
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.task import task_as_dict

STANDARD_ATTENTION_TAPS = tuple(
    f".attention.{name}" for name in ("query", "key", "value", "scores", "weights")
)
"""Taps that do not include the separate projections of global tokens (Beltagy et al. 2020)."""


@dataclass(frozen=True)
class AnalysedModel:
    """A named model with float32 weights."""

    name: str
    text_model: TextModel

    @property
    def encoder(self) -> Encoder:
        """The encoder."""
        return self.text_model.model.encoder

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self.text_model.tokenizer

    @property
    def num_layers(self) -> int:
        """Number of block applications, which may share weights."""
        return self.encoder.num_running_blocks

    @property
    def num_layers_read(self) -> int:
        """Number of layers, from the first, that the predictions depend on."""
        if not isinstance(self.text_model, FineTunedModel):
            return self.num_layers
        num_blocks = self.text_model.task_model.head.layers.num_blocks(self.encoder)
        return min(num_blocks, self.num_layers)

    @cached_property
    def heads_per_layer(self) -> tuple[int, ...]:
        """Number of attention heads of each layer."""
        config = self.text_model.model.recipe.encoder
        widths = [inner for _, inner in config.block_widths]
        return tuple(
            config.mixer_at(n).head_shape(widths[n]).num_heads for n in range(self.num_layers)
        )

    @property
    def num_heads(self) -> int:
        """Largest number of heads of a layer."""
        return max(self.heads_per_layer, default=0)

    @property
    def size_description(self) -> str:
        """Number of layers and heads, in words."""
        if not self.heads_per_layer:
            return "no layers"
        fewest, most = min(self.heads_per_layer), self.num_heads
        heads = f"{most}" if fewest == most else f"{fewest} to {most}"
        return f"{self.num_layers} layers of {heads} heads"

    @cached_property
    def weights_digest(self) -> str:
        """Digest of the weights."""
        return _digest(self.text_model.model)

    @cached_property
    def model_digest(self) -> str:
        """Digest of all that results depend on: weights, heads, recipe, tokenizer and task."""
        text_model = self.text_model
        parts = [
            self.weights_digest,
            text_model.model.recipe.model_dump_json(),
            self.tokenizer.hash,
        ]
        if isinstance(text_model, FineTunedModel):
            settings = [
                text_model.example_encoder.max_length,
                text_model.temperature,
                text_model.task_model.head_config.model_dump_json(),
            ]
            task = json.dumps([task_as_dict(text_model.task), *settings])
            parts += [_digest(text_model.task_model), task]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def with_random_weights(self, seed: int = 0) -> "AnalysedModel":
        """Return the same architecture with randomly initialised weights."""
        trained, tokenizer = self.text_model.model, self.tokenizer
        recipe = trained.recipe.model_copy(update={"seed": seed})
        model = Model.build(recipe, tokenizer.vocab_size, tokenizer)
        model = model.to(trained.embedding_table.dtype)
        return AnalysedModel(f"{self.name}, untrained", TextModel(model, tokenizer, "float32"))

    def missing_taps(self, *taps: str) -> str | None:
        """Return why the model lacks these activations, or None if it has them.

        Analyses compare layers, so every layer needs the activations and the same number of heads.
        """
        by_head = [tap for tap in taps if ".attention." in tap and not tap.endswith(".output")]
        if by_head and not self.heads_per_layer:
            return "a model without blocks"
        if by_head and min(self.heads_per_layer) < self.num_heads:
            return (
                f"a model of {self.size_description}: every layer must have the same number of "
                f"heads"
            )
        if self.encoder.needs_global_tokens and any(
            tap.endswith(STANDARD_ATTENTION_TAPS) for tap in taps
        ):
            return "global tokens have separate projections"
        special = self.tokenizer.special_tokens
        token_ids = torch.tensor([[special.start, special.unknown, special.end]])
        try:
            with torch.inference_mode(), self.encoder.record(*taps) as values:
                self.encoder(token_ids.to(self.text_model.device))
        except UserError as error:
            return str(error)
        for tap in taps:
            if tap.startswith("blocks.*.") and len(fnmatch.filter(values, tap)) < self.num_layers:
                return f"some blocks have no {tap.split('.')[2].replace('_', '-')}"
        return None


def _digest(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
