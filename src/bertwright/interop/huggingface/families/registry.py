"""All supported families of stock classes."""

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.albert import Albert
from bertwright.interop.huggingface.families.bart import Bart
from bertwright.interop.huggingface.families.bert import Bert
from bertwright.interop.huggingface.families.bigbird import BigBird
from bertwright.interop.huggingface.families.distilbert import DistilBert
from bertwright.interop.huggingface.families.electra import Electra
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.families.gpt import Gpt, Gpt2
from bertwright.interop.huggingface.families.longformer import Longformer
from bertwright.interop.huggingface.families.mobilebert import MobileBert
from bertwright.interop.huggingface.families.modernbert import ModernBert
from bertwright.interop.huggingface.families.roberta import Roberta, XlmRoberta
from bertwright.interop.huggingface.families.t5 import T5
from bertwright.interop.huggingface.families.xlm import Xlm
from bertwright.interop.huggingface.families.xlnet import XlNet
from bertwright.interop.huggingface.head_types import EncoderModel

# The first of equivalent families is preferred: RoBERTa before BERT, ELECTRA after it.
FAMILIES: dict[str, ModelFamily] = {
    family.model_type: family
    for family in (
        Roberta(),
        XlmRoberta(),
        Bert(),
        ModernBert(),
        Albert(),
        Electra(),
        Gpt2(),
        Gpt(),
        DistilBert(),
        XlNet(),
        MobileBert(),
        Xlm(),
        Longformer(),
        BigBird(),
        T5(),
        Bart(),
    )
}


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
