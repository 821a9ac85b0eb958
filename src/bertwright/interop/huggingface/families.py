"""Every family of stock classes that is read and written."""

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.interop.huggingface.albert import Albert
from bertwright.interop.huggingface.bart import Bart
from bertwright.interop.huggingface.bert import Bert
from bertwright.interop.huggingface.bigbird import BigBird
from bertwright.interop.huggingface.distilbert import DistilBert
from bertwright.interop.huggingface.electra import Electra
from bertwright.interop.huggingface.family import Family
from bertwright.interop.huggingface.gpt import Gpt, Gpt2
from bertwright.interop.huggingface.longformer import Longformer
from bertwright.interop.huggingface.mobilebert import MobileBert
from bertwright.interop.huggingface.modernbert import ModernBert
from bertwright.interop.huggingface.purposes import Net
from bertwright.interop.huggingface.roberta import Roberta, XlmRoberta
from bertwright.interop.huggingface.t5 import T5
from bertwright.interop.huggingface.xlm import Xlm
from bertwright.interop.huggingface.xlnet import XlNet
from bertwright.text.tokenizers import Specials

# Of those that compute the same, the first is chosen: RoBERTa before BERT, ELECTRA after it.
FAMILIES: dict[str, Family] = {
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


def family_of(net: Net, specials: Specials, wanted: str | None = None) -> Family:
    """The family whose stock classes compute a model and leave the fewest of its heads behind; of
    several, the one that it was imported from.

    ``wanted`` is the model_type of the only one that will do. Errors: UserError that names the axes
    which no family has, by the family that comes nearest.
    """
    if wanted is not None and wanted not in FAMILIES:
        raise UserError(f"there is no family {wanted!r}{did_you_mean(wanted, FAMILIES)}")
    candidates = FAMILIES.values() if wanted is None else [FAMILIES[wanted]]
    found = {family: family.reasons(net, specials) for family in candidates}
    origin = net.recipe.family
    nearest = min(
        found, key=lambda f: (len(found[f]), len(f.left_behind(net)), f.model_type != origin)
    )
    if found[nearest]:
        reasons = "; ".join(found[nearest])
        raise UserError(f"no stock class computes the recipe {net.recipe.name}: {reasons}")
    return nearest
