"""Removing activation quantization from a fine-tuned model, for exports and further compression."""

from typing import TypeVar, cast

from bertwright.models.saving import build_empty, load_tensors
from bertwright.models.text_model import TextModel
from bertwright.tasks.adapters import FullFineTuningConfig
from bertwright.tasks.adapters.quantization.fake_quantize import FakeQuantize
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.task_model import TaskModel

AnyModel = TypeVar("AnyModel", bound=TextModel)


def remove_fake_quantizers(model: AnyModel) -> AnyModel:
    """Return a model with the same weights and no activation quantization.

    A model without it is returned unchanged.
    """
    if not any(isinstance(module, FakeQuantize) for module in model.model.encoder.modules()):
        return model
    assert isinstance(model, FineTunedModel), "only fine-tuned models quantize activations"
    net = model.task_model
    plain = build_empty(
        TaskModel, net.recipe, net.vocab_size, net.head_spec, FullFineTuningConfig()
    )
    names = {*dict(plain.named_parameters()), *dict(plain.named_buffers())}
    load_tensors(plain, {n: t for n, t in net.state_dict().items() if n in names}, net.recipe.name)
    settings = model.task, model.example_encoder.max_length, model.precision, model.temperature
    return cast(AnyModel, FineTunedModel(plain, model.tokenizer, *settings))
