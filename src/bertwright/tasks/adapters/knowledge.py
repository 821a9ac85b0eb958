"""K-Adapter (Wang et al. 2021): knowledge adapters, trained alone and read together.

A knowledge adapter is trained beside a frozen encoder, and stored in the folder of its fine-tuned
model. Another task may read several of them beside the same encoder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from bertwright.core.config import to_user_error
from bertwright.core.errors import UserError
from bertwright.core.files import parse_json, read_text
from bertwright.core.rng import parameter_stream, stream_key
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.knowledge_adapter import (
    KnowledgeAdapter,
    KnowledgeAdapterShape,
    why_not_adaptable,
)
from bertwright.models.saving import TASK_FILE, WEIGHTS_FILE, read_tensors
from bertwright.modules.initialisation import (
    PublishedInitialisationConfig,
    fill_normal,
    initialise,
)
from bertwright.recipes import Recipe
from bertwright.tasks.adapters.adaptation import AdaptationConfig

PROJECTION_STD = 2e-4
"""Standard deviation of the projections, so that an adapter starts near the sum of its layers (the
published program)."""

ADAPTERS_PREFIX = "knowledge_adapters."
"""Prefix of the parameters of all knowledge adapters in an encoder."""


class KnowledgeAdaptersConfig(AdaptationConfig):
    """A new knowledge adapter beside a frozen encoder (Wang et al. 2021, section 3.1).

    The head reads the adapter's output beside the layers of the encoder. ``layers`` are the layers
    that the adapter reads, by default the outputs of the first, the middle and the last block;
    ``depth`` is the number of transformer layers for each of them, and ``width`` their width, by
    default the encoder's.
    """

    kind: Literal["knowledge-adapters"] = "knowledge-adapters"
    layers: tuple[int, ...] | None = Field(default=None, min_length=1)
    depth: int = Field(default=2, ge=1, le=1_024)
    width: int | None = Field(default=None, ge=1, le=65_536)

    is_parameter_efficient: ClassVar[bool] = True
    adds_features: ClassVar[bool] = True

    def check(self, encoder: EncoderConfig) -> str | None:
        if problem := why_not_adaptable(encoder):
            return problem
        depth = len(encoder.hidden_widths) - 1
        if beyond := [layer for layer in self.layers or () if not 0 <= layer <= depth]:
            return (
                f"adaptation.layers: no layer {beyond[0]}: the encoder has 0 (the embeddings) to "
                f"{depth}"
            )
        return None

    def shape(self, encoder: EncoderConfig) -> KnowledgeAdapterShape:
        """Return the shape of the adapter beside an encoder."""
        depth = len(encoder.hidden_widths) - 1
        layers = self.layers or tuple(sorted({1, max(depth // 2, 1), depth}))
        return KnowledgeAdapterShape(
            layers=layers, depth=self.depth, width=self.width or encoder.width
        )

    def insert_modules(self, encoder: Encoder, config: EncoderConfig) -> None:
        encoder.knowledge_adapters.append(KnowledgeAdapter(self.shape(config), config))

    def init_parameters(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        encoder.requires_grad_(False)
        encoder.knowledge_adapters.requires_grad_(True)
        initialise(encoder.knowledge_adapters, PublishedInitialisationConfig(), seed)
        with torch.no_grad():
            for name, parameter in encoder.knowledge_adapters.named_parameters():
                if name.endswith(("down.weight", "up.weight")):
                    key = stream_key(seed, "knowledge-adapters", parameter_stream(name))
                    fill_normal(parameter, PROJECTION_STD, None, key)


class KnowledgeFusionConfig(AdaptationConfig):
    """Trained knowledge adapters beside an encoder that is fine-tuned (section 3.1).

    ``adapters`` are the folders of models trained with ``knowledge-adapters``. Heads read the
    outputs of all of them beside the layers of the encoder. The adapters are not trained further.
    """

    kind: Literal["knowledge-fusion"] = "knowledge-fusion"
    adapters: tuple[str | KnowledgeAdapterShape, ...] = Field(min_length=1)

    adds_features: ClassVar[bool] = True

    @property
    def folders(self) -> list[Path]:
        """The folders of the adapters; empty in a finished model, which holds them itself."""
        return [Path(adapter) for adapter in self.adapters if isinstance(adapter, str)]

    def check(self, encoder: EncoderConfig) -> str | None:
        if len(self.folders) < len(self.adapters):
            return "adaptation.adapters: name the folders of models with knowledge adapters"
        return why_not_adaptable(encoder)

    def shapes(self, encoder: EncoderConfig) -> list[KnowledgeAdapterShape]:
        """Return the shape of every adapter."""
        return [
            shape
            for adapter in self.adapters
            for shape in (
                _stored_shapes(Path(adapter), encoder) if isinstance(adapter, str) else [adapter]
            )
        ]

    def stored_with(self, encoder: EncoderConfig) -> AdaptationConfig:
        return self.model_copy(update={"adapters": tuple(self.shapes(encoder))})

    def insert_modules(self, encoder: Encoder, config: EncoderConfig) -> None:
        encoder.knowledge_adapters.extend(
            KnowledgeAdapter(shape, config) for shape in self.shapes(config)
        )

    def init_parameters(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        encoder.requires_grad_(True)
        encoder.knowledge_adapters.requires_grad_(False)
        state = [
            tensors
            for folder in self.folders
            for tensors in _stored_adapters(folder, encoder, recipe.encoder)
        ]
        for adapter, tensors in zip(encoder.knowledge_adapters, state, strict=True):
            adapter.load_state_dict(tensors)


def _stored_shapes(folder: Path, encoder: EncoderConfig) -> Sequence[KnowledgeAdapterShape]:
    """Return the shapes of the knowledge adapters in the folder of a fine-tuned model.

    Errors: UserError for another folder.
    """
    file = folder / TASK_FILE
    if not file.is_file():
        raise UserError(
            f"adaptation.adapters: {folder} is not a fine-tuned model: name folders that finetune "
            f"wrote"
        )
    content: Any = parse_json(read_text(file), str(file), "copy it again")
    try:
        adaptation = AdaptationConfig.parse(content["adaptation"])
    except ValidationError as error:
        raise to_user_error(error, str(file)) from error
    match adaptation:
        case KnowledgeAdaptersConfig():
            return [adaptation.shape(encoder)]
        case KnowledgeFusionConfig():
            return adaptation.shapes(encoder)
        case _:
            raise UserError(
                f"adaptation.adapters: {folder} has no knowledge adapters: train it with "
                f"adaptation=knowledge-adapters"
            )


def _stored_adapters(
    folder: Path, encoder: Encoder, config: EncoderConfig
) -> list[dict[str, Tensor]]:
    """Return the tensors of the knowledge adapters in a folder, by name, one mapping for each.

    Errors: UserError if they were trained beside another encoder.
    """
    tensors = {
        name.removeprefix("encoder."): tensor
        for name, tensor in read_tensors(folder / WEIGHTS_FILE).items()
        if name.startswith("encoder.")
    }
    # Sublayers that blocks share are stored once.
    for name, weight in encoder.blocks.named_parameters(prefix="blocks"):
        stored = tensors.get(name)
        if stored is None or not torch.equal(stored, weight.detach().to("cpu", stored.dtype)):
            raise UserError(
                f"adaptation.adapters: {folder} was trained beside another encoder ({name} "
                f"differs): fine-tune the encoder that its adapter reads"
            )
    adapters: list[dict[str, Tensor]] = []
    for index in range(len(_stored_shapes(folder, config))):
        prefix = f"{ADAPTERS_PREFIX}{index}."
        adapters.append(
            {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        )
    return adapters
