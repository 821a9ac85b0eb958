"""Our side: the settings that are those of the peer."""

from bertwright.bench.finetuning.plan import Compared, Plan
from bertwright.tasks.answers import Answer
from bertwright.tasks.finetuning_settings import FineTuning


def finetuning_of(plan: Plan, compared: Compared, answer: Answer) -> FineTuning:
    """The settings of a task, for one seed; the head is that of the stock class."""
    return FineTuning.of(
        {
            "epochs": compared.epochs,
            "rate": compared.rate,
            "batch": compared.batch,
            "length": compared.length,
            "dropout": plan.dropout,
            "decay": plan.decay,
            "warmup": plan.warmup,
            "head": {"kind": "plain", "read": "places"} if answer.reads == "places" else "pooler",
        }
    )
