"""Fine-tuning: tasks are memorised, and runs are reproducible."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from bertwright.core.errors import UserError
from bertwright.encoder.encoder import Encoder
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.evaluator import Evaluator
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress
from bertwright.training.loop import EvaluationResult
from full_suite import full_except
from small_tasks import classes, numbers, pairs, tagged
from toy_recipes import SYSTEMS, TYPICAL_SYSTEMS, every_encoder, published

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number", ("negative-mean-squared-error", "spearman"))
TAGS = tagging_task("colours")

MEMORISE = {"learning_rate": 3e-3, "dropout": 0.0, "weight_decay": 0.0, "compile": False}


def learned(model, task, examples, **settings) -> FineTuningResult:
    merged = {**MEMORISE, "batch_size": 8, "epochs": 8, **settings}
    return finetune(model, task, train=examples, dev=examples, **merged)


class AllCorrect(Exception):
    """An epoch after which every prediction is correct."""


class StopWhenAllCorrect(Callback):
    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        if min(metrics.values()) == 1.0:
            raise AllCorrect


def assert_memorised(model, task, examples, **settings) -> None:
    with pytest.raises(AllCorrect):
        learned(model, task, examples, make_reporter=lambda *_: [StopWhenAllCorrect()], **settings)


@every_encoder
@pytest.mark.parametrize("precision", ["float32", pytest.param("bf16", marks=pytest.mark.full)])
def test_classes_are_memorised(pretrained, system: str, precision: str) -> None:
    model = pretrained(system)
    assert_memorised(model, CLASSES, classes(), precision=precision, epochs=16)


def test_classes_may_be_numbers(pretrained) -> None:
    names = sorted({example.label for example in classes()})
    numbered = [replace(e, label=names.index(e.label)) for e in classes()]
    result = learned(pretrained("bert"), CLASSES, numbered, epochs=1)
    assert result.model.task.labels == tuple(map(str, range(len(names))))
    assert {p.value for p in result.best.predictions[0]} <= set(result.model.task.labels)


@pytest.mark.parametrize("system", full_except(SYSTEMS, TYPICAL_SYSTEMS))
def test_tags_are_memorised(pretrained, system: str) -> None:
    model = pretrained(system)
    # Bounded hidden states and small word vectors need larger weights.
    encoder = model.model.recipe.encoder
    needs_large_weights = encoder.mixer.is_recurrent or not encoder.is_contextual
    rate = 2e-2 if needs_large_weights else MEMORISE["learning_rate"]
    assert_memorised(model, TAGS, tagged(), epochs=16, learning_rate=rate)


# The mean of word vectors does not tell the first text of a pair from the second.
@pytest.mark.parametrize(
    "system",
    full_except((s for s in SYSTEMS if published(s).encoder.is_contextual), TYPICAL_SYSTEMS),
)
def test_pairs_are_memorised(pretrained, system: str) -> None:
    assert_memorised(pretrained(system), CLASSES, pairs(), epochs=50)


def test_numbers_are_memorised_at_any_scale(pretrained) -> None:
    result = learned(pretrained("bert"), NUMBERS, numbers(), epochs=40)
    assert result.scores[0] > -9.0
    assert result.best.report.scores["colours"]["spearman"] > 0.9
    answers = [p.value for p in result.model.predict(numbers())]
    assert all(abs(a - e.label) < 10 for a, e in zip(answers, numbers(), strict=True))


def test_run_is_reproducible(pretrained) -> None:
    def run(seed: int) -> list[torch.Tensor]:
        settings = {"epochs": 2, "dropout": 0.1, "batch_size": 12, "seed": seed}
        return list(
            learned(pretrained(), CLASSES, classes(), **settings).model.task_model.parameters()
        )

    first, again, other = run(0), run(0), run(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_seed_does_not_depend_on_the_seeds_before_it(pretrained) -> None:
    settings = {"epochs": 1, "batch_size": 12}
    both = learned(pretrained(), CLASSES, classes(), seeds=2, **settings)
    second = learned(pretrained(), CLASSES, classes(), seed=1, **settings)
    assert both.seed_reports[1] == second.seed_reports[0]


def test_micro_batches_change_only_rounding(pretrained, monkeypatch) -> None:
    settings = {"epochs": 1, "dropout": 0.1, "precision": "float32"}
    whole = learned(pretrained(), TAGS, tagged(), **settings)
    monkeypatch.setattr("bertwright.tasks.finetuning.batching.batches.MICRO_BATCH_POSITIONS", 32)
    parts = learned(pretrained(), TAGS, tagged(), **settings)
    for a, b in zip(
        whole.model.task_model.parameters(), parts.model.task_model.parameters(), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-4)


def test_compiled_run_matches_eager_with_one_graph_for_all_shapes(pretrained, monkeypatch) -> None:
    # Traced as usual, but run eagerly: generating code takes most of the time.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    settings = {"epochs": 1, "batch_size": 6, "precision": "float32", "dropout": 0.1}
    long = [Example(f"{e.text} {e.text}", label=e.label) for e in classes()[::2]]
    examples = [*classes(), *long, Example("red", label="old")]
    eager = learned(pretrained(), CLASSES, examples, **settings)
    torch.compiler.reset()
    counters.clear()
    compiled = learned(pretrained(), CLASSES, examples, **{**settings, "compile": True})
    for a, b in zip(
        eager.model.task_model.parameters(), compiled.model.task_model.parameters(), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-4)
    assert counters["stats"]["unique_graphs"] <= 6


def test_compiler_error_falls_back_to_eager(pretrained, monkeypatch) -> None:
    failure = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})

    def fail(*_: object) -> None:
        raise failure

    def compile_parts(encoder: Encoder, **_: object) -> None:
        encoder.blocks[0].register_full_backward_pre_hook(fail)

    monkeypatch.setattr(Encoder, "compile_parts", compile_parts)
    eager, compiled = (
        learned(pretrained(), CLASSES, classes(), epochs=1, compile=merged)
        for merged in (False, True)
    )
    assert eager.scores == compiled.scores


def test_gradual_unfreezing_trains_one_level_more_in_each_epoch(pretrained, monkeypatch) -> None:
    """Train the head, then the last block too, and in the last epoch everything."""
    model = pretrained()
    before = {n: p.clone() for n, p in model.model.encoder.named_parameters()}
    changed: list[set[int | str]] = []
    evaluate = Evaluator.evaluate

    def spy(evaluator: Evaluator, progress: Progress) -> EvaluationResult:
        state = evaluator.run.full_state(evaluator.parameters)
        moved = [n for n in before if not torch.equal(state[f"encoder.{n}"], before[n])]
        changed.append({int(n.split(".")[1]) if "blocks" in n else n.split(".")[0] for n in moved})
        return evaluate(evaluator, progress)

    monkeypatch.setattr(Evaluator, "evaluate", spy)
    settings = {"epochs": 3, "adaptation": {"kind": "gradual", "layer_decay": 0.8}}
    learned(model, CLASSES, classes(), **settings)
    assert changed[0] <= {"norm"}
    assert changed[1] <= {1, "norm"}
    assert changed[2] >= {0, 1, "embeddings"}


def test_gradual_unfreezing_with_layer_decay_learns(pretrained) -> None:
    settings = {"epochs": 24, "adaptation": {"kind": "gradual", "layer_decay": 0.8}}
    assert_memorised(pretrained(), CLASSES, classes(), **settings)


def test_layer_decay_is_refused_for_shared_blocks(pretrained) -> None:
    with pytest.raises(UserError, match="share parameters"):
        learned(
            pretrained("albert"),
            CLASSES,
            classes(),
            adaptation={"kind": "full", "layer_decay": 0.5},
        )


def test_source_model_is_not_changed(pretrained) -> None:
    model = pretrained()
    before = [p.clone() for p in model.model.parameters()]
    learned(model, CLASSES, classes(), epochs=1)
    assert all(torch.equal(a, b) for a, b in zip(before, model.model.parameters(), strict=True))


def test_folder_contains_the_scored_model(pretrained, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    result = learned(pretrained(), CLASSES, classes(), epochs=2, seeds=2, output=out)
    lines = (out / "predictions.jsonl").read_text().splitlines()
    written = [json.loads(line) for line in lines]
    assert [line["reference"] for line in written] == [e.label for e in classes()]
    model = load_fine_tuned_model(out)
    assert [p.value for p in model.predict(classes())] == [line["prediction"] for line in written]
    score = evaluate(model, classes())
    assert score["score"] == max(result.scores)
    assert set(score) == {"task", "metric", "score", "metrics"}
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(e["seed"], e["epoch"]) for e in epochs] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    with pytest.raises(UserError, match="already exists"):
        learned(pretrained(), CLASSES, classes(), output=out)


def test_json_output(pretrained) -> None:
    one = learned(pretrained(), CLASSES, classes(), epochs=1).as_dict()
    two = learned(pretrained(), CLASSES, classes(), epochs=1, seeds=2).as_dict()
    assert {"task", "metric", "scores", "mean", "interval"} <= set(one)
    assert (one["task"], one["metric"], one["interval"]) == ("colours", "accuracy", None)
    low, high = two["interval"]
    assert low <= two["mean"] <= high
    assert math.isclose(two["mean"], sum(two["scores"]) / 2)
    assert json.loads(json.dumps(two)) == two


def test_without_a_development_split_a_tenth_is_held_out(pretrained) -> None:
    examples = classes()
    result = finetune(pretrained(), CLASSES, train=examples, epochs=1, **MEMORISE)
    assert len(result.best.predictions[0]) == round(len(examples) / 10)


def test_overlap_of_splits_is_reported(pretrained) -> None:
    train, dev = classes()[:9], [replace(e, label="new") for e in classes()[6:12]]
    result = finetune(pretrained(), CLASSES, train=train, dev=dev, epochs=0)
    assert result.run.encoded_tasks[0].overlapping_examples == [0, 1, 2]
    assert result.as_dict()["overlapping_examples"] == {"colours": 3}


def test_the_best_epoch_is_kept(pretrained, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    result = learned(pretrained(), CLASSES, classes(), epochs=4, learning_rate=2e-2, output=out)
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    scores = [epoch["accuracy"] for epoch in epochs]
    assert result.scores == [max(scores)]
    assert result.best.report.epoch == 1 + scores.index(max(scores))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epoch": 2}, "finetune: has no key 'epoch': did you mean 'epochs'"),
        ({"seeds": 0}, "finetune: seeds: must be 1 or more, not 0"),
        ({"epochs": -1}, "finetune: epochs: must be 0 or more, not -1"),
        ({"max_length": 1000}, "max_length 1000: this encoder takes at most 512 tokens"),
    ],
)
def test_invalid_setting_is_reported(pretrained, settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        finetune(pretrained(), CLASSES, train=classes(), **settings)


def test_a_loss_that_is_not_finite_stops_with_a_remedy(pretrained, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not finite at step .* lower learning_rate"):
        learned(pretrained(), CLASSES, classes(), learning_rate=1e30, output=tmp_path / "tuned")
    assert [file.suffix for file in tmp_path.iterdir()] == [".safetensors"]


def test_invalid_examples_are_reported(pretrained, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task 'colla': did you mean 'cola'"):
        finetune(pretrained(), "colla", train=classes())
    with pytest.raises(UserError, match="only the label 'old'"):
        finetune(pretrained(), CLASSES, train=[Example("a", label="old")] * 4)
    with pytest.raises(UserError, match="the development split has an example without a label"):
        finetune(pretrained(), CLASSES, train=classes(), dev=[Example("a")])
    with pytest.raises(UserError, match="the training split has an example without a label"):
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
    with pytest.raises(UserError, match=r"same\.tsv is the training file"):
        finetune(pretrained(), CLASSES, train=same, dev=tmp_path / "." / "same.tsv")
