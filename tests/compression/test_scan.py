"""Every place is rounded alone, and the model is afterwards as it was before."""

import pytest
import torch

from bertwright.compression.quantisation import Quantised
from bertwright.compression.quantisation.losses import asked, sums_and_counts
from bertwright.compression.quantisation.rounding import Rounding
from bertwright.compression.quantisation.scan import EVERYTHING, rounded_afterwards, scan
from bertwright.errors import UserError
from bertwright.tasks.catalogue import tagging_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from small_tasks import tagged

QUICK = {"rate": 3e-3, "dropout": 0.0, "compile": False, "batch": 8, "epochs": 2}


@pytest.fixture
def model(pretrained) -> FineTuned:
    given = {"train": tagged(), "dev": tagged()}
    return finetune(pretrained(), tagging_task("colours"), **given, **QUICK).model


@pytest.mark.parametrize(
    "settings",
    [
        {"activations": {}},
        {"by": "tensor", "activations": {"ranges": "token", "at": ["inputs"]}},
    ],
)
def test_fewer_bits_cost_more_and_places_are_all_there(model: FineTuned, settings) -> None:
    before = {name: t.clone() for name, t in model.net.state_dict().items()}
    some = tagged()[:8]
    fine, coarse = (
        {cost.place: cost for cost in scan(model, how, some, some)}
        for how in (
            Quantised.of({"kind": "quantised", "bits": bits, "outside": bits, **settings})
            for bits in (8, 2)
        )
    )
    assert all(torch.equal(t, before[name]) for name, t in model.net.state_dict().items())
    assert list(fine) == list(coarse)
    at = settings["activations"].get("at", ["inputs", "outputs"])
    linears, tables = 2 * 4, 3
    assert len(fine) == 1 + 2 + tables + linears * (1 + len(at))
    assert fine[EVERYTHING].rise.value < coarse[EVERYTHING].rise.value
    weights = [name for name in fine if name.endswith("weight")]
    assert sum(abs(fine[n].rise.value) for n in weights) < sum(
        abs(coarse[n].rise.value) for n in weights
    )
    base = {round(cost.loss - cost.rise.value, 6) for cost in fine.values()}
    assert len(base) == 1
    told = fine[EVERYTHING].as_dict()
    assert told["low"] <= told["rise"] <= told["high"]
    assert "low" not in next(iter(scan(model, Quantised(), some, some[:1]))).as_dict()


@pytest.mark.parametrize("ranges", ["static", "token"])
def test_what_is_rounded_afterwards_stands_on_its_grids_and_rounds_between(
    model: FineTuned, ranges: str
) -> None:
    settings = {"bits": 3, "outside": 3, "activations": {"bits": 3, "ranges": ranges}}
    how, some = Quantised.of({"kind": "quantised", **settings}), tagged()[:8]
    before = {name: t.clone() for name, t in model.net.state_dict().items()}
    small = rounded_afterwards(model, how, some)
    (whole,) = (cost for cost in scan(model, how, some, some) if cost.place == EVERYTHING)
    sums, counts = sums_and_counts(asked(small, some, 16))
    assert float(sums.sum() / counts.sum()) == pytest.approx(whole.loss)
    known, grids = dict(small.net.encoder.named_parameters()), how.grids(model.net.encoder)
    assert all(grid.standing(known[name]) is not None for name, grid in grids.items())
    roundings = [m for m in small.net.encoder.modules() if isinstance(m, Rounding)]
    assert len(roundings) == 2 * 2 * 4
    assert all(bool(rounding.on) for rounding in roundings)
    assert all(torch.equal(t, before[name]) for name, t in model.net.state_dict().items())


def test_what_does_not_fit_is_said(model: FineTuned) -> None:
    with pytest.raises(UserError, match="1 numbers for 2 blocks"):
        next(scan(model, Quantised(bits=(8,)), tagged(), tagged()))
