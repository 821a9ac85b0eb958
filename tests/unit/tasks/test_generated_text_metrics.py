"""BLEU and ROUGE are those of sacrebleu and rouge-score, also as sums that can be resampled."""

import numpy as np
import pytest
import sacrebleu
from rouge_score import rouge_scorer

from bertwright.tasks.evaluation.bootstrap import bootstrap_intervals
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.metrics.generated_text import TEXT_METRICS, ScoredText
from bertwright.tasks.outputs import Prediction, TextOutput
from bertwright.tasks.task import Task

REFERENCES = ["The cat sat on the mat, quietly.", "Two dogs are running in the snow.", "A man."]
TEXTS = ["The cat sat quietly on the mat.", "Two dogs run in the snow.", ""]


def test_bleu_is_sacrebleus_corpus_bleu() -> None:
    scored = [ScoredText(text) for text in TEXTS]
    expected = sacrebleu.corpus_bleu(TEXTS, [REFERENCES]).score
    assert TEXT_METRICS["bleu"](REFERENCES, scored) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["rouge-1", "rouge-2", "rouge-l"])
def test_rouge_is_the_mean_of_rouge_score(name: str) -> None:
    key = name.replace("-", "").replace("rougel", "rougeL")
    scorer = rouge_scorer.RougeScorer([key], use_stemmer=True)
    scores = [scorer.score(a, b)[key].fmeasure for a, b in zip(REFERENCES, TEXTS, strict=True)]
    scored = [ScoredText(text) for text in TEXTS]
    assert TEXT_METRICS[name](REFERENCES, scored) == pytest.approx(np.mean(scores))


def test_inverse_perplexity_weighs_tokens_and_is_0_if_unknown() -> None:
    metric = TEXT_METRICS["inverse-perplexity"]
    scored = [ScoredText("a", -6.0, 3), ScoredText("b", -1.0, 4)]
    assert metric(["", ""], scored) == pytest.approx(np.exp(-1.0))
    assert metric(["", ""], [ScoredText("a"), ScoredText("b")]) == 0.0


def test_every_metric_has_an_interval_around_its_score() -> None:
    task = Task("task", TextOutput(main_metric="rouge-l"), metrics=tuple(TEXT_METRICS))
    examples = [Example("x", label=reference) for reference in REFERENCES * 9]
    predictions = [Prediction(text, scored_text=ScoredText(text, -2.0, 5)) for text in TEXTS * 9]
    scores = task.score(examples, predictions)
    for name, interval in bootstrap_intervals(task, examples, predictions, scores).items():
        assert interval is not None, name
        assert interval[0] <= scores[name] <= interval[1]
