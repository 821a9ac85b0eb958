"""Fine-tuned models with known predictions: each token has a weight for a class."""

from collections.abc import Mapping, Sequence

import torch

from bertwright.analysis.core.model import AnalysedModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.heads.kinds import LinearHeadConfig
from bertwright.tasks.outputs import ClassificationOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadSpec, TaskModel
from experiments.analyses.models import SPECIALS, WORDS, small_model


def bag_of_tokens_model(
    weights: Mapping[str, float],
    words: Sequence[str] = WORDS,
    labels: tuple[str, str] = ("no", "yes"),
    bias: float = 0.0,
) -> AnalysedModel:
    """Build a classifier whose logit for the second class is the mean token weight plus ``bias``.

    Every word is one token, the blocks output zeros, special tokens count, and the logit of the
    first class is 0. In float32, as all fine-tuned models.
    """
    width = 8 * ((len(words) + len(SPECIALS)) // 8 + 1)
    small = small_model("modern", "encoder.norm.kind=none", f"encoder.width={width}", words=words)
    task = Task("planted", ClassificationOutput(), labels=labels)
    head = HeadSpec(LinearHeadConfig(pooling="mean"), len(labels))
    model = TaskModel(small.text_model.model.recipe, small.tokenizer.vocab_size, head)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.encoder.embeddings.table.copy_(torch.eye(small.tokenizer.vocab_size, width))
        classifier = model.head.classifier
        assert isinstance(classifier, torch.nn.Linear)
        for word, weight in weights.items():
            token = small.tokenizer.token_to_id(word)
            assert token is not None, f"{word} is not in the vocabulary"
            classifier.weight[1, token] = weight
        classifier.bias[1] = bias
    text_model = FineTunedModel(model, small.tokenizer, task, precision="float32")
    return AnalysedModel("planted", text_model)
