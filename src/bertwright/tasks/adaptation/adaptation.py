"""The axis of adaptations: what of an encoder is trained for a task, and what is added to it."""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field

from bertwright.axes import Choice
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.encoder import Encoder, blocks_of
from bertwright.encoder.initialisation import initialise
from bertwright.encoder.roles import roles
from bertwright.errors import UserError
from bertwright.model.grids import Grid
from bertwright.optimisers.muon import Muon
from bertwright.recipes import Recipe
from bertwright.tasks.adaptation.adapters import begin_adapters, insert_adapters
from bertwright.tasks.adaptation.changes import Changes
from bertwright.tasks.adaptation.low_rank import LowRankChanges, matrices_of

USUAL_RATE, USUAL_WIDTH = 5e-5, 768
"""The learning rate of the encoder for which one was published (Devlin et al. 2019)."""

AFTER_MUON = 10 / 3
"""How many times that rate suits an encoder that Muon has trained. Measured of modern-mini after
minutes of training (docs/results/adaptation.md, ``rates``); how much of it is Muon's and how much
the short training's was not told apart."""

ANY_VOCABULARY = 64
"""Pieces of an encoder of which only the blocks are wanted."""


class Adaptation(Choice):
    """The axis."""

    @property
    def faster(self) -> float:
        """How many times the rate of training everything is usual."""
        return 1.0

    @property
    def decay_by_level(self) -> float:
        """What the rate is multiplied with from level to level, down from the head."""
        return 1.0

    @property
    def keeps_states(self) -> bool:
        """Whether the encoder gives what it gave before, so that its states are computed once."""
        return False

    @property
    def adds(self) -> bool:
        """Whether the encoder itself stays as it is, and at most something is added to it."""
        return False

    @property
    def anew(self) -> bool:
        """Whether the last block begins anew, and so whatever stands behind it."""
        return False

    def usual_rate(self, recipe: Recipe) -> float:
        """The learning rate: narrow models want larger steps (Turc et al. 2019), and so do those
        that Muon has trained, where they are changed themselves."""
        moved = isinstance(recipe.optimiser, Muon) and not self.adds
        times = self.faster * (AFTER_MUON if moved else 1.0)
        return times * USUAL_RATE * USUAL_WIDTH / recipe.encoder.width

    def check(self, encoder: EncoderChoice) -> str | None:
        """What speaks against it for such an encoder, in words."""
        return None

    def insert(self, encoder: Encoder) -> None:
        """Put what it adds into an encoder that was just built."""

    def changes(self, encoder: Encoder) -> Changes | None:
        """What it makes of the weights of an encoder."""
        return None

    def grids(self, encoder: Encoder) -> Mapping[str, Grid]:
        """On which grids it leaves the weights of an encoder, by name."""
        return {}

    @property
    def left(self) -> "Adaptation":
        """What is still to be known of it in a finished model."""
        return self

    def begin(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        """Draw what it adds, freeze what it leaves as it is."""
        encoder.requires_grad_(True)

    def trained_levels(self, epoch: int, epochs: int) -> int | None:
        """How many of the last levels an epoch, from 0, trains: 1 is what stands behind the blocks,
        2 the last block as well; None for all."""
        return None


class Full(Adaptation):
    """Everything is trained.

    ``layer_decay`` multiplies the rate from block to block, down from the head. The last
    ``reinitialised`` blocks begin anew, and with them the pooler or the transform (Zhang et al.
    2021).
    """

    kind: Literal["full"] = "full"
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    reinitialised: int = Field(default=0, ge=0, le=1_024)

    @property
    def decay_by_level(self) -> float:
        return self.layer_decay

    @property
    def anew(self) -> bool:
        return self.reinitialised > 0

    def check(self, encoder: EncoderChoice) -> str | None:
        blocks = len(encoder.widths) - 1
        if self.reinitialised > blocks:
            return f"adaptation.reinitialised: there are no {self.reinitialised} of {blocks} blocks"
        if self.reinitialised and encoder.depth.sharing != "none":
            return "adaptation.reinitialised: blocks share their parameters: none can begin anew"
        return _one_level(encoder) if self.layer_decay < 1 else None

    def begin(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        super().begin(encoder, recipe, seed)
        if self.reinitialised:
            reinitialise(encoder, recipe, self.reinitialised, seed)


class Gradual(Adaptation):
    """The head in the first epoch, one block more in each, everything in the last, at rates that
    fall from block to block (Howard and Ruder 2018, sections 3.2 and 3.3)."""

    kind: Literal["gradual"] = "gradual"
    layer_decay: float = Field(default=1 / 2.6, gt=0, le=1)

    @property
    def decay_by_level(self) -> float:
        return self.layer_decay

    def check(self, encoder: EncoderChoice) -> str | None:
        return _one_level(encoder)

    def trained_levels(self, epoch: int, epochs: int) -> int | None:
        return epoch + 1 if epoch + 1 < epochs else None


class Last(Adaptation):
    """The head and the last blocks; what stands before them stays as it is."""

    kind: Literal["last"] = "last"
    blocks: int = Field(default=2, ge=0, le=1_024)

    def check(self, encoder: EncoderChoice) -> str | None:
        there = len(encoder.widths) - 1
        if self.blocks > there:
            return f"adaptation.blocks: there are no {self.blocks} last of {there} blocks"
        return _one_level(encoder)

    def trained_levels(self, epoch: int, epochs: int) -> int | None:
        return self.blocks + 1


class Frozen(Adaptation):
    """The head alone, on the states of an encoder that stays as it is (Peters et al. 2018).

    ``solver`` is how it is fitted: ``lbfgs`` to convergence, which a linear head can be, or
    ``adamw`` in steps; ``auto`` takes the first for linear heads unless something is stated that
    only steps have.
    """

    kind: Literal["frozen"] = "frozen"
    solver: Literal["auto", "lbfgs", "adamw"] = "auto"

    @property
    def faster(self) -> float:
        return 20.0

    @property
    def keeps_states(self) -> bool:
        return True

    @property
    def adds(self) -> bool:
        return True

    def begin(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        encoder.requires_grad_(False)


class Adapters(Adaptation):
    """A small network behind every sublayer, and all norms (Houlsby et al. 2019, section 2.1)."""

    kind: Literal["adapters"] = "adapters"
    width: int = Field(default=16, ge=1, le=65_536)

    @property
    def faster(self) -> float:
        return 10.0

    @property
    def adds(self) -> bool:
        return True

    def insert(self, encoder: Encoder) -> None:
        insert_adapters(encoder, self.width)

    def begin(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        begin_adapters(encoder, seed)
        of = roles(encoder)
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad_(of[name].kind == "norm" or ".adapters." in name)


class LowRank(Adaptation):
    """Changes of low rank to the matrices of these sublayers, which end as plain weights (Hu et al.
    2022)."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(default=8, ge=1, le=65_536)
    alpha: float = Field(default=16.0, gt=0)
    sublayers: tuple[Literal["attention", "feed_forward"], ...] = Field(
        default=("attention",), min_length=1
    )

    @property
    def faster(self) -> float:
        return 10.0

    @property
    def adds(self) -> bool:
        return True

    @property
    def left(self) -> Adaptation:
        return Full()

    def changes(self, encoder: Encoder) -> Changes:
        if not matrices_of(encoder, self.sublayers):
            raise UserError(
                f"adaptation.sublayers: {' and '.join(self.sublayers)} of this encoder has no "
                f"matrices: choose another, or adapters"
            )
        changes = LowRankChanges(encoder, self.rank, self.alpha, self.sublayers)
        if self.rank > changes.whole_rank:
            raise UserError(
                f"adaptation.rank: {self.rank} is more than the {changes.whole_rank} of the "
                f"matrices of this encoder: choose less"
            )
        return changes

    def begin(self, encoder: Encoder, recipe: Recipe, seed: int) -> None:
        encoder.requires_grad_(False)


def _one_level(encoder: EncoderChoice) -> str | None:
    if encoder.depth.sharing == "none":
        return None
    return (
        "blocks that share their parameters are one level: choose another adaptation than one by "
        "levels"
    )


@torch.no_grad()
def reinitialise(encoder: Encoder, recipe: Recipe, blocks: int, seed: int) -> None:
    """Draw the last blocks as they are drawn before pre-training."""
    drawn = Encoder(recipe.encoder, ANY_VOCABULARY)
    initialise(drawn, recipe.encoder.initialisation, seed)
    for new, old in zip(blocks_of(drawn)[-blocks:], blocks_of(encoder)[-blocks:], strict=True):
        old.load_state_dict(new.state_dict())
