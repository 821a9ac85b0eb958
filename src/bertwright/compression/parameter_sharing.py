"""Share the parameters of a trained model's blocks, and factorise its embeddings.

ALBERT, Lan et al. (2020).
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.compression.vocabulary.narrower_embeddings import factorise_embeddings
from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.models.model import Model
from bertwright.models.saving import model_from_tensors
from bertwright.models.text_model import TextModel

SharedInit = Literal["mean"] | Annotated[int, Field(ge=1)]


class ParameterSharing(Settings):
    """Parameter sharing between blocks.

    Attributes:
        modules: which modules are shared, together with their norms.
        init: the initial value: the mean over the blocks, or the block of this number, counted from
            1.
        embedding_reduction: factor by which the embedding width shrinks; a projection restores the
            encoder's width. None keeps the width.
    """

    modules: Literal["all", "attention", "feed-forward"] = "all"
    init: SharedInit = "mean"
    embedding_reduction: int | None = Field(default=None, ge=2, le=65_536)

    def apply(self, model: TextModel) -> TextModel:
        """Return a model with shared blocks; it has no heads if its embeddings are factorised.

        Raises UserError for an encoder whose blocks differ in shape, or whose embeddings cannot be
        factorised.
        """
        small = self.share_blocks(model.model)
        if self.embedding_reduction is not None:
            small = factorise_embeddings(
                small, max(small.recipe.encoder.width // self.embedding_reduction, 2)
            )
        return TextModel(small, model.tokenizer, model.precision)

    def share_blocks(self, model: Model) -> Model:
        """Return a model whose blocks share parameters."""
        recipe, depth = model.recipe, model.recipe.encoder.depth
        try:
            shared_depth = depth.copy_with("depth", sharing=self.modules)
            encoder = recipe.encoder.copy_with("encoder", depth=shared_depth)
            recipe = recipe.model_copy(update={"encoder": encoder})
        except ValueError as error:
            raise UserError(str(error)) from error
        with torch.device("meta"):
            shared = Model(recipe, model.vocab_size)
        names_by_parameter: dict[int, list[str]] = {}
        for name, parameter in shared.named_parameters(remove_duplicate=False):
            names_by_parameter.setdefault(id(parameter), []).append(name)
        kept_buffers = dict(shared.named_buffers())
        tensors = dict(model.named_parameters(remove_duplicate=False))
        tensors |= {name: b for name, b in model.named_buffers() if name in kept_buffers}
        weights = {
            names[0]: self._initial_value([tensors.pop(name) for name in names])
            for names in names_by_parameter.values()
        }
        # model_from_tensors raises for tensors that are left over.
        weights |= tensors
        return model_from_tensors(recipe, model.vocab_size, weights, recipe.name)

    def _initial_value(self, tensors: list[Tensor]) -> Tensor:
        """Return the initial value of a shared tensor, given the tensors of the blocks."""
        if len(tensors) == 1 or self.init == "mean":
            return torch.stack([tensor.detach() for tensor in tensors]).mean(0)
        if self.init > len(tensors):
            raise UserError(
                f"sharing.init: there is no block {self.init}: the model has {len(tensors)}"
            )
        return tensors[self.init - 1].detach()
