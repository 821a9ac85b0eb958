"""The axis of adaptations: which parameters of an encoder are trained, and which are added."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field

from bertwright.core.config import Config
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder, get_blocks
from bertwright.models.quantized_weights import QuantizationGrid
from bertwright.modules.initialisation import initialise
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.muon import MuonFamilyConfig
from bertwright.recipes import Recipe
from bertwright.tasks.adapters.bottleneck import init_adapters, insert_adapters
from bertwright.tasks.adapters.lora import LoraParametrisation, matrix_names
from bertwright.tasks.adapters.parametrisation import WeightParametrisation

DEFAULT_LEARNING_RATE, REFERENCE_WIDTH = 5e-5, 768
"""Learning rate for an encoder of the reference width (Devlin et al. 2019)."""

MUON_LEARNING_RATE_FACTOR = 10 / 3
"""Factor on the default learning rate of encoders pretrained with Muon.

Measured on modern-mini after minutes of training (docs/results/adaptation.md, ``rates``), which
does not separate the effect of Muon from the effect of short training."""

PLACEHOLDER_VOCAB_SIZE = 64
"""Vocabulary size of an encoder whose embeddings are not used."""


class AdaptationConfig(Config):
    """The axis: how an encoder is adapted to a task."""

    learning_rate_factor: ClassVar[float] = 1.0
    """Factor on the default learning rate of full fine-tuning."""
    has_frozen_encoder: ClassVar[bool] = False
    """Whether hidden states stay the same during training, so they are computed once."""
    is_parameter_efficient: ClassVar[bool] = False
    """Whether the encoder's own weights are frozen; modules may be added to it."""
    adds_features: ClassVar[bool] = False
    """Whether heads read added features beside the layers of the encoder."""

    @property
    def layerwise_decay(self) -> float:
        """Factor on the learning rate from each level to the next lower one, from the head down."""
        return 1.0

    @property
    def has_reinitialised_blocks(self) -> bool:
        """True if the last block is reinitialised, and with it everything above it."""
        return False

    def default_learning_rate(self, recipe: Recipe) -> float:
        """Return the default learning rate.

        Narrow models need larger learning rates (Turc et al. 2019), and so do models pretrained
        with Muon if their own weights are trained.
        """
        is_muon = isinstance(recipe.optimiser, MuonFamilyConfig) and not self.is_parameter_efficient
        factor = self.learning_rate_factor * (MUON_LEARNING_RATE_FACTOR if is_muon else 1.0)
        return factor * DEFAULT_LEARNING_RATE * REFERENCE_WIDTH / recipe.encoder.width

    def check(self, encoder: EncoderConfig) -> str | None:
        """Return why the adaptation does not fit an encoder; None if it does."""
        return None

    def insert_modules(self, encoder: Encoder, config: EncoderConfig) -> None:
        """Add the modules of the adaptation to a newly built encoder."""

    def build_parametrisation(self, encoder: Encoder) -> WeightParametrisation | None:
        """Return the reparametrisation of the encoder's weights; None if there is none."""
        return None

    def grids(self, encoder: Encoder) -> Mapping[str, QuantizationGrid]:
        """Return the quantization grids of the final weights, by name."""
        return {}

    def stored_with(self, encoder: EncoderConfig) -> "AdaptationConfig":
        """Return the adaptation to store with a finished model of this encoder."""
        return self

    def init_parameters(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        """Initialise the added parameters and freeze those that are not trained."""
        encoder.requires_grad_(True)

    def num_trainable_levels(self, epoch: int, num_epochs: int, first_level: int = 1) -> int | None:
        """Return how many levels, counted from the top, are trained in an epoch; None for all.

        Epochs count from 0. Level 1 is everything above the blocks, level 2 adds the last block.
        ``first_level`` is the first that has parameters: 2 if the head has none.
        """
        return None


class FullFineTuningConfig(AdaptationConfig):
    """Full fine-tuning: all parameters are trained.

    ``layer_decay`` multiplies the learning rate from block to block, starting at the head. The last
    ``reinitialised_blocks`` blocks are initialised again, together with the pooler or the transform
    (Zhang et al. 2021).
    """

    kind: Literal["full"] = "full"
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    reinitialised_blocks: int = Field(default=0, ge=0, le=1_024)

    @property
    def layerwise_decay(self) -> float:
        return self.layer_decay

    @property
    def has_reinitialised_blocks(self) -> bool:
        return self.reinitialised_blocks > 0

    def check(self, encoder: EncoderConfig) -> str | None:
        blocks = len(encoder.hidden_widths) - 1
        if self.reinitialised_blocks > blocks:
            return (
                f"adaptation.reinitialised_blocks: {self.reinitialised_blocks} is more than the "
                f"{blocks} blocks of the encoder"
            )
        if self.reinitialised_blocks and encoder.depth.sharing != "none":
            return (
                "adaptation.reinitialised_blocks: blocks that share parameters cannot be "
                "reinitialised"
            )
        return _check_unshared(encoder) if self.layer_decay < 1 else None

    def init_parameters(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        super().init_parameters(encoder, recipe, seed)
        if self.reinitialised_blocks:
            reinitialise_blocks(encoder, recipe, self.reinitialised_blocks, seed)


class GradualFineTuningConfig(AdaptationConfig):
    """Gradual unfreezing: the head first, then one more block per epoch, all in the last epoch.

    If the head has no parameters, the last block is first. The learning rate falls from block to
    block (Howard and Ruder 2018, sections 3.2 and 3.3).
    """

    kind: Literal["gradual"] = "gradual"
    layer_decay: float = Field(default=1 / 2.6, gt=0, le=1)

    @property
    def layerwise_decay(self) -> float:
        return self.layer_decay

    def check(self, encoder: EncoderConfig) -> str | None:
        return _check_unshared(encoder)

    def num_trainable_levels(self, epoch: int, num_epochs: int, first_level: int = 1) -> int | None:
        return epoch + first_level if epoch + 1 < num_epochs else None


class LastLayersConfig(AdaptationConfig):
    """Fine-tuning of the head and the last blocks; the layers before them are frozen."""

    kind: Literal["last"] = "last"
    blocks: int = Field(default=2, ge=0, le=1_024)

    def check(self, encoder: EncoderConfig) -> str | None:
        num_blocks = len(encoder.hidden_widths) - 1
        if self.blocks > num_blocks:
            return (
                f"adaptation.blocks: {self.blocks} is more than the "
                f"{count_noun(num_blocks, 'block')} of the encoder"
            )
        return _check_unshared(encoder)

    def num_trainable_levels(self, epoch: int, num_epochs: int, first_level: int = 1) -> int | None:
        return self.blocks + 1


class FrozenEncoderConfig(AdaptationConfig):
    """Training of only the head, on hidden states of a frozen encoder (Peters et al. 2018).

    ``solver`` fits the head: ``lbfgs`` fits a linear head to convergence, ``adamw`` trains any head
    in steps. ``auto`` uses ``lbfgs`` for linear heads unless a setting that only applies to steps
    is given.
    """

    kind: Literal["frozen"] = "frozen"
    solver: Literal["auto", "lbfgs", "adamw"] = "auto"

    learning_rate_factor: ClassVar[float] = 20.0
    has_frozen_encoder: ClassVar[bool] = True
    is_parameter_efficient: ClassVar[bool] = True

    def init_parameters(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        encoder.requires_grad_(False)


class AdaptersConfig(AdaptationConfig):
    """Bottleneck adapters and trainable norms (Houlsby et al. 2019, section 2.1)."""

    kind: Literal["adapters"] = "adapters"
    width: int = Field(default=16, ge=1, le=65_536)

    learning_rate_factor: ClassVar[float] = 10.0
    is_parameter_efficient: ClassVar[bool] = True

    def check(self, encoder: EncoderConfig) -> str | None:
        return _check_blocks(encoder)

    def insert_modules(self, encoder: Encoder, config: EncoderConfig) -> None:
        insert_adapters(encoder, self.width)

    def init_parameters(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        init_adapters(encoder, seed)
        roles = get_parameter_roles(encoder)
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad_(roles[name].kind == "norm" or ".adapters." in name)


class LoraConfig(AdaptationConfig):
    """Low-rank updates of the matrices in ``sublayers`` (Hu et al. 2022).

    The updates are merged into the weights of the finished model.
    """

    kind: Literal["lora"] = "lora"
    rank: int = Field(default=8, ge=1, le=65_536)
    alpha: float = Field(default=16.0, gt=0)
    sublayers: tuple[Literal["attention", "feed_forward"], ...] = Field(
        default=("attention",), min_length=1
    )

    learning_rate_factor: ClassVar[float] = 10.0
    is_parameter_efficient: ClassVar[bool] = True

    def check(self, encoder: EncoderConfig) -> str | None:
        return _check_blocks(encoder)

    def stored_with(self, encoder: EncoderConfig) -> AdaptationConfig:
        return FullFineTuningConfig()

    def build_parametrisation(self, encoder: Encoder) -> WeightParametrisation:
        if not matrix_names(encoder, self.sublayers):
            raise UserError(
                f"adaptation.sublayers: {' and '.join(self.sublayers)} of this encoder has no "
                f"matrices: choose another sublayer, or adapters"
            )
        parametrisation = LoraParametrisation(encoder, self.rank, self.alpha, self.sublayers)
        if self.rank > parametrisation.max_rank:
            raise UserError(
                f"adaptation.rank: {self.rank} is more than {parametrisation.max_rank}, the "
                f"highest rank of a matrix of this encoder: choose a smaller rank"
            )
        return parametrisation

    def init_parameters(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        encoder.requires_grad_(False)


def _check_blocks(encoder: EncoderConfig) -> str | None:
    if len(encoder.hidden_widths) > 1:
        return None
    return "adaptation.kind: this encoder has no blocks to adapt: choose full or frozen"


def _check_unshared(encoder: EncoderConfig) -> str | None:
    if encoder.depth.sharing == "none":
        return None
    return (
        "blocks that share parameters form one level: choose an adaptation that does not train "
        "level by level"
    )


@torch.no_grad()
def reinitialise_blocks(encoder: Encoder, recipe: Recipe, num_blocks: int, seed: int) -> None:
    """Initialise the last blocks as at the start of pretraining."""
    fresh = Encoder(recipe.encoder, PLACEHOLDER_VOCAB_SIZE)
    initialise(fresh, recipe.encoder.initialisation, seed)
    for new, old in zip(
        get_blocks(fresh)[-num_blocks:], get_blocks(encoder)[-num_blocks:], strict=True
    ):
        old.load_state_dict(new.state_dict())
