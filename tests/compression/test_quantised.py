"""A task is learned through rounding: what is kept is what was trained, and it can be stopped."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertwright.compression.quantisation import Quantised, unrounded
from bertwright.compression.quantisation.rounding import RoundedLinear, Rounding, WithinRange
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError
from bertwright.interop.huggingface import export_folder
from bertwright.interop.loading import load
from bertwright.model.folder import WEIGHTS
from bertwright.model.packing import num_bytes
from bertwright.tasks import task_training
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.training.checkpoints import Checkpoints
from bertwright.training.clock import every
from small_tasks import classes, tagged

CLASSES, TAGS = table_task("colours", Columns()), tagging_task("colours")
QUICK = {"rate": 3e-3, "dropout": 0.0, "compile": False, "batch": 8, "epochs": 1}
EIGHT = {"kind": "quantised", "activations": {}}
FEW = {
    "kind": "quantised",
    "bits": [3, 2],
    "by": {"kind": "group", "size": 5},
    "scheme": "asymmetric",
    "activations": {"ranges": "token", "scheme": "asymmetric", "at": ["inputs"]},
}
PLAIN = {"kind": "quantised", "bits": 4, "by": "tensor", "clipped": False}


def learned(model, adaptation, task=CLASSES, examples=None, **settings) -> FineTuneResult:
    examples = examples or classes()
    given = {"train": examples, "dev": examples, "adaptation": adaptation}
    return finetune(model, task, **given, **QUICK | settings)


def same(first, second) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(tensor, second[name]) for name, tensor in first.items()
    )


@pytest.mark.parametrize(
    ("system", "adaptation"),
    [
        ("bert", EIGHT),
        ("bert", FEW),
        ("bert", PLAIN),
        ("albert", EIGHT),
        ("elmo", FEW),
        ("reformer", EIGHT),
        ("transformer-xl", FEW),
        ("longformer", PLAIN),
    ],
)
def test_what_is_kept_stands_on_grids_and_in_few_bytes(
    pretrained, tmp_path: Path, system: str, adaptation
) -> None:
    result = learned(pretrained(system), adaptation, out=tmp_path / "small")
    small = load(tmp_path / "small")
    assert isinstance(small, FineTuned)
    assert same(small.net.state_dict(), result.model.net.state_dict())
    assert small.predict(classes()) == result.model.predict(classes())
    known, grids = dict(small.net.named_parameters()), small.net.grids
    assert len(grids) > 4
    for name, grid in grids.items():
        assert grid.standing(known[name]) is not None, name
    file = tmp_path / "small" / WEIGHTS
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    assert file.stat().st_size - header == num_bytes(small.net, grids)
    matrices = sum(known[name].numel() for name in grids)
    others = sum(p.numel() for p in known.values()) - matrices
    scales = sum(-(-known[n].shape[0] // g.rows) * -(-known[n].shape[1] // g.columns)
                 for n, g in grids.items())  # fmt: skip
    zeros = scales if adaptation is FEW else 0
    packed = sum(-(-known[name].numel() * grid.bits // 8) for name, grid in grids.items())
    ranges = sum(buffer.nbytes for buffer in small.net.buffers())
    assert num_bytes(small.net, grids) == packed + 4 * scales + zeros + 4 * others + ranges


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_finished_model_rounds_what_it_rounded_in_training(
    pretrained, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    model = learned(pretrained(), EIGHT, precision=precision).model
    rows = model.answering.rows(model.maker, classes())
    written: list[torch.Tensor] = []
    forward = RoundedLinear.forward

    def seen(self: RoundedLinear, x: torch.Tensor) -> torch.Tensor:
        written.append(forward(self, x))
        return written[-1]

    monkeypatch.setattr(RoundedLinear, "forward", seen)
    fast = FineTuned(model.net, model.tokenizer, model.task, precision=precision)
    fast.outputs(rows)
    assert len(written) >= 8
    # Queries, keys and values have a range each.
    assert max(len(values.unique()) for values in written) <= 3 * 255
    written.clear()
    plain = unrounded(fast)
    plain.outputs(rows)
    assert not written
    assert not any(isinstance(m, Rounding) for m in plain.net.modules())
    assert same(dict(plain.net.named_parameters()), dict(model.net.named_parameters()))


@pytest.mark.processor
def test_ranges_know_nothing_of_padding(pretrained) -> None:
    net = learned(pretrained(), EIGHT).training.net
    pieces = torch.tensor([[2, 7, 8, 9, 3], [2, 10, 3, 0, 0]])
    document = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, -1, -1]])

    def ranges(number: int, length: int) -> dict[str, torch.Tensor]:
        net.changes.begin(0)
        given = replace(
            Coordinates.plain(pieces[number:, :length]), document=document[number:, :length]
        )
        net.states(0, pieces[number:, :length], given)
        return {n: b.clone() for n, b in net.encoder.named_buffers() if n.endswith("high")}

    short, padded = ranges(1, 3), ranges(1, 5)
    assert short.keys() == padded.keys()
    for name, value in short.items():
        torch.testing.assert_close(padded[name], value)
    assert any(not torch.allclose(value, short[n]) for n, value in ranges(0, 5).items())


@pytest.mark.processor
def test_layers_that_are_shared_have_one_range_of_all_their_uses(pretrained) -> None:
    net = learned(pretrained("albert"), EIGHT).training.net
    roundings = [m for m in net.encoder.modules() if isinstance(m, WithinRange)]
    assert len(roundings) == 2 * (4 + 1)
    pieces = torch.tensor([[2, 7, 8, 3]])
    given = replace(Coordinates.plain(pieces), document=torch.zeros_like(pieces))
    net.changes.begin(0)
    net.states(0, pieces, given)
    counts = sorted(int(each.count) for each in net.changes.observed)
    assert counts == [1, 1, *[2] * 8]


def test_before_it_starts_it_is_plain_training_bit_for_bit(pretrained) -> None:
    plain = learned(pretrained(), {"kind": "full"}, clip=None).model
    late = learned(pretrained(), EIGHT | {"start": 1.0}, clip=None).best
    assert not late.done
    assert same(dict(late.models[0].net.named_parameters()), dict(plain.net.named_parameters()))
    assert not any(bool(m.on) for m in late.models[0].net.modules() if isinstance(m, Rounding))


def test_what_is_not_finished_is_not_the_best(pretrained) -> None:
    best = learned(pretrained(), EIGHT | {"start": 0.5}, epochs=3).best
    assert best.done
    assert best.report.epoch > 1


def test_ranges_settle(pretrained) -> None:
    result = learned(pretrained(), EIGHT | {"activations": {"settled": 0.5}}, epochs=2)
    counts = {int(each.count) for each in result.training.net.changes.observed}
    assert counts == {4}


@pytest.mark.parametrize("adaptation", [EIGHT, EIGHT | {"start": 0.4}, FEW])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(
    pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adaptation
) -> None:
    whole = learned(pretrained(), adaptation, epochs=2).model.net.state_dict()
    checkpoints, begun = Checkpoints(tmp_path / "c"), task_training.train

    def kept(job):
        job = replace(job, checkpoints=checkpoints, checkpoint_when=every(3))
        return begun(job, checkpoints.newest()[0])

    def stop(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(task_training, "train", kept)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Checkpoints, "_prune", stop)
        learned(pretrained(), adaptation, epochs=2)
    assert checkpoints.newest()[0].step == 3
    again = learned(pretrained(), adaptation, epochs=2, patience=None).model.net.state_dict()
    assert same(again, whole)


class Stopped(Exception):
    """Behind the first checkpoint."""


def test_words_are_tagged_in_few_bits(pretrained, tmp_path: Path) -> None:
    result = learned(pretrained(), EIGHT, TAGS, tagged(), epochs=6, out=tmp_path / "t")
    assert result.best.score > 0.9
    found = load(tmp_path / "t")
    assert isinstance(found, FineTuned)
    assert found.predict(tagged()) == result.model.predict(tagged())


def test_what_is_exported_are_weights_on_their_grids(pretrained, tmp_path: Path) -> None:
    small = learned(pretrained(), EIGHT).model
    export_folder(small, small.tokenizer, tmp_path / "o", verify=True)
    said = load(tmp_path / "o", "float32").embed(["a red bird"])
    plain = unrounded(FineTuned(small.net, small.tokenizer, small.task, precision="float32"))
    torch.testing.assert_close(
        torch.from_numpy(said), torch.from_numpy(plain.embed(["a red bird"])), rtol=0, atol=1e-4
    )


def test_what_cannot_be_is_said(pretrained) -> None:
    for adaptation, said in [
        (EIGHT | {"bits": [8, 4, 2]}, "3 numbers for 2 blocks"),
        (EIGHT | {"bits": 1}, "must be 2 or more"),
        (EIGHT | {"by": "column"}, "has no kind 'column'"),
        (EIGHT | {"activations": {"observer": "seen"}}, "has no kind 'seen'"),
    ]:
        with pytest.raises(UserError, match=said):
            learned(pretrained(), adaptation)
    with nullcontext(Quantised(bits=2)) as plain:
        assert plain.check(pretrained().model.recipe.encoder) is None
