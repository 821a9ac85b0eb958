"""Sets, intervals and abstention of fine-tuned models: in Python and on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.tasks.conformal.calibration import labelled_scores
from bertwright.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import TaskExample
from bertwright.tasks.outputs import (
    ClassificationOutput,
    ClozeOutput,
    MultiLabelOutput,
    MultipleChoiceOutput,
    OutputType,
    RegressionOutput,
    TokenClassificationOutput,
)
from bertwright.tasks.task import Task
from commands import invoke, invoke_json
from small_encoders import Pretrained
from small_tasks import TEXTS, classes, numbers, options, several_labels, tagged

Examples = Callable[[], list[Any]]


def fine_tuned(pretrained: Pretrained, output_type: OutputType, examples: Any) -> FineTunedModel:
    task = Task("small", output_type)
    settings: dict[str, Any] = {"train": examples, "dev": examples, "epochs": 0}
    return finetune(pretrained(), task, calibrate=False, **settings).model


def is_covered(prediction: Any, reference: Any) -> float:
    if prediction.interval is not None:
        low, high = prediction.interval
        return float(low <= reference <= high)
    references = reference if isinstance(reference, tuple) else (reference,)
    return float(np.mean([r in s for r, s in zip(references, prediction.sets, strict=True)]))


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize(
    ("output_type", "examples"),
    [
        (ClassificationOutput(), classes),
        (RegressionOutput(), numbers),
        (TokenClassificationOutput(), tagged),
        (MultipleChoiceOutput(), options),
    ],
    ids=["class", "number", "tags", "options"],
)
def test_the_sets_of_the_calibration_examples_have_the_coverage_of_their_scores(
    pretrained: Pretrained, tmp_path: Path, output_type: OutputType, examples: Examples, method: Any
) -> None:
    data: list[TaskExample] = examples()
    model = fine_tuned(pretrained, output_type, data)
    scores = labelled_scores(model, data, method)
    model.conformal = scores.calibrate()
    model.save(tmp_path / "model")
    loaded = load_fine_tuned_model(tmp_path / "model", model.precision)
    assert loaded.conformal == model.conformal

    sizes: list[float] = []
    for coverage in (0.5, 0.8, 0.95):
        predictions = loaded.predict(data, coverage=coverage)
        covered = [
            is_covered(prediction, output_type.reference(example))
            for prediction, example in zip(predictions, data, strict=True)
        ]
        threshold = model.conformal.set_threshold(coverage)
        assert np.mean(covered) == pytest.approx(scores.coverage(threshold), abs=1e-6)
        assert np.mean(covered) >= coverage
        sizes.append(scores.mean_size(threshold))
        if method == "aps" and predictions[0].sets is not None:
            assert all(decision for p in predictions for decision in p.sets or ())
    assert sizes == sorted(sizes)


def test_withheld_predictions_are_the_least_confident(pretrained: Pretrained) -> None:
    data = classes()
    task = Task("small", ClassificationOutput())
    settings: dict[str, Any] = {"adaptation": "frozen", "epochs": 1}
    model = finetune(pretrained(), task, train=data, dev=data, **settings).model
    model.conformal = labelled_scores(model, data).calibrate()
    predictions = model.predict(TEXTS, max_risk=0.3)
    confidences = [max(p.probabilities.values()) for p in predictions]  # type: ignore[union-attr]
    withheld = [c for c, p in zip(confidences, predictions, strict=True) if p.abstains]
    kept = [c for c, p in zip(confidences, predictions, strict=True) if not p.abstains]
    assert kept
    assert max(withheld, default=0.0) < min(kept)
    assert model.predict(TEXTS)[0].abstains is None


def test_a_cloze_abstains(pretrained: Pretrained) -> None:
    words = {"old": "old", "new": "new"}
    model = fine_tuned(pretrained, ClozeOutput(words=words), classes())
    model.conformal = labelled_scores(model, classes()).calibrate()
    predictions = model.predict(TEXTS, max_risk=0.5)
    assert all(p.abstains is not None for p in predictions)


def test_what_is_not_guaranteed_is_refused(pretrained: Pretrained) -> None:
    data = classes()
    model = fine_tuned(pretrained, ClassificationOutput(), data)
    with pytest.raises(UserError, match="run bertwright calibrate"):
        model.predict(TEXTS, coverage=0.9)
    model.conformal = labelled_scores(model, data).calibrate()
    with pytest.raises(UserError, match="needs more examples than the 32 that"):
        model.predict(TEXTS, coverage=0.999)
    with pytest.raises(UserError, match=r"choose from 0\.001"):
        model.predict(TEXTS, coverage=90)
    with pytest.raises(UserError, match="no confidence of this model keeps the risk"):
        model.predict(TEXTS, max_risk=0.001)
    for number in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(UserError, match="choose from 0"):
            model.predict(TEXTS, coverage=number)
        with pytest.raises(UserError, match="choose a fraction from 0"):
            model.predict(TEXTS, max_risk=number)
    labels = fine_tuned(pretrained, MultiLabelOutput(), several_labels())
    with pytest.raises(UserError, match="sets are for classes, tags, options and numbers"):
        labelled_scores(labels, several_labels())
    with pytest.raises(UserError, match="sets are for classes, tags, options and numbers"):
        labels.predict(TEXTS, coverage=0.9)  # calibrate would refuse it, too
    tags = fine_tuned(pretrained, TokenClassificationOutput(), tagged())
    tags.conformal = labelled_scores(tags, tagged()).calibrate()
    with pytest.raises(UserError, match="one class or option per text"):
        tags.predict(TEXTS, max_risk=0.1)


def test_the_command_line_calibrates_and_predicts(pretrained: Pretrained, tmp_path: Path) -> None:
    from bertwright.tasks.catalogue import table_task
    from bertwright.tasks.formats.tables import Columns

    data = tmp_path / "labelled.jsonl"
    lines = [json.dumps({"text": e.text, "label": e.label}) + "\n" for e in classes()]
    data.write_text("".join(lines), encoding="utf-8")
    task = table_task("small", Columns("text", None, "label"), "class")
    settings: dict[str, Any] = {"train": data, "dev": classes(), "epochs": 0}
    finetune(pretrained(), task, output=tmp_path / "model", **settings)

    model, texts = str(tmp_path / "model"), str(data)
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match=r"has no task\.json, into which calibrate writes"):
        invoke_json("calibrate", str(tmp_path / "other"), "--data", texts)
    assert not any((tmp_path / "other").iterdir())
    summary = invoke_json("calibrate", model, "--data", texts)
    assert summary["examples"] == 32
    assert summary["mean_set_sizes"]["0.8"] <= summary["mean_set_sizes"]["0.95"] <= 2
    output = invoke("predict", model, texts, "--coverage", "0.9").stdout
    predictions = [json.loads(line) for line in output.splitlines()]
    assert len(predictions) == 32
    assert all({*p["set"]} <= {"old", "new"} for p in predictions)
    int8 = ("--precision", "int8")
    with pytest.raises(UserError, match=r"calibrate with this one \(--precision\)"):
        invoke("predict", model, texts, "--coverage", "0.9", *int8)
    invoke_json("calibrate", model, "--data", texts, *int8)
    assert invoke("predict", model, texts, "--coverage", "0.9", *int8).stdout
