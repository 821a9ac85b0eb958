"""Blocks of a trained model that become one, and a table in two factors: ALBERT made of another
(Lan et al. 2020)."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.axes import Settings
from bertwright.compression.factorised_table import factorised
from bertwright.errors import UserError
from bertwright.model.folder import filled
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel

Begins = Literal["mean"] | Annotated[int, Field(ge=1)]


class Sharing(Settings):
    """What blocks have in common from then on.

    Attributes:
        what: all of it, their attention or their feed-forward, with its norm.
        begins: as the mean of what they had, or as it is in the block of this number, from 1.
        narrower: how many times narrower the tables are, which are led up by a matrix; None for
            as they are.
    """

    what: Literal["all", "attention", "feed-forward"] = "all"
    begins: Begins = "mean"
    narrower: int | None = Field(default=None, ge=2, le=65_536)

    def of(self, model: TextModel) -> TextModel:
        """An encoder that begins as another, without its heads where its tables are narrower.

        Errors: UserError for an encoder whose blocks are not alike, or whose tables cannot be
        narrower.
        """
        small = self.shared(model.model)
        if self.narrower is not None:
            small = factorised(small, max(small.recipe.encoder.width // self.narrower, 2))
        return TextModel(small, model.tokenizer, model.precision)

    def shared(self, model: Model) -> Model:
        """A model in which what stands in many blocks is one."""
        recipe, depth = model.recipe, model.recipe.encoder.depth
        try:
            one = depth.changed("depth", sharing=self.what)
            left = recipe.model_copy(
                update={"encoder": recipe.encoder.changed("encoder", depth=one)}
            )
        except ValueError as error:
            raise UserError(str(error)) from error
        with torch.device("meta"):
            small = Model(left, model.vocabulary_size)
        places: dict[int, list[str]] = {}
        for name, parameter in small.named_parameters(remove_duplicate=False):
            places.setdefault(id(parameter), []).append(name)
        known = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
        weights = {
            names[0]: self._begun([known.pop(name) for name in names]) for names in places.values()
        }
        # What is left has no place: whoever fills the model says so.
        weights |= known
        return filled(left, model.vocabulary_size, weights, recipe.name)

    def _begun(self, places: list[Tensor]) -> Tensor:
        """What begins in the place of these, which are one from then on."""
        if len(places) == 1 or self.begins == "mean":
            return torch.stack([place.detach() for place in places]).mean(0)
        if self.begins > len(places):
            raise UserError(f"there is no block {self.begins} to begin as: there are {len(places)}")
        return places[self.begins - 1].detach()
