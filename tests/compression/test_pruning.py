"""Weights that go: exactly as many as is said, for good, and those that should."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.pruning import MovementPruning, Pruned, Pruning
from bertwright.compression.pruning.kinds import GATE
from bertwright.compression.pruning.masks import LEAST, above, highest
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.tasks import task_batches, task_training
from bertwright.tasks.adaptation.low_rank import matrices_of
from bertwright.tasks.assembling import prepare_training
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.parts import Turns, plans_of
from bertwright.tasks.task_training import PENALTY, unwatched
from bertwright.training.checkpoints import Checkpoint, Checkpoints, open_whole
from bertwright.training.clock import Clock, Place, every
from bertwright.training.reporting import Reporter, StepReport
from small_tasks import classes

CLASSES = table_task("colours", Columns())
QUICK = {"rate": 3e-3, "dropout": 0.0, "compile": False, "batch": 8, "epochs": 3}
PARTS = ("attention", "feed_forward")
CUBIC = {
    "kind": "parts",
    "parts": [
        {"share": 2, "value": {"kind": "cubic", "from": 1.0, "to": 0.2}},
        {"share": 1, "value": 0.2},
    ],
}


RISING = {
    "kind": "parts",
    "parts": [
        {"share": 2, "value": {"kind": "cubic", "from": 0.0, "to": 0.1}},
        {"share": 1, "value": 0.1},
    ],
}
EACH = {
    "magnitude": {"kind": "magnitude", "kept": CUBIC},
    "movement": {"kind": "movement", "kept": CUBIC},
    "movement-soft": {"kind": "movement-soft", "threshold": RISING, "score_pace": 400.0},
    "l0": {"kind": "l0", "penalty": 20.0, "score_pace": 400.0},
}
LEARNED = [kind for kind in EACH if kind != "magnitude"]


def pruned(pretrained, **settings) -> FineTuneResult:
    given = {"train": classes(), "dev": classes()}
    return finetune(pretrained(), CLASSES, **given, **QUICK | settings)


@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=40),
    st.floats(0, 1),
)
def test_as_many_are_kept_as_is_said_and_none_is_lower_than_one_that_goes(
    values: list[int], share: float
) -> None:
    of = torch.tensor(values, dtype=torch.float32)
    kept = highest(of, share)
    assert int(kept.sum()) == int(share * len(values) + 1e-6)
    if 0 < kept.sum() < len(values):
        assert of[kept].min() >= of[~kept].max()


@pytest.mark.parametrize("kind", ["magnitude", "movement"])
@given(st.floats(0.001, 1), st.floats(0, 1))
def test_the_share_that_was_asked_for_is_kept_in_the_end_and_no_less_before(
    kind: str, last: float, progress: float
) -> None:
    falling = {"kind": "linear", "from": 1.0, "to": last}
    pruning = Pruned.choose({"kind": kind, "kept": falling})
    scores = {"w": torch.arange(1000.0)}
    for choice, at in ((pruning, 1.0), (Pruned.choose({"kind": kind, "kept": last}), progress)):
        found = choice.gates(scores, choice.level(at), None)["w"]
        assert int((found.detach() != 0).sum()) == int(last * 1000 + 1e-6)
    assert pruning.level(progress) >= pruning.level(1.0)


def test_masks_are_drawn_in_steps_before_the_last() -> None:
    pruning = Pruned.choose({"kind": "magnitude", "kept": {"kind": "linear", "from": 1, "to": 0.8}})
    levels = {pruning.level(n / 10_000) for n in range(10_001)}
    assert sorted(levels) == pytest.approx([0.8 + n / 200 for n in range(41)])


@given(st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=400), st.floats(0, 1))
def test_no_threshold_shuts_a_whole_matrix(scores: list[float], threshold: float) -> None:
    of = torch.tensor(scores)
    kept = above(of, threshold)
    over = torch.sigmoid(of) > threshold
    assert int(kept.sum()) == max(int(over.sum()), int(LEAST * len(scores)), 1)
    assert (kept >= over).all()


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_is_pruned_is_zero_in_the_model_that_is_kept(
    pretrained, tmp_path: Path, kind: str, precision: str
) -> None:
    result = pruned(pretrained, adaptation=EACH[kind], out=tmp_path / "p", precision=precision)
    small = load(tmp_path / "p")
    assert isinstance(small, FineTuned)
    known = dict(small.net.encoder.named_parameters())
    for name in matrices_of(small.net.encoder, PARTS):
        left = int((known[name] != 0).sum())
        if "kept" in EACH[kind]:
            assert left == int(0.2 * known[name].numel() + 1e-6), name
        else:
            assert LEAST * known[name].numel() - 1 < left < known[name].numel(), name
    assert small.net.adaptation.model_dump() == {
        "kind": "full",
        "layer_decay": 1.0,
        "reinitialised": 0,
    }
    # The first epochs, which had pruned less, are not the best, whatever they score.
    assert result.best.report.epoch > 1


@pytest.mark.parametrize(
    "adaptation",
    [
        {"kind": "magnitude", "kept": 1.0},
        {"kind": "movement", "kept": 1.0},
        {"kind": "movement-soft", "threshold": 0.0, "penalty": 0.0},
    ],
)
def test_keeping_everything_is_plain_training_bit_for_bit(pretrained, adaptation) -> None:
    plain = pruned(pretrained, clip=None).model.net.state_dict()
    kept = pruned(pretrained, clip=None, adaptation=adaptation).model.net
    for name, tensor in kept.state_dict().items():
        assert torch.equal(tensor, plain[name]), name


def begun(kind: str, shape: tuple[int, ...] = (6, 5)) -> Pruning:
    """In the middle of a training, with scores of all sizes."""
    pruning = Pruning(Pruned.choose(EACH[kind]), {"w": torch.Size(shape)})
    pruning.begin(0)
    pruning.course.before_step(Place(7, 0.6, middle=0.65))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for trained in pruning.trained:
            trained.copy_(3 * torch.randn(shape, generator=generator) / pruning.choice.pace)
    return pruning


@pytest.mark.parametrize("kind", LEARNED)
def test_scores_get_the_gradient_of_the_gates(kind: str) -> None:
    pruning = begun(kind)
    weight, wanted = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    weight.requires_grad_()
    found = pruning({"w": weight})["w"]
    gates = found.detach() / weight.detach()
    ((found - wanted) ** 2).sum().backward()
    of_product = 2 * (found - wanted).detach()
    torch.testing.assert_close(weight.grad, of_product * gates)
    slope = torch.ones(6, 5)
    if kind == "l0":
        within = (gates > 0) & (gates < 1)
        assert 0 < within.sum() < within.numel()
        smooth = (gates - GATE.low) / (GATE.high - GATE.low)
        slope = within * smooth * (1 - smooth) * (GATE.high - GATE.low) / GATE.temperature
    (trained,) = pruning.trained
    torch.testing.assert_close(trained.grad, of_product * weight.detach() * slope)


@pytest.mark.parametrize("kind", ["movement-soft", "l0"])
def test_the_penalty_is_the_mean_chance_to_be_open(kind: str) -> None:
    pruning = begun(kind)
    (scores,) = pruning._scores().values()
    scores = scores.detach()
    if kind == "l0":
        noise, level = torch.rand(20_000, 6, 5, generator=torch.Generator().manual_seed(3)), 20.0
        chances = (GATE.gates(scores, noise) > 0).float().mean(0)
    else:
        level = 400.0 * pruning.course.level / 0.1
        chances = torch.sigmoid(scores)
    penalty = pruning.penalty()
    assert penalty.item() == pytest.approx(level * chances.mean().item(), rel=1e-2)
    penalty.backward()
    (trained,) = pruning.trained
    assert (trained.grad > 0).all()


def test_gates_are_drawn_anew_in_every_step_and_alike_in_the_same() -> None:
    pruning, again = begun("l0"), begun("l0")
    weights = {"w": torch.ones(6, 5)}
    assert torch.equal(pruning(weights)["w"], again(weights)["w"])
    again.course.before_step(Place(8, 0.6, middle=0.65))
    assert not torch.equal(pruning(weights)["w"], again(weights)["w"])
    assert torch.equal(pruning.eval()(weights)["w"], again.eval()(weights)["w"])


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.processor
def test_the_finished_model_answers_as_the_masked_one_bit_for_bit(pretrained, kind: str) -> None:
    chosen = FineTuning.of(QUICK | {"adaptation": EACH[kind], "precision": "float32"})
    source = pretrained()
    given = [(CLASSES.gathered(classes()), classes(), classes())]
    training = prepare_training(source, given, chosen, unwatched, None)
    plans = plans_of(training.parts, chosen.batch, 0)
    training.run(plans, Turns.of(plans, 1.0, 0), False)
    net, seen = training.net, training.seen
    assert seen is not None
    whole = seen.restored(dict(net.named_parameters()), "encoder.")
    finished = net.task_model(0, whole).eval()
    net.eval()
    batch = task_batches.Batches(source, training.parts, plans, Turns.of(plans, 1.0, 0), seen).at(
        Place(0, 0.0)
    )
    (micro,) = batch.micro_batches
    document = micro.coordinates.document
    wanted = net.head(0).places(micro.pieces, document, micro.where)
    states = net.states(0, micro.pieces, micro.coordinates, wanted)
    masked = net.answer(0, states, document, micro.sizes)
    assert torch.equal(masked, finished(seen.kept[micro.pieces], micro.coordinates))


@pytest.mark.parametrize("kind", ["movement-soft", "l0"])
def test_the_penalty_is_added_once_in_a_step(
    pretrained, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    found: dict[int, list[StepReport]] = {}
    for places in (8192, 32):
        monkeypatch.setattr(task_batches, "MICRO_BATCH_PLACES", places)
        reports = found.setdefault(places, [])

        class Noting(Reporter):
            def step(self, report: StepReport, into: list[StepReport] = reports) -> None:
                into.append(report)

        def watch(seed: int, clock: Clock, made: type[Reporter] = Noting) -> Reporter:
            return made()

        given = {"train": classes(), "dev": classes(), "precision": "float32", "watch": watch}
        finetune(pretrained(), CLASSES, adaptation=EACH[kind], **given, **QUICK | {"epochs": 1})
    for whole, parted in zip(*found.values(), strict=True):
        for name in ("answer", PENALTY):
            assert whole.losses[name] == pytest.approx(parted.losses[name], rel=1e-3), name
        assert whole.norm == pytest.approx(parted.norm, rel=1e-2)
    first = found[32][0].losses[PENALTY]
    open_chance = GATE.open_chance(torch.tensor(2.197)).item()
    assert first == pytest.approx(20 * open_chance if kind == "l0" else 0.0)


@pytest.mark.parametrize("kind", EACH)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(
    pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    checkpoints, train = Checkpoints(tmp_path, keep=9), task_training.train

    def ended(start: Checkpoint | None) -> dict[str, torch.Tensor]:
        def kept(job):
            job.checkpoints, job.checkpoint_when = checkpoints, every(5)
            return train(job, start)

        monkeypatch.setattr(task_training, "train", kept)
        result = pruned(pretrained, adaptation=EACH[kind], dropout=0.1, calibrate=False)
        return {n: t.clone() for n, t in result.training.net.named_parameters()}

    whole = ended(None)
    fifth, last = (open_whole(tmp_path / f"step-{step:08d}") for step in (5, 12))
    assert last is not None
    resumed = ended(fifth)
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name


def test_among_all_matrices_the_smaller_ones_go(pretrained) -> None:
    encoder = pretrained().model.encoder
    names = matrices_of(encoder, PARTS)
    weights = {n: p.detach() * (1 + k) for k, (n, p) in enumerate(encoder.named_parameters())}
    for among in ("matrix", "all"):
        changes = Pruned.choose({"kind": "magnitude", "kept": 0.3, "among": among}).changes(encoder)
        found = changes(weights)
        left = torch.cat([(found[n] != 0).flatten() for n in names])
        assert left.double().mean().item() == pytest.approx(0.3, abs=1e-2)
        kept = torch.cat([found[n][found[n] != 0].abs() for n in names]).min()
        gone = torch.cat([weights[n][found[n] == 0].abs() for n in names]).max()
        assert (kept >= gone) == (among == "all")


def test_what_cannot_be_pruned_is_said(pretrained) -> None:
    with pytest.raises(UserError, match="has no matrices: choose another"):
        finetune(
            pretrained("elmo"),
            CLASSES,
            train=classes(),
            dev=classes(),
            adaptation={"kind": "movement", "kept": 0.5, "sublayers": ["feed_forward"]},
            **QUICK,
        )
    assert MovementPruning(kept=0.5).usual_rate(pretrained().model.recipe) > 0


@pytest.mark.parametrize("kind", ["magnitude", "movement"])
@pytest.mark.parametrize("kept", [0.0, 1e-4, {"kind": "linear", "from": 1.0, "to": -0.5}])
def test_a_share_that_leaves_nothing_is_refused_before_anything_is_learned(
    pretrained, monkeypatch: pytest.MonkeyPatch, kind: str, kept
) -> None:
    monkeypatch.setattr(task_training, "train", None)
    with pytest.raises(UserError, match=r"adaptation\.kept: .* leaves none of the \d+ weights"):
        pruned(pretrained, adaptation={"kind": kind, "kept": kept})
