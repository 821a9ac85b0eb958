"""Every family of stock classes that is read and written."""

from bertwright.errors import UserError
from bertwright.interop.huggingface.bert import Bert
from bertwright.interop.huggingface.family import Family, reasons_of_objectives
from bertwright.interop.huggingface.modernbert import ModernBert
from bertwright.interop.huggingface.purposes import Net
from bertwright.interop.huggingface.roberta import Roberta
from bertwright.tasks.task_model import TaskModel
from bertwright.text.tokenizers import Specials

# RoBERTa before BERT, which computes all that RoBERTa does and more.
FAMILIES: dict[str, Family] = {f.model_type: f for f in (Roberta(), Bert(), ModernBert())}


def family_of(net: Net, specials: Specials) -> Family:
    """The first family whose stock classes compute a model.

    Errors: UserError that names the axes which no family has, by the family that comes nearest.
    """
    wrong = [] if isinstance(net, TaskModel) else list(reasons_of_objectives(net.recipe))
    found = {family: wrong + family.reasons(net, specials) for family in FAMILIES.values()}
    nearest = min(found, key=lambda family: len(found[family]))
    if found[nearest]:
        reasons = "; ".join(found[nearest])
        raise UserError(f"no stock class computes the recipe {net.recipe.name}: {reasons}")
    return nearest
