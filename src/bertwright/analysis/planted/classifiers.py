"""Fine-tuned models whose answers are known: each piece says by itself how much it speaks for a
class."""

from collections.abc import Mapping, Sequence

import torch

from bertwright.analysis.planted.models import SPECIALS, WORDS, small_subject
from bertwright.analysis.subject import Subject
from bertwright.tasks.answers import ClassAnswer
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.heads import Plain
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadPlan, TaskModel


def bag_of_pieces(
    weights: Mapping[str, float],
    words: Sequence[str] = WORDS,
    labels: tuple[str, str] = ("no", "yes"),
    bias: float = 0.0,
) -> Subject:
    """A model that knows each word as one piece, whose blocks write nothing, and whose output for
    the second class is the mean weight of the pieces of a row, special ones included, and ``bias``;
    that of the first is 0. In float32, as all fine-tuned models."""
    width = 8 * ((len(words) + len(SPECIALS)) // 8 + 1)
    small = small_subject("modern", "encoder.norm.kind=none", f"encoder.width={width}", words=words)
    task = Task("planted", ClassAnswer(), labels=labels)
    plan = HeadPlan(Plain(read="mean"), len(labels))
    net = TaskModel(small.text_model.model.recipe, small.tokenizer.size, plan)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.encoder.embeddings.table.copy_(torch.eye(small.tokenizer.size, width))
        out = net.head.out
        assert isinstance(out, torch.nn.Linear)
        for word, weight in weights.items():
            piece = small.tokenizer.id(word)
            assert piece is not None, f"{word} is none of the words"
            out.weight[1, piece] = weight
        out.bias[1] = bias
    return Subject("planted", FineTuned(net, small.tokenizer, task, precision="float32"))
