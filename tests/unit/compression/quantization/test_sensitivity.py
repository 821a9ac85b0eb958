"""Quantization module by module, and afterwards the model is unchanged."""

import pytest
import torch

from bertwright.compression.quantization.sensitivity import (
    EVERYTHING,
    quantization_costs,
    quantize_after_training,
)
from bertwright.compression.task_loss import example_batches, losses_and_counts
from bertwright.core.errors import UserError
from bertwright.tasks.adapters.quantization import Quantization
from bertwright.tasks.adapters.quantization.fake_quantize import FakeQuantize
from bertwright.tasks.catalogue import tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from small_tasks import tagged

QUICK = {"learning_rate": 3e-3, "dropout": 0.0, "compile": False, "batch_size": 8, "epochs": 2}


@pytest.fixture
def model(pretrained) -> FineTunedModel:
    data = {"train": tagged(), "dev": tagged()}
    return finetune(pretrained(), tagging_task("colours"), **data, **QUICK).model


@pytest.mark.parametrize(
    "settings",
    [
        {"activations": {}},
        {"granularity": "tensor", "activations": {"ranges": "token", "tensors": ["inputs"]}},
    ],
)
def test_fewer_bits_cost_more_and_all_modules_are_measured(model: FineTunedModel, settings) -> None:
    before = {name: t.clone() for name, t in model.task_model.state_dict().items()}
    examples = tagged()[:8]
    fine, coarse = (
        {cost.module: cost for cost in quantization_costs(model, config, examples, examples)}
        for config in (
            Quantization.from_settings(
                {"kind": "quantised", "bits": bits, "other_bits": bits, **settings}
            )
            for bits in (8, 2)
        )
    )
    assert all(torch.equal(t, before[name]) for name, t in model.task_model.state_dict().items())
    assert list(fine) == list(coarse)
    tensors = settings["activations"].get("tensors", ["inputs", "outputs"])
    linears, tables = 2 * 4, 3
    assert len(fine) == 1 + 2 + tables + linears * (1 + len(tensors))
    assert fine[EVERYTHING].loss_increase.value < coarse[EVERYTHING].loss_increase.value
    weights = [name for name in fine if name.endswith("weight")]
    assert sum(abs(fine[n].loss_increase.value) for n in weights) < sum(
        abs(coarse[n].loss_increase.value) for n in weights
    )
    base = {round(cost.loss - cost.loss_increase.value, 6) for cost in fine.values()}
    assert len(base) == 1
    result = fine[EVERYTHING].as_dict()
    assert result["low"] <= result["loss_increase"] <= result["high"]
    single = quantization_costs(model, Quantization(), examples, examples[:1])
    assert "low" not in next(iter(single)).as_dict()
    both = quantization_costs(model, Quantization(), examples, examples[:2])
    assert "low" in next(iter(both)).as_dict()


@pytest.mark.parametrize("ranges", ["static", "token"])
def test_post_training_quantization_is_the_measured_model(
    model: FineTunedModel, ranges: str
) -> None:
    settings = {"bits": 3, "other_bits": 3, "activations": {"bits": 3, "ranges": ranges}}
    config = Quantization.from_settings({"kind": "quantised", **settings})
    examples = tagged()[:8]
    before = {name: t.clone() for name, t in model.task_model.state_dict().items()}
    quantized = quantize_after_training(model, config, examples)
    costs = quantization_costs(model, config, examples, examples)
    (everything,) = (cost for cost in costs if cost.module == EVERYTHING)
    sums, counts = losses_and_counts(example_batches(quantized, examples, 16))
    assert float(sums.sum() / counts.sum()) == pytest.approx(everything.loss)
    weights = dict(quantized.task_model.encoder.named_parameters())
    grids = config.grids(model.task_model.encoder)
    assert all(grid.levels_if_on_grid(weights[name]) is not None for name, grid in grids.items())
    quantizers = [m for m in quantized.task_model.encoder.modules() if isinstance(m, FakeQuantize)]
    assert len(quantizers) == 2 * 2 * 4
    assert all(bool(quantizer.is_enabled) for quantizer in quantizers)
    assert all(torch.equal(t, before[name]) for name, t in model.task_model.state_dict().items())


def test_wrong_numbers_of_bits_are_refused(model: FineTunedModel) -> None:
    with pytest.raises(UserError, match="1 number for 2 blocks"):
        next(quantization_costs(model, Quantization(bits=(8,)), tagged(), tagged()))
