"""scikit-learn estimators: scikit-learn's own checks, fine-tuning, pickling, pairs."""

import pickle
import pickletools
import warnings
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

from bertwright.sklearn import EncoderClassifier, EncoderRegressor, EncoderVectorizer, TokenTagger
from bertwright.tasks.data.splits import hold_out
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.outputs import ClassificationOutput
from bertwright.tasks.task import Task
from small_encoders import Pretrained
from small_tasks import TEXTS, classes, numbers, pairs, tagged

LABELS = [example.label for example in classes()]

ROUNDING = "float32 rounds a text's states differently in another batch, by more than 1e-7"
EXPECTED_FAILURES = {
    "check_methods_sample_order_invariance": ROUNDING,
    "check_methods_subset_invariance": ROUNDING,
}
STEPS: dict[str, Any] = {
    "adaptation": {"kind": "frozen", "solver": "adamw"},
    "precision": "float32",
}


@pytest.fixture
def small_recipe(tmp_path: Path) -> str:
    file = tmp_path / "small.yaml"
    file.write_text("extends: bert\nencoder: {width: 64, depth: {layers: 1}}\n", encoding="utf-8")
    return str(file)


@pytest.fixture
def folder(tmp_path: Path, pretrained: Pretrained) -> Path:
    pretrained().save(tmp_path / "encoder")
    return tmp_path / "encoder"


def run_checks(estimator: BaseEstimator) -> None:
    """Run the checks of scikit-learn; only those of EXPECTED_FAILURES may fail."""
    with warnings.catch_warnings():
        # A check of invalid numbers casts them to integers.
        warnings.filterwarnings("ignore", "invalid value encountered in cast", RuntimeWarning)
        results = check_estimator(
            estimator, expected_failed_checks=EXPECTED_FAILURES, on_skip=None, on_fail="raise"
        )
    assert len(results) > 40


@pytest.mark.full
def test_the_classifier_passes_the_checks_of_scikit_learn(small_recipe: str) -> None:
    run_checks(
        EncoderClassifier(small_recipe, epochs=2, batch_size=64, learning_rate=0.05, **STEPS)
    )


def test_the_vectorizer_passes_the_checks_of_scikit_learn(small_recipe: str) -> None:
    run_checks(EncoderVectorizer(small_recipe, precision="float32"))


@pytest.mark.full
def test_the_regressor_passes_the_checks_of_scikit_learn() -> None:
    run_checks(EncoderRegressor(epochs=4, batch_size=8, learning_rate=0.02, dropout=0.0, **STEPS))


def test_the_tagger_passes_the_checks_that_need_no_table() -> None:
    tagger = TokenTagger()
    with pytest.warns(SkipTestWarning, match="one_d_array=True, two_d_array=False"):
        check_estimator(tagger)  # that it can be cloned: all others are of tables
    for check in (
        estimator_checks.check_valid_tag_types,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_mixin_order,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
    ):
        check("TokenTagger", tagger)
    with pytest.raises(NotFittedError):
        tagger.predict(["a b"])


def test_an_estimator_fine_tunes_as_finetune_does(folder: Path, pretrained: Pretrained) -> None:
    settings: dict[str, Any] = {"adaptation": "full", "epochs": 1, "learning_rate": 0.01}
    estimator = EncoderClassifier(folder, random_state=3, precision="float32", **settings)
    probabilities = estimator.fit(TEXTS, LABELS).predict_proba(TEXTS)

    task = Task("texts", ClassificationOutput(), labels=("new", "old"))
    train, dev = hold_out(task, classes())
    model = finetune(pretrained(), task, train=train, dev=dev, seed=3, **settings).model
    expected = np.array([[*p.probabilities.values()] for p in model.predict(TEXTS)])
    assert probabilities == pytest.approx(expected, abs=1e-2)
    assert estimator.classes_.tolist() == ["new", "old"]
    assert (estimator.predict(TEXTS) == estimator.classes_[probabilities.argmax(1)]).all()


def test_predictions_do_not_depend_on_the_other_texts(folder: Path) -> None:
    vectorizer = EncoderVectorizer(folder, precision="float32").fit(TEXTS)
    vectors = vectorizer.transform(TEXTS)
    alone = np.concatenate([vectorizer.transform([text]) for text in TEXTS])
    assert vectors == pytest.approx(alone, abs=1e-5)
    assert vectorizer.transform(TEXTS[::-1])[::-1] == pytest.approx(vectors, abs=1e-5)


