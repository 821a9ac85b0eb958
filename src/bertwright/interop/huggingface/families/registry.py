"""All supported families of stock classes."""

from importlib import import_module
from typing import Any, cast

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.registry import Registry
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.encoder.added_parameters import added_parameters
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import EncoderModel

# The first of several equivalent families is preferred: RoBERTa before BERT, ELECTRA after it.
_CLASSES = {
    "roberta": "roberta.Roberta",
    "xlm-roberta": "roberta.XlmRoberta",
    "bert": "bert.Bert",
    "modernbert": "modernbert.ModernBert",
    "albert": "albert.Albert",
    "electra": "electra.Electra",
    "gpt2": "gpt.Gpt2",
    "openai-gpt": "gpt.Gpt",
    "distilbert": "distilbert.DistilBert",
    "xlnet": "xlnet.XlNet",
    "mobilebert": "mobilebert.MobileBert",
    "xlm": "xlm.Xlm",
    "longformer": "longformer.Longformer",
    "big_bird": "bigbird.BigBird",
    "t5": "t5.T5",
    "bart": "bart.Bart",
}
"""Module name and class name by ``model_type``."""


class _FamilyRegistry(Registry[ModelFamily]):
    """Families by ``model_type``; those of this package are imported on first use."""

    def __getitem__(self, model_type: str) -> ModelFamily:
        family = super().__getitem__(model_type)
        if isinstance(family, str):
            module, name = family.split(".")
            family = self[model_type] = getattr(import_module(f"{__package__}.{module}"), name)()
        return family

    def get(self, model_type: str, default: Any = None) -> Any:
        # Not dict.get, which would not import the families of the package.
        return self[model_type] if model_type in self else default  # noqa: SIM401


FAMILIES = _FamilyRegistry(cast(Any, _CLASSES))


def add_family(family: ModelFamily) -> ModelFamily:
    """Register a family under its ``model_type``, also from a plugin.

    Errors: UserError if another family has the same ``model_type``.
    """
    if FAMILIES.get(family.model_type, family) != family:
        raise UserError(f"a family of model_type {family.model_type!r} exists already")
    FAMILIES.register(family.model_type, family)
    return family


def find_family(
    model: EncoderModel, special_tokens: SpecialTokens, model_type: str | None = None
) -> ModelFamily:
    """Return the family that computes a model and drops the fewest heads.

    If there are several, the family that the model was imported from is preferred. ``model_type``
    restricts the search to one family. Raises UserError naming the axes that the closest family
    does not support, and for an encoder with adapters.
    """
    if added := added_parameters(model.encoder, model.recipe.encoder, model.vocab_size):
        raise UserError(
            f"no stock class has adapters, and this model has encoder.{added[0]}: export it to "
            f"onnx, or fine-tune with adaptation=lora or full"
        )
    if model_type is not None and FAMILIES.find(model_type) is None:
        raise UserError(f"unknown family {model_type!r}{did_you_mean(model_type, FAMILIES)}")
    candidates = [
        FAMILIES[name].variant_of_model(model)
        for name in ([model_type] if model_type else FAMILIES)
    ]
    mismatches = {family: family.mismatches(model, special_tokens) for family in candidates}
    origin = model.recipe.family
    nearest = min(
        mismatches,
        key=lambda f: (len(mismatches[f]), len(f.dropped_heads(model)), f.model_type != origin),
    )
    if mismatches[nearest]:
        reasons = "; ".join(mismatches[nearest])
        raise UserError(f"no stock class computes the recipe {model.recipe.name}: {reasons}")
    return nearest
