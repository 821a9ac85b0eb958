"""Guarantees of a server: the sets, intervals and abstentions of ``predict``."""

from copy import copy
from typing import Any

import numpy as np
import pytest

from bertwright.tasks.conformal.calibration import labelled_scores
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example, TaggedSentence
from small_tasks import TEXTS, classes, numbers, tagged


@pytest.fixture
def calibrated(task_models: dict[str, FineTunedModel]) -> Any:
    """Return a function that calibrates a served model."""

    def calibrate(name: str, examples: list[Any]) -> FineTunedModel:
        model = copy(task_models[name])
        model.conformal = labelled_scores(model, examples).calibrate()
        return model

    return calibrate


def test_classes_have_the_sets_of_predict(serving: Any, calibrated: Any) -> None:
    model = calibrated("sentiment", classes())
    confidence = np.median([max(p.probabilities.values()) for p in model.predict(TEXTS)])
    confidences = (float(confidence),) * 500
    model.conformal = model.conformal.model_copy(update={"confidences": confidences})
    body = {"inputs": [[text] for text in TEXTS], "coverage": 0.8, "abstain_above": 0.3}
    results = serving({"sentiment": model}).post("/classify", json=body).json()
    predictions = model.predict([Example(text) for text in TEXTS], coverage=0.8, max_risk=0.3)
    assert {prediction.abstains for prediction in predictions} == {True, False}
    for result, prediction in zip(results, predictions, strict=True):
        assert result["prediction"] == prediction.value
        assert result["set"] == list(prediction.sets[0])
        assert result["abstains"] == prediction.abstains
        assert result["probabilities"] == pytest.approx(prediction.probabilities, abs=1e-4)


def test_numbers_have_the_intervals_of_predict(serving: Any, calibrated: Any) -> None:
    model = calibrated("number", numbers())
    client = serving({"number": model})
    result = client.post("/classify", json={"inputs": TEXTS[0], "coverage": 0.8}).json()
    (prediction,) = model.predict([Example(TEXTS[0])], coverage=0.8)
    assert result["interval"] == pytest.approx(prediction.interval, abs=1e-3)
    plain = client.post("/classify", json={"inputs": TEXTS[0]}).json()
    assert plain == {"prediction": pytest.approx(prediction.value, abs=1e-4)}


def test_words_have_the_sets_of_predict(serving: Any, calibrated: Any) -> None:
    model = calibrated("tagger", tagged())
    client = serving({"tagger": model})
    (words,) = client.post("/tag", json={"inputs": TEXTS[0], "coverage": 0.8}).json()
    (prediction,) = model.predict([TaggedSentence(tuple(TEXTS[0].split()))], coverage=0.8)
    assert [word["set"] for word in words] == [list(tags) for tags in prediction.sets]
    (plain,) = client.post("/tag", json={"inputs": TEXTS[0]}).json()
    assert all("set" not in word for word in plain)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"coverage": 0.8, "model": "plain"}, "calibrated by bertwright calibrate"),
        ({"coverage": 80}, "choose from 0"),
    ],
)
def test_what_is_not_guaranteed_is_refused(
    serving: Any, task_models: Any, calibrated: Any, body: dict[str, Any], message: str
) -> None:
    models = {"calibrated": calibrated("sentiment", classes()), "plain": task_models["sentiment"]}
    response = serving(models).post("/classify", json={"inputs": "red bird", **body})
    assert response.status_code == 400
    assert message in response.json()["error"]
