"""Weight pruning: the exact density, in the saved model, of the right weights."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.pruning import MovementPruning, PruningGates, WeightPruning
from bertwright.compression.pruning.weight_pruning_methods import (
    GATE_DISTRIBUTION,
    MIN_DENSITY,
    threshold_mask,
    top_mask,
)
from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.modules.hard_concrete import HardConcrete
from bertwright.tasks.adapters.lora import matrix_names
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning import run as task_training
from bertwright.tasks.finetuning.batching import batches as task_batches
from bertwright.tasks.finetuning.batching.encoded_task import TaskSchedule, batch_samplers
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.finetuning.task_losses import PENALTY
from bertwright.tasks.formats.tables import Columns
from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.checkpoints import Checkpoint, CheckpointManager, open_checkpoint
from bertwright.training.clock import Progress, TrainingClock, every_n_steps
from small_tasks import classes

CLASSES = table_task("colours", Columns())
QUICK = {"learning_rate": 3e-3, "dropout": 0.0, "compile": False, "batch_size": 8, "epochs": 3}
PARTS = ("attention", "feed_forward")
CUBIC = {
    "kind": "parts",
    "parts": [
        {"fraction": 2, "value": {"kind": "cubic", "from": 1.0, "to": 0.2}},
        {"fraction": 1, "value": 0.2},
    ],
}


RISING = {
    "kind": "parts",
    "parts": [
        {"fraction": 2, "value": {"kind": "cubic", "from": 0.0, "to": 0.1}},
        {"fraction": 1, "value": 0.1},
    ],
}
KINDS = {
    "magnitude": {"kind": "magnitude", "density": CUBIC},
    "movement": {"kind": "movement", "density": CUBIC},
    "movement-soft": {
        "kind": "movement-soft",
        "threshold": RISING,
        "score_learning_rate_scale": 400.0,
    },
    "l0": {"kind": "l0", "penalty": 20.0, "score_learning_rate_scale": 400.0},
}
TRAINED_SCORES = [kind for kind in KINDS if kind != "magnitude"]


def pruned(pretrained, **settings) -> FineTuningResult:
    data = {"train": classes(), "dev": classes()}
    return finetune(pretrained(), CLASSES, **data, **QUICK | settings)


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    st.floats(0, 1),
)
def test_the_top_mask_keeps_the_highest_values(values: list[int], density: float) -> None:
    scores = torch.tensor(values, dtype=torch.float32)
    mask = top_mask(scores, density)
    assert int(mask.sum()) == int(density * len(values) + 1e-6)
    # Of equal values, the first ones are kept.
    order = sorted(range(len(values)), key=lambda n: (-values[n], n))
    assert set(mask.nonzero().flatten().tolist()) == set(order[: int(mask.sum())])


@pytest.mark.parametrize("kind", ["magnitude", "movement"])
@given(st.floats(0.001, 1), st.floats(0, 1))
def test_the_final_density_is_exact_and_never_exceeded(
    kind: str, last: float, fraction: float
) -> None:
    falling = {"kind": "linear", "from": 1.0, "to": last}
    pruning = WeightPruning.parse({"kind": kind, "density": falling})
    constant = WeightPruning.parse({"kind": kind, "density": last})
    scores = {"w": torch.arange(1000.0)}
    for config, config_fraction in ((pruning, 1.0), (constant, fraction)):
        gates = config.gates(scores, config.level(config_fraction), None)["w"]
        assert int((gates.detach() != 0).sum()) == int(last * 1000 + 1e-6)
    assert pruning.level(fraction) >= pruning.level(1.0)


def test_densities_before_the_last_are_steps() -> None:
    pruning = WeightPruning.parse(
        {"kind": "magnitude", "density": {"kind": "linear", "from": 1, "to": 0.8}}
    )
    levels = {pruning.level(n / 10_000) for n in range(10_001)}
    assert sorted(levels) == pytest.approx([0.8 + n / 200 for n in range(41)])


def test_a_density_outside_of_its_range_keeps_everything_or_nothing() -> None:
    falling = {"kind": "linear", "from": 1.4, "to": -0.4}
    pruning = WeightPruning.parse({"kind": "magnitude", "density": falling})
    assert [pruning.level(fraction) for fraction in (0.0, 0.1, 0.9, 1.0)] == [1, 1, 0, 0]
    scores = {"w": torch.arange(8.0)}
    for fraction, num_kept in ((0.0, 8), (0.5, 4), (1.0, 0)):
        (mask,) = pruning.gates(scores, pruning.level(fraction), None).values()
        assert int((mask != 0).sum()) == num_kept


def test_the_final_density_must_leave_some_of_a_matrix() -> None:
    """A steep line would leave nothing later, when nobody trains any more."""
    shapes = {"w": torch.Size((10, 10))}
    for last, is_enough in ((0.01, True), (0.009, False)):
        falling = {"kind": "linear", "from": 1.0, "to": last}
        pruning = WeightPruning.parse({"kind": "magnitude", "density": falling})
        with nullcontext() if is_enough else pytest.raises(UserError, match="leaves none of the"):
            pruning.require_nonempty(shapes)


@given(st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=400), st.floats(0, 1))
def test_no_threshold_prunes_a_whole_matrix(values: list[float], threshold: float) -> None:
    scores = torch.tensor(values)
    mask = threshold_mask(scores, threshold)
    above = torch.sigmoid(scores) > threshold
    assert int(mask.sum()) == max(int(above.sum()), int(MIN_DENSITY * len(values)), 1)
    assert (mask >= above).all()


def test_the_constants_are_the_published_ones() -> None:
    """Sanh et al. 2020, released code; Louizos et al. 2018, section 4."""
    assert threshold_mask(torch.arange(1000.0), 1.0).nonzero().flatten().tolist() == [
        *range(995, 1000)
    ]
    assert HardConcrete(temperature=2 / 3, low=-0.1, high=1.1) == GATE_DISTRIBUTION


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        (KINDS["magnitude"], [(0.2, 1.0, True), (0.205, 1.0, False), (0.2, 0.1, True)]),
        (KINDS["movement"], [(0.2, 1.0, True), (0.205, 1.0, False)]),
        (KINDS["movement-soft"], [(0.1, 1.0, True), (0.0996, 0.9, True), (0.0994, 0.9, False)]),
        (KINDS["l0"], [(20.0, 1.0, True), (20.0, 1 - 1e-12, True), (20.0, 0.999, False)]),
    ],
    ids=KINDS,
)
def test_a_pruning_is_done_at_its_last_level(settings, values) -> None:
    pruning = WeightPruning.parse(settings)
    for level, fraction, is_done in values:
        assert pruning.is_done(level, fraction) == is_done
    assert pruning.is_done(pruning.level(1.0), 1.0)


def test_a_constant_threshold_of_0_has_the_whole_penalty() -> None:
    pruning = WeightPruning.parse({"kind": "movement-soft", "threshold": 0.0, "penalty": 6.0})
    scores = [torch.zeros(2, 3), torch.full((5, 7), 100.0)]
    assert float(pruning.compute_penalty(scores, 0.0)) == pytest.approx(6 * (0.5 + 1) / 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_pruned_weights_are_zero_in_the_saved_model(
    pretrained, tmp_path: Path, kind: str, precision: str
) -> None:
    result = pruned(pretrained, adaptation=KINDS[kind], output=tmp_path / "p", precision=precision)
    small = load(tmp_path / "p")
    assert isinstance(small, FineTunedModel)
    weights = dict(small.task_model.encoder.named_parameters())
    for name in matrix_names(small.task_model.encoder, PARTS):
        num_kept, size = int((weights[name] != 0).sum()), weights[name].numel()
        if "density" in KINDS[kind]:
            assert num_kept == int(0.2 * size + 1e-6), name
        else:
            assert MIN_DENSITY * size - 1 < num_kept < size, name
    assert small.task_model.adaptation.model_dump() == {
        "kind": "full",
        "layer_decay": 1.0,
        "reinitialised_blocks": 0,
    }
    # Early epochs are pruned less and never the best, whatever their score.
    assert result.best.report.epoch > 1


@pytest.mark.parametrize(
    "adaptation",
    [
        {"kind": "magnitude", "density": 1.0},
        {"kind": "movement", "density": 1.0},
        {"kind": "movement-soft", "threshold": 0.0, "penalty": 0.0},
    ],
)
def test_keeping_everything_is_plain_training_bit_for_bit(pretrained, adaptation) -> None:
    plain = pruned(pretrained, max_grad_norm=None).model.task_model.state_dict()
    kept = pruned(pretrained, max_grad_norm=None, adaptation=adaptation).model.task_model
    for name, tensor in kept.state_dict().items():
        assert torch.equal(tensor, plain[name]), name


def partly_pruned(kind: str, shape: tuple[int, ...] = (6, 5)) -> PruningGates:
    """Return gates in the middle of a training, with scores of all sizes."""
    pruning = PruningGates(WeightPruning.parse(KINDS[kind]), {"w": torch.Size(shape)})
    pruning.init_parameters(0, {"w": torch.zeros(shape)})
    pruning.schedule.before_step(Progress(7, 0.6, midpoint=0.65))
    assert pruning.schedule.fraction == pytest.approx(0.7)  # at the end of the step
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for scores in pruning.learned_scores:
            scores.copy_(3 * torch.randn(shape, generator=generator) / pruning.config.score_scale)
    return pruning


def test_movement_starts_from_magnitudes_and_then_counts() -> None:
    """A short run must not prune by scores that are still all equal, or noise around zero."""
    weight = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    gates = {
        kind: PruningGates(WeightPruning.parse({"kind": kind, "density": 0.3}), {"w": weight.shape})
        for kind in ("magnitude", "movement")
    }
    for pruning in gates.values():
        pruning.init_parameters(0, {"w": weight})
    by_magnitude, by_movement = (pruning({"w": weight})["w"] for pruning in gates.values())
    assert torch.equal(by_movement, by_magnitude)
    (scores,) = gates["movement"].learned_scores
    smallest_kept = weight.abs()[by_magnitude != 0].min()
    pruned = (by_magnitude == 0).nonzero()[0].tolist()
    with torch.no_grad():
        scores[tuple(pruned)] += smallest_kept
    assert gates["movement"]({"w": weight})["w"][tuple(pruned)] != 0
    zero = MovementPruning(density=0.3, initial_scores="zero")
    assert not zero.init_scores(weight).any()


def test_nothing_is_pruned_before_the_first_step() -> None:
    weight = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    for kind in ("magnitude", "movement"):
        gates = PruningGates(WeightPruning.parse(KINDS[kind]), {"w": weight.shape})
        gates.init_parameters(0, {"w": weight})
        assert torch.equal(gates({"w": weight})["w"], weight)


@pytest.mark.parametrize("kind", TRAINED_SCORES)
def test_scores_get_the_gradient_of_the_gates(kind: str) -> None:
    pruning = partly_pruned(kind)
    weight, target = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    weight.requires_grad_()
    product = pruning({"w": weight})["w"]
    gates = product.detach() / weight.detach()
    ((product - target) ** 2).sum().backward()
    gradient = 2 * (product - target).detach()
    torch.testing.assert_close(weight.grad, gradient * gates)
    slope = torch.ones(6, 5)
    if kind == "l0":
        is_inside = (gates > 0) & (gates < 1)
        assert 0 < is_inside.sum() < is_inside.numel()
        width = GATE_DISTRIBUTION.high - GATE_DISTRIBUTION.low
        smooth = (gates - GATE_DISTRIBUTION.low) / width
        slope = is_inside * smooth * (1 - smooth) * width / GATE_DISTRIBUTION.temperature
    (scores,) = pruning.learned_scores
    torch.testing.assert_close(scores.grad, gradient * weight.detach() * slope)


@pytest.mark.parametrize("kind", ["movement-soft", "l0"])
def test_the_penalty_is_the_mean_probability_of_open_gates(kind: str) -> None:
    pruning = partly_pruned(kind)
    (scores,) = pruning._scores().values()
    scores = scores.detach()
    if kind == "l0":
        noise, level = torch.rand(20_000, 6, 5, generator=torch.Generator().manual_seed(3)), 20.0
        probabilities = (GATE_DISTRIBUTION.gates(scores, noise) > 0).float().mean(0)
    else:
        level = 400.0 * pruning.schedule.level / 0.1
        probabilities = torch.sigmoid(scores)
    penalty = pruning.penalty()
    assert penalty.item() == pytest.approx(level * probabilities.mean().item(), rel=1e-2)
    penalty.backward()
    (parameter,) = pruning.learned_scores
    assert (parameter.grad > 0).all()


def test_random_gates_follow_from_the_step() -> None:
    pruning, again = partly_pruned("l0"), partly_pruned("l0")
    weights = {"w": torch.ones(6, 5)}
    assert torch.equal(pruning(weights)["w"], again(weights)["w"])
    again.schedule.before_step(Progress(8, 0.6, midpoint=0.65))
    assert not torch.equal(pruning(weights)["w"], again(weights)["w"])
    assert torch.equal(pruning.eval()(weights)["w"], again.eval()(weights)["w"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.processor
def test_the_finished_model_equals_the_masked_one_bit_for_bit(pretrained, kind: str) -> None:
    config = FineTuningConfig.from_settings(
        QUICK | {"adaptation": KINDS[kind], "precision": "float32"}
    )
    source = pretrained()
    data = [(CLASSES.with_labels_from(classes()), classes(), classes())]
    run = build_run(source, data, config)
    samplers = batch_samplers(run.encoded_tasks, config.batch_size, 0)
    run.run_seed(0)
    net, used_vocabulary = run.model, run.used_vocabulary
    assert used_vocabulary is not None
    weights = used_vocabulary.expand(dict(net.named_parameters()), "encoder.")
    finished = net.build_task_model(0, weights).eval()
    net.eval()
    schedule = TaskSchedule.from_samplers(samplers, 1.0, 0)
    step = task_batches.TaskBatchSource(
        source, run.encoded_tasks, samplers, schedule, used_vocabulary
    ).at(Progress(0, 0.0))
    (batch,) = step.micro_batches
    document_ids = batch.token_info.document_ids
    positions = net.head_of(0).output_positions(batch.token_ids, document_ids, batch.positions)
    states = net.hidden_states(0, batch.token_ids, batch.token_info, positions)
    masked = net.head_outputs(0, states, document_ids, batch.output_lengths)
    token_ids = used_vocabulary.used_token_ids[batch.token_ids]
    assert torch.equal(masked, finished(token_ids, batch.token_info))


@pytest.mark.parametrize("kind", ["movement-soft", "l0"])
def test_the_penalty_is_added_once_in_a_step(
    pretrained, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    by_size: dict[int, list[StepReport]] = {}
    for positions in (8192, 32):
        monkeypatch.setattr(task_batches, "MICRO_BATCH_POSITIONS", positions)
        reports = by_size.setdefault(positions, [])

        class Recorder(Callback):
            def report_step(self, report: StepReport, into: list[StepReport] = reports) -> None:
                into.append(report)

        def make_reporter(
            seed: int, clock: TrainingClock, reporter: type[Callback] = Recorder
        ) -> list[Callback]:
            return [reporter()]

        finetune(
            pretrained(),
            CLASSES,
            adaptation=KINDS[kind],
            train=classes(),
            dev=classes(),
            precision="float32",
            make_reporter=make_reporter,
            **QUICK | {"epochs": 1},
        )
    for whole, parts in zip(*by_size.values(), strict=True):
        for name in (task_batches.TASK_LOSS, PENALTY):
            assert whole.losses[name] == pytest.approx(parts.losses[name], rel=1e-3), name
        assert whole.gradient_norm == pytest.approx(parts.gradient_norm, rel=1e-2)
    first = by_size[32][0].losses[PENALTY]
    open_probability = GATE_DISTRIBUTION.open_probability(torch.tensor(2.197)).item()
    assert first == pytest.approx(20 * open_probability if kind == "l0" else 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_resumes_bit_for_bit(
    pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    checkpoints, train = CheckpointManager(tmp_path, num_kept=9), task_training.train

    def final_weights(start: Checkpoint | None) -> dict[str, torch.Tensor]:
        def with_checkpoints(job):
            job.checkpoints, job.checkpoint_trigger = checkpoints, every_n_steps(5)
            return train(job, start)

        monkeypatch.setattr(task_training, "train", with_checkpoints)
        result = pruned(pretrained, adaptation=KINDS[kind], dropout=0.1, calibrate=False)
        return {n: t.clone() for n, t in result.run.model.named_parameters()}

    whole = final_weights(None)
    fifth, last = (open_checkpoint(tmp_path / f"step-{step:08d}") for step in (5, 12))
    assert last is not None
    resumed = final_weights(fifth)
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name


def test_the_smallest_weights_of_all_matrices_are_pruned(pretrained) -> None:
    encoder = pretrained().model.encoder
    names = matrix_names(encoder, PARTS)
    weights = {n: p.detach() * (1 + k) for k, (n, p) in enumerate(encoder.named_parameters())}
    for scope in ("matrix", "all"):
        settings = {"kind": "magnitude", "density": 0.3, "scope": scope}
        gates = WeightPruning.parse(settings).build_parametrisation(encoder)
        masked = gates(weights)
        mask = torch.cat([(masked[n] != 0).flatten() for n in names])
        assert mask.double().mean().item() == pytest.approx(0.3, abs=1e-2)
        smallest_kept = torch.cat([masked[n][masked[n] != 0].abs() for n in names]).min()
        largest_pruned = torch.cat([weights[n][masked[n] == 0].abs() for n in names]).max()
        assert (smallest_kept >= largest_pruned) == (scope == "all")


def test_encoders_without_matrices_are_refused(pretrained) -> None:
    with pytest.raises(UserError, match="has no matrices: choose another"):
        finetune(
            pretrained("elmo"),
            CLASSES,
            train=classes(),
            dev=classes(),
            adaptation={"kind": "movement", "density": 0.5, "sublayers": ["feed_forward"]},
            **QUICK,
        )
    assert MovementPruning(density=0.5).default_learning_rate(pretrained().model.recipe) > 0


@pytest.mark.parametrize("kind", ["magnitude", "movement"])
@pytest.mark.parametrize("density", [0.0, 1e-4, {"kind": "linear", "from": 1.0, "to": -0.5}])
def test_a_density_that_leaves_nothing_is_refused_before_training(
    pretrained, monkeypatch: pytest.MonkeyPatch, kind: str, density
) -> None:
    monkeypatch.setattr(task_training, "train", None)
    message = r"adaptation\.density: .* leaves none of the \d+ weights"
    with pytest.raises(UserError, match=message):
        pruned(pretrained, adaptation={"kind": kind, "density": density})
