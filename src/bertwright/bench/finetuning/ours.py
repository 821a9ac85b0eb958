"""Our side: the settings that are those of the peer."""

from bertwright.bench.finetuning.plan import Compared, Plan
from bertwright.tasks.finetuning_settings import FineTuning


def finetuning_of(plan: Plan, compared: Compared, seeds: int) -> FineTuning:
    """The settings of a task; the head is that of the stock class."""
    places = compared.task in ("upos", "ner", "iob2", "xpos", "feats", "squad1", "squad2")
    return FineTuning.of(
        {
            "epochs": compared.epochs,
            "rate": compared.rate,
            "batch": compared.batch,
            "length": compared.length,
            "dropout": plan.dropout,
            "decay": plan.decay,
            "warmup": plan.warmup,
            "head": {"kind": "plain", "read": "places"} if places else "pooler",
            "seeds": seeds,
        }
    )
