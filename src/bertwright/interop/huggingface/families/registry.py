"""All supported families of stock classes."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import EncoderModel

# The first of equivalent families is preferred: RoBERTa before BERT, ELECTRA after it.
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
"""Module and class by ``model_type``."""


@cache
def _load_family(model_type: str) -> ModelFamily:
    module, name = _CLASSES[model_type].split(".")
    return getattr(import_module(f"{__package__}.{module}"), name)()


class _FamilyRegistry(Mapping[str, ModelFamily]):
    """The families by ``model_type``, imported on first use."""

    def __getitem__(self, model_type: str) -> ModelFamily:
        return _load_family(model_type)

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)

    def __contains__(self, model_type: object) -> bool:
        return model_type in _CLASSES


FAMILIES: Mapping[str, ModelFamily] = _FamilyRegistry()


def find_family(
    model: EncoderModel, special_tokens: SpecialTokens, model_type: str | None = None
) -> ModelFamily:
    """Return the family that computes a model and drops the fewest heads.

    Of several, the family it was imported from is preferred. ``model_type`` restricts the search to
    one family. Raises UserError naming the axes that the nearest family does not have.
    """
    if model_type is not None and model_type not in FAMILIES:
        raise UserError(f"unknown family {model_type!r}{did_you_mean(model_type, FAMILIES)}")
    candidates = FAMILIES.values() if model_type is None else [FAMILIES[model_type]]
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
