"""Fine-tuning: tasks are learned by heart, and the same run twice is the same."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from bertwright.encoder.encoder import Encoder
from bertwright.errors import UserError
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import load_fine_tuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.judging import Judge
from bertwright.training.clock import Place
from bertwright.training.loop import Evaluation
from bertwright.training.reporting import Reporter
from recipes_at_toy_size import SYSTEMS
from small_tasks import classes, numbers, pairs, tagged

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number", ("negative-mean-squared-error", "spearman"))
TAGS = tagging_task("colours")

BY_HEART = {"rate": 3e-3, "dropout": 0.0, "decay": 0.0, "compile": False}


def learned(model, task, examples, **settings) -> FineTuneResult:
    chosen = {**BY_HEART, "batch": 8, "epochs": 8, **settings}
    return finetune(model, task, train=examples, dev=examples, **chosen)


class AllRight(Exception):
    """An epoch after which every answer is right."""


class StopsWhenAllRight(Reporter):
    def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
        if min(figures.values()) == 1.0:
            raise AllRight


def assert_learned_by_heart(model, task, examples, **settings) -> None:
    with pytest.raises(AllRight):
        learned(model, task, examples, watch=lambda *_: StopsWhenAllRight(), **settings)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_classes_are_learned_by_heart(pretrained, system: str, precision: str) -> None:
    model = pretrained(system)
    assert_learned_by_heart(model, CLASSES, classes(), precision=precision, epochs=16)


def test_classes_may_be_numbers(pretrained) -> None:
    names = sorted({example.label for example in classes()})
    numbered = [replace(e, label=names.index(e.label)) for e in classes()]
    found = learned(pretrained("bert"), CLASSES, numbered, epochs=1)
    assert found.model.task.labels == tuple(map(str, range(len(names))))
    assert {p.answer for p in found.best.predictions[0]} <= set(found.model.task.labels)


@pytest.mark.parametrize("system", SYSTEMS)
def test_tags_are_learned_by_heart(pretrained, system: str) -> None:
    model = pretrained(system)
    # States that are bounded need larger weights to say the same.
    rate = 2e-2 if model.model.recipe.encoder.mixer.recurrent else BY_HEART["rate"]
    assert_learned_by_heart(model, TAGS, tagged(), epochs=16, rate=rate)


@pytest.mark.parametrize("system", SYSTEMS)
def test_pairs_are_learned_by_heart(pretrained, system: str) -> None:
    assert_learned_by_heart(pretrained(system), CLASSES, pairs(), epochs=50)


def test_numbers_are_learned_by_heart_whatever_their_scale(pretrained) -> None:
    found = learned(pretrained("bert"), NUMBERS, numbers(), epochs=40)
    assert found.scores[0] > -9.0
    assert found.best.report.scores["colours"]["spearman"] > 0.9
    answers = [p.answer for p in found.model.predict(numbers())]
    assert all(abs(a - e.label) < 10 for a, e in zip(answers, numbers(), strict=True))


def test_the_same_run_twice_is_the_same(pretrained) -> None:
    def run(seed: int) -> list[torch.Tensor]:
        settings = {"epochs": 2, "dropout": 0.1, "batch": 12, "seed": seed}
        return list(learned(pretrained(), CLASSES, classes(), **settings).model.net.parameters())

    first, again, other = run(0), run(0), run(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_seed_does_not_depend_on_the_seeds_before_it(pretrained) -> None:
    settings = {"epochs": 1, "batch": 12}
    both = learned(pretrained(), CLASSES, classes(), seeds=2, **settings)
    second = learned(pretrained(), CLASSES, classes(), seed=1, **settings)
    assert both.runs[1] == second.runs[0]


def test_parts_of_a_step_change_nothing_but_rounding(pretrained, monkeypatch) -> None:
    settings = {"epochs": 1, "dropout": 0.1, "precision": "float32"}
    whole = learned(pretrained(), TAGS, tagged(), **settings)
    monkeypatch.setattr("bertwright.tasks.task_batches.MICRO_BATCH_PLACES", 32)
    parts = learned(pretrained(), TAGS, tagged(), **settings)
    for a, b in zip(whole.model.net.parameters(), parts.model.net.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_a_compiled_run_is_the_run_with_one_graph_for_all_shapes(pretrained, monkeypatch) -> None:
    # Traced as ever, but computed as it stands: generating code takes most of the time.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    settings = {"epochs": 1, "batch": 6, "precision": "float32", "dropout": 0.1}
    long = [Example(f"{e.first} {e.first}", label=e.label) for e in classes()[::2]]
    examples = [*classes(), *long, Example("red", label="old")]
    eager = learned(pretrained(), CLASSES, examples, **settings)
    torch.compiler.reset()
    counters.clear()
    compiled = learned(pretrained(), CLASSES, examples, **{**settings, "compile": True})
    for a, b in zip(eager.model.net.parameters(), compiled.model.net.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    assert counters["stats"]["unique_graphs"] <= 6


def test_what_the_compiler_cannot_do_is_trained_without_it(pretrained, monkeypatch) -> None:
    failure = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})

    def fail(*_: object) -> None:
        raise failure

    def compile_parts(encoder: Encoder, **_: object) -> None:
        encoder.blocks[0].register_full_backward_pre_hook(fail)

    monkeypatch.setattr(Encoder, "compile_parts", compile_parts)
    eager, compiled = (
        learned(pretrained(), CLASSES, classes(), epochs=1, compile=chosen)
        for chosen in (False, True)
    )
    assert eager.scores == compiled.scores


def test_gradual_unfreezing_trains_one_level_more_in_each_epoch(pretrained, monkeypatch) -> None:
    """The head alone, the last block too, and in the last epoch everything."""
    model = pretrained()
    before = {n: p.clone() for n, p in model.model.encoder.named_parameters()}
    changed: list[set[int | str]] = []
    evaluate = Judge.evaluate

    def judged(judge: Judge, place: Place) -> Evaluation:
        state = judge.training.state(judge.parameters)
        moved = [n for n in before if not torch.equal(state[f"encoder.{n}"], before[n])]
        changed.append({int(n.split(".")[1]) if "blocks" in n else n.split(".")[0] for n in moved})
        return evaluate(judge, place)

    monkeypatch.setattr(Judge, "evaluate", judged)
    settings = {"epochs": 3, "adaptation": {"kind": "gradual", "layer_decay": 0.8}}
    learned(model, CLASSES, classes(), **settings)
    assert changed[0] <= {"norm"}
    assert changed[1] <= {1, "norm"}
    assert changed[2] >= {0, 1, "embeddings"}


def test_discriminative_rates_and_gradual_unfreezing_learn_by_heart(pretrained) -> None:
    settings = {"epochs": 24, "adaptation": {"kind": "gradual", "layer_decay": 0.8}}
    assert_learned_by_heart(pretrained(), CLASSES, classes(), **settings)


def test_shared_blocks_have_no_rates_of_their_own(pretrained) -> None:
    with pytest.raises(UserError, match="share their parameters"):
        learned(
            pretrained("albert"),
            CLASSES,
            classes(),
            adaptation={"kind": "full", "layer_decay": 0.5},
        )


def test_the_given_model_stays_as_it_is(pretrained) -> None:
    model = pretrained()
    before = [p.clone() for p in model.model.parameters()]
    learned(model, CLASSES, classes(), epochs=1)
    assert all(torch.equal(a, b) for a, b in zip(before, model.model.parameters(), strict=True))


def test_the_folder_holds_the_model_that_was_scored(pretrained, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    found = learned(pretrained(), CLASSES, classes(), epochs=2, seeds=2, out=out)
    lines = (out / "predictions.jsonl").read_text().splitlines()
    written = [json.loads(line) for line in lines]
    assert [line["reference"] for line in written] == [e.label for e in classes()]
    model = load_fine_tuned(out)
    assert [p.answer for p in model.predict(classes())] == [line["prediction"] for line in written]
    score = evaluate(model, classes())
    assert score["score"] == max(found.scores)
    assert set(score) == {"task", "metric", "score", "metrics"}
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(e["seed"], e["epoch"]) for e in epochs] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    with pytest.raises(UserError, match="already exists"):
        learned(pretrained(), CLASSES, classes(), out=out)


def test_what_is_printed_can_be_relied_upon(pretrained) -> None:
    one = learned(pretrained(), CLASSES, classes(), epochs=1).as_dict()
    two = learned(pretrained(), CLASSES, classes(), epochs=1, seeds=2).as_dict()
    assert {"task", "metric", "scores", "mean", "interval"} <= set(one)
    assert (one["task"], one["metric"], one["interval"]) == ("colours", "accuracy", None)
    low, high = two["interval"]
    assert low <= two["mean"] <= high
    assert math.isclose(two["mean"], sum(two["scores"]) / 2)
    assert json.loads(json.dumps(two)) == two


def test_without_a_development_part_a_tenth_is_held_out(pretrained) -> None:
    examples = classes()
    found = finetune(pretrained(), CLASSES, train=examples, epochs=1, **BY_HEART)
    assert len(found.best.predictions[0]) == round(len(examples) / 10)


def test_who_judges_by_what_was_learned_is_told(pretrained) -> None:
    learned, judging = classes()[:9], [replace(e, label="new") for e in classes()[6:12]]
    found = finetune(pretrained(), CLASSES, train=learned, dev=judging, epochs=0)
    assert found.training.parts[0].seen == [0, 1, 2]
    assert found.as_dict()["seen_examples"] == {"colours": 3}


def test_the_best_epoch_is_kept(pretrained, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    found = learned(pretrained(), CLASSES, classes(), epochs=4, rate=2e-2, out=out)
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    scores = [epoch["accuracy"] for epoch in epochs]
    assert found.scores == [max(scores)]
    assert found.best.report.epoch == 1 + scores.index(max(scores))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": 2}, "finetune: has no key 'epoch': did you mean 'epochs'"),
        ({"seeds": 0}, "finetune: seeds: must be 1 or more, not 0"),
        ({"epochs": -1}, "finetune: epochs: must be 0 or more, not -1"),
        ({"length": 1000}, "length 1000: this encoder takes 512 pieces at most"),
    ],
)
def test_a_wrong_setting_is_named(pretrained, settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        finetune(pretrained(), CLASSES, train=classes(), **settings)


def test_a_loss_that_is_not_finite_stops_with_a_remedy(pretrained, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not finite at step .* lower the rate"):
        learned(pretrained(), CLASSES, classes(), rate=1e30, out=tmp_path / "tuned")
    assert [file.suffix for file in tmp_path.iterdir()] == [".safetensors"]


def test_wrong_examples_are_named(pretrained, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task 'colla': did you mean 'cola'"):
        finetune(pretrained(), "colla", train=classes())
    with pytest.raises(UserError, match="only the label 'old'"):
        finetune(pretrained(), CLASSES, train=[Example("a", label="old")] * 4)
    with pytest.raises(UserError, match="the development part has an example without a label"):
        finetune(pretrained(), CLASSES, train=classes(), dev=[Example("a")])
    with pytest.raises(UserError, match="the training part has an example without a label"):
        finetune(pretrained(), CLASSES, train=[*classes(), Example("a")])
    with pytest.raises(UserError, match="task cola has no label 'old'"):
        finetune(pretrained(), "cola", train=classes())
    with pytest.raises(UserError, match="give --data DIR, or --train FILE"):
        finetune(pretrained(), CLASSES)
    with pytest.raises(UserError, match="one example is not enough"):
        finetune(pretrained(), NUMBERS, train=[Example("a", label=1.0)])
    with pytest.raises(UserError, match="no such folder"):
        finetune(pretrained(), CLASSES, tmp_path / "missing")
    with pytest.raises(UserError, match=r"missing: there is no such file"):
        finetune(pretrained(), CLASSES, train=tmp_path / "missing")
    same = tmp_path / "same.tsv"
    same.write_text("text\tlabel\na\told\nb\tnew\n")
    with pytest.raises(UserError, match=r"same\.tsv is what is learned from"):
        finetune(pretrained(), CLASSES, train=same, dev=tmp_path / "." / "same.tsv")