@pytest.mark.parametrize(
    ("estimator", "texts", "targets"),
    [
        (EncoderVectorizer(), TEXTS, None),
        (EncoderClassifier(epochs=1), TEXTS, LABELS),
        (EncoderRegressor(epochs=1), TEXTS, [example.label for example in numbers()]),
        (TokenTagger(epochs=1), TEXTS, [example.tags for example in tagged()]),
    ],
    ids=["vectorizer", "classifier", "regressor", "tagger"],
)
def test_a_pickle_needs_no_folder_and_no_pickle_of_pytorch(
    folder: Path, estimator: Any, texts: list[str], targets: Any
) -> None:
    fitted = clone(estimator).set_params(model=folder, random_state=0).fit(texts, targets)
    method = "transform" if targets is None else "predict"
    expected = getattr(fitted, method)(texts)
    content = pickle.dumps(fitted)
    rmtree(folder)
    loaded = pickle.loads(content)
    assert all(map(np.array_equal, getattr(loaded, method)(texts), expected))
    names = [argument for _, argument, _ in pickletools.genops(content) if argument]
    assert not any(isinstance(name, str) and name.startswith("torch") for name in names)


def test_two_columns_are_a_pair_whose_order_matters(folder: Path) -> None:
    table = pd.DataFrame({"a": [e.text for e in pairs()], "b": [e.pair for e in pairs()]})
    labels = [example.label for example in pairs()]
    estimator = EncoderClassifier(folder, epochs=1, random_state=0, precision="float32")
    estimator.fit(table, labels)
    expected = estimator.model_.predict(list(zip(table["a"], table["b"], strict=True)))
    probabilities = np.array([[*p.probabilities.values()] for p in expected])
    assert estimator.predict_proba(table) == pytest.approx(probabilities, abs=1e-6)
    assert estimator.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(table[["b", "a"]])


def test_estimators_work_in_pipelines_and_searches(folder: Path) -> None:
    vectorizer = EncoderVectorizer(folder).set_output(transform="pandas")
    pipeline = make_pipeline(vectorizer, LogisticRegression())
    grid = {"encodervectorizer__pooling": ["mean", "cls"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(TEXTS, LABELS)
    names = search.best_estimator_[0].transform(TEXTS[:1]).columns
    assert names[1] == "encodervectorizer1"
    assert search.best_score_ > 0.8

    tagger = TokenTagger(folder, epochs=1, learning_rate=0.05)
    sentences = [list(example.words) for example in tagged()]
    scores = cross_val_score(tagger, sentences, [list(e.tags or ()) for e in tagged()], cv=2)
    assert len(scores) == 2


@pytest.mark.full
def test_a_search_runs_in_several_processes(folder: Path) -> None:
    grid = {"head": [{"pooling": "mean"}, {"pooling": "first"}]}
    estimator = EncoderClassifier(folder, epochs=1, random_state=0)
    scores = [
        GridSearchCV(estimator, grid, cv=2, n_jobs=jobs).fit(TEXTS, LABELS).cv_results_
        for jobs in (1, 2)
    ]
    assert scores[0]["mean_test_score"].tolist() == scores[1]["mean_test_score"].tolist()


def test_probabilities_of_tags_sum_to_one_for_every_word(folder: Path) -> None:
    tagger = TokenTagger(folder, epochs=1).fit(TEXTS, [example.tags for example in tagged()])
    for text, probabilities, tags in zip(
        TEXTS, tagger.predict_proba(TEXTS), tagger.predict(TEXTS), strict=True
    ):
        assert probabilities.shape == (len(text.split()), len(tagger.classes_))
        assert probabilities.sum(1) == pytest.approx(1.0, abs=1e-5)
        assert tags == tagger.classes_[probabilities.argmax(1)].tolist()


def test_long_texts_are_read_in_windows_or_a_warning_counts_them(folder: Path) -> None:
    texts, labels = [f"{' the' * 30} {text}" for text in TEXTS], [e.label for e in classes()]
    options = {"max_length": 16, "epochs": 0, "validation_fraction": 0.0, "adaptation": "full"}
    with pytest.warns(UserWarning, match=f"truncated {len(texts)} training texts to 16 tokens"):
        EncoderClassifier(folder, **options).fit(texts, labels)
    windowed = EncoderClassifier(folder, stride=6, **options).fit(texts, labels)
    predictions = windowed.model_.predict(texts[:3])
    expected = [[*p.probabilities.values()] for p in predictions]
    np.testing.assert_allclose(windowed.predict_proba(texts[:3]), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "labels", "problem"),
    [
        ("a text", ["a"], "X is one string"),
        (["a", None], ["a", "b"], "missing|NaN|None"),
        (["a", "b"], ["a", "a"], "at least two classes"),
        (["a", "b", "c"], ["a", "b"], "inconsistent numbers of samples"),
        (np.arange(3), ["a", "b", "a"], "Reshape your data"),
    ],
)
def test_invalid_inputs_are_explained(texts: Any, labels: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        EncoderClassifier().fit(texts, labels)
    for fraction in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"validation_fraction is .*: give a number from 0"):
            EncoderClassifier(validation_fraction=fraction).fit(["a", "b"], ["a", "b"])
    with pytest.raises(ValueError, match="1 tag for 2 words"):
        TokenTagger().fit(["a b"], [["x"]])
