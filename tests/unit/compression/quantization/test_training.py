"""Quantization-aware training: the saved model is the trained one, and runs resume."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.loading import load
from bertwright.models.quantized_weights import num_stored_bytes
from bertwright.models.saving import WEIGHTS_FILE
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.adapters.quantization import Quantization
from bertwright.tasks.adapters.quantization.fake_quantize import (
    FakeQuantize,
    FakeQuantizedLinear,
    StaticFakeQuantize,
)
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning import run as task_training
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.training.checkpoints import CheckpointManager
from bertwright.training.clock import every_n_steps
from small_tasks import classes, tagged

CLASSES, TAGS = table_task("colours", Columns()), tagging_task("colours")
QUICK = {"learning_rate": 3e-3, "dropout": 0.0, "compile": False, "batch_size": 8, "epochs": 1}
EIGHT = {"kind": "quantised", "activations": {}}
FEW = {
    "kind": "quantised",
    "bits": [3, 2],
    "granularity": {"kind": "group", "size": 5},
    "scheme": "asymmetric",
    "activations": {"ranges": "token", "scheme": "asymmetric", "tensors": ["inputs"]},
}
PLAIN = {"kind": "quantised", "bits": 4, "granularity": "tensor", "clip_gradients": False}


def trained(model, adaptation, task=CLASSES, examples=None, **settings) -> FineTuningResult:
    examples = examples or classes()
    data = {"train": examples, "dev": examples, "adaptation": adaptation}
    return finetune(model, task, **data, **QUICK | settings)


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
def test_saved_weights_are_on_grids_and_packed(
    pretrained, tmp_path: Path, system: str, adaptation
) -> None:
    result = trained(pretrained(system), adaptation, output=tmp_path / "small")
    small = load(tmp_path / "small")
    assert isinstance(small, FineTunedModel)
    assert same(small.task_model.state_dict(), result.model.task_model.state_dict())
    assert small.predict(classes()) == result.model.predict(classes())
    weights, grids = dict(small.task_model.named_parameters()), small.task_model.grids
    assert len(grids) > 4
    for name, grid in grids.items():
        assert grid.levels_if_on_grid(weights[name]) is not None, name
    file = tmp_path / "small" / WEIGHTS_FILE
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    assert file.stat().st_size - header == num_stored_bytes(small.task_model, grids)
    matrices = sum(weights[name].numel() for name in grids)
    others = sum(p.numel() for p in weights.values()) - matrices
    scales = sum(
        -(-weights[n].shape[0] // g.rows) * -(-weights[n].shape[1] // g.columns)
        for n, g in grids.items()
    )
    zeros = scales if adaptation is FEW else 0
    packed = sum(-(-weights[name].numel() * grid.bits // 8) for name, grid in grids.items())
    ranges = sum(buffer.nbytes for buffer in small.task_model.buffers())
    assert (
        num_stored_bytes(small.task_model, grids)
        == packed + 4 * scales + zeros + 4 * others + ranges
    )


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_finished_model_quantizes_activations_as_in_training(
    pretrained, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    model = trained(pretrained(), EIGHT, precision=precision).model
    sequences = model.output_decoder.encode(model.example_encoder, classes())
    outputs: list[torch.Tensor] = []
    forward = FakeQuantizedLinear.forward

    def recording(self: FakeQuantizedLinear, x: torch.Tensor) -> torch.Tensor:
        outputs.append(forward(self, x))
        return outputs[-1]

    monkeypatch.setattr(FakeQuantizedLinear, "forward", recording)
    fast = FineTunedModel(model.task_model, model.tokenizer, model.task, precision=precision)
    fast.head_outputs(sequences)
    assert len(outputs) >= 8
    # Queries, keys and values have a range each.
    assert max(len(values.unique()) for values in outputs) <= 3 * 255
    outputs.clear()
    plain = remove_fake_quantizers(fast)
    plain.head_outputs(sequences)
    assert not outputs
    assert not any(isinstance(m, FakeQuantize) for m in plain.task_model.modules())
    assert same(
        dict(plain.task_model.named_parameters()), dict(model.task_model.named_parameters())
    )


@pytest.mark.processor
def test_padding_does_not_change_ranges(pretrained) -> None:
    net = trained(pretrained(), EIGHT).run.model
    token_ids = torch.tensor([[2, 7, 8, 9, 3], [2, 10, 3, 0, 0]])
    document_ids = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, -1, -1]])

    def ranges(first: int, length: int) -> dict[str, torch.Tensor]:
        net.parametrisation.init_parameters(0, {})
        batch = token_ids[first:, :length]
        token_info = replace(
            TokenInfo.from_token_ids(batch), document_ids=document_ids[first:, :length]
        )
        net.hidden_states(0, batch, token_info)
        return {n: b.clone() for n, b in net.encoder.named_buffers() if n.endswith("high")}


@pytest.mark.processor
def test_shared_layers_have_one_range_of_all_their_uses(pretrained) -> None:
    net = trained(pretrained("albert"), EIGHT).run.model
    quantizers = [m for m in net.encoder.modules() if isinstance(m, StaticFakeQuantize)]
    assert len(quantizers) == 2 * (4 + 1)
    token_ids = torch.tensor([[2, 7, 8, 3]])
    token_info = replace(
        TokenInfo.from_token_ids(token_ids), document_ids=torch.zeros_like(token_ids)
    )
    net.parametrisation.init_parameters(0, {})
    net.hidden_states(0, token_ids, token_info)
    counts = sorted(int(observer.count) for observer in net.parametrisation.observers)
    assert counts == [1, 1, *[2] * 8]


def test_training_before_the_start_is_plain_bit_for_bit(pretrained) -> None:
    plain = trained(pretrained(), {"kind": "full"}, max_grad_norm=None).model
    late = trained(pretrained(), EIGHT | {"start_fraction": 1.0}, max_grad_norm=None).best
    assert not late.is_final
    assert same(
        dict(late.models[0].task_model.named_parameters()),
        dict(plain.task_model.named_parameters()),
    )
    assert not any(
        bool(m.is_enabled)
        for m in late.models[0].task_model.modules()
        if isinstance(m, FakeQuantize)
    )


def test_an_unquantized_epoch_is_never_the_best(pretrained) -> None:
    best = trained(pretrained(), EIGHT | {"start_fraction": 0.5}, epochs=3).best
    assert best.is_final
    assert best.report.epoch > 1


def test_ranges_are_frozen(pretrained) -> None:
    adaptation = EIGHT | {"activations": {"freeze_fraction": 0.5}}
    result = trained(pretrained(), adaptation, epochs=2)
    counts = {int(observer.count) for observer in result.run.model.parametrisation.observers}
    assert counts == {4}


@pytest.mark.parametrize("adaptation", [EIGHT, EIGHT | {"start_fraction": 0.4}, FEW])
def test_an_interrupted_run_resumes_bit_for_bit(
    pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adaptation
) -> None:
    whole = trained(pretrained(), adaptation, epochs=2).model.task_model.state_dict()
    checkpoints, train = CheckpointManager(tmp_path / "c"), task_training.train

    def with_checkpoints(job):
        job = replace(job, checkpoints=checkpoints, checkpoint_trigger=every_n_steps(3))
        return train(job, checkpoints.load_newest()[0])

    def stop(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(task_training, "train", with_checkpoints)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(CheckpointManager, "_delete_old", stop)
        trained(pretrained(), adaptation, epochs=2)
    assert checkpoints.load_newest()[0].step == 3
    resumed = trained(pretrained(), adaptation, epochs=2, patience=None).model
    assert same(resumed.task_model.state_dict(), whole)


class Stopped(Exception):
    """Raised after the first checkpoint."""


def test_token_classification_in_few_bits(pretrained, tmp_path: Path) -> None:
    result = trained(pretrained(), EIGHT, TAGS, tagged(), epochs=6, output=tmp_path / "t")
    assert result.best.score > 0.9
    model = load(tmp_path / "t")
    assert isinstance(model, FineTunedModel)
    assert model.predict(tagged()) == result.model.predict(tagged())


def test_exported_weights_are_on_their_grids(pretrained, tmp_path: Path) -> None:
    small = trained(pretrained(), EIGHT).model
    export_huggingface(small, small.tokenizer, tmp_path / "o", verify=True)
    vectors = load(tmp_path / "o", "float32").embed(["a red bird"])
    plain = remove_fake_quantizers(
        FineTunedModel(small.task_model, small.tokenizer, small.task, precision="float32")
    )
    torch.testing.assert_close(
        torch.from_numpy(vectors), torch.from_numpy(plain.embed(["a red bird"])), rtol=0, atol=1e-4
    )


def test_invalid_settings_are_refused(pretrained) -> None:
    for adaptation, message in [
        (EIGHT | {"bits": [8, 4, 2]}, "3 numbers for 2 blocks"),
        (EIGHT | {"bits": 1}, "must be 2 or more"),
        (EIGHT | {"granularity": "column"}, "has no kind 'column'"),
        (EIGHT | {"activations": {"observer": "seen"}}, "has no kind 'seen'"),
    ]:
        with pytest.raises(UserError, match=message):
            trained(pretrained(), adaptation)
    with nullcontext(Quantization(bits=2)) as plain:
        assert plain.check(pretrained().model.recipe.encoder) is None
